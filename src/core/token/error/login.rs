//! Exit code 7: the login.

use std::path::PathBuf;

use super::super::slot::PinState;
use super::CallFailure;
use crate::error::{Failure, Help, PROGRAM, Setting, THIS_KEY, remedy};
use crate::pin::{PinKind, PinOrigin};
use crate::printable::shell_word;

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// [The code](#ckr-codes) says why. Check the tries that are left.
    #[error("login to token {token} failed: {failure}")]
    Call { token: String, failure: CallFailure },
    /// The token has counted it. Usual mix-ups: the PIV PIN and the FIDO or OpenPGP PIN of a YubiKey; PIN
    /// and PUK; user PIN and SO PIN; another token (compare the serial); a keyboard layout. Stop before
    /// the last try. `ykman piv access change-pin` changes a known PIN, `ykman piv access unblock-pin` a
    /// forgotten one.
    #[error("token {token} refused the {kind} {origin}{}: {failure}", .left.tries_left(*.kind))]
    Incorrect {
        kind: PinKind,
        token: String,
        origin: PinOrigin,
        left: PinState,
        failure: CallFailure,
    },
    /// Nothing was sent. Find who sent the wrong PINs: `grep -lr pin ~/.kube`, CI variables. Without the
    /// PUK a card must be reset, and its keys are lost. SoftHSM and many HSMs: `pkcs11-tool --module FILE
    /// --login --login-type so --init-pin`.
    #[error("the {kind} of token {token} is locked (CKR_PIN_LOCKED)")]
    Locked { kind: PinKind, token: String },
    /// The digits of one algorithm's key where the card has another's: 48 for 3DES and AES-192, 32 for
    /// AES-128, 64 for AES-256. No try was spent.
    #[error("the management key of token {token} has another length: {failure}")]
    KeyOfOtherLength { token: String, failure: CallFailure },
    /// ykcs11 takes the card's PIN where its management key is protected by it
    /// (`ykman piv access change-management-key --generate --protect`). The PIN was right.
    #[error("token {token} doesn't keep its management key under its PIN: {failure}")]
    NoKeyUnderPin { token: String, failure: CallFailure },
    /// Without a note of the refusal, ten requests at once would spend ten tries. The directories for it
    /// (`.local/state` in your home, `/run/user/UID`, `/tmp`, `/dev/shm`) are read-only, full (`df -i`),
    /// or hold a `pkcs11-external-signer…` that others could have prepared.
    #[error(
        "a PIN that token {token} refuses could not be remembered ({reason}), so the PIN {origin} \
         was not sent to it"
    )]
    NoMemory { token: String, origin: PinOrigin, reason: String },
    #[error("token {token} has no user PIN yet: {failure}")]
    NotSet { token: String, failure: CallFailure },
    /// The cancel key was pressed, or the time ran out. At a reader, press the green key after the PIN.
    #[error("the login to token {token} was cancelled: {failure}")]
    ReaderCancelled { token: String, failure: CallFailure },
    #[error("the {kind} of token {token} must be changed before it can be used ({told})")]
    ToBeChanged {
        kind: PinKind,
        token: String,
        module: PathBuf,
        /// The flag or the return value that says so.
        told: String,
    },
    #[error("token {token} was sent three {kind}s and has accepted none, so no other is asked for")]
    TriesSpent { kind: PinKind, token: String },
}

impl LoginError {
    /// Whether a call to the token failed, as it does when the token is gone.
    pub fn is_a_failed_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

impl Failure for LoginError {
    fn exit_code(&self) -> u8 {
        7
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Call { .. } => remedy!(
                "check that the token is still inserted and no other program holds it, then try again"
            ),
            Self::Locked {
                kind: PinKind::SecurityOfficer | PinKind::ManagementKey { .. }, ..
            }
            | Self::Incorrect {
                kind: PinKind::SecurityOfficer | PinKind::ManagementKey { .. },
                left: PinState::Locked,
                ..
            } => remedy!(
                "the token can no longer be set up; its keys can be used as before, and initialising it anew \
                 destroys them"
            ),
            Self::Incorrect { kind: PinKind::ManagementKey { .. }, .. } => remedy!(
                "look up the management key that was set with `ykman piv access change-management-key` \
                 before you try again; a lost one can't be set anew without a reset of the card, which \
                 destroys its keys"
            ),
            Self::Incorrect { kind: PinKind::SecurityOfficer, .. } => remedy!(
                "make sure of the SO PIN that the token was initialised with before you try again"
            ),
            Self::Locked { .. } | Self::Incorrect { left: PinState::Locked, .. } => remedy!(
                "unblock it with the PUK or the SO PIN: ykman piv access unblock-pin (YubiKey), \
                 pkcs15-tool --unblock-pin (OpenSC), tpm2_dictionarylockout --clear-lockout (TPM), \
                 or the token's own tool"
            ),
            Self::Incorrect { origin: PinOrigin::Person | PinOrigin::Reader, .. } => remedy!(
                "make sure which PIN the token wants (a YubiKey: the PIV PIN) before you try again"
            ),
            Self::Incorrect { origin: PinOrigin::Askpass(_), .. } => remedy!(
                "make sure which PIN the token wants (a YubiKey: the PIV PIN), or correct what that \
                 program answers by itself, before you try again"
            ),
            Self::Incorrect { .. } => remedy!(
                "correct the PIN at its source, then log in yourself: ",
                format!("{PROGRAM} check{THIS_KEY} --pin-source prompt"),
                "; until then no stored PIN is sent, since every try counts"
            ),
            Self::KeyOfOtherLength { .. } => remedy!(
                "type the key as it was set: `ykman piv info` shows its algorithm, and 3DES and AES-192 have 48 \
                 hexadecimal digits, AES-128 32, AES-256 64"
            ),
            Self::NoKeyUnderPin { .. } => remedy!(
                "run the command again and type the management key itself, 48 hexadecimal digits"
            ),
            Self::NoMemory { .. } => remedy!(
                "see that you can write to .local/state/pkcs11-external-signer in your home, or to one \
                 of those directories, with mode 0700; or type the PIN: set ",
                Setting("pinSource"),
                " to prompt"
            ),
            Self::NotSet { .. } => remedy!(
                "initialise the user PIN first, with pkcs11-tool --init-pin or the token's own tool"
            ),
            Self::ReaderCancelled { .. } => remedy!(
                "run the command again and enter the PIN where the library asks for it: at the reader, \
                 or in a window of its own"
            ),
            Self::ToBeChanged { kind, module, .. } => remedy!(format!(
                "change it: pkcs11-tool --module {} --login{} --change-pin, or the token's own tool",
                shell_word(&module.to_string_lossy()),
                match kind {
                    PinKind::User => "",
                    PinKind::SecurityOfficer | PinKind::ManagementKey { .. } => " --login-type so",
                }
            )),
            Self::TriesSpent { kind, .. } if *kind != PinKind::User => {
                remedy!(format!("make sure of the {kind}, then start the command again"))
            }
            Self::TriesSpent { .. } => remedy!(
                "make sure which PIN the token wants (check --no-login shows how it counts), then start \
                 the command again"
            ),
        }
    }
}
