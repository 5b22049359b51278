//! An error of this program: an exit code, a text, and what to do next.
//!
//! An error is made where it is found. It has a [`Kind`] if other code reacts to it. No text ever contains a PIN.

use std::borrow::{Borrow, Cow};
use std::error::Error as StandardError;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::help::{Help, Remedy};
use crate::printable::{excerpt, printable};

/// The program's name, which begins every message.
pub const PROGRAM: &str = "pkcs11-external-signer";
/// The version of the JSON documents that commands print. Within a version, fields may be added, but none is removed or
/// changes its meaning.
pub const DOCUMENT_VERSION: &str = "pkcs11-external-signer/v1";
/// The name under which kubectl finds this program.
pub const PLUGIN: &str = "kubectl-pkcs11";

/// The exit codes, which are a contract with scripts (docs/errors.md).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    Request = 2,
    Configuration = 3,
    Library = 4,
    Token = 5,
    Object = 6,
    Login = 7,
    Signing = 8,
    Cluster = 9,
    Internal = 70,
    NotExecutable = 126,
    NotFound = 127,
}

/// The kind of an error, by which other code recognises it with [`Error::is`]. Each kind is a constant of the crate that
/// makes such errors.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kind(Cow<'static, str>);

impl Kind {
    /// A kind. No other one may have the same `name`.
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }
}

/// An error for people: what has failed and why, what to do about it, and the exit code. It can be sent to another process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Error(Box<Parts>);

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Parts {
    exit_code: u8,
    kind: Option<Kind>,
    text: String,
    help: Help,
}

impl Error {
    /// An error that ends the program with this exit code. `text` is one line that says what has failed, with which object,
    /// and why. Each error also needs [help](Self::help).
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        let help = Help::default();
        Self(Box::new(Parts { exit_code: exit as u8, kind: None, text: text.into(), help }))
    }

    /// The error, with what to do next.
    pub fn help(mut self, help: impl Into<Help>) -> Self {
        self.0.help = help.into();
        self
    }

    /// The error, with a kind by which other code recognises it.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.0.kind = Some(kind);
        self
    }

    /// The error, with what it is about in front of its text: `WHAT: text`.
    pub fn about(mut self, what: impl Display) -> Self {
        self.0.text = format!("{what}: {}", self.0.text);
        self
    }

    /// The error for somebody who was told of it a moment ago: short, and without what to do.
    pub fn again(mut self) -> Self {
        self.0.text = format!("the same again: {}", excerpt(&self.0.text));
        self.0.help = Help::default();
        self
    }

    /// The error for a state that can't be, and so for a bug in this program.
    pub fn internal(what: impl Display) -> Self {
        Self::new(Exit::Internal, format!("internal error: {what}"))
            .help("this is a bug in pkcs11-external-signer; please report it with this line")
    }

    /// The error for a run that a signal has interrupted before its command was started. The exit code is the one that a
    /// shell would have.
    pub fn interrupted(signal: i32) -> Self {
        let text = format!("interrupted by signal {signal} before the command was started");
        let mut error = Self::new(Exit::Internal, text).help("run the command again");
        error.0.exit_code = u8::try_from(128 + signal).unwrap_or(128);
        error
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        self.0.exit_code
    }

    /// Whether the program ends with this exit code after the error.
    pub fn exits_with(&self, exit: Exit) -> bool {
        self.0.exit_code == exit as u8
    }

    /// What to do next, with commands as they are typed in this call.
    pub fn remedy(&self) -> Remedy {
        self.0.help.in_this_call()
    }

    /// The error and, if there is help, what to do, in one line for another program to show.
    pub fn sentence(&self) -> String {
        let text = self.to_string();
        let help = self.remedy().to_string();
        let separator = if help.is_empty() { "" } else { "; " };
        format!("{}{separator}{}", printable(&text), printable(&help))
    }

    /// Whether the error is of this kind.
    pub fn is(&self, kind: &Kind) -> bool {
        self.0.kind.as_ref() == Some(kind)
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl StandardError for Error {}

/// The items as part of a sentence, with this word before the last one: `a`, `a or b`, `a, b or c`.
pub fn listed<T: Borrow<str>>(items: &[T], word: &str) -> String {
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.borrow().to_owned(),
        Some((last, others)) => format!("{} {word} {}", others.join(", "), last.borrow()),
    }
}
