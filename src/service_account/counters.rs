//! What a signer counts, for a person and for a monitor.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use messages::error::Error;
use system::clock::unix_time;
use system::locked;

/// The upper ends of the ranges in which times are counted, in milliseconds.
const RANGES: [u64; 11] = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000, 30_000];

/// Counted from the start of the signer.
#[derive(Default)]
pub(crate) struct Counters {
    /// By the key's id.
    signatures: Mutex<BTreeMap<String, u64>>,
    /// By the name of gRPC's status code.
    failures: Mutex<BTreeMap<&'static str, u64>>,
    fetches: AtomicU64,
    /// Requests for tokens that are not answered yet.
    open: AtomicU64,
    most_open: AtomicU64,
    starts: AtomicU64,
    times: [AtomicU64; RANGES.len()],
    microseconds: AtomicU64,
    last_trouble: Mutex<Option<SignerTrouble>>,
}

/// What went wrong last.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SignerTrouble {
    /// In seconds since 1970.
    pub time: i64,
    pub message: String,
}

/// The counters as they are at a moment.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// By the key's id.
    pub signatures: BTreeMap<String, u64>,
    /// By the name of gRPC's status code.
    pub failures: BTreeMap<String, u64>,
    /// How often API servers have fetched the keys.
    pub fetches: u64,
    pub open_requests: u64,
    pub most_open_requests: u64,
    /// How often a process was started for the token.
    pub token_process_starts: u64,
    pub times: Vec<TimeRange>,
    /// What all signatures took together, in seconds.
    pub seconds: f64,
}

/// How many signatures took at most so long.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeRange {
    pub at_most_seconds: f64,
    pub signatures: u64,
}

/// A request for a token that is not answered yet.
pub(crate) struct OpenRequest<'a>(&'a Counters);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// A request for a token is open until the result is dropped.
    pub(crate) fn open_request(&self) -> OpenRequest<'_> {
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_open.fetch_max(open, Ordering::Relaxed);
        OpenRequest(self)
    }

    /// How many requests for tokens are not answered yet.
    pub(crate) fn open_requests(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn signed(&self, key: &str, took: Duration) {
        let mut signatures = locked(&self.signatures);
        match signatures.get_mut(key) {
            Some(count) => *count += 1,
            None => drop(signatures.insert(key.to_owned(), 1)),
        }
        drop(signatures);
        for (time, range) in self.times.iter().zip(RANGES) {
            if took <= Duration::from_millis(range) {
                time.fetch_add(1, Ordering::Relaxed);
            }
        }
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// A request was answered with this gRPC status.
    pub(crate) fn failed(&self, code: &'static str) {
        *locked(&self.failures).entry(code).or_default() += 1;
    }

    pub(crate) fn fetched(&self) {
        self.fetches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn started(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the error as the last trouble. Returns whether it is another one than before.
    pub(crate) fn trouble(&self, error: &Error) -> bool {
        let message = error.sentence();
        let mut last = locked(&self.last_trouble);
        let is_news = last.as_ref().is_none_or(|last| last.message != message);
        *last = Some(SignerTrouble { time: unix_time(), message });
        is_news
    }

    pub(crate) fn last_trouble(&self) -> Option<SignerTrouble> {
        locked(&self.last_trouble).clone()
    }

    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failures = locked(&self.failures);
        let range = |(time, milliseconds): (&AtomicU64, u64)| TimeRange {
            at_most_seconds: Duration::from_millis(milliseconds).as_secs_f64(),
            signatures: read(time),
        };
        Counts {
            signatures: locked(&self.signatures).clone(),
            failures: failures.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect(),
            fetches: read(&self.fetches),
            open_requests: self.open_requests(),
            most_open_requests: read(&self.most_open),
            token_process_starts: read(&self.starts),
            times: self.times.iter().zip(RANGES).map(range).collect(),
            seconds: Duration::from_micros(read(&self.microseconds)).as_secs_f64(),
        }
    }
}
