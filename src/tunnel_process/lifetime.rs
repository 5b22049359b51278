//! How long a key stays open, by the `keep` settings of the clients that use it.
//!
//! The tunnel process looks again and again whether a key is still kept ([`ServedKey::is_kept`]). It is, as long as one of
//! these keeps it:
//!
//! | what keeps it | known by | until |
//! |---|---|---|
//! | a client that waits for it to be opened | [`WaitingClients`] | the client has its answer |
//! | a connection that is made with it | [`KeyUsage`] | the last connection has ended |
//! | a program that was given the credential | [`Caller`] | it has ended, and its client has connected or had [`limits::FIRST_USE`] |
//! | the claims of all clients together | [`Claim`] | the first of them has run out |
//!
//! A claim with [`Keep::Command`] keeps nothing by itself; one with [`Keep::For`] runs out that long after the key's last use,
//! and one with [`Keep::Terminal`] when the last of the shells has ended. If the token process has ended, the key is lost, and
//! only clients that wait and connections still count: they are told, or need no signature.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::message::{KeyStatus, ProcessStatus};
use super::token_process::TokenProcess;
use config::Keep;
use keyring::{KeyNumber, OpenKey};
use messages::error::listed;
use system::clock::time_since_boot;
use system::limits;
use system::process::WatchedProcess;
use system::process::session_of;
use tunnel::KeyUsage;

/// Until when a key stays open if nothing else keeps it, in words.
const CALLERS_END: &str = "its callers have ended";

/// A key that some client has asked for. It is closed when nothing keeps it open any more.
#[derive(Default)]
pub(super) struct ServedKey {
    pub(super) configuration: Vec<(String, String)>,
    /// The name of its token process.
    pub(super) name: OsString,
    /// The token process in which it is open or being opened; `None` if it is closed.
    pub(super) process: Option<Arc<TokenProcess>>,
    /// The key as clients know it; `None` if it is closed, or was not opened yet.
    pub(super) open: Option<Arc<OpenKey>>,
    /// Warnings of the key's opening that no client could show yet.
    pub(super) untold_warnings: Vec<String>,
    /// The clients that wait for it to be opened.
    pub(super) waiting: WaitingClients,
    pub(super) claims: Vec<Claim>,
    pub(super) callers: Vec<Caller>,
    /// Whether the key was opened for signing any digest: then each admitted client can have one signed.
    pub(super) signs_digests: bool,
    /// When the key was used last, in time since boot.
    pub(super) last_use: Duration,
}

/// The clients that wait for a key to be opened.
#[derive(Default)]
pub(super) struct WaitingClients {
    number: Arc<AtomicUsize>,
}

impl WaitingClients {
    /// Counts one more client.
    pub(super) fn add(&self) -> WaitingClient {
        self.number.fetch_add(1, Ordering::Relaxed);
        WaitingClient { number: Arc::clone(&self.number) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.number.load(Ordering::Relaxed) == 0
    }
}

/// A client that counts as waiting until this is dropped, even if its thread panics.
pub(super) struct WaitingClient {
    number: Arc<AtomicUsize>,
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.number.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A program that was given the credential.
pub(super) struct Caller {
    pub(super) process: WatchedProcess,
    /// The kubeconfig that names the key, as in KUBECONFIG; empty if that is not known.
    pub(super) kubeconfig: String,
    /// Until when the caller's own client may still connect after the caller has ended, in time since boot.
    awaited_until: Duration,
    /// How many connections with the key there will have been once that client has connected.
    awaited: usize,
}

impl Caller {
    fn awaits(&self, usage: KeyUsage) -> bool {
        usage.made < self.awaited && time_since_boot() < self.awaited_until
    }
}

/// A claim of clients that the key stays open, with how long.
pub(super) struct Claim {
    keep: Keep,
    /// With [`Keep::Terminal`], the leader of the session, which is the shell. `None` if it can't be watched: then the
    /// terminal counts as closed.
    pub(super) shell: Option<WatchedProcess>,
    pub(super) kubeconfigs: BTreeSet<String>,
}

impl Claim {
    fn is_of_a_shell_that_has_ended(&self) -> bool {
        self.keep == Keep::Terminal && self.shell.as_ref().is_none_or(WatchedProcess::has_ended)
    }
}

impl ServedKey {
    /// Closes the key. Only [`Served`](super::served::Served) does that, which withdraws the clients' certificate, too.
    pub(super) fn close(&mut self, number: KeyNumber) {
        self.open = None;
        self.signs_digests = false;
        self.untold_warnings.clear();
        self.claims.clear();
        self.callers.clear();
        if let Some(process) = self.process.take() {
            process.close(number);
        }
    }

    /// Whether this is the key with this configuration, in the token process of this name. The source of its PIN doesn't
    /// count.
    pub(super) fn is_for(&self, name: &OsStr, configuration: &[(String, String)]) -> bool {
        let selects = |(key, _): &&(String, String)| key != "pinSource";
        let known = self.configuration.iter().filter(selects);
        self.name == name && known.eq(configuration.iter().filter(selects))
    }

    /// Whether its token process has ended, so that the key isn't open any more.
    pub(super) fn is_lost(&self) -> bool {
        self.open.is_some() && self.process.as_ref().is_none_or(|process| process.has_ended())
    }

    /// Whether it stays open for now.
    pub(super) fn is_kept(&mut self, usage: KeyUsage) -> bool {
        self.callers.retain(|caller| !caller.process.has_ended() || caller.awaits(usage));
        let is_claimed = self.is_claimed(usage);
        // A client that is connected needs no further signature, or is told that there is none.
        let is_used = !self.waiting.is_empty() || usage.open > 0;
        let is_open = self.open.is_some() && !self.is_lost();
        is_used || is_open && (is_claimed || !self.callers.is_empty())
    }

    /// Whether a client may use the key without a PIN: if a claim holds, a client waits, or a caller still runs.
    pub(super) fn admits_clients(&mut self, usage: KeyUsage) -> bool {
        let has_callers = self.callers.iter().any(|caller| !caller.process.has_ended());
        self.is_claimed(usage) || !self.waiting.is_empty() || has_callers
    }

    /// True if there are claims and every kind holds. One expired kind is enough to close; for shells, the last shell
    /// counts.
    fn is_claimed(&mut self, usage: KeyUsage) -> bool {
        self.forget_shells_that_have_ended();
        let now = time_since_boot();
        self.last_use = match usage.last_end {
            _ if usage.open > 0 => now,
            last_end => self.last_use.max(last_end.unwrap_or_default()),
        };
        let unused = now.saturating_sub(self.last_use);
        let holds = |claim: &Claim| match claim.keep {
            Keep::Command => false,
            Keep::For(limit) => unused < limit,
            Keep::Terminal => !claim.is_of_a_shell_that_has_ended(),
        };
        !self.claims.is_empty() && self.claims.iter().all(holds)
    }

    /// Drops the claims of shells that have ended, as long as another shell has one.
    fn forget_shells_that_have_ended(&mut self) {
        let lives =
            |claim: &Claim| claim.keep == Keep::Terminal && !claim.is_of_a_shell_that_has_ended();
        if self.claims.iter().any(lives) {
            self.claims.retain(|claim| !claim.is_of_a_shell_that_has_ended());
        }
    }

    /// Keeps the key open for the caller. A caller that is not the client itself may end before the client connects.
    pub(super) fn add_caller(
        &mut self,
        process: WatchedProcess,
        kubeconfig: &str,
        usage: KeyUsage,
        awaits_client: bool,
    ) {
        let is_known = |caller: &Caller| {
            caller.process.number() == process.number() && !caller.process.has_ended()
        };
        if self.callers.iter().any(is_known) {
            return;
        }
        let awaited = self.callers.iter().filter(|caller| caller.awaits(usage)).count();
        self.callers.push(Caller {
            process,
            kubeconfig: kubeconfig.to_owned(),
            awaited_until: time_since_boot().saturating_add(limits::FIRST_USE),
            awaited: usage.made + awaited + usize::from(awaits_client),
        });
    }

    /// Keeps the key open for as long as this client wants. The client has the key from this kubeconfig.
    pub(super) fn keep(&mut self, keep: Keep, client: i32, kubeconfig: &str) {
        let shell = match keep {
            Keep::Terminal => WatchedProcess::new(session_of(client)).ok(),
            Keep::Command | Keep::For(_) => None,
        };
        self.forget_shells_that_have_ended();
        let number = shell.as_ref().map(WatchedProcess::number);
        let is_same = |claim: &&mut Claim| {
            claim.keep == keep && claim.shell.as_ref().map(WatchedProcess::number) == number
        };
        let kubeconfig = Some(kubeconfig.to_owned()).filter(|file| !file.is_empty());
        if let Some(claim) = self.claims.iter_mut().find(is_same) {
            // The shell's process number may have been that of one that has ended.
            claim.shell = shell;
            claim.kubeconfigs.extend(kubeconfig);
        } else {
            self.claims.push(Claim { keep, shell, kubeconfigs: kubeconfig.into_iter().collect() });
        }
    }

    /// What `status` shows of the key, if it is open.
    pub(super) fn status(&self, usage: KeyUsage) -> Option<KeyStatus> {
        let (open, process) = self.open.as_ref().zip(self.process.as_ref())?;
        let callers = self.callers.iter();
        let shells = self.claims.iter().filter_map(|claim| claim.shell.as_ref());
        let mut kubeconfigs: BTreeSet<_> =
            self.claims.iter().flat_map(|claim| claim.kubeconfigs.clone()).collect();
        kubeconfigs.extend(callers.clone().map(|caller| caller.kubeconfig.clone()));
        kubeconfigs.remove("");
        Some(KeyStatus {
            subject: open.subject.clone(),
            token: open.token.clone(),
            process: process.number(),
            configuration: self.configuration.clone(),
            signs_digests: self.signs_digests,
            connections: usage.open,
            kubeconfigs,
            callers: callers.filter_map(|caller| ProcessStatus::of(&caller.process)).collect(),
            shells: shells.filter_map(ProcessStatus::of).collect(),
            until: self.until(),
        })
    }

    /// Until when the key stays open, in words.
    fn until(&self) -> String {
        let shells = self.claims.iter().filter_map(|claim| claim.shell.as_ref());
        let shells = shells.filter(|shell| !shell.has_ended());
        let shells = shells.map(|shell| format!("{} (process {})", shell.name(), shell.number()));
        let shells_end = match shells.collect::<Vec<_>>().as_slice() {
            [] => CALLERS_END.to_owned(),
            [shell] => format!("{shell} ends"),
            shells => format!("{} have ended", listed(shells, "and")),
        };
        let ends = self.claims.iter().map(|claim| match claim.keep {
            Keep::Command => CALLERS_END.to_owned(),
            Keep::For(_) => format!("{} after its last use", claim.keep),
            Keep::Terminal => shells_end.clone(),
        });
        // Each text once, also if several shells have the same.
        let ends: BTreeSet<_> = ends.collect();
        ends.into_iter().collect::<Vec<_>>().join(", or ")
    }
}
