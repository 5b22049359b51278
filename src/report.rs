//! The only writer to standard error, and of what `--help` and `--version` print.
//!
//! Standard error is shared with the client and with other requests: each message bears the
//! program's name and is written at once, so that processes side by side don't mix their lines.
//! Nothing from a token, a file or a request reaches the terminal raw. A standard error that takes no
//! text is no error: there is nobody to tell.

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use log::{LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, Help};
use crate::printable::printable;
use crate::process::watchdog;

/// The program's name, which begins every message.
pub const PROGRAM: &str = "pkcs11-external-signer";

/// What to type to run the program again, where that isn't its name.
static CALLED: OnceLock<&str> = OnceLock::new();

/// How remedies say where to type a PIN. It is the key of the current context that this asks for.
pub const LOGIN: &str = "check --pin-source prompt";
/// … how to have a stored PIN sent after all,
pub const DESPITE: &str = "check --despite-refusal";
/// … how to see what a token hides,
pub const LIST: &str = "list --login";
/// … how to have a user written,
pub const WRITE: &str = "kubeconfig --write";
/// … and where the options are told.
pub const HELP: &str = "--help tells";

/// Words of a remedy, and those to say in their place.
static WORDS: OnceLock<Vec<(&str, String)>> = OnceLock::new();

/// From now on a remedy speaks of the program by this name.
pub fn speak_as(name: &'static str) {
    let _ = CALLED.set(name);
}

/// From now on a remedy says the second of two in place of the first.
pub fn speak_with(words: impl IntoIterator<Item = (&'static str, String)>) {
    let _ = WORDS.set(words.into_iter().collect());
}

/// A remedy that speaks of the program by the name it was called by, and of what it takes by the
/// words that were used.
pub fn spoken(remedy: &str) -> String {
    let called = CALLED.get().copied().unwrap_or(PROGRAM);
    let words = WORDS.get().map_or(&[][..], Vec::as_slice);
    reworded(
        &remedy.replace(&format!("{PROGRAM} "), &format!("{called} ")),
        words,
    )
}

/// What to do about an error, spoken; what it lists are candidates that keep their names, but for
/// the remedies of a configuration.
pub fn help(error: &Error) -> Help {
    let mut help = error.help();
    help.text = spoken(&help.text);
    if let Error::Config(_) = error {
        for remedy in &mut help.candidates {
            *remedy = spoken(remedy);
        }
    }
    help
}

/// With each whole occurrence replaced: a path may contain one. What was put in is not looked at again.
fn reworded(text: &str, words: &[(&str, String)]) -> String {
    let continues = |it: char| it.is_alphanumeric() || "-_/.".contains(it);
    let mut said = String::new();
    let mut rest = text;
    while let Some((place, from, to)) = words
        .iter()
        .filter_map(|(from, to)| Some((rest.find(from)?, *from, to)))
        .min_by_key(|(place, from, _)| (*place, Reverse(from.len())))
    {
        let (before, after) = rest.split_at(place);
        let after = after.get(from.len()..).unwrap_or_default();
        said.push_str(before);
        let is_part = said.ends_with(continues) || after.starts_with(continues);
        said.push_str(if is_part { from } else { to });
        rest = after;
    }
    said + rest
}

/// The error in one line, what to do in the next, and the candidates that speaks of, one a line.
pub fn error(error: &Error) {
    to_standard_error(&error_message(error));
}

/// The same of a process that has to end now: not at all, if standard error takes nothing for a
/// second.
pub fn last_error(error: &Error) {
    let stderr = io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let limit = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    if poll(&mut ready, Some(&limit)).is_ok_and(|ready| ready > 0) {
        to_standard_error(&error_message(error));
    }
}

/// Something that works, but should not stay as it is.
pub fn warning(text: &str) {
    to_standard_error(&message("warning: ", text));
}

/// Something worth knowing, such as what is being waited for.
pub fn note(text: &str) {
    to_standard_error(&message("", text));
}

/// A text of several lines, as it stands, to standard error.
pub fn lines(text: &str) {
    to_standard_error(&each_line(text));
}

/// The text that was asked for with `--help` or `--version`, to standard output. Not for a process
/// that has an [`AnswerChannel`](crate::process::answer::AnswerChannel). A reader that has had enough
/// of it, such as a pager, is no error.
pub fn answer_text(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let written = output.write_all(each_line(text).as_bytes());
    match written.and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// What happens at each step, told from now on: with 1 the steps, with 2 their details.
pub fn tell_steps(verbosity: u8) {
    let level = match verbosity {
        0 => return,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if log::set_logger(&Steps).is_ok() {
        log::set_max_level(level);
    }
}

struct Steps;

impl Log for Steps {
    /// Ours alone: what other crates would log is not known to be free of secrets.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pkcs11_external_signer")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // A reader that is slow is no library that hangs.
            let _pause = watchdog::pause();
            note(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

fn error_message(error: &Error) -> String {
    let help = help(error);
    let mut text = message("error: ", &error.to_string());
    text.push_str("help: ");
    text.push_str(&printable(&help.text));
    text.push('\n');
    for candidate in &help.candidates {
        text.push_str("  ");
        text.push_str(&printable(candidate));
        text.push('\n');
    }
    text
}

fn message(kind: &str, text: &str) -> String {
    format!("{PROGRAM}: {kind}{}\n", printable(text))
}

fn each_line(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", printable(line)))
        .collect()
}

fn to_standard_error(text: &str) {
    // Unbuffered: one write.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{TokenError, TokenName};

    #[test]
    fn an_error_is_told_with_its_remedy_and_nothing_of_it_moves_the_cursor() {
        let token = |label: &str| TokenName {
            slot: 7,
            label: label.to_owned(),
            serial: "123".to_owned(),
        };
        let error = Error::from(TokenError::Ambiguous {
            selector: "tokenLabel \"a\nb\"".to_owned(),
            found: vec![token("one"), token("\x1b[2Jtwo")],
        });
        assert_eq!(
            error_message(&error),
            "pkcs11-external-signer: error: 2 tokens have tokenLabel \"a\\u{a}b\"\n\
             help: add tokenSerial or slotId to choose one:\n  \
               \"one\" (serial 123, slotId 7)\n  \
               \"\\u{1b}[2Jtwo\" (serial 123, slotId 7)\n"
        );
    }

    #[test]
    fn whole_words_are_replaced() {
        let words = [
            ("uri", "--uri"),
            ("set it", "give it"),
            ("list", "list --module 'set it'"),
        ];
        let words = words.map(|(from, to)| (from, to.to_owned()));
        assert_eq!(
            reworded(
                "uri, in uri: /srv/uri/a.uri; list --uri, uriuri; set it, reset it",
                &words
            ),
            "--uri, in --uri: /srv/uri/a.uri; list --module 'set it' --uri, uriuri; give it, reset it"
        );
    }

    #[test]
    fn each_message_is_one_line_under_the_programs_name() {
        assert_eq!(
            message("warning: ", "a\rb"),
            "pkcs11-external-signer: warning: a\\u{d}b\n"
        );
        assert_eq!(message("", "waiting"), "pkcs11-external-signer: waiting\n");
    }

    #[test]
    fn lines_stay_lines_and_each_has_an_end() {
        assert_eq!(each_line("one\n\ntwo \x07"), "one\n\ntwo \\u{7}\n");
        assert_eq!(each_line("one\n"), "one\n");
    }
}
