//! Owns the reading and writing of configuration files; knows nothing of defaults, validity or flags.

use super::v1alpha1::{API_VERSION, KIND, KubeProxyConfiguration};
use serde_json::Value;
use serde_saphyr::DuplicateKeyPolicy;
use std::io;
use std::path::{Path, PathBuf};

/// Why a configuration file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system refuses.
    #[error("{}: cannot {verb} the configuration: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        verb: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// It is not YAML or JSON.
    #[error("{}: is not YAML or JSON: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says, with the line.
        reason: String,
    },
    /// It is another kind of object.
    #[error("{}: is {found:?}; expected {KIND:?} of {API_VERSION:?}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// Its kind and apiVersion.
        found: String,
    },
    /// A field holds a value of another type.
    #[error("{}: {field}: {reason}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Path of the field.
        field: String,
        /// What is there and what is expected.
        reason: String,
    },
}

/// Reads a file: what it says, and a line for what was passed over (unknown fields, keys given twice), if anything was.
pub(super) fn read(path: &Path) -> Result<(KubeProxyConfiguration, Option<String>), FileError> {
    let text = std::fs::read_to_string(path).map_err(|source| FileError::Io {
        path: path.to_owned(),
        verb: "read",
        source,
    })?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<(KubeProxyConfiguration, Option<String>), FileError> {
    let mut passed_over = Vec::new();
    let value = match yaml(text, DuplicateKeyPolicy::Error) {
        Ok(value) => value,
        Err(strict) => match yaml(text, DuplicateKeyPolicy::LastWins) {
            Ok(value) => {
                passed_over.push(strict.without_snippet().to_string());
                value
            }
            Err(error) => {
                let reason = error.without_snippet().to_string();
                return Err(FileError::Syntax { path: path.to_owned(), reason });
            }
        },
    };
    let value = without_nulls(value);
    let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    if (word("apiVersion"), word("kind")) != (API_VERSION, KIND) {
        let found = format!("{} {}", word("apiVersion"), word("kind"));
        return Err(FileError::Kind { path: path.to_owned(), found });
    }
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let config = serde_ignored::deserialize(deserializer, |unknown| {
        passed_over.push(format!("unknown field {unknown}"));
    });
    match config {
        Ok(config) => Ok((
            config,
            (!passed_over.is_empty())
                .then(|| format!("{}: passed over: {}", path.display(), passed_over.join("; "))),
        )),
        Err(error) => {
            let (field, reason) = (track.path().to_string(), error.to_string());
            Err(FileError::Field { path: path.to_owned(), field, reason })
        }
    }
}

/// Writes it as upstream's `--write-config-to` does: YAML with sorted keys.
pub(super) fn write(path: &Path, config: &KubeProxyConfiguration) -> Result<(), FileError> {
    std::fs::write(path, to_yaml(config)).map_err(|source| FileError::Io {
        path: path.to_owned(),
        verb: "write",
        source,
    })
}

pub(super) fn to_yaml(config: &KubeProxyConfiguration) -> String {
    let value = serde_json::to_value(config).unwrap_or(Value::Null);
    let mut text = String::new();
    yaml_entries(&mut text, &value, "");
    text
}

fn yaml(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { duplicate_keys: duplicate_keys })
}

/// In Kubernetes' files `null` means absent.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(
            entries
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// The few forms that a configuration has, in the very style of upstream's writer.
fn yaml_entries(text: &mut String, value: &Value, indent: &str) {
    let Value::Object(entries) = value else { return };
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| key.as_str());
    for (at, (key, value)) in entries.into_iter().enumerate() {
        // The first entry of a list item stands behind the dash.
        if at > 0 || !indent.ends_with('-') {
            text.push_str(indent);
        }
        let key = scalar(&Value::String(key.clone()));
        match value {
            Value::Object(inner) if inner.is_empty() => text.push_str(&format!("{key}: {{}}\n")),
            Value::Object(_) => {
                text.push_str(&format!("{key}:\n"));
                yaml_entries(text, value, &format!("{indent}  "));
            }
            Value::Array(items) if items.is_empty() => text.push_str(&format!("{key}: []\n")),
            Value::Array(items) => {
                text.push_str(&format!("{key}:\n"));
                for item in items {
                    yaml_item(text, item, indent);
                }
            }
            _ => text.push_str(&format!("{key}: {}\n", scalar(value))),
        }
    }
}

fn yaml_item(text: &mut String, item: &Value, indent: &str) {
    if item.is_object() {
        let mut inner = String::new();
        yaml_entries(&mut inner, item, &format!("{indent}  "));
        text.push_str(&format!("{indent}- {}", inner.trim_start()));
    } else {
        text.push_str(&format!("{indent}- {}\n", scalar(item)));
    }
}

/// A text goes bare where it reads back as that same text, else in JSON's quotes, which are YAML's as well.
fn scalar(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let is_plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"./_-:".contains(&b))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && !text.ends_with(':')
        && serde_saphyr::from_str::<Value>(text).is_ok_and(|read| read == *value)
        && !YAML_1_1_BOOLS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.clone() } else { value.to_string() }
}

/// Upstream's reader takes these for booleans when they stand bare.
const YAML_1_1_BOOLS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];
