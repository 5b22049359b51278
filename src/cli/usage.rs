//! Help and version, and what is said of arguments that are none of the program's.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::session::CommandOutput;
use super::version;
use crate::start;
use messages::error::PROGRAM;
use messages::report;

/// Prints the help or version that was asked for, or clap's own error; the exit code.
pub(super) fn not_a_command(mut error: clap::Error) -> u8 {
    let text = match error.kind() {
        // Its examples begin with the name that it was called by.
        ErrorKind::DisplayHelp => {
            let begins = |name| format!("\n  {name} ");
            Some(error.to_string().replace(&begins(PROGRAM), &begins(start::called())))
        }
        ErrorKind::DisplayVersion => Some(version::text()),
        _ => None,
    };
    if let Some(text) = text {
        let printed = CommandOutput::open().and_then(|mut output| output.print_painted(&text));
        return printed.map_or_else(|error| report::error(&error), |()| 0);
    }
    let word = unknown_command(&error);
    // A stray word is not repeated, since it could be a PIN, unless it is one of ours but for a letter or so, or a
    // command's name.
    let likely = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .map(|kind| error.get(kind).map_or_else(String::new, ToString::to_string));
    let is_typo = |word: &str| {
        let is_lower = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        // The likeliest is the last one.
        let mut likely = likely.iter().filter_map(|words| words.rsplit(", ").next());
        is_lower && likely.any(|other| !other.is_empty() && other.len().abs_diff(word.len()) < 2)
    };
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue]
    {
        let is_kept = match error.get(kind) {
            Some(ContextValue::String(word)) => {
                let is_own = kind == ContextKind::InvalidArg && word.starts_with(['-', '<']);
                let is_name = kind == ContextKind::InvalidSubcommand && is_command_name(word);
                is_own && !word.contains('=') || word.is_empty() || is_typo(word) || is_name
            }
            _ => true,
        };
        if !is_kept && error.kind() != ErrorKind::MissingSubcommand {
            error.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
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

/// The word that stands where a command would, and is none.
fn unknown_command(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    }
}

/// Whether it looks like a command's name, and not like a PIN: letters alone, or a program's name.
fn is_command_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase()) || is_in_path(word)
}

fn is_in_path(word: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    !word.contains('/') && std::env::split_paths(&folders).any(|folder| folder.join(word).is_file())
}
