//! What to do about a failure.
//!
//! A remedy names commands of this program and settings of a configuration by type, so that they can
//! be shown with the options of this call.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// More candidates than this are no help: a trust module's token holds hundreds of certificates.
const MOST_CANDIDATES: usize = 20;

/// A sentence, and the candidates it refers to, one a line.
#[derive(Clone, Debug)]
pub struct Remedy {
    pub pieces: Vec<Piece>,
    pub candidates: Vec<Vec<Piece>>,
}

/// A piece of a sentence. Its `Display` is without the options of this call.
#[derive(Clone, Debug)]
pub enum Piece {
    Command(OwnCommand),
    /// The name of this program, to be followed by a command.
    Program,
    Setting(Setting),
    /// Where settings stand.
    SettingsPlace,
    Words(Cow<'static, str>),
}

/// A command of this program that has to name the same key, token or file as this call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum OwnCommand {
    /// Sends a stored PIN although the token has refused one.
    DespiteRefusal,
    /// Makes a key, and has the cluster issue a certificate for it.
    Enroll,
    /// What goes with which argument.
    Help,
    /// Shows what a token hides without a PIN.
    ListHidden,
    /// Asks a person for the PIN and logs in with it.
    LogIn,
    /// Has the cluster issue a certificate for the same key.
    Renew,
    /// Ends the tunnel process.
    Stop,
    /// Writes a user into a kubeconfig.
    WriteKubeconfig,
}

/// A key of a configuration, which may have been given as an option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Setting(pub &'static str);

impl Setting {
    /// The setting of this name; `None` for one that no remedy names.
    pub fn named(key: &str) -> Option<Self> {
        const KEYS: [&str; 12] = [
            "certificateFile",
            "initArgs",
            "keep",
            "objectId",
            "objectLabel",
            "pathLib",
            "pin",
            "pinSource",
            "slotId",
            "tokenLabel",
            "tokenSerial",
            "uri",
        ];
        KEYS.into_iter().find(|known| *known == key).map(Self)
    }
}

/// A remedy of words, commands and settings, one after the other.
#[macro_export]
macro_rules! remedy {
    ($($piece:expr),+ $(,)?) => {
        $crate::error::Remedy {
            pieces: vec![$($crate::error::Piece::from($piece)),+],
            candidates: Vec::new(),
        }
    };
}

impl Remedy {
    /// With what there is to choose from.
    pub fn with_candidates<T: Display>(mut self, candidates: &[T]) -> Self {
        let shown = candidates.iter().take(MOST_CANDIDATES).map(T::to_string);
        self.candidates = shown.map(|it| vec![it.into()]).collect();
        if let Some(more @ 1..) = candidates.len().checked_sub(MOST_CANDIDATES) {
            self.candidates.push(vec![format!("and {more} more").into()]);
        }
        self
    }

    /// With each piece put into words.
    pub fn worded(&self, word: impl Fn(&Piece) -> String) -> Help {
        let sentence = |pieces: &Vec<Piece>| pieces.iter().map(&word).collect();
        Help {
            text: sentence(&self.pieces),
            candidates: self.candidates.iter().map(sentence).collect(),
        }
    }
}

impl<T: Into<Piece>> From<T> for Remedy {
    fn from(piece: T) -> Self {
        Self { pieces: vec![piece.into()], candidates: Vec::new() }
    }
}

/// In one line, without the options of this call.
impl Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.worded(Piece::to_string).fmt(f)
    }
}

/// A remedy with its commands and settings worded.
pub struct Help {
    pub text: String,
    pub candidates: Vec<String>,
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

impl Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "{} {command}", Self::Program),
            Self::Program => f.write_str("pkcs11-external-signer"),
            Self::Setting(Setting(key)) => f.write_str(key),
            Self::SettingsPlace => f.write_str("in the kubeconfig, under auth-provider.config"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// Without the program's name.
impl Display for OwnCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DespiteRefusal => "check --despite-refusal",
            Self::Help => "--help",
            Self::ListHidden => "list --login",
            Self::LogIn => "check --pin-source prompt",
            Self::Enroll => "enroll --context NAME",
            Self::Renew => "renew --context NAME",
            Self::Stop => "stop",
            Self::WriteKubeconfig => "kubeconfig --write",
        })
    }
}

impl From<OwnCommand> for Piece {
    fn from(command: OwnCommand) -> Self {
        Self::Command(command)
    }
}

impl From<Setting> for Piece {
    fn from(setting: Setting) -> Self {
        Self::Setting(setting)
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for Piece {
    fn from(words: T) -> Self {
        Self::Words(words.into())
    }
}
