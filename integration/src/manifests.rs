//! Owns a folder of manifests for the program's `--manifests`. Knows nothing of what they mean.

use crate::objects::Object;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder of manifests; it goes when the value is dropped.
#[derive(Debug)]
pub struct Manifests {
    folder: TempDir,
}

impl Manifests {
    /// An empty folder. Panics if there can be none.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        match TempDir::with_prefix("lab-manifests-") {
            Ok(folder) => Self { folder },
            Err(error) => panic!("a folder for manifests: {error}"),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The file `NAME.json` now holds these objects, and nothing else.
    #[track_caller]
    pub fn put(&self, name: &str, objects: &[Object]) {
        let items: Vec<Value> = objects.iter().map(Object::json).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        self.put_text(&format!("{name}.json"), &list.to_string());
    }

    /// The file of this name now holds this text. It is moved there whole, as careful editors do.
    #[track_caller]
    pub fn put_text(&self, file: &str, text: &str) {
        let hidden = self.path().join(format!(".{file}"));
        let written = fs::write(&hidden, text).and_then(|()| fs::rename(&hidden, self.path().join(file)));
        if let Err(error) = written {
            panic!("manifest {file}: {error}");
        }
    }

    /// The file of this name is gone.
    #[track_caller]
    pub fn remove(&self, file: &str) {
        if let Err(error) = fs::remove_file(self.path().join(file)) {
            panic!("manifest {file}: {error}");
        }
    }
}
