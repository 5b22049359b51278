//! Errors with exit code 3: the kubeconfig, as files and as what they name.
//!
//! A kubeconfig can hold a PIN, a token or a key, so no text quotes a value of one: files, places, fields and
//! the names of entries are all it says.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use messages::error::{Error, Exit, Kind, listed};
use messages::help::{Command, Help, HelpPart, command};

/// The kubeconfig names no key for the context that is meant.
pub const NO_CONTEXT_KEY: Kind = Kind::new("no context key");

/// The error for a context that names no key. Some commands look for a key themselves then.
fn no_key(text: impl Into<String>, help: impl Into<Help>) -> Error {
    error(text, help).kind(NO_CONTEXT_KEY)
}

pub(super) fn missing(paths: &[PathBuf]) -> Error {
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    match names.as_slice() {
        [] => no_key(
            "there is no kubeconfig to look for: HOME is not set",
            "set HOME, or name the file with --kubeconfig or KUBECONFIG",
        ),
        names => no_key(
            format!("there is no kubeconfig {}", listed(names, "or")),
            "correct --kubeconfig or KUBECONFIG, or put the kubeconfig there that the cluster's operators \
             give out",
        ),
    }
}

pub(super) fn no_current_context() -> Error {
    no_key(
        "the kubeconfig has no current-context",
        Help::from("name one with --context; ").and(shown("contexts")),
    )
}

/// The error for a context whose user has neither this program as its `exec` plugin nor the auth provider.
pub fn other_user(user: &str, context: &str) -> Error {
    let help = Help::from("name a context with --context; or make a key for this one (")
        .and(for_context("enroll"))
        .and("), or have it use one that has its certificate (")
        .and(write_command())
        .and(")");
    no_key(format!("user \"{user}\" of context \"{context}\" has no key for this program"), help)
}

pub(super) fn error(text: impl Into<String>, help: impl Into<Help>) -> Error {
    Error::new(Exit::Configuration, text).help(help)
}

/// The command that writes what this call's context needs.
pub fn write_command() -> Help {
    for_context("kubeconfig --write").into()
}

/// The command with these arguments, for this call's context.
fn for_context(arguments: &str) -> Command {
    command(arguments).and(HelpPart::Kubeconfig).and(" --context ").and(HelpPart::Context)
}

pub(super) fn absent(kind: &str, name: &str) -> Error {
    error(
        format!("the kubeconfig has no {kind} \"{name}\""),
        Help::from("name one that is there; ").and(shown(&format!("{kind}s"))),
    )
}

fn shown(list: &str) -> Help {
    Help::from(format!("`kubectl config get-{list}")).and(HelpPart::Kubeconfig).and("` lists them")
}

/// The error for a kubeconfig that can't be read, for this reason.
pub fn unreadable(path: &Path, reason: impl Display) -> Error {
    error(
        format!("kubeconfig {} can't be read: {reason}", path.display()),
        "make it a file that you can read, or take it out of KUBECONFIG",
    )
}

pub(super) fn unwritable(path: &Path, reason: impl Display) -> Error {
    error(
        format!("kubeconfig {} can't be written: {reason}", path.display()),
        Help::from("correct that, or paste what ")
            .and(command("kubeconfig").and(HelpPart::Key))
            .and(" prints; the file was not touched"),
    )
}
