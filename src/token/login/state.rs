//! Who is logged in in a session, and which PIN is kept for it: each change of either is one method here.
//!
//! ```text
//!              logged_in                 logged_in (CKU_SO)
//!         ◀──────────────────        ──────────────────▶
//!   User                      Nobody                     SecurityOfficer
//!         ──────────────────▶        ◀──────────────────
//!            logout_called                logout_called
//! ```
//!
//! The login that a key wants for each signature (CKU_CONTEXT_SPECIFIC) leaves that as it is.
//!
//! The PIN is kept apart from that, since each can be there without the other: a PIN that was entered at the reader is
//! kept nowhere; one that the token accepted in another session is here before the login; and the user's stays when
//! the security officer takes the user's place.
//!
//! ```text
//!          keep                         take, drop_kept
//!   none ────────▶ Accepted, Unchecked ─────────────────▶ none
//! ```
//!
//! Whoever sends the kept PIN takes it, and has it kept again only if the token may still accept it: so one that was
//! refused can't stay by mistake. `take_accepted` and `give_back` are for a client that proves that it knows the
//! PIN, during which nobody else's may be sent.

use cryptoki::session::UserType;

use config::pin::{Pin, PinOrigin};

/// A PIN, and where it came from.
pub(super) struct SourcedPin {
    pub(super) pin: Pin,
    pub(super) origin: PinOrigin,
}

impl SourcedPin {
    /// A second copy of the PIN, which is wiped as the first one is.
    pub(super) fn duplicate(&self) -> Self {
        Self { pin: self.pin.duplicate(), origin: self.origin.clone() }
    }
}

/// A PIN that can be sent, by what the token has said of it.
pub(super) enum KnownPin {
    /// The token has accepted it in this process.
    Accepted(SourcedPin),
    /// The token has not looked at it: it is new, or another login was in force when it was sent.
    Unchecked(SourcedPin),
}

impl KnownPin {
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted(_))
    }

    pub(super) fn pin(&self) -> &Pin {
        &self.sourced().pin
    }

    pub(super) fn origin(&self) -> &PinOrigin {
        &self.sourced().origin
    }

    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Accepted(pin) => Self::Accepted(pin.duplicate()),
            Self::Unchecked(pin) => Self::Unchecked(pin.duplicate()),
        }
    }

    /// This PIN, after the token has accepted it.
    pub(super) fn duplicate_as_accepted(&self) -> Self {
        Self::Accepted(self.sourced().duplicate())
    }

    fn sourced(&self) -> &SourcedPin {
        match self {
            Self::Accepted(pin) | Self::Unchecked(pin) => pin,
        }
    }
}

/// Who is logged in in a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum LoggedIn {
    #[default]
    Nobody,
    SecurityOfficer,
    User,
}

/// The login of a session, and the PIN that was sent for it.
#[derive(Default)]
pub(crate) struct Login {
    who: LoggedIn,
    /// For keys that want it again for each signature, and for a session in place of this one.
    kept: Option<KnownPin>,
    /// How many logins have ended.
    ended: usize,
    /// The user says that the stored PIN is another one than the token has refused.
    pub(super) disregards_refusals: bool,
    /// How many wrong PINs were given to [prove](super::Token::prove) since the last right one.
    pub(super) wrong_proofs: usize,
}

impl Login {
    /// Whether the user or the security officer is logged in.
    pub(crate) fn is_made(&self) -> bool {
        self.who != LoggedIn::Nobody
    }

    /// Whether the security officer is logged in.
    pub(crate) fn is_officers(&self) -> bool {
        self.who == LoggedIn::SecurityOfficer
    }

    /// See [`super::Token::logins`].
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    /// C_Login has succeeded. A key's own login, where none is in force, counts as the user's.
    pub(crate) fn logged_in(&mut self, user: UserType) {
        self.who = match (user, self.who) {
            (UserType::So, _) => LoggedIn::SecurityOfficer,
            (_, LoggedIn::Nobody) => LoggedIn::User,
            (_, who) => who,
        };
    }

    /// C_Logout was called, and the session shows a login all the same or doesn't: private objects that were found before
    /// are not to be used in either case.
    pub(crate) fn logout_called(&mut self, shows_login: bool) {
        self.ended += 1;
        if !shows_login {
            self.who = LoggedIn::Nobody;
        }
    }

    /// The kept PIN, which stays.
    pub(super) fn kept(&self) -> Option<&KnownPin> {
        self.kept.as_ref()
    }

    /// Keeps the PIN, in place of the one that is kept.
    pub(super) fn keep(&mut self, pin: KnownPin) {
        self.kept = Some(pin);
    }

    /// The kept PIN, to be sent.
    pub(super) fn take(&mut self) -> Option<KnownPin> {
        self.kept.take()
    }

    /// The kept PIN may not be sent any more, or proves nothing.
    pub(super) fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// The kept PIN, if the token has accepted it: not to be sent until it is [given back](Self::give_back). Any other one
    /// stays.
    pub(super) fn take_accepted(&mut self) -> Option<SourcedPin> {
        match self.kept.take() {
            Some(KnownPin::Accepted(pin)) => Some(pin),
            other => {
                self.kept = other;
                None
            }
        }
    }

    /// The PIN that was [taken](Self::take_accepted) is kept again, if its login is in force and no other PIN has taken its
    /// place.
    pub(super) fn give_back(&mut self, former: SourcedPin) {
        if self.is_made() && self.kept.is_none() {
            self.kept = Some(KnownPin::Accepted(former));
        }
    }

    /// The kept PIN, if the token has accepted it, when the session is of no use any more.
    pub(super) fn into_accepted(mut self) -> Option<SourcedPin> {
        self.take_accepted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(text: &str) -> SourcedPin {
        SourcedPin { pin: Pin::new(text).unwrap(), origin: PinOrigin::Person }
    }

    #[test]
    fn a_keys_own_login_leaves_the_sessions_as_it_is() {
        for (user, is_officers) in [(UserType::User, false), (UserType::So, true)] {
            let mut login = Login::default();
            assert!(!login.is_made());
            login.logged_in(user);
            login.logged_in(UserType::ContextSpecific);
            assert!(login.is_made());
            assert_eq!(login.is_officers(), is_officers);
        }
    }

    #[test]
    fn a_logout_ends_any_login_unless_the_session_shows_one_and_is_counted_in_either_case() {
        let mut login = Login::default();
        login.logged_in(UserType::So);
        login.logout_called(true);
        assert!(login.is_officers());
        login.logout_called(false);
        assert!(!login.is_made() && !login.is_officers());
        assert_eq!(login.ended(), 2);
    }

    #[test]
    fn only_a_pin_that_the_token_accepted_is_taken_for_right() {
        let mut login = Login::default();
        login.keep(KnownPin::Unchecked(pin("1111")));
        assert!(login.take_accepted().is_none());
        assert!(login.kept().is_some());
        login.keep(KnownPin::Accepted(pin("2222")));
        assert!(login.take_accepted().is_some_and(|taken| taken.pin.is_same(&pin("2222").pin)));
        assert!(login.kept().is_none());
    }

    #[test]
    fn a_pin_is_given_back_where_its_login_is_in_force_and_no_other_is_in_its_place() {
        let mut login = Login::default();
        login.give_back(pin("1111"));
        assert!(login.kept().is_none());
        login.logged_in(UserType::User);
        login.give_back(pin("1111"));
        login.give_back(pin("2222"));
        assert!(login.into_accepted().is_some_and(|kept| kept.pin.is_same(&pin("1111").pin)));
    }
}
