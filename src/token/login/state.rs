//! Who is logged in to a session, and which PIN is kept for it. Each change of either is one method here.
//!
//! ```text
//!              logged_in                 logged_in (CKU_SO)
//!         ◀──────────────────        ──────────────────▶
//!   User                      Nobody                     SecurityOfficer
//!         ──────────────────▶        ◀──────────────────
//!            logout_called                logout_called
//! ```
//!
//! The login that a key wants for each signature (CKU_CONTEXT_SPECIFIC) doesn't change who is logged in.
//!
//! Which PIN is kept doesn't follow from that. After a login at the reader, no PIN is kept; a PIN that the token has
//! accepted in another session is kept before the login here; and the user's PIN stays when the security officer logs in.
//!
//! ```text
//!          keep                         take, drop_kept
//!   none ────────▶ Accepted, Unchecked ─────────────────▶ none
//! ```
//!
//! Whoever sends the kept PIN takes it, and keeps it again only if the token may still accept it. So a refused PIN can't
//! stay by mistake. `take_accepted` and `give_back` are for `prove`: while a client proves that it knows the PIN, the kept
//! one must not be sent.

use cryptoki::session::UserType;

use config::pin::{Pin, PinOrigin};

/// A PIN, and where it came from.
pub(super) struct SourcedPin {
    pub(super) pin: Pin,
    pub(super) origin: PinOrigin,
}

impl SourcedPin {
    /// A second copy of the PIN, which is wiped like the first one.
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

/// Who is logged in to a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum LoggedIn {
    #[default]
    Nobody,
    SecurityOfficer,
    User,
}

/// Who is logged in to a session, and the PIN that is kept for it.
#[derive(Default)]
pub(crate) struct Login {
    who: LoggedIn,
    /// The PIN that is kept for keys that want it again for each signature, and for another session in the place of
    /// this one.
    kept: Option<KnownPin>,
    /// How many logins have ended.
    ended: usize,
    /// Whether the user says that the stored PIN is another one than the token has refused.
    pub(super) disregards_refusals: bool,
    /// How many wrong PINs clients have given to [prove](super::Token::prove) since the last right one.
    pub(super) wrong_proofs: usize,
}

impl Login {
    /// Whether the user or the security officer is logged in.
    pub(crate) fn is_made(&self) -> bool {
        self.who != LoggedIn::Nobody
    }

    /// The state of another session of the same token: whoever is logged in is so there, too.
    pub(crate) fn of_another_session(&self) -> Self {
        Self { who: self.who, ..Self::default() }
    }

    /// Whether the security officer is logged in.
    pub(crate) fn is_officers(&self) -> bool {
        self.who == LoggedIn::SecurityOfficer
    }

    /// How many logins of this session have ended.
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    /// Notes that C_Login has succeeded. A key's own login counts as the user's if nobody is logged in.
    pub(crate) fn logged_in(&mut self, user: UserType) {
        self.who = match (user, self.who) {
            (UserType::So, _) => LoggedIn::SecurityOfficer,
            (_, LoggedIn::Nobody) => LoggedIn::User,
            (_, who) => who,
        };
    }

    /// Notes that C_Logout was called; `shows_login` if the session is logged in all the same. In either case, private
    /// objects that were found before can't be used any more.
    pub(crate) fn logout_called(&mut self, shows_login: bool) {
        self.ended += 1;
        if !shows_login {
            self.who = LoggedIn::Nobody;
        }
    }

    /// The kept PIN. It stays kept.
    pub(super) fn kept(&self) -> Option<&KnownPin> {
        self.kept.as_ref()
    }

    /// Keeps the PIN, in place of the one that is kept.
    pub(super) fn keep(&mut self, pin: KnownPin) {
        self.kept = Some(pin);
    }

    /// Takes the kept PIN out, to be sent.
    pub(super) fn take(&mut self) -> Option<KnownPin> {
        self.kept.take()
    }

    /// Drops the kept PIN: it may not be sent any more, or is no proof.
    pub(super) fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// Takes the kept PIN out if the token has accepted it. It isn't sent until it is [given back](Self::give_back). A PIN
    /// that the token has not accepted stays.
    pub(super) fn take_accepted(&mut self) -> Option<SourcedPin> {
        match self.kept.take() {
            Some(KnownPin::Accepted(pin)) => Some(pin),
            other => {
                self.kept = other;
                None
            }
        }
    }

    /// Keeps the PIN again that was [taken](Self::take_accepted), if somebody is logged in and no other PIN is kept by now.
    pub(super) fn give_back(&mut self, former: SourcedPin) {
        if self.is_made() && self.kept.is_none() {
            self.kept = Some(KnownPin::Accepted(former));
        }
    }

    /// The kept PIN, if the token has accepted it, of a session that isn't used any more.
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
