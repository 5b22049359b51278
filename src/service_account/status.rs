//! What a signer says of itself: as a document, and as a monitor reads it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::counters::{Counts, SignerTrouble};
use crate::rotation::KeyState;

/// What `service-account-signer status --json` prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerStatus {
    pub api_version: String,
    pub pid: u32,
    pub version: String,
    /// In seconds since 1970.
    pub started: i64,
    /// Whether it can sign now.
    pub token: TokenStatus,
    /// Where the list of keys is.
    pub list: String,
    /// The keys of the list, in its order.
    pub keys: Vec<PublishedKeyStatus>,
    pub refresh_seconds: i64,
    pub longest_life_seconds: i64,
    pub counts: Counts,
    pub last_trouble: Option<SignerTrouble>,
}

/// Whether a signer can sign.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "message")]
pub enum TokenStatus {
    /// Its keys are open.
    Open,
    /// They are being opened.
    Opening,
    /// They could not be opened, and it is tried again.
    Failed(String),
    /// They could not be opened, and a person has to do something first.
    WaitsForPerson(String),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedKeyStatus {
    /// What the list calls it.
    pub name: String,
    /// The `kid` of its tokens.
    pub id: String,
    /// Such as RSA-2048.
    pub kind: String,
    /// Such as RS256; `None` for a key that doesn't sign here.
    pub algorithm: Option<String>,
    pub is_hidden: bool,
    /// In seconds since 1970.
    pub published_since: i64,
    pub work: KeyState,
}

impl SignerStatus {
    /// The status in the text format of Prometheus, version 0.0.4.
    pub fn metrics(&self) -> String {
        let mut text = Metrics::default();
        let Counts { signatures, failures, times, seconds, .. } = &self.counts;
        let can_sign = self.token == TokenStatus::Open;
        text.gauge("ready", "Whether tokens can be signed", f64::from(u8::from(can_sign)));
        text.gauge("start_time_seconds", "When it was started", self.started as f64);
        text.head("signatures_total", "counter", "Tokens that were signed");
        for (key, count) in signatures {
            text.line("signatures_total", &[("kid", key)], *count as f64);
        }
        text.head("failures_total", "counter", "Requests that failed, by gRPC's status code");
        for (code, count) in failures {
            text.line("failures_total", &[("code", code)], *count as f64);
        }
        text.counter("fetch_keys_total", "How often keys were fetched", self.counts.fetches);
        text.counter(
            "token_process_starts_total",
            "Processes that were started for the token",
            self.counts.token_process_starts,
        );
        text.gauge(
            "open_requests",
            "Requests for tokens that are not answered yet",
            self.counts.open_requests as f64,
        );
        let all: u64 = signatures.values().sum();
        text.head("signature_duration_seconds", "histogram", "How long signatures took");
        for range in times {
            let end = range.at_most_seconds.to_string();
            text.line(
                "signature_duration_seconds_bucket",
                &[("le", &end)],
                range.signatures as f64,
            );
        }
        text.line("signature_duration_seconds_bucket", &[("le", "+Inf")], all as f64);
        text.line("signature_duration_seconds_sum", &[], *seconds);
        text.line("signature_duration_seconds_count", &[], all as f64);
        self.keys_metrics(&mut text);
        text.0
    }

    fn keys_metrics(&self, text: &mut Metrics) {
        text.head("key_signs", "gauge", "Whether the key signs new tokens");
        for key in &self.keys {
            let signs = key.work == KeyState::Signs;
            text.line("key_signs", &[("kid", &key.id)], f64::from(u8::from(signs)));
        }
        text.head("key_published_time_seconds", "gauge", "Since when the key is published");
        for key in &self.keys {
            text.line(
                "key_published_time_seconds",
                &[("kid", &key.id)],
                key.published_since as f64,
            );
        }
        text.head("key_needed_until_time_seconds", "gauge", "Until when tokens of an old key live");
        for key in &self.keys {
            if let KeyState::VerifiesUntil(end) = key.work {
                text.line("key_needed_until_time_seconds", &[("kid", &key.id)], end as f64);
            }
        }
        let trouble = self.last_trouble.as_ref().map_or(0, |trouble| trouble.time);
        text.gauge(
            "last_trouble_time_seconds",
            "When something went wrong last, or 0",
            trouble as f64,
        );
    }
}

/// What every name begins with.
const PREFIX: &str = "pkcs11_service_account_signer_";

#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}.\n# TYPE {PREFIX}{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{PREFIX}{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &[], value as f64);
    }
}
