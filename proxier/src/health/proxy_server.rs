//! Owns the answers of `/healthz` and `/livez` (port 10256); knows nothing of what makes the proxier healthy.

use super::{Health, Moment, Verdict};
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::routing::any;
use k8s_openapi::jiff::Timestamp;
use nft_ir::Family;
use serde::Serialize;
use std::collections::BTreeMap;

/// Go's zero time, shown where there has been no sync.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// `/healthz` and `/livez`, for any method; anything else is not found.
pub fn router(health: Health, metrics: Metrics) -> Router {
    Router::new().route("/healthz", any(healthz)).route("/livez", any(livez)).with_state((health, metrics))
}

async fn healthz(State((health, metrics)): State<(Health, Metrics)>) -> Response<Body> {
    let now = Moment::now();
    let verdict = health.verdict(now);
    let status = code(verdict.healthy && verdict.eligible);
    metrics.healthz(status.as_u16());
    let eligible = Some(verdict.eligible);
    answer(status, &Answer::of(&verdict, now, eligible, verdict.healthy, status))
}

async fn livez(State((health, metrics)): State<(Health, Metrics)>) -> Response<Body> {
    let now = Moment::now();
    let verdict = health.verdict(now);
    let status = code(verdict.live);
    metrics.livez(status.as_u16());
    answer(status, &Answer::of(&verdict, now, None, verdict.live, status))
}

const fn code(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn answer(status: StatusCode, answer: &Answer) -> Response<Body> {
    json(status, serde_json::to_string(answer).unwrap_or_default())
}

/// An answer of JSON with the headers that upstream sets.
pub(super) fn json(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The body, fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    last_updated: String,
    current_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
    healthy: bool,
    status: BTreeMap<&'static str, FamilyAnswer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyAnswer {
    last_updated: String,
    healthy: bool,
}

impl Answer {
    /// As upstream, an answer of 200 was updated just now.
    fn of(
        verdict: &Verdict,
        now: Moment,
        node_eligible: Option<bool>,
        healthy: bool,
        status: StatusCode,
    ) -> Self {
        let last_updated = if status == StatusCode::OK { Some(now.wall) } else { verdict.last_updated };
        Self {
            last_updated: time(last_updated),
            current_time: time(Some(now.wall)),
            node_eligible,
            healthy,
            status: verdict
                .families
                .iter()
                .map(|family| {
                    let answer =
                        FamilyAnswer { last_updated: time(family.last_updated), healthy: family.healthy };
                    (family_name(family.family), answer)
                })
                .collect(),
        }
    }
}

fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| NEVER.to_owned(), |time| time.to_string())
}

const fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ip => "IPv4",
        Family::Ip6 => "IPv6",
    }
}
