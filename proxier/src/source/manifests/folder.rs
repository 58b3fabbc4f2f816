//! Owns which file of a folder says what; knows nothing of how files are found, read or watched.

use super::super::{Decoder, ObjectKey, Rejected};
use super::parse::{Broken, Object};
use proxier_core::Change;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

/// What is different after one or more files were read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) changes: Vec<Change>,
    pub(super) rejected: Vec<Rejected>,
}

/// What the files of a folder say. Of two files with the same object the last by name counts.
#[derive(Debug)]
pub(super) struct Folder {
    decoder: Decoder,
    files: BTreeMap<OsString, Vec<ObjectKey>>,
    claims: HashMap<ObjectKey, BTreeMap<OsString, Change>>,
}

impl Folder {
    pub(super) fn new(decoder: Decoder) -> Self {
        Self { decoder, files: BTreeMap::new(), claims: HashMap::new() }
    }

    /// The file now says this, and nothing else.
    pub(super) fn put(&mut self, file: &OsStr, objects: &[Object], update: &mut Update) {
        let mut said: BTreeMap<ObjectKey, Change> = BTreeMap::new();
        for object in objects {
            let kind = object.kind();
            let key = kind.key(&mut self.decoder);
            if let Object::Broken(broken) = object {
                update.rejected.push(unreadable(&key, file, broken));
                // What this file said of it last stays.
                let before = self.claims.get(&key).and_then(|claims| claims.get(file));
                if let Some(before) = before.filter(|_| !said.contains_key(&key)) {
                    said.insert(key, before.clone());
                }
                continue;
            }
            let decoded = kind.decode(&mut self.decoder);
            update.rejected.extend(decoded.rejected);
            update.rejected.extend(lacks_address(&key, object));
            let Some(change) = decoded.change else { continue };
            if said.insert(key.clone(), change).is_some() {
                update.rejected.push(twice(key, file, "this file has the object twice; the last one counts"));
            }
        }
        let before = self.files.remove(file).unwrap_or_default();
        for key in before.iter().filter(|key| !said.contains_key(*key)) {
            self.withdraw(key, file, update);
        }
        if !said.is_empty() {
            self.files.insert(file.to_owned(), said.keys().cloned().collect());
        }
        for (key, change) in said {
            self.claim(key, file, change, update);
        }
    }

    /// The file is gone.
    pub(super) fn remove(&mut self, file: &OsStr, update: &mut Update) {
        for key in self.files.remove(file).unwrap_or_default() {
            self.withdraw(&key, file, update);
        }
    }

    fn claim(&mut self, key: ObjectKey, file: &OsStr, change: Change, update: &mut Update) {
        let claims = self.claims.entry(key.clone()).or_default();
        let before = claims.last_key_value().map(|(_, change)| change.clone());
        let is_new = claims.insert(file.to_owned(), change).is_none();
        let Some((winner, now)) = claims.last_key_value() else { return };
        if is_new && claims.len() > 1 {
            let others: Vec<_> = claims.keys().map(|file| file.to_string_lossy()).collect();
            let reason = format!("{} have this object; {} counts", others.join(" and "), winner.display());
            update.rejected.push(twice(key, file, reason));
        }
        if before.as_ref() != Some(now) {
            update.changes.push(now.clone());
        }
    }

    fn withdraw(&mut self, key: &ObjectKey, file: &OsStr, update: &mut Update) {
        let Some(claims) = self.claims.get_mut(key) else { return };
        let before = claims.last_key_value().map(|(_, change)| change.clone());
        claims.remove(file);
        let now = claims.last_key_value().map(|(_, change)| change.clone());
        if now.is_none() {
            self.claims.remove(key);
        }
        if now != before {
            update.changes.push(now.unwrap_or_else(|| key.clone().gone()));
        }
    }
}

fn unreadable(object: &ObjectKey, file: &OsStr, broken: &Broken) -> Rejected {
    Rejected {
        object: object.clone(),
        field: "manifest".to_owned(),
        value: file.to_string_lossy().into_owned(),
        reason: format!("{}; what it said last stays", broken.error),
    }
}

fn twice(object: ObjectKey, file: &OsStr, reason: impl Into<String>) -> Rejected {
    Rejected {
        object,
        field: "metadata.name".to_owned(),
        value: file.to_string_lossy().into_owned(),
        reason: reason.into(),
    }
}

/// An API server would have given the Service an address; a folder cannot.
fn lacks_address(key: &ObjectKey, object: &Object) -> Option<Rejected> {
    let Object::Service(service) = object else { return None };
    let spec = service.spec.as_ref()?;
    let listed = spec.cluster_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    let one = spec.cluster_ip.as_ref().is_some_and(|ip| !ip.is_empty());
    let is_external_name = spec.type_.as_deref() == Some("ExternalName");
    (!listed && !one && !is_external_name).then(|| Rejected {
        object: key.clone(),
        field: "spec.clusterIP".to_owned(),
        value: String::new(),
        reason: "without an API server nobody chooses an address: the manifest has to name one".to_owned(),
    })
}
