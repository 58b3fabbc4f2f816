use proxier_core::{Change, DetectLocal, Settings, engine::Engine, fixtures::*};
fn main() {
    let mut e = Engine::new(Settings {
        detect_local: DetectLocal::ClusterCidr(vec![cidr("10.244.0.0/16")]),
        ..Settings::new("here")
    });
    for c in [
        node("here", &["192.168.77.11"]),
        host(&["192.168.77.11"]),
        Change::ServiceCidr("k".into(), vec![cidr("10.96.0.0/16")]),
        service("web", &["10.96.0.10"])
            .port("", nft_ir::L4Proto::Tcp, 80, 30080)
            .load_balancer(&["203.0.113.7"])
            .from(&["192.0.2.0/24"])
            .external_local()
            .sticky(60)
            .upsert(),
        service("db", &["10.96.0.11", "fd00::11"]).tcp(5432).upsert(),
        service("none", &["10.96.0.12"]).tcp(5432).upsert(),
        slice("db-1", "db", 5432, &["10.244.1.3@here", "10.244.2.3@there"]).upsert(),
        slice("web-1", "web", 8080, &["10.244.1.2@here", "10.244.2.2@there", "10.244.2.9@there leaving"])
            .upsert(),
    ] {
        e.apply(c);
    }
    let p = e.adopt([None, None]);
    print!("{}", p.transaction);
    e.accept(p);
}
