//! Owns the reading of one manifest file; knows nothing of the folder around it or of what the objects mean.

use super::super::decode::Kind;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::Path;

/// An object of a kind that matters here.
#[derive(Debug)]
pub(super) enum Object {
    Service(Box<Service>),
    EndpointSlice(Box<EndpointSlice>),
    Node(Box<Node>),
    ServiceCidr(Box<ServiceCIDR>),
    /// One that has a name and cannot be read for the rest. It costs only itself.
    Broken(Broken),
}

/// An object that cannot be read.
#[derive(Debug)]
pub(super) struct Broken {
    /// As far as it could be read: what it would be, and its name.
    pub(super) named: Box<Object>,
    pub(super) error: ParseError,
}

impl Object {
    pub(super) fn kind(&self) -> &dyn Kind {
        match self {
            Self::Service(object) => &**object,
            Self::EndpointSlice(object) => &**object,
            Self::Node(object) => &**object,
            Self::ServiceCidr(object) => &**object,
            Self::Broken(broken) => broken.named.kind(),
        }
    }

    /// Reads an object of a kind that matters here; `None` for other kinds.
    fn read(api_version: &str, kind: &str, source: &Source<'_>) -> Option<Result<Self, ParseError>> {
        Some(match (api_version, kind) {
            ("v1", "Service") => {
                source.read(Self::Service, |metadata| Service { metadata, ..Service::default() })
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => source
                .read(Self::EndpointSlice, |metadata| EndpointSlice { metadata, ..EndpointSlice::default() }),
            ("v1", "Node") => source.read(Self::Node, |metadata| Node { metadata, ..Node::default() }),
            ("networking.k8s.io/v1", "ServiceCIDR") => {
                source.read(Self::ServiceCidr, |metadata| ServiceCIDR { metadata, ..ServiceCIDR::default() })
            }
            _ => return None,
        })
    }
}

/// Where an object is read from.
enum Source<'a> {
    Document(&'a Document<'a>, Syntax),
    Item(&'a Document<'a>, usize, &'a serde_json::Value),
}

/// All that a broken object has to have.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMeta,
}

#[derive(Deserialize)]
struct NamedMeta {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

impl Source<'_> {
    fn typed<T: DeserializeOwned>(&self) -> Result<T, ParseError> {
        match self {
            Self::Document(document, syntax) => typed(document, *syntax),
            Self::Item(document, at, item) => T::deserialize(*item).map_err(|cause| ParseError::Document {
                document: document.number,
                place: Place::Item(*at),
                reason: cause.to_string(),
            }),
        }
    }

    fn read<T: DeserializeOwned>(
        &self,
        object: fn(Box<T>) -> Object,
        named: fn(ObjectMeta) -> T,
    ) -> Result<Object, ParseError> {
        let error = match self.typed::<T>() {
            Ok(read) => return Ok(object(Box::new(read))),
            Err(error) => error,
        };
        let Ok(Named { metadata: NamedMeta { name, namespace } }) = self.typed::<Named>() else {
            return Err(error);
        };
        let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
        Ok(Object::Broken(Broken { named: Box::new(object(Box::new(named(metadata)))), error }))
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("document {document}{place}: {reason}")]
    Document { document: usize, place: Place, reason: String },
}

/// Where in the file, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Line(u64),
    Item(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, ", line {line}"),
            Self::Item(item) => write!(f, ", items[{item}]"),
        }
    }
}

/// Reads a file: documents separated by `---`, each an object or a list of objects; kinds that do not matter here are
/// passed over.
pub(super) fn file(path: &Path) -> Result<Vec<Object>, ParseError> {
    let text = std::fs::read_to_string(path)?;
    if path.extension().is_some_and(|extension| extension == "json") {
        let whole = Document { number: 1, first_line: 1, text: &text };
        return if text.trim().is_empty() { Ok(Vec::new()) } else { objects(&whole, Syntax::Json) };
    }
    let mut found = Vec::new();
    for document in documents(&text) {
        found.extend(objects(&document, Syntax::Yaml)?);
    }
    Ok(found)
}

/// One document of a file.
struct Document<'a> {
    /// Counted from 1.
    number: usize,
    /// Line of the file at which the text begins, counted from 1.
    first_line: u64,
    text: &'a str,
}

#[derive(Clone, Copy)]
enum Syntax {
    Yaml,
    Json,
}

/// Splits at lines that begin with `---`: YAML allows them nowhere but between documents. Documents without content, and
/// the directives before a first `---`, are passed over.
fn documents(text: &str) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let (mut begin, mut offset, mut first_line) = (0, 0, 1);
    let mut add = |begin: usize, end: usize, first_line: u64| {
        let part = &text[begin..end];
        let is_content = |line: &str| {
            let line = line.trim();
            !line.is_empty()
                && !line.starts_with('#')
                && !line.starts_with('%')
                && line != "---"
                && line != "..."
        };
        if part.lines().any(is_content) {
            documents.push(Document { number: documents.len() + 1, first_line, text: part });
        }
    };
    for (line, number) in text.split_inclusive('\n').zip(1_u64..) {
        if is_separator(line) && offset > begin {
            add(begin, offset, first_line);
            (begin, first_line) = (offset, number);
        }
        offset += line.len();
    }
    add(begin, offset, first_line);
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Option<Vec<serde_json::Value>>,
}

fn objects(document: &Document<'_>, syntax: Syntax) -> Result<Vec<Object>, ParseError> {
    let meta: TypeMeta = typed(document, syntax)?;
    let (api_version, kind) = (meta.api_version.unwrap_or_default(), meta.kind.unwrap_or_default());
    if kind.is_empty() {
        return Err(document.error(document.first_line, "has no kind"));
    }
    if let Some(object) = Object::read(&api_version, &kind, &Source::Document(document, syntax)) {
        return Ok(vec![object?]);
    }
    if kind.ends_with("List") {
        let list: List = typed(document, syntax)?;
        return items(document, &api_version, &kind, &list.items.unwrap_or_default());
    }
    Ok(Vec::new())
}

/// The items of a `List`, or of a list of one kind such as `ServiceList`, whose items may leave their kind out.
fn items(
    document: &Document<'_>,
    list_version: &str,
    list_kind: &str,
    items: &[serde_json::Value],
) -> Result<Vec<Object>, ParseError> {
    let mut objects = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(|value| value.as_str());
        let kind = text("kind").unwrap_or_else(|| list_kind.trim_end_matches("List"));
        let version = text("apiVersion").unwrap_or(list_version);
        if let Some(object) = Object::read(version, kind, &Source::Item(document, at, item)) {
            objects.push(object?);
        }
    }
    Ok(objects)
}

fn typed<T: DeserializeOwned>(document: &Document<'_>, syntax: Syntax) -> Result<T, ParseError> {
    match syntax {
        Syntax::Json => serde_json::from_str(document.text)
            .map_err(|cause| document.error(cause.line().try_into().unwrap_or(1), cause)),
        Syntax::Yaml => serde_saphyr::from_str_with_options(document.text, options()).map_err(|cause| {
            let line = cause.location().map_or(1, |location| location.line());
            document.error(document.first_line + line.saturating_sub(1), cause.without_snippet())
        }),
    }
}

/// The operator's own files need no guard against hostile ones, and a slice of 100,000 endpoints is a million nodes.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000_000,
            max_nodes: 100_000_000,
            max_total_scalar_bytes: 1 << 30,
        },
    }
}

impl Document<'_> {
    fn error(&self, line: u64, reason: impl fmt::Display) -> ParseError {
        ParseError::Document { document: self.number, place: Place::Line(line), reason: reason.to_string() }
    }
}
