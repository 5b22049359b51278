//! An error of this program: an exit code, a text, and what to do next.
//!
//! It is made where it is found. Where other code has to know which error it is, it is made from an
//! enum that implements [`Failure`]. No text ever holds a PIN.

#![forbid(unsafe_code)]

use std::borrow::Borrow;
use std::error::Error as StandardError;
use std::fmt::{self, Display};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

pub use crate::remedy;

/// The program's name, which begins every message.
pub const PROGRAM: &str = "pkcs11-external-signer";

/// In a help text: the options by which this call names its key, each with a space before it.
pub const THIS_KEY: &str = "\u{1}";
/// The same for its token alone.
pub const THIS_TOKEN: &str = "\u{2}";
/// The option with this call's PIN source.
pub const THIS_PIN_SOURCE: &str = "\u{3}";
/// The option with this call's kubeconfig.
pub const THIS_KUBECONFIG: &str = "\u{4}";

/// More candidates than this are no help: a trust module's token holds hundreds of certificates.
const MOST_CANDIDATES: usize = 20;

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

/// Can be sent to another process, without the enum that it was made from.
#[derive(Debug, Deserialize, Serialize)]
pub struct Error(Box<Parts>);

#[derive(Debug, Deserialize, Serialize)]
struct Parts {
    exit_code: u8,
    text: String,
    help: Help,
    #[serde(skip)]
    failure: Option<Box<dyn StandardError + Send + Sync>>,
}

/// An error that other code asks for with [`Error::downcast_ref`]. Its `Display` is one line: what failed, with
/// which object, and why.
pub trait Failure: StandardError + Send + Sync + 'static {
    fn exit_code(&self) -> u8;

    /// What to do next.
    fn remedy(&self) -> Help;
}

impl Error {
    /// `text` is one line: what failed, with which object, and why. It needs [help](Self::help), too.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        let help = Help::default();
        Self(Box::new(Parts { exit_code: exit as u8, text: text.into(), help, failure: None }))
    }

    /// With what to do next.
    pub fn help(mut self, help: impl Into<Help>) -> Self {
        self.0.help = help.into();
        self
    }

    /// A bug in this program, for a state that can't be.
    pub fn internal(what: impl Display) -> Self {
        Self::new(Exit::Internal, format!("internal error: {what}"))
            .help("this is a bug in pkcs11-external-signer; please report it with this line")
    }

    pub fn exit_code(&self) -> u8 {
        self.0.exit_code
    }

    /// What to do next, as this call would have it typed.
    pub fn remedy(&self) -> Help {
        self.0.help.in_this_call()
    }

    /// For another process.
    pub fn to_send(&self) -> Self {
        let Parts { exit_code, text, help, .. } = &*self.0;
        let (text, help) = (text.clone(), help.clone());
        Self(Box::new(Parts { exit_code: *exit_code, text, help, failure: None }))
    }

    /// Whether it was made from a failure of this type.
    pub fn is<E: Failure>(&self) -> bool {
        self.downcast_ref::<E>().is_some()
    }

    /// What it was made from, if that is of this type.
    pub fn downcast_ref<E: Failure>(&self) -> Option<&E> {
        self.0.failure.as_deref()?.downcast_ref()
    }
}

impl<E: Failure> From<E> for Error {
    fn from(failure: E) -> Self {
        Self(Box::new(Parts {
            exit_code: failure.exit_code(),
            text: failure.to_string(),
            help: failure.remedy(),
            failure: Some(Box::new(failure)),
        }))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl StandardError for Error {}

/// What to do next: a sentence, and the candidates it refers to, one a line.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Help {
    pub text: String,
    pub candidates: Vec<String>,
}

impl Help {
    /// With what there is to choose from.
    pub fn with_candidates<T: Display>(mut self, candidates: &[T]) -> Self {
        self.candidates = candidates.iter().take(MOST_CANDIDATES).map(T::to_string).collect();
        if let Some(more @ 1..) = candidates.len().checked_sub(MOST_CANDIDATES) {
            self.candidates.push(format!("and {more} more"));
        }
        self
    }

    /// With the options of this call in the commands that it names.
    pub fn in_this_call(&self) -> Self {
        let call = CALL.get_or_init(Call::default);
        let candidates = self.candidates.iter().map(|it| call.complete(it)).collect();
        Self { text: call.complete(&self.text), candidates }
    }
}

impl<T: Into<String>> From<T> for Help {
    fn from(text: T) -> Self {
        Self { text: text.into(), candidates: Vec::new() }
    }
}

/// In one line.
impl Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.candidates.join("; ") {
            candidates if candidates.is_empty() => f.write_str(&self.text),
            candidates => write!(f, "{} {candidates}", self.text),
        }
    }
}

/// What commands that help names need in order to be about the same key, token or file as this call.
#[derive(Debug, Default)]
pub struct Call {
    /// What to type to run the program; `None` for its name.
    pub program: Option<&'static str>,
    /// See [`THIS_KEY`].
    pub key: String,
    /// See [`THIS_TOKEN`].
    pub token: String,
    /// See [`THIS_PIN_SOURCE`].
    pub pin_source: String,
    /// See [`THIS_KUBECONFIG`].
    pub kubeconfig: String,
}

static CALL: OnceLock<Call> = OnceLock::new();

/// Sets what this process is about, once.
pub fn set_call(call: Call) {
    let _ = CALL.set(call);
}

impl Call {
    fn complete(&self, text: &str) -> String {
        let text = text
            .replace(THIS_KEY, &self.key)
            .replace(THIS_TOKEN, &self.token)
            .replace(THIS_PIN_SOURCE, &self.pin_source)
            .replace(THIS_KUBECONFIG, &self.kubeconfig);
        match self.program {
            Some(program) => text.replace(&format!("{PROGRAM} "), &format!("{program} ")),
            None => text,
        }
    }
}

/// A help text of texts and settings, one after the other.
#[macro_export]
macro_rules! remedy {
    ($($piece:expr),+ $(,)?) => {
        $crate::error::Help::from([$($piece.to_string()),+].concat())
    };
}

/// A key of a configuration, which may have been given as an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Setting(pub &'static str);

/// Both names: `tokenSerial (--token-serial)`.
impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key) = self;
        let option: String = match *key {
            "pin" => return f.write_str(key),
            "pathLib" => "module".to_owned(),
            _ => key
                .chars()
                .flat_map(|it| {
                    it.is_uppercase().then_some('-').into_iter().chain(it.to_lowercase())
                })
                .collect(),
        };
        write!(f, "{key} (--{option})")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_completed_with_what_this_call_is_about() {
        let call = Call {
            program: Some("kubectl pkcs11"),
            key: " --context='a b'".to_owned(),
            ..Call::default()
        };
        let help =
            format!("renew it: `{PROGRAM} renew{THIS_KEY}`; {THIS_TOKEN}{PROGRAM}: a program");
        assert_eq!(
            call.complete(&help),
            "renew it: `kubectl pkcs11 renew --context='a b'`; pkcs11-external-signer: a program"
        );
        assert_eq!(Setting("tokenSerial").to_string(), "tokenSerial (--token-serial)");
    }
}
