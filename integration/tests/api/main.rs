//! Owns the tests of the program on a real kube-apiserver with etcd: objects by a client such as kubectl, packets as the
//! proof. Knows nothing of folders of manifests.

mod live;
mod outage;

use integration::objects::{NAMESPACE, Object};
use integration::stage::comes_to_reach;
use integration::{ApiServer, Family, Kubectl, L4Proto, Pod, ProgramPlan, Server, World, objects, stage};
use std::time::Duration;

/// How long a change may take from the client through the API server into the kernel, on a machine that is busy.
const SOON: Duration = Duration::from_secs(20);

/// Two nodes with a pod each that serves, and a pod that dials. The first node is wired to the API server, and is to run
/// the program.
struct Scene {
    world: World,
    kubectl: Kubectl,
    plan: ProgramPlan,
    client: Pod,
    a: Pod,
    b: Pod,
    _servers: [Server; 2],
}

impl Scene {
    fn new(name: &str, api: &ApiServer) -> Self {
        let world = World::new(name).build();
        let (client, a, b) = (world.node(0).pod("client"), world.node(0).pod("a"), world.node(1).pod("b"));
        let servers = [&a, &b].map(|pod| pod.serve(L4Proto::Tcp, 8080, pod.name()));
        api.wire_to(world.node(0).ns());
        let plan = ProgramPlan::on(world.node(0)).api(api);
        let scene = Self { world, kubectl: api.kubectl(NAMESPACE), plan, client, a, b, _servers: servers };
        scene.apply(&[objects::node("node-1", scene.world.node(0).addrs())]);
        scene
    }

    fn apply(&self, objects: &[Object]) {
        for object in objects {
            self.kubectl.apply(&object.json().to_string());
        }
    }

    /// Waits until exactly these answer the client, in both families.
    #[track_caller]
    fn comes_to_reach(&self, ips: [&str; 2], port: u16, who: &[&str]) {
        for (ip, _) in ips.iter().zip(Family::ALL) {
            comes_to_reach(&self.client, L4Proto::Tcp, stage::at(ip, port), who, SOON);
        }
    }

    /// Waits until nobody answers the client any more, in both families.
    #[track_caller]
    fn comes_to(&self, ips: [&str; 2], port: u16, outcome: &integration::Outcome) {
        for ip in ips {
            stage::comes_to(&self.client, L4Proto::Tcp, stage::at(ip, port), outcome, SOON);
        }
    }

    /// Asserts that exactly these answer the client right now.
    #[track_caller]
    fn reaches(&self, ips: [&str; 2], port: u16, who: &[&str]) {
        for ip in ips {
            stage::reaches(&self.client, L4Proto::Tcp, stage::at(ip, port), who);
        }
    }
}
