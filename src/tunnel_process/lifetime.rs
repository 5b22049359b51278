//! How long a key stays open, by the `keep` settings of those who use it.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::token_process::TokenProcess;
use base::process::watched::WatchedProcess;
use base::process::{session_of, time_since_boot};
use config::Keep;
use keyring::{KeyNumber, OpenKey};
use tunnel::KeyUsage;

/// How long a key stays open for a client that can't be watched: it was handed the credential by a program
/// that has ended since, such as a script around the plugin. Clients connect at once.
const FIRST_USE: Duration = Duration::from_secs(15);

/// A key that was asked for once. It is closed when no request keeps it.
#[derive(Default)]
pub(super) struct ServedKey {
    pub(super) configuration: Vec<(String, String)>,
    /// Names its token process.
    pub(super) name: OsString,
    /// The one in which it is open, or is being opened.
    pub(super) process: Option<Arc<TokenProcess>>,
    pub(super) open: Option<Arc<OpenKey>>,
    /// Clients that wait for it to be opened.
    pub(super) waiting: usize,
    pub(super) keep_requests: Vec<KeepRequest>,
    pub(super) callers: Vec<Caller>,
    /// In time since boot.
    pub(super) last_use: Duration,
}

/// A program that was given the credential.
pub(super) struct Caller {
    pub(super) process: WatchedProcess,
    /// In time since boot: how long its own client may take to connect once it has ended.
    awaited_until: Duration,
    /// How many connections the key will have had then.
    awaited: usize,
}

impl Caller {
    fn awaits(&self, usage: KeyUsage) -> bool {
        usage.made < self.awaited && time_since_boot() < self.awaited_until
    }
}

pub(super) struct KeepRequest {
    keep: Keep,
    /// With [`Keep::Terminal`], the session's leader.
    bound_to: Option<WatchedProcess>,
}

impl ServedKey {
    pub(super) fn close(&mut self, number: KeyNumber) {
        self.open = None;
        self.keep_requests.clear();
        self.callers.clear();
        self.process.take().into_iter().for_each(|process| process.close(number));
    }

    /// Whether it is open no longer, with its process.
    pub(super) fn is_lost(&self) -> bool {
        self.open.is_some() && self.process.as_ref().is_none_or(|process| process.has_ended())
    }

    /// Whether it stays open for now.
    pub(super) fn is_kept(&mut self, usage: KeyUsage) -> bool {
        self.callers.retain(|it| !it.process.has_ended() || it.awaits(usage));
        let is_requested = self.is_requested(usage);
        // Who is connected is told, or needs no signature.
        let is_used = self.waiting > 0 || usage.open > 0;
        is_used || !self.is_lost() && (is_requested || !self.callers.is_empty())
    }

    /// Whether a further client may use it without a PIN: not what one whose caller has ended had opened.
    pub(super) fn admits_clients(&mut self, usage: KeyUsage) -> bool {
        let has_callers = self.callers.iter().any(|it| !it.process.has_ended());
        self.is_requested(usage) || self.waiting > 0 || has_callers
    }

    /// A key that isn't in use is closed with the first `keep` that has run out.
    fn is_requested(&mut self, usage: KeyUsage) -> bool {
        let now = time_since_boot();
        self.last_use = match usage.last_end {
            _ if usage.open > 0 => now,
            last_end => self.last_use.max(last_end.unwrap_or_default()),
        };
        let unused = now.saturating_sub(self.last_use);
        let keeps = |it: &KeepRequest| match (it.keep, &it.bound_to) {
            (Keep::Terminal, Some(leader)) => !leader.has_ended(),
            // If the session leader can't be watched, the terminal counts as closed.
            (Keep::Command | Keep::Terminal, _) => false,
            (Keep::For(limit), _) => unused < limit,
        };
        !self.keep_requests.is_empty() && self.keep_requests.iter().all(keeps)
    }

    /// Keeps it open for the caller; one that is not the client itself may end before the client connects.
    pub(super) fn add_caller(
        &mut self,
        process: WatchedProcess,
        usage: KeyUsage,
        awaits_client: bool,
    ) {
        let is_known =
            |it: &Caller| it.process.number() == process.number() && !it.process.has_ended();
        if self.callers.iter().any(is_known) {
            return;
        }
        let awaited = self.callers.iter().filter(|it| it.awaits(usage)).count();
        self.callers.push(Caller {
            process,
            awaited_until: time_since_boot().saturating_add(FIRST_USE),
            awaited: usage.made + awaited + usize::from(awaits_client),
        });
    }

    /// Keeps it open as this client wants it.
    pub(super) fn keep(&mut self, keep: Keep, client: i32) {
        let leader = || WatchedProcess::new(session_of(client)).ok();
        let bound_to = (keep == Keep::Terminal).then(leader).flatten();
        let number = |it: &Option<WatchedProcess>| it.as_ref().map(|it| it.number());
        let is_known =
            |it: &KeepRequest| it.keep == keep && number(&it.bound_to) == number(&bound_to);
        if !self.keep_requests.iter().any(is_known) {
            self.keep_requests.push(KeepRequest { keep, bound_to });
        }
    }

    /// Until when it stays open, in words.
    pub(super) fn until(&self) -> String {
        const CALLERS: &str = "its callers have ended";
        let until = |it: &KeepRequest| match (it.keep, &it.bound_to) {
            (Keep::Terminal, Some(leader)) => {
                format!("{} (process {}) ends", leader.name(), leader.number())
            }
            (Keep::For(_), _) => format!("{} after its last use", it.keep),
            (Keep::Command | Keep::Terminal, _) => CALLERS.to_owned(),
        };
        match &*self.keep_requests {
            [] => CALLERS.to_owned(),
            requests => requests.iter().map(until).collect::<Vec<_>>().join(", or "),
        }
    }
}
