//! Owns the product's own program on a node: how it is started, and what it says of its health. Knows nothing of what it
//! does to packets.

use crate::manifests::Manifests;
use crate::node::Node;
use crate::parts;
use crate::process::Process;
use crate::wait;
use crate::{ApiServer, Response};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::process::Command;

/// How the program is to be run on a node; can be started any number of times.
#[derive(Debug, Clone)]
pub struct ProgramPlan {
    node: Node,
    wrapper: Vec<OsString>,
    args: Vec<OsString>,
    health_port: u16,
}

impl ProgramPlan {
    /// On this node, which it is told the name of, with pods told from others by the cluster's pod prefixes.
    pub fn on(node: &Node) -> Self {
        let this = Self { node: node.clone(), wrapper: Vec::new(), args: Vec::new(), health_port: 10256 };
        this.arg(format!("--hostname-override={}", node.name()))
            .arg("--cluster-cidr=10.244.0.0/16,fd00:10:244::/48")
            .ports(10256, 10249)
    }

    /// With a further argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// On a folder of manifests.
    #[must_use]
    pub fn manifests(self, manifests: &Manifests) -> Self {
        self.arg("--manifests").arg(manifests.path())
    }

    /// On an API server, which the node must be wired to.
    #[must_use]
    pub fn api(self, api: &ApiServer) -> Self {
        self.arg("--kubeconfig").arg(api.kubeconfig())
    }

    /// With its health and its metrics server on these ports of the loopback address, to have two programs on one node.
    #[must_use]
    pub fn ports(mut self, health: u16, metrics: u16) -> Self {
        self.health_port = health;
        self.arg(format!("--healthz-bind-address=127.0.0.1:{health}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
    }

    /// Run by another program, such as `setpriv --no-new-privs`.
    #[must_use]
    pub fn by(mut self, wrapper: &[&str]) -> Self {
        self.wrapper = wrapper.iter().map(OsString::from).collect();
        self
    }

    /// Starts it. It is killed when the value is dropped, and the rules stay.
    #[track_caller]
    pub fn start(&self) -> Program {
        let started = parts::proxier().and_then(|proxier| {
            let mut words = self.wrapper.iter().cloned().chain([proxier.into_os_string()]);
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words).arg("run").args(&self.args);
            self.node.spawn_process(command)
        });
        match started {
            Ok(process) => Program { process, node: self.node.clone(), health_port: self.health_port },
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts it, and waits until it is healthy.
    #[track_caller]
    pub fn start_healthy(&self) -> Program {
        let mut program = self.start();
        program.wait_until_healthy();
        program
    }
}

/// The running program.
#[derive(Debug)]
pub struct Program {
    process: Process,
    node: Node,
    health_port: u16,
}

impl Program {
    /// What `/healthz` says; `None` if nobody listens.
    pub fn healthz(&self) -> Option<Response> {
        self.node.get(SocketAddr::from((Ipv4Addr::LOCALHOST, self.health_port)), "/healthz").ok()
    }

    /// Waits until `/healthz` says 200: every family is in sync. Panics if the program ends before.
    #[track_caller]
    pub fn wait_until_healthy(&mut self) {
        wait::until("/healthz to be 200", wait::SOON, || {
            assert!(self.process.is_running(), "{} ended:\n{}", self.process.program(), self.process.log());
            match self.healthz() {
                Some(response) if response.status == 200 => Ok(()),
                Some(response) => Err(format!("{} {}", response.status, response.body)),
                None => Err("nobody listens".to_owned()),
            }
        });
    }
}

impl Deref for Program {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
