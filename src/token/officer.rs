//! The login that is needed to make keys and write certificates on a YubiKey: that of the security officer (CKU_SO), whose
//! PIN is the card's management key. A person types the key, and the card doesn't count wrong ones. A card can keep the
//! management key under its PIN; ykcs11 then takes the PIN in its place. Such a login spends a try of the PIN, and follows
//! the PIN's rules.

use crate::kind;
use cryptoki::error::RvError;
use cryptoki::session::UserType;

use super::{Token, ckr};
use config::pin::{Answer, PinProvider};
use messages::error::{Error, Exit};
use messages::printable::printable;
use system::signals::Deferral;

/// The management key of every new PIV card.
const DEFAULT_KEY: &str = "010203040506070801020304050607080102030405060708";
/// The words that a person may type in place of a key: for that of a new card, and for one that the PIN protects.
const DEFAULT: &str = "default";
const PROTECTED: &str = "pin";
/// The hexadecimal digits of an AES-128 key, of a 3DES or AES-192 key, and of an AES-256 key.
const DIGITS: [usize; 3] = [32, 48, 64];

const LOOK_UP: &str = "look up the key that was set with `ykman piv access change-management-key` (`ykman piv info` \
                       shows its algorithm), and run the command again; if it is lost, only a reset of the card helps";

/// Asks the person at the terminal a question. If the second argument is true, the answer is shown as it is typed.
pub type Ask<'a> = &'a dyn Fn(&str, bool) -> Answer;

impl Token {
    /// Logs in as whoever may make and write objects: the user or, on a YubiKey, the security officer, for which the user
    /// is logged out. The prompt says that the login is wanted for `what`.
    pub fn log_in_to_write(
        &mut self,
        what: &str,
        pins: &mut dyn PinProvider,
        ask: Ask<'_>,
    ) -> Result<(), Error> {
        if !self.state().is_yubikey() {
            return self.log_in_if_required(what, pins);
        }
        if self.login.is_officers() {
            return Ok(());
        }
        self.log_out()?;
        // The token may have been taken out, which is noticed before a person is asked.
        self.check_session()?;
        let Answer::Typed(typed) = ask(&printable(&self.question(what)), false) else {
            let token = self.name();
            let text = format!(
                "token {token} wants its management key, which only a person gives at a terminal"
            );
            return Err(Error::new(Exit::Login, text)
                .help("run the command from a terminal (with ssh: -t) and type the key there"));
        };
        if typed == PROTECTED.as_bytes() {
            self.log_in_with_protected_key(what, pins)
        } else {
            self.log_in_with_key(&typed)
        }
    }

    /// The question to a person, who may type the management key or a word for it.
    fn question(&self, what: &str) -> String {
        format!(
            "management key (48 hexadecimal digits, 32 or 64 for some AES keys; {DEFAULT} if it was never changed, \
             {PROTECTED} if the card's PIN protects it) for token {}, {what}: ",
            self.name()
        )
    }

    /// C_Login as the security officer with the user's PIN, by the PIN's rules.
    fn log_in_with_protected_key(
        &mut self,
        what: &str,
        pins: &mut dyn PinProvider,
    ) -> Result<(), Error> {
        match self.authenticate(UserType::So, what, pins) {
            Err(error) if error.is(&kind::PIN_NOT_SET) => {
                let token = self.name();
                let text = format!("token {token} doesn't keep its management key under its PIN");
                Err(Error::new(Exit::Login, text)
                    .help("run the command again and type the management key itself"))
            }
            outcome => outcome,
        }
    }

    /// C_Login as the security officer with the management key, if what was typed can be one.
    fn log_in_with_key(&mut self, typed: &[u8]) -> Result<(), Error> {
        let token = self.name();
        let Some(key) = management_key(typed) else {
            let text = format!(
                "what was typed can't be the management key, and was not sent to token {token}"
            );
            return Err(Error::new(Exit::Login, text).help(LOOK_UP));
        };
        let deferral = Deferral::for_login();
        let outcome = self.session.login(UserType::So, Some(key));
        drop(deferral);
        match outcome {
            Ok(()) => {
                self.login.logged_in(UserType::So);
                Ok(())
            }
            // A key of the wrong length is CKR_ARGUMENTS_BAD.
            Err(error)
                if ckr::is_one_of(&error, &[RvError::PinIncorrect, RvError::ArgumentsBad]) =>
            {
                let failure = ckr::failure(&error);
                let text = format!("token {token} refused the management key: {failure}");
                Err(Error::new(Exit::Login, text).help(LOOK_UP))
            }
            Err(error) => Err(self.call_failure(&error)),
        }
    }
}

/// The management key that was typed; `None` for what can't be one. In particular a PIN that was typed in its place is not
/// sent: the token would count it as a wrong one.
fn management_key(typed: &[u8]) -> Option<&str> {
    let text = str::from_utf8(typed).ok()?;
    let is_key = DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text {
        DEFAULT => Some(DEFAULT_KEY),
        text => is_key.then_some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_management_key_has_hexadecimal_digits_and_is_no_pin() {
        let digits = |count: usize| "aF".repeat(count / 2).into_bytes();
        for count in DIGITS {
            let typed = digits(count);
            assert_eq!(management_key(&typed).map(str::as_bytes), Some(typed.as_slice()));
        }
        assert_eq!(management_key(b"default"), Some(DEFAULT_KEY));
        for typed in [&b""[..], b"123456", b"12345678", &digits(16), &digits(46), b"Default"] {
            assert_eq!(management_key(typed), None);
        }
        assert_eq!(management_key("g".repeat(48).as_bytes()), None);
    }
}
