//! The only writer to standard error, and of the texts that `--help` and `--version` ask for.
//!
//! Every line of ours begins with the program's name, because standard error is shared with the
//! client; only the remedy, which belongs to the line above it, begins with `help:`. A message is
//! written at once, so that requests side by side don't mix their lines, and a closed stream is
//! no error. Nothing from a token or a file reaches the terminal as it is.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};

use crate::error::Error;
use crate::printable::printable;

/// The error in one line, then its remedy.
pub fn error(error: &Error) {
    let help = error.help();
    let mut text = line("error: ", &error.to_string());
    text.push_str(&format!("help: {}\n", printable(&help.text)));
    for candidate in &help.candidates {
        text.push_str(&format!("  {}\n", printable(candidate)));
    }
    write(&text);
}

/// Something that needs attention, but not now.
pub fn warning(text: &str) {
    write(&line("warning: ", text));
}

/// Something worth knowing, such as what is being waited for.
pub fn note(text: &str) {
    write(&line("", text));
}

/// A text of our own, as it stands.
pub fn usage(text: &str) {
    write(text);
}

/// What was asked for by `--help` or `--version`, to standard output.
pub fn answer(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn line(kind: &str, text: &str) -> String {
    format!("pkcs11-external-signer: {kind}{}\n", printable(text))
}

fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
