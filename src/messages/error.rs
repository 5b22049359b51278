//! An error of this program: an exit code, a text, and what to do next.
//!
//! It is made where it is found, with a [`Kind`] if other code does something about it. No text ever holds a PIN.

use std::borrow::{Borrow, Cow};
use std::error::Error as StandardError;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::help::{Help, Remedy};
use crate::printable::{excerpt, printable};

/// The program's name, which begins every message.
pub const PROGRAM: &str = "pkcs11-external-signer";
/// The version of the JSON documents that commands print: fields may be added, none is taken away or changes its
/// meaning.
pub const DOCUMENT_VERSION: &str = "pkcs11-external-signer/v1";
/// The name under which kubectl finds this program.
pub const PLUGIN: &str = "kubectl-pkcs11";

/// The exit codes, a contract with scripts: docs/errors.md.
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

/// What other code asks of an error, with [`Error::is`]: a constant of the crate that makes such errors.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Kind(Cow<'static, str>);

impl Kind {
    /// `name` is no other kind's.
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }
}

/// What failed and why, for people; what to do about it, and the exit code. It can be sent to another process.
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
    /// An error that ends the program with this exit code. `text` is one line: what failed, with which object, and why.
    /// It needs [help](Self::help), too.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        let help = Help::default();
        Self(Box::new(Parts { exit_code: exit as u8, kind: None, text: text.into(), help }))
    }

    /// The error with what to do next.
    pub fn help(mut self, help: impl Into<Help>) -> Self {
        self.0.help = help.into();
        self
    }

    /// The error as one that other code recognises.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.0.kind = Some(kind);
        self
    }

    /// The error with what it is about before its text: `WHAT: text`.
    pub fn about(mut self, what: impl Display) -> Self {
        self.0.text = format!("{what}: {}", self.0.text);
        self
    }

    /// The error for who was told of it a moment ago: short, and without what to do.
    pub fn again(mut self) -> Self {
        self.0.text = format!("the same again: {}", excerpt(&self.0.text));
        self.0.help = Help::default();
        self
    }

    /// A bug in this program, for a state that can't be.
    pub fn internal(what: impl Display) -> Self {
        Self::new(Exit::Internal, format!("internal error: {what}"))
            .help("this is a bug in pkcs11-external-signer; please report it with this line")
    }

    /// A signal came before the command of a run was started. The exit code is a shell's.
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

    /// What to do next, as this call would have it typed.
    pub fn remedy(&self) -> Remedy {
        self.0.help.in_this_call()
    }

    /// The error and what to do, if that is to be said, in one line for another program to show.
    pub fn sentence(&self) -> String {
        let text = self.to_string();
        let help = self.remedy().to_string();
        let separator = if help.is_empty() { "" } else { "; " };
        format!("{}{separator}{}", printable(&text), printable(&help))
    }

    /// Whether it was made as an error of this kind.
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

/// Items in a sentence, the last one after this word: `a`, `a or b`, `a, b or c`.
pub fn listed<T: Borrow<str>>(items: &[T], word: &str) -> String {
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.borrow().to_owned(),
        Some((last, others)) => format!("{} {word} {}", others.join(", "), last.borrow()),
    }
}
