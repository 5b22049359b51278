//! The messages for a login that fails: what is wrong, and what to type next.

use cryptoki::error::{Error as CryptokiError, RvError};

use crate::module::{PinState, pkcs11_tool};
use crate::pin_rules::WhyNotSent;
use crate::{Token, ckr, kind};
use config::TokenName;
use config::pin::{self, PinOrigin};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};

const WHICH_PIN: &str = "find out which PIN the token wants (for a YubiKey, the PIV PIN)";

impl Token {
    /// The error for a PIN that the rules don't allow to be sent. `origin` is where the PIN would have come from.
    pub(super) fn not_sent(&self, reason: WhyNotSent, origin: &PinOrigin) -> Error {
        match reason {
            WhyNotSent::FinalTry => pin::final_try(&self.state.name.to_string(), origin),
            WhyNotSent::Locked => self.locked(),
            WhyNotSent::RefusedBefore => self.refused_before(origin),
            WhyNotSent::ToBeChanged => self.to_be_changed("CKF_USER_PIN_TO_BE_CHANGED"),
            WhyNotSent::TriesSpent => self.tries_spent(),
        }
    }

    fn refused_before(&self, origin: &PinOrigin) -> Error {
        let token = &self.state.name;
        let text = format!(
            "token {token} seems to have refused a PIN; the PIN {origin} was not sent to it"
        );
        let by_hand = command("check").and(HelpPart::Key).and(" --pin-source prompt");
        let despite_refusal =
            command("check").and(HelpPart::Key).and(HelpPart::PinSource).and(" --despite-refusal");
        let help =
            Help::from("correct the PIN, then, in a terminal (with ssh: -t), log in yourself: ")
                .and(by_hand)
                .and("; where nobody can type it, ")
                .and(despite_refusal)
                .and(" sends the stored PIN once");
        Error::new(Exit::Login, text).help(help)
    }

    fn tries_spent(&self) -> Error {
        let token = &self.state.name;
        let text = format!(
            "token {token} has accepted none of three PINs, so you are not asked for another"
        );
        let help = Help::from("find out which PIN the token wants (")
            .and(command("check").and(HelpPart::Key).and(" --no-login"))
            .and(" shows how it counts), then start the command again");
        Error::new(Exit::Login, text).help(help)
    }

    /// The error for a client that would use the login of others, after clients have given too many wrong PINs for that. It
    /// stays so as long as the login.
    pub(super) fn proofs_spent(&self) -> Error {
        let token = &self.state.name;
        let text = format!(
            "token {token} has accepted none of three PINs, so nobody is asked for another while it is logged in"
        );
        let help = Help::from("find out which PIN the token wants (")
            .and(command("check").and(HelpPart::Key).and(" --no-login"))
            .and(" shows how it counts); ")
            .and(command("stop"))
            .and(" ends the login, for everybody who uses it; then start the command again");
        Error::new(Exit::Login, text).help(help)
    }

    fn locked(&self) -> Error {
        let text = format!("the PIN of token {} is locked (CKR_PIN_LOCKED)", self.state.name);
        Error::new(Exit::Login, text).help(self.unblock())
    }

    fn unblock(&self) -> String {
        let tool = self.pkcs11_tool();
        format!(
            "unblock it with the PUK or the SO PIN: ykman piv access unblock-pin (YubiKey), pkcs15-tool --unblock-pin \
             (OpenSC), tpm2_dictionarylockout --clear-lockout (TPM), {tool} --login --login-type so --init-pin (others)"
        )
    }

    fn pkcs11_tool(&self) -> String {
        pkcs11_tool(self.state.name.slot, &self.module.path.to_string_lossy())
    }

    fn to_be_changed(&self, reported: &str) -> Error {
        let (token, tool) = (&self.state.name, self.pkcs11_tool());
        let text =
            format!("the PIN of token {token} must be changed before it can be used ({reported})");
        Error::new(Exit::Login, text)
            .help(format!("change it: {tool} --login --change-pin, or the token's own tool"))
    }

    /// The error for a PIN that the token has refused. `left` is the token's state now.
    pub(super) fn incorrect(
        &self,
        origin: &PinOrigin,
        left: PinState,
        error: &CryptokiError,
    ) -> Error {
        let (token, tries, failure) = (&self.state.name, left.tries_left(), ckr::failure(error));
        let text = format!("token {token} refused the PIN {origin}{tries}: {failure}");
        Error::new(Exit::Login, text).help(match origin {
            _ if left == PinState::Locked => Help::from(self.unblock()),
            PinOrigin::Person | PinOrigin::Reader => {
                Help::from(format!("{WHICH_PIN} before you try again"))
            }
            PinOrigin::Askpass(_) | PinOrigin::Pinentry(_) => {
                Help::from(format!("{WHICH_PIN}, or correct what that program answers by itself"))
            }
            PinOrigin::Stored(_) => {
                Help::from("correct the PIN at its source, then log in yourself: ")
                    .and(command("check").and(HelpPart::Key).and(" --pin-source prompt"))
                    .and("; until then no stored PIN is sent, since every try counts")
            }
        })
    }

    /// The error for a C_Login that has failed in another way than by a refused PIN.
    pub(super) fn login_failure(&self, error: &CryptokiError) -> Error {
        let (token, failure) = (&self.state.name, ckr::failure(error));
        match ckr::code(error) {
            Some(RvError::PinLocked) => self.locked(),
            Some(RvError::PinExpired) => self.to_be_changed(&failure),
            Some(RvError::Cancel | RvError::FunctionCanceled | RvError::FunctionRejected) => {
                let text = format!("the login to token {token} was cancelled: {failure}");
                Error::new(Exit::Login, text).help(
                    "run the command again and enter the PIN at the reader or in the library's window",
                )
            }
            Some(RvError::UserPinNotInitialized) => {
                let text = format!("token {token} has no user PIN yet: {failure}");
                let tool = self.pkcs11_tool();
                Error::new(Exit::Login, text).kind(kind::PIN_NOT_SET).help(format!(
                    "initialise the user PIN first: {tool} --login --login-type so --init-pin, or the token's own tool"
                ))
            }
            _ => self.call_failure(error),
        }
    }

    /// The error for a C_Login or C_Logout that has failed for a reason that has nothing to do with the PIN.
    pub(crate) fn call_failure(&self, error: &CryptokiError) -> Error {
        self.failure(error, |failure| {
            let text = format!("login to token {} failed: {failure}", self.state.name);
            Error::new(Exit::Login, text).kind(kind::CALL_FAILED).help(ckr::TAKE_OUT)
        })
    }
}

/// The error for a program that gives a PIN again that the token has refused or may have refused.
pub(super) fn repeated(token: &TokenName, origin: &PinOrigin) -> Error {
    let text = format!(
        "token {token} seems to have refused the PIN {origin}, which gave the same one again"
    );
    Error::new(Exit::Login, text).help(
        "correct what that program answers before you try again; a PIN that was refused is not sent again",
    )
}

/// The error for a PIN whose form the library has refused, before the token could count it.
pub(super) fn malformed(token: &TokenName, origin: &PinOrigin, error: &CryptokiError) -> Error {
    let text = format!(
        "the library of token {token} did not accept the PIN {origin} in this form: {}",
        ckr::failure(error)
    );
    Error::new(Exit::Login, text).help(format!(
        "{WHICH_PIN}, and how long that is (a PIV PIN has 6 to 8 characters); no try was used up"
    ))
}

/// The error for a stored PIN that isn't sent, because the line that has to be written before can't be.
pub(super) fn not_recorded(token: &TokenName, origin: &PinOrigin, reason: &str) -> Error {
    let text = format!(
        "a PIN that token {token} refuses could not be remembered ({reason}), so the PIN {origin} was not \
         sent to it"
    );
    Error::new(Exit::Login, text).help(
        "make sure that you can write to .local/state/pkcs11-external-signer in your home directory, or to one of those \
         directories, with mode 0700; or type the PIN: set pinSource (--pin-source) to prompt",
    )
}
