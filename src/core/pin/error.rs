//! Exit code 7: there was no PIN to log in with.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::PinKind;
use crate::error::{Failure, Help, PROGRAM, Setting, THIS_KEY, THIS_PIN_SOURCE, remedy};

/// Where a PIN came from, for messages.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum PinOrigin {
    /// A person entered it into this program.
    Askpass(PathBuf),
    /// The key `pin` of the configuration.
    Configuration,
    Environment(String),
    File(PathBuf),
    /// A person typed it at the terminal.
    Person,
    /// A person entered it at the reader's own keypad.
    Reader,
    StandardInput,
}

impl PinOrigin {
    /// Whether a person is there to see what became of it and to decide what follows.
    pub fn is_attended(&self) -> bool {
        matches!(self, Self::Askpass(_) | Self::Person | Self::Reader)
    }

    /// Whether a reader with a keypad asks instead: it does for a person, and before what may be the
    /// client's input is looked at.
    pub fn leaves_it_to_a_reader(&self) -> bool {
        self.is_attended() || *self == Self::StandardInput
    }
}

impl fmt::Display for PinOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Askpass(program) => write!(f, "from {}", program.display()),
            Self::Configuration => f.write_str("from pin in the configuration"),
            Self::Environment(name) => write!(f, "from the environment variable {name}"),
            Self::File(path) => write!(f, "from the file {}", path.display()),
            Self::Person => f.write_str("typed at the terminal"),
            Self::Reader => f.write_str("entered at the reader"),
            Self::StandardInput => f.write_str("from standard input"),
        }
    }
}

#[derive(Debug, Deserialize, Serialize, thiserror::Error)]
pub enum PinError {
    /// The program needs a `DISPLAY` or a terminal. Try it by hand: `$PKCS11_EXTERNAL_SIGNER_ASKPASS
    /// test`, `echo GETPIN | pinentry`.
    #[error("pinSource: {} gave no PIN: {reason}", .program.display())]
    Askpass { program: PathBuf, reason: String },
    #[error("no {kind} was entered for token {token}")]
    Cancelled { kind: PinKind, token: String },
    #[error("not asking for the PIN of token {token} again: a moment ago {how}")]
    LeftBefore { token: String, how: String },
    /// *is not set*: exported elsewhere, or dropped by a service or `sudo` (`--preserve-env=NAME`). *holds
    /// no PIN*: an unset CI secret, or one with a line ending. Run `printenv NAME | od -c` where the client
    /// starts.
    #[error("pinSource: the environment variable {name} {reason}")]
    Environment { name: String, reason: Cow<'static, str> },
    /// `head -1 FILE | wc -c` shows the PIN's length plus one, `file FILE` shows a BOM. On a mount
    /// without modes (vfat, a Windows share) the file can't be private: put it elsewhere.
    #[error("pinSource: file {}: {reason}", .path.display())]
    File { path: PathBuf, reason: String },
    /// Only a `yes` typed at the terminal allows the last try. With the PUK, unblocking is safer than
    /// guessing.
    #[error("token {token} has one {kind} try left; the {kind} {origin} was not sent to it")]
    FinalTry { kind: PinKind, token: String, origin: PinOrigin },
    #[error("token {token} has one PIN try left, so the reader was not asked for it")]
    FinalTryAtReader { token: String },
    /// It can't be this token's PIN. YubiHSM: four hex digits of the authentication key, then its
    /// password. CloudHSM: `user:password`. Look for blanks and line ends in a file or variable.
    #[error(
        "the PIN {origin} was not sent: PINs of token {token} have {shortest} to {longest} bytes"
    )]
    Length { token: String, origin: PinOrigin, shortest: usize, longest: usize },
    /// `sudo apt install pinentry-curses`, or `pinentry-gnome3` for a desktop.
    #[error("pinSource askpass: no program to ask for the PIN")]
    NoAskpass,
    #[error("token {token} wants a PIN, and there is no terminal to ask for it and no pinSource")]
    NoPin { token: String },
    /// A management key has 48 hexadecimal digits; an AES key may have 32 or 64, which ykcs11 takes from 2.3
    /// on. No try was spent.
    #[error("the management key {origin} was not sent to token {token}: it has {shape}")]
    NotAManagementKey { token: String, origin: PinOrigin, shape: String },
    /// The SO PIN and a management key can change every key of the token. No configuration, file or
    /// variable is asked for them.
    #[error(
        "token {token} wants its {kind}, which only a person gives, and there is \
         no terminal and no program to ask for it"
    )]
    NotFromAPerson { kind: PinKind, token: String },
    /// A stored PIN isn't sent after a refusal, even in another process or by another token of the same
    /// card. The token's own count shows the refusal, or a line in
    /// `~/.local/state/pkcs11-external-signer`. Two logins without a clear end
    /// (*CKR_DEVICE_REMOVED*) count as one refusal. A PIN that was changed since is sent, once.
    #[error("token {token} seems to have refused a PIN; the PIN {origin} was not sent to it")]
    RefusedBefore { token: String, origin: PinOrigin },
    /// The program answers from a store (KWallet, GNOME Keyring, your script): delete the entry there.
    /// One try was spent, not three.
    #[error("token {token} refused the {kind} {origin}, which gave the same one again")]
    Repeated { kind: PinKind, token: String, origin: PinOrigin },
    /// The first line is the PIN, and must come within a minute. `kubectl apply -f -` needs standard
    /// input for the manifest: use another source.
    #[error("pinSource: standard input {reason}")]
    StandardInput { reason: String },
    /// The terminal is gone (a dropped ssh), or another prompt has it: `ps -t $(tty)`.
    #[error("the terminal can't be asked for a PIN: {reason}")]
    Terminal { reason: String },
    #[error("token {token} wants a PIN, which can no longer be asked for at the terminal")]
    TerminalLeft { token: String },
    /// A client's handshake has 10 seconds. With `run` there is no such hurry.
    #[error("the prompt for the {kind} of token {token} was not answered within {seconds} s")]
    TimedOut { kind: PinKind, token: String, seconds: u64 },
}

impl Failure for PinError {
    fn exit_code(&self) -> u8 {
        7
    }

    fn remedy(&self) -> Help {
        const PIN_SOURCE: Setting = Setting("pinSource");
        match self {
            Self::Askpass { .. } | Self::NoAskpass => remedy!(
                "set PKCS11_EXTERNAL_SIGNER_ASKPASS to the whole path of a program that asks for \
                 passwords (ksshaskpass, ssh-askpass), install pinentry, or choose another ",
                PIN_SOURCE
            ),
            Self::Cancelled { kind, .. } => {
                remedy!(format!("run the command again and type the {kind}"))
            }
            Self::LeftBefore { .. } => remedy!(
                "run the command again and type the PIN; a script or program that goes on may ask for \
                 it again after 90 seconds"
            ),
            Self::Environment { .. } => remedy!(
                "export the variable where the client starts, or choose another ",
                PIN_SOURCE,
                ": prompt, stdin or file:/path"
            ),
            Self::File { .. } => remedy!(
                "the file must hold the PIN in its first line, belong to you or root, and not \
                 be readable by others (chmod 600)"
            ),
            Self::FinalTry {
                kind: PinKind::SecurityOfficer | PinKind::ManagementKey { .. },
                ..
            } => remedy!(
                "run the command again from a terminal and type yes and it there; a wrong one locks it"
            ),
            Self::FinalTry { .. } => remedy!(
                "run the command from a terminal without pin and ",
                PIN_SOURCE,
                " and type the PIN yourself; a wrong one locks the token"
            ),
            Self::FinalTryAtReader { .. } => remedy!(
                "run the command from a terminal, type yes there and enter the PIN at the reader; a \
                 wrong one locks the token"
            ),
            Self::Length { .. } => remedy!(
                "check which PIN is meant (a YubiKey: the PIV PIN, 6 to 8 characters); \
                 no try was spent"
            ),
            Self::NoPin { .. } => remedy!(
                "run the command from a terminal (with ssh: -t), or set ",
                PIN_SOURCE,
                " to askpass, stdin, file:/path or env:NAME"
            ),
            Self::NotAManagementKey { .. } => remedy!(
                "look it up where it was written down when it was changed (a YubiKey with `--protect`: \
                 its PIN will do); no try was spent"
            ),
            Self::NotFromAPerson { .. } => remedy!(
                "run the command from a terminal (with ssh: -t), or set PKCS11_EXTERNAL_SIGNER_ASKPASS to \
                 the whole path of a program that asks a person for passwords"
            ),
            Self::RefusedBefore { origin: PinOrigin::Askpass(_), .. } => remedy!(
                "two logins with this PIN came to no clear end: look at the token and at the PIN \
                 before you try again"
            ),
            Self::RefusedBefore { .. } => remedy!(
                "correct the PIN, then, in a terminal (with ssh: -t), log in yourself: ",
                format!("{PROGRAM} check{THIS_KEY} --pin-source prompt"),
                "; where no person can type it, ",
                format!("{PROGRAM} check{THIS_KEY}{THIS_PIN_SOURCE} --despite-refusal"),
                " sends the stored PIN once"
            ),
            Self::Repeated { .. } => remedy!(
                "correct what that program answers before you try again; a PIN that was refused is \
                 not sent twice"
            ),
            Self::StandardInput { .. } => remedy!(
                "write the PIN and a newline to standard input, or choose another ",
                PIN_SOURCE,
                ": prompt, file:/path or env:NAME"
            ),
            Self::Terminal { .. } => remedy!(
                "run the command in a terminal of your own, or set ",
                PIN_SOURCE,
                " to stdin, file:/path or env:NAME"
            ),
            Self::TerminalLeft { .. } => remedy!(
                "end what keeps the key open, the run or the tunnel process (`",
                format!("{PROGRAM} stop"),
                "`), and start the command again, which asks for the PIN first; or set ",
                PIN_SOURCE
            ),
            Self::TimedOut { kind, .. } if *kind != PinKind::User => {
                remedy!(format!("run the command again and type the {kind} in time"))
            }
            Self::TimedOut { .. } => remedy!(
                "run the command again and type the PIN in time; without a person at the terminal, set ",
                PIN_SOURCE,
                " to stdin, file:/path or env:NAME"
            ),
        }
    }
}
