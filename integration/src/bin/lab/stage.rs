//! Owns what is set up: the world with its pods and servers, and a proxier on each node. Knows nothing of the requests.

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use integration::{Dial, Family, Host, L4Proto, Outcome, Pod, Process, Server, World, userns, wait};

use crate::Failure;
use crate::ending::Ending;

/// How long the proxiers may take until the first request goes through.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long one look whether they are ready may take: before that, packets to a Service just vanish.
const GLANCE: Duration = Duration::from_millis(100);
/// The pods, in the order in which they get their addresses: the manifests name those.
const PODS: [PodPlan; 5] = [
    PodPlan { node: 0, name: "front-1", serves: FRONT },
    PodPlan { node: 0, name: "back-1", serves: BACK },
    PodPlan { node: 0, name: "visitor", serves: &[] },
    PodPlan { node: 1, name: "front-2", serves: FRONT },
    PodPlan { node: 1, name: "back-2", serves: BACK },
];
/// What a pod of the front end serves: its pages, and its admin page.
const FRONT: &[(L4Proto, u16)] = &[(L4Proto::Tcp, 8080), (L4Proto::Tcp, 8081)];
/// What a pod of the back end serves.
const BACK: &[(L4Proto, u16)] = &[(L4Proto::Tcp, 9000), (L4Proto::Udp, 9000)];

struct PodPlan {
    node: usize,
    name: &'static str,
    serves: &'static [(L4Proto, u16)],
}

/// The lab as it stands.
pub(crate) struct Stage {
    // In the order in which they end.
    proxiers: Vec<Process>,
    _servers: Vec<Server>,
    pods: Vec<Pod>,
    world: World,
}

impl Stage {
    /// Builds the network, and starts the pods' servers.
    pub(crate) fn build() -> Result<Self, Failure> {
        let world = World::new("lab").try_build()?;
        let (mut pods, mut servers) = (Vec::new(), Vec::new());
        for PodPlan { node, name, serves } in PODS {
            let pod = world.node(node).try_pod(name)?;
            for (proto, port) in serves {
                servers.push(pod.serve(*proto, *port, name));
            }
            pods.push(pod);
        }
        Ok(Self { proxiers: Vec::new(), _servers: servers, pods, world })
    }

    /// The pod, node or client of a name.
    pub(crate) fn host(&self, name: &str) -> &Host {
        let pods = self.pods.iter().map(|pod| &**pod);
        let nodes = self.world.nodes().iter().map(|node| &**node);
        let mut hosts = pods.chain(nodes);
        hosts.find(|host| host.name() == name).unwrap_or_else(|| self.world.client())
    }

    /// The node that a pod runs on.
    pub(crate) fn node_of(&self, pod: &str) -> Option<&str> {
        self.pods.iter().find(|other| other.name() == pod).map(|pod| pod.node().name())
    }

    /// Starts a proxier on each node, and waits until the client outside gets through in both families.
    pub(crate) fn start_proxiers(
        &mut self,
        proxier: &Path,
        manifests: &Path,
        ending: &Ending,
    ) -> Result<(), Failure> {
        for node in self.world.nodes() {
            let mut command = Command::new(proxier);
            command
                .arg("run")
                .arg("--manifests")
                .arg(manifests)
                .arg("--hostname-override")
                .arg(node.name())
                .arg("--cluster-cidr=10.244.0.0/16,fd00:10:244::/48");
            let process = node.spawn_process(command)?;
            ending.add(process.pid());
            self.proxiers.push(process);
        }
        let nodes = self.world.nodes().to_vec();
        for (node, process) in nodes.iter().zip(&mut self.proxiers) {
            for cluster_ip in ["10.96.0.10", "fd00:10:96::10"] {
                let to = crate::requests::at(cluster_ip, 80);
                let answered = wait::try_until(PATIENCE, || {
                    match node.dial(Dial::new(L4Proto::Tcp, to).within(GLANCE)) {
                        Outcome::Answered { .. } => Ok(Ok(())),
                        _ if !process.is_running() => Ok(Err("it ended".to_owned())),
                        other => Err(other),
                    }
                });
                answered.and_then(|ended| ended).map_err(|state| {
                    let program = process.program();
                    Failure::Proxier(format!(
                        "{program}: {to} on {}: {state}; its log:\n{}",
                        node.name(),
                        process.log()
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Says who is there, with which addresses.
    pub(crate) fn describe(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "A cluster's network on this machine; each line is a network namespace.\n")?;
        describe_host(out, "", self.world.client(), "outside of the cluster")?;
        for node in self.world.nodes() {
            describe_host(out, "", node, "")?;
            for pod in self.pods.iter().filter(|pod| pod.node().name() == node.name()) {
                describe_host(out, "  ", pod, "")?;
            }
        }
        Ok(())
    }

    /// Prints the first node's tables as the proxier reads them back from the kernel.
    pub(crate) fn show_kernel(&self, proxier: &Path, out: &mut impl Write) -> Result<(), Failure> {
        let node = self.world.node(0);
        let mut command = Command::new(proxier);
        command.arg("dump");
        let said = |reason: String| Failure::Proxier(format!("proxier dump on {}: {reason}", node.name()));
        let output = node.run(|| command.output()).map_err(|error| said(error.to_string()))?;
        if !output.status.success() {
            return Err(said(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        writeln!(out, "\nWhat {}'s kernel holds (proxier dump):\n", node.name())?;
        out.write_all(&output.stdout)?;
        Ok(())
    }

    /// Prints what the proxiers had to say.
    pub(crate) fn show_logs(&self, out: &mut impl Write) -> io::Result<()> {
        for process in &self.proxiers {
            writeln!(out, "\nThe log of {}:\n{}", process.program(), process.log().trim_end())?;
        }
        Ok(())
    }

    /// Prints the commands that enter each namespace, as long as this process lives.
    pub(crate) fn show_ways_in(&self, out: &mut impl Write) -> io::Result<()> {
        let pid = std::process::id();
        let user = if userns::is_entered() {
            format!(" --user=/proc/{pid}/ns/user --preserve-credentials")
        } else {
            String::new()
        };
        writeln!(out, "\nThe lab is up. Look around from another terminal:\n")?;
        let nodes = self.world.nodes().iter().map(|node| &**node);
        let pods = self.pods.iter().map(|pod| &**pod);
        for host in [&**self.world.client()].into_iter().chain(nodes).chain(pods) {
            writeln!(
                out,
                "  nsenter{user} --net=/proc/{pid}/fd/{} bash    # {}",
                host.ns().raw_fd(),
                host.name()
            )?;
        }
        writeln!(out, "\nIn a node: nft list ruleset. In the client: curl --http0.9 http://203.0.113.10/")?;
        writeln!(
            out,
            "Edit the manifests, and dial again. Enter or Ctrl-C ends the lab, and leaves nothing behind."
        )
    }
}

fn describe_host(out: &mut impl Write, indent: &str, host: &Host, role: &str) -> io::Result<()> {
    let [v4, v6] = Family::ALL.map(|family| host.addr(family).to_string());
    let name = format!("{indent}{}", host.name());
    writeln!(out, "  {}", format!("{name:<12}{v4:<17}{v6:<19}{role}").trim_end())
}
