//! Owns where real parts are found: kube-apiserver, etcd, kube-proxy, and the product's own program. Knows nothing of
//! how they are run.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A real part's program. etcd and kube-apiserver come from `KUBEBUILDER_ASSETS` if that folder holds both; everything
/// else comes from `.parts/` at the top of the repository, where `integration/go/build` puts it.
pub fn find(part: &str) -> Result<PathBuf, Error> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.parts");
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let assets =
        assets.filter(|folder| ["etcd", "kube-apiserver"].iter().all(|part| folder.join(part).is_file()));
    let folder = match (part, assets) {
        ("etcd" | "kube-apiserver", Some(assets)) => assets,
        _ => built,
    };
    let program = folder.join(part);
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::Missing {
        part: part.to_owned(),
        remedy: format!(
            "run integration/go/build {part}, or ./test, which does; looked for {}",
            program.display()
        ),
    })
}

/// The product's program as cargo built it: beside this program, or one folder up from a test's.
pub fn proxier() -> Result<PathBuf, Error> {
    let missing = |remedy: String| Error::Missing { part: "proxier".to_owned(), remedy };
    let this = env::current_exe().map_err(|error| missing(error.to_string()))?;
    this.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("proxier"))
        .find(|program| program.is_file())
        .ok_or_else(|| missing(format!("run cargo build -p proxier; looked near {}", this.display())))
}
