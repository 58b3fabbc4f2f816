//! Owns a real kube-apiserver with its etcd, in a namespace of its own that any node can be wired to. Knows nothing of
//! what is stored in it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::signal::Signal;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use tempfile::TempDir;

use crate::error::Error;
use crate::kubectl::{Connection, Kubectl};
use crate::netns::Netns;
use crate::plan::Prefix;
use crate::process::Process;
use crate::{http, parts, wait, wire};
use serde_json::json;

/// The server's address, the same for every node that is wired to it. Not a loopback address: Kubernetes refuses those
/// as endpoints, and the server is the endpoint of its own Service, `kubernetes`.
const ADDR: Ipv4Addr = Ipv4Addr::new(100, 64, 255, 1);
const PORT: u16 = 6443;
/// Where etcd listens, in the server's namespace.
const ETCD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2379);
/// The token of a client that may do everything; nobody outside of the lab can reach the server.
const TOKEN: &str = "lab";
/// What stands before the point in the DER form of a P-256 public key (RFC 5480, SubjectPublicKeyInfo).
const P256_PUBLIC_KEY_INFO: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// How long the server may take to become ready, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running API server, and its etcd. Both end, and their data goes, when the value is dropped.
#[derive(Debug)]
pub struct ApiServer {
    // In the order in which they end.
    server: Mutex<Option<Process>>,
    _etcd: Process,
    connection: Connection,
    ns: Netns,
    links: AtomicU16,
    folder: TempDir,
}

impl ApiServer {
    /// The server that all tests of this program share: started by the first that asks, ended with the last that
    /// holds it. Each test uses a Kubernetes namespace and nodes of its own, and must not take it down.
    #[track_caller]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<ApiServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *shared = Arc::downgrade(&started);
        started
    }

    /// A server of one's own, ready; panics with the reason if that fails.
    #[track_caller]
    pub fn start() -> Self {
        match Self::try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// A server of one's own, ready.
    pub fn try_start() -> Result<Self, Error> {
        let ns = Netns::new("api")?;
        wire::address(&ns, "lo", ADDR.into(), 32)?;
        let folder =
            TempDir::with_prefix("lab-api-").map_err(|error| Error::os("api", "a folder for data", error))?;
        write_credentials(folder.path())?;
        let etcd = start_etcd(&ns, folder.path())?;
        let mut server = start_server(&ns, folder.path())?;
        // The certificate is made by the server; there is no talking to it before.
        let certificate = folder.path().join("certificates/apiserver.crt");
        while_running(&mut server, "its certificate", || {
            fs::metadata(&certificate).is_ok_and(|file| file.len() > 0).then_some(()).ok_or("no file yet")
        })?;
        write_kubeconfig(folder.path(), &certificate)?;
        let connection = Connection::open(&ns, &folder.path().join("kubeconfig"))?;
        let this =
            Self { server: Mutex::new(None), _etcd: etcd, connection, ns, links: AtomicU16::new(1), folder };
        this.wait_until_ready(&mut server)?;
        *this.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(this)
    }

    /// Wires a namespace to the server: a link of its own, and a route to the server's one address.
    #[track_caller]
    pub fn wire_to(&self, ns: &Netns) {
        if let Err(error) = self.try_wire_to(ns) {
            panic!("{error}");
        }
    }

    /// Wires a namespace to the server: a link of its own, and a route to the server's one address.
    pub fn try_wire_to(&self, ns: &Netns) -> Result<(), Error> {
        let number = self.links.fetch_add(1, Ordering::Relaxed);
        let link = format!("node{number}");
        let base = u32::from(Ipv4Addr::new(100, 64, 0, 0)) + u32::from(number) * 4;
        let (here, there) = (IpAddr::V4((base + 1).into()), IpAddr::V4((base + 2).into()));
        wire::veth(&self.ns, &link, ns, "api")?;
        wire::address(&self.ns, &link, here, 30)?;
        wire::address(ns, "api", there, 30)?;
        wire::route_via(ns, Prefix::host(ADDR.into()), here)
    }

    /// Takes a namespace's link to the server away, so that dialling it fails at once; [`Self::wire_to`] gives it another.
    #[track_caller]
    pub fn cut_off(&self, ns: &Netns) {
        let cut = wire::remove(ns, "api").and_then(|()| wire::blackhole(ns, Prefix::host(ADDR.into())));
        if let Err(error) = cut {
            panic!("{error}");
        }
    }

    /// A kubeconfig file for a program in a namespace that is wired to the server.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A client for one Kubernetes namespace, which is made if it is not there.
    #[track_caller]
    pub fn kubectl(&self, namespace: &str) -> Kubectl {
        Kubectl::new(self.connection.clone(), namespace)
    }

    /// Ends the server at once, as a crash would; etcd and its data stay.
    pub fn take_down(&self) {
        drop(self.server.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Starts the server again on the same data and the same address, and waits until it is ready.
    #[track_caller]
    pub fn bring_up(&self) {
        let started = start_server(&self.ns, self.folder.path()).and_then(|mut server| {
            self.wait_until_ready(&mut server)?;
            Ok(server)
        });
        match started {
            Ok(server) => *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server),
            Err(error) => panic!("{error}"),
        }
    }

    /// Stops the server's process without ending it, so that connections stay and nothing is answered; the guard lets
    /// it go on.
    #[track_caller]
    pub fn freeze(&self) -> Frozen<'_> {
        self.signal(Signal::SIGSTOP);
        Frozen { server: self }
    }

    /// Ends the server, and starts it again.
    #[track_caller]
    pub fn restart(&self) {
        self.take_down();
        self.bring_up();
    }

    /// Compacts etcd: versions of objects before now can no longer be watched from.
    #[track_caller]
    pub fn compact(&self) {
        let compacted = self.ns.run(|| -> std::io::Result<u16> {
            // A key of one zero byte, in base64; the answer's head tells the revision whatever is found.
            let now = http::post(ETCD, "/v3/kv/range", &json!({ "key": "AA==" }))?;
            let now: serde_json::Value = serde_json::from_str(&now.body)?;
            let revision = &now["header"]["revision"];
            let order = json!({ "revision": revision, "physical": true });
            Ok(http::post(ETCD, "/v3/kv/compaction", &order)?.status)
        });
        assert!(matches!(compacted, Ok(200)), "etcd was not compacted: {compacted:?}");
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            server.signal(signal);
        }
    }

    fn wait_until_ready(&self, server: &mut Process) -> Result<(), Error> {
        while_running(server, "to be ready", || self.connection.readyz())
    }
}

/// A server that answers nothing until this is dropped.
#[derive(Debug)]
pub struct Frozen<'a> {
    server: &'a ApiServer,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.server.signal(Signal::SIGCONT);
    }
}

/// The token file, and a pair of keys for service account tokens, which the server insists on.
fn write_credentials(folder: &Path) -> Result<(), Error> {
    let failed =
        |reason: String| Error::os("api", "keys for service accounts", std::io::Error::other(reason));
    let random = SystemRandom::new();
    let private = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
        .map_err(|error| failed(error.to_string()))?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private.as_ref(), &random)
        .map_err(|error| failed(error.to_string()))?;
    let public = [P256_PUBLIC_KEY_INFO, pair.public_key().as_ref()].concat();
    write(folder, "service-accounts.key", &pem::encode(&pem::Pem::new("PRIVATE KEY", private.as_ref())))?;
    write(folder, "service-accounts.pub", &pem::encode(&pem::Pem::new("PUBLIC KEY", public)))?;
    write(folder, "tokens", &format!("{TOKEN},lab,lab,system:masters\n"))
}

fn write_kubeconfig(folder: &Path, certificate: &Path) -> Result<(), Error> {
    let text = format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {{server: 'https://{ADDR}:{PORT}', certificate-authority: '{}'}}
users:
- name: lab
  user: {{token: {TOKEN}}}
contexts:
- name: lab
  context: {{cluster: lab, user: lab}}
current-context: lab
",
        certificate.display()
    );
    write(folder, "kubeconfig", &text)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    fs::write(folder.join(name), text).map_err(|error| Error::os("api", format!("write {name}"), error))
}

fn start_etcd(ns: &Netns, folder: &Path) -> Result<Process, Error> {
    let mut command = Command::new(parts::find("etcd")?);
    command
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .arg("--listen-client-urls=http://127.0.0.1:2379")
        .arg("--advertise-client-urls=http://127.0.0.1:2379")
        .arg("--listen-peer-urls=http://127.0.0.1:2380")
        // The data need not outlive the machine.
        .arg("--unsafe-no-fsync")
        .arg("--log-level=warn");
    Process::spawn(ns, command)
}

fn start_server(ns: &Netns, folder: &Path) -> Result<Process, Error> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let mut command = Command::new(parts::find("kube-apiserver")?);
    command
        .arg("--etcd-servers=http://127.0.0.1:2379")
        .arg(format!("--advertise-address={ADDR}"))
        .arg(format!("--secure-port={PORT}"))
        .arg(file("cert-dir", "certificates"))
        .arg(file("token-auth-file", "tokens"))
        .arg("--authorization-mode=AlwaysAllow")
        .arg("--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112")
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(file("service-account-key-file", "service-accounts.pub"))
        .arg(file("service-account-signing-key-file", "service-accounts.key"))
        .arg("--profiling=false");
    Process::spawn(ns, command)
}

fn while_running<T, E: std::fmt::Display>(
    process: &mut Process,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> Result<T, Error> {
    let ended = "it ended";
    let waited = wait::try_until(PATIENCE, || {
        if process.is_running() { look().map_err(|error| error.to_string()).map(Ok) } else { Ok(Err(ended)) }
    });
    match waited {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(state)) => Err(failed(process, what, state)),
        Err(state) => Err(failed(process, what, &state)),
    }
}

fn failed(process: &Process, what: &str, state: &str) -> Error {
    let log = process.log();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    Error::Process {
        program: process.program().to_owned(),
        reason: format!("waited for {what}: {state}; the end of its log:\n{tail}"),
    }
}
