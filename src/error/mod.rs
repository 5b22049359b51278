//! What can go wrong, by the stage that found it, which is also who can mend it.
//!
//! Each stage's file holds three things side by side: the variants, the text of each (one line:
//! what, with which object, why) and its remedy. The exit code belongs to the stage; the codes
//! are a contract with scripts and are documented in `docs/errors.md`. No text ever holds a PIN.

#![forbid(unsafe_code)]

mod config;
mod interruption;
mod kubeconfig;
mod login;
mod module;
mod object;
mod request;
mod run;
mod signing;
mod token;
mod upstream;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod troubleshooting;

pub use config::{ConfigError, Problem};
pub use interruption::INTERRUPTIONS;
pub use kubeconfig::KubeconfigError;
pub use login::{LoginError, PinOrigin, TriesLeft};
pub use module::ModuleError;
pub use object::{ObjectError, ObjectSummary};
pub use request::RequestError;
pub use run::RunError;
pub use signing::SigningError;
pub use token::{TokenError, TokenName, UnusableSlot, WhyUnusable};
pub use upstream::{UpstreamError, UpstreamFailure};

use std::fmt;

/// Any failure of the program.
#[derive(Debug)]
pub enum Error {
    Config(ConfigError),
    /// A bug in this program.
    Internal(String),
    Kubeconfig(KubeconfigError),
    Login(LoginError),
    Module(ModuleError),
    Object(ObjectError),
    Request(RequestError),
    Run(RunError),
    Signing(SigningError),
    Token(TokenError),
    Upstream(UpstreamError),
}

impl Error {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Request(_) => 2,
            Self::Config(_) | Self::Kubeconfig(_) => 3,
            Self::Module(_) => 4,
            Self::Token(_) => 5,
            Self::Object(_) => 6,
            Self::Login(_) => 7,
            Self::Signing(_) => 8,
            Self::Upstream(_) => 9,
            Self::Run(error) => error.exit_code(),
            Self::Internal(_) => 70,
        }
    }

    /// What to do next.
    pub fn help(&self) -> Help {
        match self {
            Self::Request(error) => error.help(),
            Self::Run(error) => error.help(),
            Self::Upstream(error) => error.help(),
            Self::Config(error) => error.help(),
            Self::Kubeconfig(error) => error.help(),
            Self::Module(error) => error.help(),
            Self::Token(error) => error.help(),
            Self::Object(error) => error.help(),
            Self::Login(error) => error.help(),
            Self::Signing(error) => error.help(),
            Self::Internal(_) => Help::new(
                "this is a bug in pkcs11-external-signer; please report it with this line",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Upstream(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Kubeconfig(error) => error.fmt(f),
            Self::Module(error) => error.fmt(f),
            Self::Token(error) => error.fmt(f),
            Self::Object(error) => error.fmt(f),
            Self::Login(error) => error.fmt(f),
            Self::Signing(error) => error.fmt(f),
            Self::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// More of them are no help any more: a trust module's token holds hundreds of certificates.
const MOST_CANDIDATES: usize = 20;

/// A remedy: a sentence, and the candidates it speaks of, one a line.
#[derive(Debug)]
pub struct Help {
    pub text: String,
    pub candidates: Vec<String>,
}

impl Help {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            candidates: Vec::new(),
        }
    }

    pub(crate) fn with_candidates<T: fmt::Display>(
        text: impl Into<String>,
        candidates: &[T],
    ) -> Self {
        let mut lines: Vec<_> = candidates.iter().map(T::to_string).collect();
        if lines.len() > MOST_CANDIDATES {
            let more = lines.split_off(MOST_CANDIDATES).len();
            lines.push(format!("and {more} more"));
        }
        Self {
            text: text.into(),
            candidates: lines,
        }
    }
}

impl From<String> for Help {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// In one line.
impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (place, candidate) in self.candidates.iter().enumerate() {
            let separator = if place == 0 { " " } else { "; " };
            write!(f, "{separator}{candidate}")?;
        }
        Ok(())
    }
}

/// A PKCS#11 call that failed, in the words people search for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallFailure {
    /// The function, such as `C_Sign`; empty where the failure is not one call's.
    pub function: String,
    /// The return value's name, such as `CKR_DEVICE_ERROR`, or what was wrong with the answer.
    pub reason: String,
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.function.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.function, self.reason)
        }
    }
}

macro_rules! stages {
    ($($stage:ident($error:ty)),* $(,)?) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$stage(error)
            }
        }
    )*};
}

stages!(
    Config(ConfigError),
    Kubeconfig(KubeconfigError),
    Login(LoginError),
    Module(ModuleError),
    Object(ObjectError),
    Request(RequestError),
    Run(RunError),
    Signing(SigningError),
    Token(TokenError),
    Upstream(UpstreamError),
);

/// Items in a sentence: `a`, `a or b`, `a, b or c`.
fn one_of(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}
