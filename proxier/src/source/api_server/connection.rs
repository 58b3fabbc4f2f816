//! Owns how the API server is reached: kubeconfig, the cluster's own credentials, `--master`; knows nothing of objects.

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::path::PathBuf;
use std::time::Duration;

/// A watch brings a bookmark about once a minute. One that has been silent for this long is dead, and is begun anew.
const SILENCE: Duration = Duration::from_secs(150);

/// A way to the server that is back must not wait for a try from before that nobody answers.
const CONNECT: Duration = Duration::from_secs(10);

/// Where the API server is, and who we are to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connection {
    /// `--kubeconfig` or `clientConnection.kubeconfig`. Without it and without `master`: the credentials that the cluster
    /// gives to a pod.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: URL of the server, instead of the kubeconfig's.
    pub master: Option<String>,
}

/// Why there can be no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kubeconfig file is no good.
    #[error("kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// There is neither a kubeconfig nor a pod's credentials.
    #[error(
        "no --kubeconfig, no clientConnection.kubeconfig, no --master, and no credentials of a pod: {0}; to run without a \
         cluster use --manifests DIR"
    )]
    NotInCluster(#[from] InClusterError),
    /// `--master` is no URL.
    #[error("--master {master:?} is not a URL such as https://192.0.2.1:6443: {reason}")]
    Master {
        /// What was given.
        master: String,
        /// Why it is none.
        reason: String,
    },
    /// The credentials are no good.
    #[error("API server {url}: cannot set up a connection: {source}")]
    Client {
        /// The server.
        url: String,
        /// What is wrong.
        source: Box<kube::Error>,
    },
}

impl Connection {
    /// A client for this server. Does not talk to it yet.
    pub async fn client(&self) -> Result<Client, ConnectionError> {
        let config = self.config().await?;
        let url = config.cluster_url.to_string();
        Client::try_from(config).map_err(|source| ConnectionError::Client { url, source: Box::new(source) })
    }

    async fn config(&self) -> Result<Config, ConnectionError> {
        let master = self.master.as_ref().filter(|master| !master.is_empty());
        let mut config = match (&self.kubeconfig, master) {
            (Some(path), _) => from_kubeconfig(path)
                .await
                .map_err(|source| ConnectionError::Kubeconfig { path: path.clone(), source })?,
            (None, Some(master)) => Config::new(url(master)?),
            (None, None) => Config::incluster()?,
        };
        if let Some(master) = master {
            config.cluster_url = url(master)?;
        }
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        Ok(config)
    }
}

async fn from_kubeconfig(path: &PathBuf) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await
}

fn url(master: &str) -> Result<http::Uri, ConnectionError> {
    let error = |reason: String| ConnectionError::Master { master: master.to_owned(), reason };
    // As kubectl: a bare host is plain HTTP.
    let whole = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    whole.parse().map_err(|cause: http::uri::InvalidUri| error(cause.to_string()))
}
