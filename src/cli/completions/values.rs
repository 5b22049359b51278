//! What may be the value of an option: contexts, libraries, tokens, keys, PIN sources.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches as _};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};

use crate::cli::listing::{self, Listing};
use crate::cli::selection::Selection;
use crate::cli::{command, locations};
use crate::discovery::{self, Installed};
use crate::error::PROGRAM;
use crate::kubeconfig::Kubeconfig;

/// How long all tokens of the machine may take while a person waits for the shell.
const LIMIT: Duration = Duration::from_millis(800);

/// What marks the place of a file's name: shells know best how to complete one.
const FILE: &str = "file";

pub(in crate::cli) fn files() -> ArgValueCompleter {
    ArgValueCompleter::new(|_: &OsStr| vec![a_file()])
}

pub(in crate::cli) fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let contexts = kubeconfig().map(|it| it.contexts());
        let names = contexts.into_iter().flatten().map(|context| context.name);
        names.map(CompletionCandidate::new).collect()
    })
}

pub(in crate::cli) fn users() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = kubeconfig().map(|it| it.user_names());
        let names = names.into_iter().flatten();
        names.map(CompletionCandidate::new).collect()
    })
}

pub(in crate::cli) fn pin_sources() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        if current.starts_with("file:") {
            return vec![a_file()];
        }
        [
            ("prompt", "asked on the terminal"),
            ("askpass", "asked by pinentry or another program"),
            ("stdin", "a line of standard input"),
            ("file:", "in a file that only you can read"),
            ("env:", "in a variable"),
        ]
        .into_iter()
        .filter(|(word, _)| word.starts_with(&*current))
        .map(|(word, help)| CompletionCandidate::new(word).help(Some(help.into())))
        .collect()
    })
}

pub(in crate::cli) fn keeps() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let known = [
            ("command", "until the command ends"),
            ("terminal", "until the terminal is closed"),
            ("15m", "that long after the last use"),
        ];
        let candidate = |(word, help): (&str, &'static str)| {
            CompletionCandidate::new(word).help(Some(help.into()))
        };
        known.into_iter().map(candidate).collect()
    })
}

pub(in crate::cli) fn modules() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.to_string_lossy();
        let paths = libraries().into_iter().map(|library| library.path);
        paths
            .filter(|path| path.to_string_lossy().starts_with(&*current))
            .map(CompletionCandidate::new)
            .chain([a_file()])
            .collect()
    })
}

pub(in crate::cli) fn slot_ids() -> ArgValueCandidates {
    of_tokens(|token| (token.slot_id.to_string(), token.token_label.clone()))
}

pub(in crate::cli) fn token_labels() -> ArgValueCandidates {
    of_tokens(|token| (token.token_label.clone(), token.token_serial.clone()))
}

pub(in crate::cli) fn token_serials() -> ArgValueCandidates {
    of_tokens(|token| (token.token_serial.clone(), token.token_label.clone()))
}

pub(in crate::cli) fn object_ids() -> ArgValueCandidates {
    of_keys(|key| {
        let id = key.object_id.clone().unwrap_or_default();
        (id, format!("{} {}", key.kind, key.object_label))
    })
}

pub(in crate::cli) fn object_labels() -> ArgValueCandidates {
    of_keys(|key| (key.object_label.clone(), key.kind.clone()))
}

/// Whether the candidate stands for the names of files.
pub(super) fn is_file(candidate: &CompletionCandidate) -> bool {
    candidate.get_tag().is_some_and(|tag| tag.to_string() == FILE)
}

/// How many words stand before the command of a `run`, the program's name among them, where the
/// last word is one of that command.
pub(super) fn before_command(words: &[OsString]) -> Option<usize> {
    let (name, matches) = matches(words)?;
    if name != "run" {
        return None;
    }
    let command = matches.get_many::<OsString>("command")?;
    let before = (words.len() + 1).checked_sub(command.len())?;
    // An option whose name has just begun is taken for a command's name.
    let last = words.last()?.to_string_lossy();
    let is_escaped = before.checked_sub(2).and_then(|at| words.get(at));
    let is_option = last.starts_with('-') && command.len() == 1;
    (!is_option || is_escaped.is_some_and(|word| word == "--")).then_some(before)
}

fn a_file() -> CompletionCandidate {
    CompletionCandidate::new("").tag(Some(FILE.into()))
}

/// The command's name and what its words say, however little there is of it yet.
fn matches(words: &[OsString]) -> Option<(String, ArgMatches)> {
    // Shells hand on what was typed.
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let expanded = |word: &OsString| match (Path::new(word).strip_prefix("~"), &home) {
        (Ok(rest), Some(home)) => home.join(rest).into_os_string(),
        _ => word.clone(),
    };
    let line = [PROGRAM.into()].into_iter().chain(words.iter().map(expanded));
    let matches = command().ignore_errors(true).try_get_matches_from(line);
    let (name, matches) = matches.ok()?.remove_subcommand()?;
    Some((name, matches))
}

/// What stands on the line to be completed.
fn typed() -> Option<ArgMatches> {
    let words = super::asked_for()?;
    Some(matches(&words)?.1)
}

/// The one that the line names, or kubectl's own. A pipe isn't read: its next reader would find it empty.
fn kubeconfig() -> Option<Kubeconfig> {
    let typed = typed()?;
    let named = typed.try_get_one::<PathBuf>("kubeconfig").ok().flatten();
    let named = named.map(PathBuf::as_path);
    let is_file = |path: &PathBuf| !path.exists() || path.is_file();
    let locations = locations(named);
    let is_all_files = locations.files().iter().all(is_file);
    is_all_files.then(|| Kubeconfig::load(&locations).ok())?
}

fn libraries() -> Vec<Installed> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    discovery::libraries(home.as_deref())
}

/// A candidate for each token of the library that the line names, or of all.
fn of_tokens(describe: fn(&listing::TokenEntry) -> (String, String)) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let selection = selection();
        let library = Selection {
            module: selection.module,
            init_args: selection.init_args,
            ..Selection::default()
        };
        let listing = look(&library);
        distinct(listing.tokens().map(describe))
    })
}

/// A candidate for each key that is seen on the token that the line names, or on all.
fn of_keys(describe: fn(&listing::KeyEntry) -> (String, String)) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        let listing = look(&selection().of_token());
        distinct(listing.keys().map(|(_, _, key)| describe(key)))
    })
}

fn distinct(found: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let candidate = |(value, help): (String, String)| {
        CompletionCandidate::new(&value).help(Some(help.trim().to_owned().into())).id(Some(value))
    };
    found.map(candidate).collect()
}

fn selection() -> Selection {
    let typed = typed().unwrap_or_default();
    Selection::from_arg_matches(&typed).unwrap_or_default()
}

/// Without a login, in processes of their own, and only what answers at once.
fn look(selection: &Selection) -> Listing {
    listing::list_briefly(selection, libraries(), LIMIT)
}
