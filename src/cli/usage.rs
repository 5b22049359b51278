//! Help and version, and errors about arguments that this program doesn't have.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::session::CommandOutput;
use super::version;
use crate::start;
use messages::error::PROGRAM;
use messages::report;

/// Prints the help or the version that was asked for, or clap's own error, and returns the exit code.
pub(super) fn not_a_command(mut error: clap::Error) -> u8 {
    if let Some(text) = asked_for(&error) {
        let printed = CommandOutput::open().and_then(|mut output| output.print_painted(&text));
        return printed.map_or_else(|error| report::error(&error), |()| 0);
    }
    let word = unknown_command(&error);
    hide_stray_words(&mut error);
    error.remove(ContextKind::Suggested);
    if let Some(client) = word.filter(|word| is_in_path(word)) {
        let program = start::called();
        let tip =
            format!("'{program} run -- {client} …' runs it with keys that stay in their tokens");
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    report::lines(&format!("{PROGRAM}: {error}"));
    2
}

/// The text of the help or the version, if one was asked for.
fn asked_for(error: &clap::Error) -> Option<String> {
    match error.kind() {
        // The examples begin with the name by which the program was called.
        ErrorKind::DisplayHelp => {
            let begins = |name| format!("\n  {name} ");
            let text = error.to_string().replace(&begins(PROGRAM), &begins(start::called()));
            Some(without_gaps(&text))
        }
        ErrorKind::DisplayVersion => Some(version::text()),
        _ => None,
    }
}

/// The help without the empty lines that clap's long form has between and within options.
fn without_gaps(help: &str) -> String {
    help.replace("\n          \n", "\n")
        .replace("\n\n      --", "\n      --")
        .replace("\n\n  -", "\n  -")
}

/// Takes words that could be a PIN out of clap's error. A word stays if it is almost one of ours, or a command's name.
fn hide_stray_words(error: &mut clap::Error) {
    if error.kind() == ErrorKind::MissingSubcommand {
        return;
    }
    let likely = likely_words(error);
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue]
    {
        let Some(ContextValue::String(word)) = error.get(kind) else { continue };
        let is_own = kind == ContextKind::InvalidArg && word.starts_with(['-', '<']);
        let is_name = kind == ContextKind::InvalidSubcommand && is_command_name(word);
        let is_kept =
            is_own && !word.contains('=') || word.is_empty() || is_typo(word, &likely) || is_name;
        if !is_kept {
            error.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
}

/// Our words that clap takes for the likeliest to be meant, of commands and of values.
fn likely_words(error: &clap::Error) -> Vec<String> {
    let mut likely = Vec::new();
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue] {
        let words = error.get(kind).map_or_else(String::new, ToString::to_string);
        // clap lists the likeliest word last.
        if let Some(word) = words.rsplit(", ").next().filter(|word| !word.is_empty()) {
            likely.push(word.to_owned());
        }
    }
    likely
}

/// Whether the word is about as long as one of those that are likely to be meant.
fn is_typo(word: &str, likely: &[String]) -> bool {
    let is_lower = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    is_lower && likely.iter().any(|other| other.len().abs_diff(word.len()) < 2)
}

/// The word that stands in the place of a command, but is none.
fn unknown_command(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    }
}

/// Whether the word looks like the name of a command or a program, and not like a PIN.
fn is_command_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase()) || is_in_path(word)
}

fn is_in_path(word: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    !word.contains('/') && std::env::split_paths(&folders).any(|folder| folder.join(word).is_file())
}
