//! A PIN, the request for one, and the trait of its provider.
//!
//! Nothing here knows a terminal. `pin_entry` asks a person at one; another [`PinProvider`] may ask
//! over a socket. The provider doesn't decide how often a PIN is sent: `token` does.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use messages::error::{Error, Exit, Kind};
use system::memory::wipe_stack;

/// A person was asked for the PIN, and gave none.
pub const CANCELLED: Kind = Kind::new("pin cancelled");

/// There is nobody to ask for the PIN, and no source of it.
pub const NO_PIN: Kind = Kind::new("no pin");

/// The result of asking the person at the terminal for something that isn't a PIN, but may be another secret.
pub enum Answer {
    /// There is no terminal to ask at.
    NoTerminal,
    /// Nobody answered in time, or the person cancelled the question.
    None,
    /// The person has typed this, which may be empty.
    Typed(Vec<u8>),
}

/// The longest PIN that is handed to a token, in bytes.
pub const MAX_PIN_LENGTH: usize = 255;

/// A PIN, never empty: an empty one would tell some modules to use a reader's own keypad. The allocator
/// wipes it when it is freed, what has read it is wiped off the stack, and it can be neither printed nor cloned by
/// accident.
pub struct Pin(String);

impl Pin {
    /// Makes a PIN of the text; `None` if it is empty, longer than [`MAX_PIN_LENGTH`], or has a control character: the
    /// line ending of a file or a variable would cost a try.
    pub fn new(text: &str) -> Option<Self> {
        let can_be_one =
            (1..=MAX_PIN_LENGTH).contains(&text.len()) && !text.chars().any(char::is_control);
        can_be_one.then(|| Self(text.to_owned()))
    }

    /// The PIN itself, for the one call that sends it to the token.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether both are the same PIN. The time that this takes doesn't depend on where they differ.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.bytes().zip(other.0.bytes());
        self.0.len() == other.0.len() && pairs.fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
    }

    /// A second copy of the PIN, for a source that may be asked again.
    pub fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        wipe_stack();
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin(…)")
    }
}

/// A request for a PIN. Its texts are the token's own: a provider makes them printable.
#[derive(Clone, Deserialize, Serialize)]
pub struct PinRequest<'a> {
    /// The token's label, serial number and slot.
    pub token: Cow<'a, str>,
    /// The token's label alone.
    pub label: Cow<'a, str>,
    /// Whose key the PIN is for, or what it is wanted for.
    pub what: Cow<'a, str>,
    /// The length of the shortest PIN, in bytes.
    pub shortest: usize,
    /// The length of the longest PIN in bytes, at most [`MAX_PIN_LENGTH`].
    pub longest: usize,
    /// What to say before the prompt, for example that the last PIN was wrong.
    pub notice: Option<Cow<'a, str>>,
    /// What a person has to agree to first. It is set if a wrong PIN would lock the token.
    pub confirm: Option<Cow<'a, str>>,
}

impl PinRequest<'_> {
    /// The request with its own copies of the texts, for another thread.
    pub fn into_owned(self) -> PinRequest<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        PinRequest {
            token: owned(self.token),
            label: owned(self.label),
            what: owned(self.what),
            shortest: self.shortest,
            longest: self.longest,
            notice: self.notice.map(owned),
            confirm: self.confirm.map(owned),
        }
    }

    /// Whether the PIN has a length that the token can have.
    pub fn allows(&self, pin: &Pin) -> bool {
        (self.shortest..=self.longest).contains(&pin.0.len())
    }
}

/// Something that has the PIN or can get it: a configuration, a person at a terminal, another process.
pub trait PinProvider {
    /// Where the next PIN would come from. Nobody is asked, and nothing is used up, to find that out.
    fn origin(&mut self) -> PinOrigin;

    /// Gets the PIN, which has a length that the token can have.
    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error>;

    /// Asks a person to agree that the reader asks for the PIN, since a wrong one would lock the token.
    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error>;

    /// Tells a person who isn't at this process's terminal that the reader waits for the PIN now.
    fn at_reader(&mut self, _notice: &str) {}
}

impl<P: PinProvider + ?Sized> PinProvider for &mut P {
    fn origin(&mut self) -> PinOrigin {
        (**self).origin()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        (**self).pin(request)
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        (**self).confirm_at_reader(request)
    }

    fn at_reader(&mut self, notice: &str) {
        (**self).at_reader(notice);
    }
}

/// Where a PIN comes from.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum PinOrigin {
    /// This program gave the PIN: it is a person's answer, or a script's.
    Askpass(PathBuf),
    /// A person entered the PIN at the terminal.
    #[default]
    Person,
    /// A person entered the PIN into this program, which speaks pinentry's protocol.
    Pinentry(PathBuf),
    /// A person entered the PIN at the reader's own keypad.
    Reader,
    /// Nobody entered the PIN: it was stored, and `from` says where.
    Stored(String),
}

impl PinOrigin {
    /// Whether a person is there, who sees what becomes of the PIN and decides what follows.
    pub fn is_attended(&self) -> bool {
        !matches!(self, Self::Stored(_))
    }
}

impl fmt::Display for PinOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Askpass(program) | Self::Pinentry(program) => {
                write!(f, "from {}", program.display())
            }
            Self::Person => f.write_str("typed at the terminal"),
            Self::Reader => f.write_str("entered at the reader"),
            Self::Stored(from) => write!(f, "from {from}"),
        }
    }
}

/// The error of the kind [`CANCELLED`]: the person who was asked for the token's PIN gave none.
pub fn cancelled(token: &str) -> Error {
    Error::new(Exit::Login, format!("no PIN was entered for token {token}"))
        .help("run the command again and type the PIN")
        .kind(CANCELLED)
}

/// The error of the kind [`NO_PIN`]: there is nobody to ask for the token's PIN, and no source of it.
pub fn no_pin(token: &str) -> Error {
    let text = format!(
        "token {token} wants a PIN, and there is no terminal to ask for it and no pinSource"
    );
    Error::new(Exit::Login, text).kind(NO_PIN).help(
        "run it from a terminal (with ssh: -t), or set pinSource (--pin-source) to askpass, stdin, file:/path or env:NAME",
    )
}

/// The error for a PIN of this origin that was not sent because the token has one try left. A person has to make that
/// one, after a yes.
pub fn final_try(token: &str, origin: &PinOrigin) -> Error {
    let (text, help) = match origin {
        PinOrigin::Reader => (
            format!("token {token} has one PIN try left, so the reader was not asked for it"),
            "run the command from a terminal, type yes there and enter the PIN at the reader; a wrong one \
             locks the token",
        ),
        _ => (
            format!("token {token} has one PIN try left; the PIN {origin} was not sent to it"),
            "run the command from a terminal without pin and pinSource (--pin-source) and type the PIN \
             yourself; a wrong one locks the token, and unblocking it with the PUK is safer than guessing",
        ),
    };
    Error::new(Exit::Login, text).help(help)
}

/// The error for a terminal that exists, but at which nobody can be asked.
pub fn terminal_unusable(reason: impl fmt::Display) -> Error {
    Error::new(Exit::Login, format!("the terminal can't be asked for a PIN: {reason}")).help(
        "run the command in a terminal of your own, or set pinSource (--pin-source) to stdin, file:/path or \
         env:NAME",
    )
}
