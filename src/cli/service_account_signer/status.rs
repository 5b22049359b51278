//! `service-account-signer status`: what a signer does, where a rotation stands, and what to do next.

use std::path::PathBuf;

use clap::ValueHint;

use super::{SOCKET, SignerArguments, SignerCommand};
use crate::cli::session::{BAD, CommandOutput, CommandSession, GOOD};
use crypto::certificate::minute;
use messages::error::Error;
use messages::printable::printable;
use service_account::{
    KeyState, PublishedKeyStatus, SignerStatus, SignerTrouble, TokenStatus, signer_status,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer service-account-signer status
  pkcs11-external-signer service-account-signer status --metrics >signer.prom

A monitor can read the socket itself: curl --unix-socket SOCKET http://localhost/metrics")]
pub(super) struct StatusArguments {
    /// The signer's socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, default_value = SOCKET)]
    socket: PathBuf,
    /// Print a JSON document
    #[arg(long, conflicts_with = "metrics")]
    json: bool,
    /// Print counters in Prometheus's text format
    #[arg(long)]
    metrics: bool,
}

pub(in crate::cli) fn run(
    arguments: &SignerArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let Some(SignerCommand::Status(arguments)) = &arguments.command else {
        return Err(Error::internal("a signer in a session"));
    };
    let status = signer_status(&arguments.socket)?;
    if arguments.json {
        return session.output.print_json(&status);
    }
    if arguments.metrics {
        return session.output.print_document(&status.metrics());
    }
    let text = text(&status, &session.output);
    session.output.print_painted(&text)
}

/// As a person reads it.
fn text(status: &SignerStatus, output: &CommandOutput) -> String {
    let mut lines = vec![token(status, output)];
    let life = length(status.longest_life_seconds);
    lines.extend(status.keys.iter().map(|key| key_line(key, &life, output)));
    lines.push(plain(&counts(status), output));
    if let Some(SignerTrouble { time, message }) = &status.last_trouble {
        lines.push(plain(&format!("last trouble at {}: {message}", minute(*time)), output));
    }
    lines.push(plain(&format!("next: {}", next(status)), output));
    lines.concat()
}

fn plain(line: &str, output: &CommandOutput) -> String {
    format!("{}\n", output.folded(&printable(line), 0, 2))
}

fn token(status: &SignerStatus, output: &CommandOutput) -> String {
    let (mark, text) = match &status.token {
        TokenStatus::Open => (output.paint(GOOD, "✔"), "can sign".to_owned()),
        TokenStatus::Opening => (output.paint(BAD, "✘"), "the token is being opened".to_owned()),
        TokenStatus::Failed(error) => {
            (output.paint(BAD, "✘"), format!("can't sign, and tries again: {error}"))
        }
        TokenStatus::WaitsForPerson(error) => (
            output.paint(BAD, "✘"),
            format!("can't sign until somebody has done something: {error}"),
        ),
    };
    let line = format!("process {} since {}: {text}", status.pid, minute(status.started));
    format!("{mark} {}\n", output.folded(&printable(&line), 2, 2).trim_start())
}

/// A length of time, given in seconds, in the longest unit that has a whole number of it.
fn length(seconds: i64) -> String {
    let units = [(86400, "days"), (3600, "hours"), (60, "minutes")];
    let whole = units.into_iter().find(|(unit, _)| seconds % unit == 0);
    let (unit, name) = whole.unwrap_or((1, "seconds"));
    format!("{} {name}", seconds / unit)
}

/// A key, with what it does; `life` is the longest life of a token.
fn key_line(key: &PublishedKeyStatus, life: &str, output: &CommandOutput) -> String {
    let work = match key.work {
        KeyState::Signs => "signs new tokens".to_owned(),
        KeyState::SignsFrom(time) => format!("is published, and signs from {} on", minute(time)),
        KeyState::VerifiesUntil(time) => {
            format!("verifies old tokens, the last one until {}", minute(time))
        }
        KeyState::VerifiesForOthers => {
            format!("verifies tokens of others, until {life} after the last one has signed with it")
        }
        KeyState::NotNeeded => "is not needed any more".to_owned(),
    };
    let PublishedKeyStatus { name, id, kind, published_since, .. } = key;
    let hidden = if key.is_hidden { ", hidden" } else { "" };
    let since = minute(*published_since);
    plain(&format!("key {name} ({kind}, kid {id}{hidden}) {work}; published since {since}"), output)
}

fn counts(status: &SignerStatus) -> String {
    let counts = &status.counts;
    let signatures: u64 = counts.signatures.values().sum();
    let failures: u64 = counts.failures.values().sum();
    let average = if signatures > 0 { counts.seconds * 1000.0 / signatures as f64 } else { 0.0 };
    format!(
        "{signatures} tokens signed in {average:.1} ms each, {failures} requests failed, {} open; keys fetched {} times",
        counts.open_requests, counts.fetches
    )
}

/// What to do next in a rotation, or against what keeps the signer from signing.
fn next(status: &SignerStatus) -> String {
    match &status.token {
        TokenStatus::WaitsForPerson(_) => format!(
            "mend what is said above; then have the signer try again: kill -HUP {}, or restart its service if the PIN is one \
             of systemd's credentials",
            status.pid
        ),
        TokenStatus::Failed(_) => "nothing; it tries again by itself every few seconds".to_owned(),
        TokenStatus::Open | TokenStatus::Opening => next_of_rotation(status),
    }
}

/// What to do next in a rotation.
fn next_of_rotation(status: &SignerStatus) -> String {
    let named = |wanted: fn(&KeyState) -> bool| status.keys.iter().find(|key| wanted(&key.work));
    let list = &status.list;
    if let Some(key) = named(|work| matches!(work, KeyState::SignsFrom(_))) {
        return format!(
            "nothing; list {} for the signers of all other API servers of the cluster before it signs",
            key.name
        );
    }
    if let Some(key) = named(|work| *work == KeyState::NotNeeded) {
        return format!("take {} out of {list}, and then: kill -HUP {}", key.name, status.pid);
    }
    if let Some(key) = named(|work| matches!(work, KeyState::VerifiesUntil(_))) {
        return format!("nothing; leave {} in {list} until its tokens have expired", key.name);
    }
    if let Some(key) = named(|work| *work == KeyState::VerifiesForOthers) {
        return format!(
            "nothing; leave {} in {list} until {} after the last API server or signer has stopped signing with it",
            key.name,
            length(status.longest_life_seconds)
        );
    }
    if list == "--key" {
        return "nothing; for a rotation, start the signer with --keys and a list in a file"
            .to_owned();
    }
    format!(
        "nothing; for a rotation, make a key, write it into the first line of {list}, and then: kill -HUP {}",
        status.pid
    )
}
