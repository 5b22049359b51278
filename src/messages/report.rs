//! Everything that is written to standard error, and what `--help` and `--version` print.
//!
//! Standard error is shared with the client and with other requests. So each message begins with the program's name, and is
//! written in one call, so that processes don't mix their lines. Nothing from a token, a file or a request reaches the
//! terminal unescaped. If standard error can't be written, that is ignored: there is nobody to report it to.

use std::io::{self, Write as _};

use log::{LevelFilter, Log, Metadata, Record};

use crate::error::{Error, PROGRAM};
use crate::folding::{folded, terminal_width};
use crate::printable::printable;

/// The variable that has the effect of `-v` where no option can be given.
pub const LOG: &str = "PKCS11_EXTERNAL_SIGNER_LOG";

/// Reports the error, what to do, and the candidates, one on each line. Returns the error's exit code.
pub fn error(error: &Error) -> u8 {
    to_standard_error(&error_message(error, terminal_width(io::stderr())));
    error.exit_code()
}

/// Reports the error and what to do in one line, for a client that shows it. Returns the error's exit code.
pub fn error_in_one_line(error: &Error) -> u8 {
    to_standard_error(&message("error: ", &error.sentence()));
    error.exit_code()
}

/// Reports something that works, but should not stay as it is.
pub fn warning(text: &str) {
    to_standard_error(&folded_message("warning: ", text));
}

/// Reports something worth knowing, such as what is being waited for.
pub fn note(text: &str) {
    to_standard_error(&folded_message("", text));
}

/// Reports something worth knowing, and what to do next, one step on each line.
pub fn steps(text: &str, next: &[String]) {
    to_standard_error(&(folded_message("", text) + &indented(next)));
}

/// Writes a text of several lines to standard error, as it is.
pub fn lines(text: &str) {
    to_standard_error(
        &text.lines().map(|line| format!("{}\n", printable(line))).collect::<String>(),
    );
}

/// Writes a line at a terminal, which the next one will overwrite.
pub fn in_place(text: &str) {
    to_standard_error(&format!("\r\x1b[K{}\r", printable(text)));
}

/// The verbosity that `PKCS11_EXTERNAL_SIGNER_LOG` asks for, as a number of `-v`.
pub fn logged() -> u8 {
    let Some(value) = std::env::var_os(LOG) else { return 0 };
    match value.to_str() {
        Some("" | "off") => 0,
        Some("info") => 1,
        Some("debug") => 2,
        _ => {
            warning(&format!("{LOG} must be off, info or debug"));
            0
        }
    }
}

/// From now on, reports what is done: the steps with a verbosity of 1, and their details with 2.
pub fn log_steps(verbosity: u8) {
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
    /// Only this program's own messages are reported: those of other crates may contain secrets.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pkcs11_external_signer")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            note(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The message for an error, in lines of at most `width` characters if that is known.
fn error_message(error: &Error, width: Option<usize>) -> String {
    let text = folded(message("error: ", &error.to_string()).trim_end(), width, 0, INDENT);
    let remedy = error.remedy();
    let help = folded(&format!("help: {}", printable(&remedy.text)), width, 0, INDENT);
    format!("{text}\n{help}\n{}", indented(&remedy.candidates))
}

/// A message of one line, which is folded between words at a terminal.
fn folded_message(kind: &str, text: &str) -> String {
    let width = terminal_width(io::stderr());
    folded(message(kind, text).trim_end(), width, 0, INDENT) + "\n"
}

/// By how many characters the lines of a message after the first one are indented.
const INDENT: usize = 2;

fn indented(items: &[String]) -> String {
    items.iter().map(|item| format!("  {}\n", printable(item))).collect()
}

fn message(kind: &str, text: &str) -> String {
    format!("{PROGRAM}: {kind}{}\n", printable(text))
}

fn to_standard_error(text: &str) {
    // Unbuffered: one write.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;
    use crate::help::Help;

    #[test]
    fn an_error_is_told_with_its_remedy_and_nothing_of_it_moves_the_cursor() {
        let help = Help::from("add tokenLabel to choose one:");
        let error = Error::new(Exit::Token, "2 tokens have tokenLabel \"a\nb\"")
            .help(help.with_candidates(&["one", "\x1b[2Jtwo"]));
        assert_eq!(
            error_message(&error, None),
            "pkcs11-external-signer: error: 2 tokens have tokenLabel \"a\\u{a}b\"\n\
             help: add tokenLabel to choose one:\n  one\n  \\u{1b}[2Jtwo\n"
        );
        assert_eq!(
            error.sentence(),
            "2 tokens have tokenLabel \"a\\u{a}b\"; add tokenLabel to choose one: one; \\u{1b}[2Jtwo"
        );
        assert_eq!(
            error.again().sentence(),
            "the same again: 2 tokens have tokenLabel \"a\\u{a}b\""
        );
    }

    #[test]
    fn at_a_terminal_an_error_is_folded_between_words() {
        let text = "the token \"work\" has refused the PIN typed at the terminal";
        let error = Error::new(Exit::Login, text).help("make sure which PIN the token wants");
        assert_eq!(
            error_message(&error, Some(50)),
            "pkcs11-external-signer: error: the token \"work\"\n  has refused the PIN typed at the terminal\n\
             help: make sure which PIN the token wants\n"
        );
    }

    #[test]
    fn each_message_is_one_line_under_the_programs_name() {
        assert_eq!(message("warning: ", "a\rb"), "pkcs11-external-signer: warning: a\\u{d}b\n");
        assert_eq!(message("", "waiting"), "pkcs11-external-signer: waiting\n");
    }
}
