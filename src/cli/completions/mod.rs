//! `completions`: the script that lets a shell complete this program's commands and options.

#![forbid(unsafe_code)]

pub(super) mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap_complete::{CompletionCandidate, Shell, generate};

use super::output::CommandOutput;
use crate::error::{Error, PROGRAM};
use crate::printable::is_harmful;
use crate::report;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer completions bash \\
      > ~/.local/share/bash-completion/completions/pkcs11-external-signer
  pkcs11-external-signer completions zsh \\
      > \"${fpath[1]}/_pkcs11-external-signer\"
  pkcs11-external-signer completions fish \\
      > ~/.config/fish/completions/pkcs11-external-signer.fish

The packages install those of bash, zsh and fish.")]
pub(super) struct CompletionsArguments {
    shell: Shell,
}

/// The name under which kubectl asks for the completions of its plugin `kubectl-pkcs11`.
pub(super) const KUBECTLS: &str = "kubectl_complete-pkcs11";

/// The command by which the scripts of the shells ask, with `--` before the words.
const COMMAND: &str = "__complete";

/// Prints the script; the exit code.
#[cold]
pub(super) fn run(arguments: &CompletionsArguments) -> u8 {
    let script = match arguments.shell {
        Shell::Bash => include_str!("script.bash").to_owned(),
        Shell::Fish => include_str!("script.fish").to_owned(),
        Shell::Zsh => include_str!("script.zsh").to_owned(),
        // Commands and options alone.
        shell => {
            let (mut script, name) = (Vec::new(), PROGRAM);
            generate(shell, &mut super::command(), name, &mut script);
            String::from_utf8_lossy(&script).into_owned()
        }
    };
    let sent = CommandOutput::open().and_then(|mut output| output.print(&script));
    match sent.map_err(Error::from) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    }
}

/// The words to complete, where that is what was asked for: what stands behind the program's name,
/// the last one up to the cursor.
pub(super) fn asked_for() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let own = arguments.next().map(PathBuf::from);
    let is_kubectl = own.is_some_and(|own| own.file_name().is_some_and(|name| name == KUBECTLS));
    let mut words: Vec<_> = match arguments.next() {
        first if is_kubectl => first.into_iter().chain(arguments).collect(),
        Some(first) if first == COMMAND => arguments.skip(1).collect(),
        _ => return None,
    };
    if words.is_empty() {
        words.push(OsString::new());
    }
    Some(words)
}

/// Prints what may stand in place of the last word: a candidate a line, what it is behind a tab;
/// and in a last line
///
/// - `:4` where that is all, `:0` where a file's name may stand there, too (cobra's
///   ShellCompDirective)
/// - `:command N` where it is of the command of a `run`, before which stand N words, the program's
///   name among them. kubectl is told of files.
///
/// Nothing is ever written to standard error. The exit code.
#[cold]
pub(super) fn complete(words: Vec<OsString>) -> u8 {
    let Ok(mut output) = CommandOutput::open() else {
        return 2;
    };
    let is_kubectl = std::env::args_os().nth(1).is_none_or(|it| it != COMMAND);
    let answer = match values::before_command(&words) {
        Some(_) if is_kubectl => ":0".to_owned(),
        Some(count) => format!(":command {count}"),
        None => candidates(words),
    };
    match output.print(&format!("{answer}\n")) {
        Ok(()) => 0,
        Err(_) => 2,
    }
}

fn candidates(words: Vec<OsString>) -> String {
    let count = words.len();
    let is_option = |word: &str| word.starts_with('-');
    let wants_option = words.last().is_some_and(|it| is_option(&it.to_string_lossy()));
    let line = [PROGRAM.into()].into_iter().chain(words).collect();
    let found = clap_complete::engine::complete(&mut super::command(), line, count, None);
    let (files, found): (Vec<_>, Vec<_>) =
        found.unwrap_or_default().into_iter().partition(values::is_file);
    let mut lines: Vec<_> = found.iter().filter_map(as_line).collect();
    if !wants_option && lines.iter().any(|line| !is_option(line)) {
        lines.retain(|line| !is_option(line));
    }
    lines.push(if files.is_empty() { ":4" } else { ":0" }.to_owned());
    lines.join("\n")
}

/// `None` for what a shell would take for something else.
fn as_line(candidate: &CompletionCandidate) -> Option<String> {
    let value = candidate.get_value().to_str()?;
    if value.is_empty() || value.starts_with(':') || value.contains(is_harmful) {
        return None;
    }
    let help = candidate.get_help().map(ToString::to_string);
    let help = help.as_deref().and_then(|help| help.lines().next());
    Some(match help {
        Some(help) => format!("{value}\t{help}"),
        None => value.to_owned(),
    })
}
