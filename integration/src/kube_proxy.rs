//! Owns the real kube-proxy in a namespace, to compare with. Knows nothing of what it should do.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use tempfile::TempDir;

use crate::api_server::ApiServer;
use crate::error::Error;
use crate::node::Node;
use crate::process::Process;
use crate::{parts, wait};

/// kube-proxy on a node; it is killed when the value is dropped, and its rules stay.
#[derive(Debug)]
pub struct KubeProxy {
    process: Process,
    _folder: TempDir,
}

impl KubeProxy {
    /// Starts it in nftables mode on a node that is wired to the API server, and waits until it is healthy. `settings` are
    /// further lines of its KubeProxyConfiguration.
    pub fn start(node: &Node, api: &ApiServer, settings: &str) -> Result<Self, Error> {
        Self::start_in_mode("nftables", node, api, settings)
    }

    /// The same in any of its modes; that of iptables needs `iptables` in the PATH.
    pub fn start_in_mode(mode: &str, node: &Node, api: &ApiServer, settings: &str) -> Result<Self, Error> {
        let folder = TempDir::with_prefix("lab-kube-proxy-")
            .map_err(|error| Error::os(node.name(), "a folder for kube-proxy", error))?;
        let config = folder.path().join("config.yaml");
        let text = format!(
            "\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {mode}
hostnameOverride: {}
clientConnection: {{kubeconfig: '{}'}}
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
conntrack: {{maxPerCore: 0}}
{settings}
",
            node.name(),
            api.kubeconfig().display()
        );
        fs::write(&config, text)
            .map_err(|error| Error::os(node.name(), "write kube-proxy's config", error))?;
        let mut command = Command::new(parts::find("kube-proxy")?);
        command.arg(format!("--config={}", config.display()));
        let mut this = Self { process: node.spawn_process(command)?, _folder: folder };
        this.wait_until_healthy(node)?;
        Ok(this)
    }

    /// Its process.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn wait_until_healthy(&mut self, node: &Node) -> Result<(), Error> {
        let healthz = SocketAddr::from((Ipv4Addr::LOCALHOST, 10256));
        let healthy = wait::try_until(wait::SOON, || match node.get(healthz, "/healthz") {
            Ok(response) if response.status == 200 => Ok(Ok(())),
            _ if !self.process.is_running() => Ok(Err("it ended".to_owned())),
            Ok(response) => Err(response.body),
            Err(error) => Err(error.to_string()),
        });
        healthy.and_then(|ended| ended).map_err(|state| Error::Process {
            program: self.process.program().to_owned(),
            reason: format!("waited for /healthz: {state}; its log:\n{}", self.process.log()),
        })
    }
}
