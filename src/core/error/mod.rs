//! What every failure has: a text, an exit code and a remedy. The failures themselves stand beside
//! the stages that find them.
//!
//! The exit codes are a contract with scripts and are documented in `docs/errors.md`. No text ever
//! holds a PIN.

#![forbid(unsafe_code)]

mod remedy;

pub use crate::remedy;
pub use remedy::{Help, OwnCommand, Piece, Remedy, Setting};

use std::borrow::Borrow;
use std::error::Error as StandardError;
use std::fmt;

/// An error of one stage. Its `Display` is one line: what failed, with which object, and why.
pub trait Failure: StandardError + Send + Sync + 'static {
    /// The process's exit code.
    fn exit_code(&self) -> u8;

    /// What to do next.
    fn remedy(&self) -> Remedy;
}

/// A failure of any stage.
pub struct Error(Box<dyn Failure>);

impl Error {
    /// A bug in this program, for a state that can't be.
    pub fn internal(what: impl Into<String>) -> Self {
        Internal(what.into()).into()
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.0.exit_code()
    }

    /// What to do next.
    pub fn remedy(&self) -> Remedy {
        self.0.remedy()
    }

    /// Whether it is a failure of this type.
    pub fn is<E: Failure>(&self) -> bool {
        self.downcast_ref::<E>().is_some()
    }

    /// The failure, if it is of this type.
    pub fn downcast_ref<E: Failure>(&self) -> Option<&E> {
        let failure: &(dyn StandardError + 'static) = &*self.0;
        failure.downcast_ref()
    }
}

impl<E: Failure> From<E> for Error {
    fn from(failure: E) -> Self {
        Self(Box::new(failure))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl StandardError for Error {}

/// Please report what you did, too. No PIN is in the message.
#[derive(Debug, thiserror::Error)]
#[error("internal error: {0}")]
struct Internal(String);

impl Failure for Internal {
    fn exit_code(&self) -> u8 {
        70
    }

    fn remedy(&self) -> Remedy {
        "this is a bug in pkcs11-external-signer; please report it with this line".into()
    }
}

/// Items in a sentence, the last one after this word: `a`, `a or b`, `a, b or c`.
pub fn listed<T: Borrow<str>>(items: &[T], word: &str) -> String {
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.borrow().to_owned(),
        Some((last, others)) => format!("{} {word} {}", others.join(", "), last.borrow()),
    }
}
