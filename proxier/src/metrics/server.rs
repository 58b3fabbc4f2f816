//! Owns what the metrics server (port 10249) answers; knows nothing of how things are measured.

use super::{About, Metrics};
use crate::config::v1alpha1::KubeProxyConfiguration;
use crate::logging::Verbosity;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::routing::any;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::prometheus_text;
use std::sync::Arc;

const TEXT: &str = "text/plain; charset=utf-8";

/// Longest body that is read of a request.
const LONGEST_BODY: usize = 64;

/// What `/debug` offers, where `enableProfiling` asks for it.
#[derive(Debug, Clone)]
pub struct Debug {
    /// `PUT /debug/flags/v` changes it.
    pub verbosity: Verbosity,
}

/// What `/statusz` names.
const PATHS: [&str; 5] = ["/configz", "/flagz", "/healthz", "/metrics", "/proxyMode"];

/// `/metrics`, `/healthz`, `/healthz/ping`, `/proxyMode`, `/configz`, `/flagz`, `/statusz`, and `/debug/flags/v` if wanted; anything else is not
/// found.
pub fn router(
    metrics: Metrics,
    config: &KubeProxyConfiguration,
    about: About,
    debug: Option<Debug>,
) -> Router {
    let config = serde_json::json!({ "kubeproxy.config.k8s.io": config }).to_string();
    let config: Arc<str> = config.into();
    let router = Router::new()
        .route("/metrics", any(scrape))
        .with_state(metrics)
        .route("/healthz", any(healthz))
        .route("/healthz/ping", any(healthz))
        .route("/flagz", any(flagz).with_state(about.clone()))
        .route("/statusz", any(statusz).with_state(about))
        .route("/proxyMode", any(async || answer(StatusCode::OK, TEXT, "nftables")))
        .route("/configz", any(async move || answer(StatusCode::OK, "application/json", config.to_string())));
    match debug {
        Some(debug) => router
            .route("/debug/flags", any(flags).with_state(debug.clone()))
            .route("/debug/flags/v", any(set_verbosity).with_state(debug)),
        None => router,
    }
}

async fn scrape(State(metrics): State<Metrics>) -> Response<Body> {
    match metrics.scrape() {
        Ok(text) => answer(StatusCode::OK, prometheus_text::CONTENT_TYPE, text),
        Err(error) => {
            answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("cannot write the metrics: {error}\n"))
        }
    }
}

/// That this server answers; the proxier's health is on another port.
async fn healthz(uri: Uri) -> Response<Body> {
    let is_verbose =
        uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    answer(StatusCode::OK, TEXT, if is_verbose { "[+]ping ok\nhealthz check passed\n" } else { "ok" })
}

async fn flagz(State(about): State<About>, headers: HeaderMap) -> Response<Body> {
    for_people(&headers, about.flagz())
}

async fn statusz(State(about): State<About>, headers: HeaderMap) -> Response<Body> {
    for_people(&headers, about.statusz(Timestamp::now(), &PATHS))
}

/// Text, where text will do; upstream's structured forms are alpha and beta, and not offered.
fn for_people(headers: &HeaderMap, text: String) -> Response<Body> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
    if ["*/*", "text/*", "text/plain"].iter().any(|good| accept.contains(good)) {
        answer(StatusCode::OK, TEXT, text)
    } else {
        answer(StatusCode::NOT_ACCEPTABLE, TEXT, "only text/plain is offered here\n")
    }
}

async fn flags(State(debug): State<Debug>) -> Response<Body> {
    answer(StatusCode::OK, TEXT, format!("v = {}\n\nPUT a number to /debug/flags/v\n", debug.verbosity.get()))
}

async fn set_verbosity(State(debug): State<Debug>, method: Method, body: Body) -> Response<Body> {
    if method != Method::PUT {
        return answer(StatusCode::NOT_ACCEPTABLE, TEXT, "only PUT is understood here\n");
    }
    let body = to_bytes(body, LONGEST_BODY).await.unwrap_or_default();
    match std::str::from_utf8(&body).ok().and_then(|text| text.trim().parse().ok()) {
        Some(level) => {
            debug.verbosity.set(level);
            answer(StatusCode::OK, TEXT, format!("successfully set klog.logging.verbosity to {level}"))
        }
        None => answer(StatusCode::BAD_REQUEST, TEXT, "the body is a number of 0 or more\n"),
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
