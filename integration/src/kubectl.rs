//! Owns a client of the API server as an operator has it: apply, patch, delete, look. Knows nothing of what the objects
//! mean.

use std::future::Future;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::netns::{Netns, runtime};

/// Kinds that live outside of any Kubernetes namespace, of those that a proxy looks at.
const CLUSTER_WIDE: [&str; 4] = ["Namespace", "Node", "ServiceCIDR", "IPAddress"];
/// Name under which fields are owned.
const FIELD_MANAGER: &str = "lab";

/// A client bound to one Kubernetes namespace. Its calls wait for the answer, and panic with what the server said when
/// it refuses; the `try_` forms return that.
#[derive(Debug, Clone)]
pub struct Kubectl {
    connection: Connection,
    namespace: String,
}

impl Kubectl {
    pub(crate) fn new(connection: Connection, namespace: &str) -> Self {
        let this = Self { connection, namespace: namespace.to_owned() };
        this.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"));
        this
    }

    /// The Kubernetes namespace that it is bound to.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Makes or changes the objects of a YAML text of one or more documents (server-side apply, by force). A `status`
    /// is written too, where there is one; only kubelets and controllers do that in a real cluster.
    #[track_caller]
    pub fn apply(&self, yaml: &str) {
        if let Err(error) = self.try_apply(yaml) {
            panic!("apply: {error}\n{yaml}");
        }
    }

    /// As [`Kubectl::apply`], with the server's refusal as the error.
    pub fn try_apply(&self, yaml: &str) -> Result<(), kube::Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)
            .map_err(|error| kube::Error::Service(format!("the text is not YAML: {error}").into()))?;
        for mut value in documents {
            let status = value.as_object_mut().and_then(|fields| fields.remove("status"));
            let object: DynamicObject = serde_json::from_value(value).map_err(kube::Error::SerdeError)?;
            let types = object.types.clone().unwrap_or_default();
            let name = object.metadata.name.clone().unwrap_or_default();
            let api = self.api(&types.api_version, &types.kind, object.metadata.namespace.as_deref());
            self.connection.call(async move |client| {
                let api = api.on(client);
                let params = PatchParams::apply(FIELD_MANAGER).force();
                api.patch(&name, &params, &Patch::Apply(&object)).await?;
                if let Some(status) = status {
                    let patch = Patch::Merge(json!({"status": status}));
                    api.patch_status(&name, &PatchParams::default(), &patch).await?;
                }
                Ok::<(), kube::Error>(())
            })?;
        }
        Ok(())
    }

    /// Changes some fields of an object (JSON merge patch), `kind` as in `"v1/Service"` or
    /// `"discovery.k8s.io/v1/EndpointSlice"`.
    #[track_caller]
    pub fn patch(&self, kind: &str, name: &str, fields: Value) {
        let outcome = self.call(kind, name, async move |api, name| {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(fields)).await
        });
        if let Err(error) = outcome {
            panic!("patch {kind} {name}: {error}");
        }
    }

    /// Changes some fields of an object's status: what goes under `status`.
    #[track_caller]
    pub fn patch_status(&self, kind: &str, name: &str, status: Value) {
        let outcome = self.call(kind, name, async move |api, name| {
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await
        });
        if let Err(error) = outcome {
            panic!("patch status of {kind} {name}: {error}");
        }
    }

    /// Gives a Service the load balancer addresses that a cloud would give it.
    #[track_caller]
    pub fn set_ingress(&self, service: &str, addrs: &[std::net::IpAddr]) {
        let ingress: Vec<Value> = addrs.iter().map(|addr| json!({"ip": addr, "ipMode": "VIP"})).collect();
        self.patch_status("v1/Service", service, json!({"loadBalancer": {"ingress": ingress}}));
    }

    /// An object as the server has it.
    #[track_caller]
    pub fn get(&self, kind: &str, name: &str) -> DynamicObject {
        match self.call(kind, name, async |api, name| api.get(&name).await) {
            Ok(object) => object,
            Err(error) => panic!("get {kind} {name}: {error}"),
        }
    }

    /// All objects of a kind: in the bound namespace, or in the cluster for kinds that have none.
    #[track_caller]
    pub fn list(&self, kind: &str) -> Vec<DynamicObject> {
        match self.call(kind, "", async |api, _| api.list(&ListParams::default()).await) {
            Ok(objects) => objects.items,
            Err(error) => panic!("list {kind}: {error}"),
        }
    }

    /// Deletes an object; that it is gone already is no failure.
    #[track_caller]
    pub fn delete(&self, kind: &str, name: &str) {
        match self
            .call(kind, name, async |api, name| api.delete(&name, &DeleteParams::default()).await.map(|_| ()))
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Ok(()) => {}
            Err(error) => panic!("delete {kind} {name}: {error}"),
        }
    }

    /// The ClusterIPs of a Service, in the order of its `ipFamilies`.
    #[track_caller]
    pub fn cluster_ips(&self, service: &str) -> Vec<std::net::IpAddr> {
        let object = self.get("v1/Service", service);
        let ips = object.data["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
        ips.iter().filter_map(|ip| ip.as_str()?.parse().ok()).collect()
    }

    /// Runs anything else with a plain client, on a thread of the API server's namespace.
    pub fn with_client<T, F>(&self, work: impl FnOnce(Client) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.connection.call(work)
    }

    fn call<T, F>(
        &self,
        kind: &str,
        name: &str,
        work: impl FnOnce(Api<DynamicObject>, String) -> F + Send + 'static,
    ) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (version, kind) = kind.rsplit_once('/').unwrap_or(("v1", kind));
        let (api, name) = (self.api(version, kind, None), name.to_owned());
        self.connection.call(move |client| work(api.on(client), name))
    }

    fn api(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Place {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let namespace = namespace.unwrap_or(&self.namespace).to_owned();
        Place { resource, namespace: (!CLUSTER_WIDE.contains(&kind)).then_some(namespace) }
    }
}

/// Where objects of a kind live.
struct Place {
    resource: ApiResource,
    namespace: Option<String>,
}

impl Place {
    fn on(&self, client: Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// A client on a thread of the API server's namespace, where its connections must be made.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    pub(crate) fn open(ns: &Netns, kubeconfig: &Path) -> Result<Self, Error> {
        let (ready, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let kubeconfig = kubeconfig.to_owned();
        let thread = ns.spawn("kubectl", move || {
            runtime().block_on(async move {
                let _ = ready.send(client(&kubeconfig).await.map(|client| (client, Handle::current())));
                let _ = stopped.await;
            });
        });
        let failed = |reason: String| Error::Process { program: "kubectl".to_owned(), reason };
        let (client, runtime) = started
            .recv()
            .map_err(|_| failed("its thread ended".to_owned()))?
            .map_err(|error| failed(format!("client: {error}")))?;
        Ok(Self { inner: Arc::new(Inner { client, runtime, stop: Some(stop), thread: Some(thread) }) })
    }

    pub(crate) fn call<T, F>(&self, work: impl FnOnce(Client) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (done, outcome) = mpsc::channel();
        let client = self.inner.client.clone();
        self.inner.runtime.spawn(async move {
            let _ = done.send(work(client).await);
        });
        match outcome.recv() {
            Ok(outcome) => outcome,
            Err(_) => panic!("a call of the API server panicked"),
        }
    }

    /// Asks the server whether it is ready; the error is what it said.
    pub(crate) fn readyz(&self) -> Result<(), String> {
        self.call(async |client| {
            let request =
                http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
            client.request_text(request).await.map(|_| ()).map_err(|error| error.to_string())
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn client(kubeconfig: &Path) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A refusal is something to be seen by the test, at once.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
