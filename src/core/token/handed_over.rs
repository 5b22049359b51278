//! A PIN that a token has accepted in this process, for the one other process that opens the key next.

#![forbid(unsafe_code)]

use super::login::AcceptedPin;
use crate::pin::{Pin, PinError, PinKind, PinOrigin, PinProvider, PinRequest};

/// Gives the accepted PIN to the first request for one, if that is an ordinary request of the same token, and wipes
/// it otherwise. All other requests go to the source that the PIN came from.
pub struct HandedOverPin<'a> {
    accepted: Option<AcceptedPin>,
    source: &'a mut dyn PinProvider,
}

impl<'a> HandedOverPin<'a> {
    pub fn new(accepted: Option<AcceptedPin>, source: &'a mut dyn PinProvider) -> Self {
        Self { accepted, source }
    }
}

/// Whether nothing has happened to the token's PIN since it was accepted: a notice tells of a wrong PIN, and
/// what is to be confirmed is the last try.
fn is_ordinary(request: &PinRequest<'_>) -> bool {
    request.kind == PinKind::User && request.notice.is_none() && request.confirm.is_none()
}

impl PinProvider for HandedOverPin<'_> {
    fn origin(&mut self) -> PinOrigin {
        match &self.accepted {
            Some(accepted) => accepted.origin(),
            None => self.source.origin(),
        }
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        match self.accepted.take() {
            Some(accepted)
                if is_ordinary(request) && accepted.token().to_string() == request.token =>
            {
                Ok(accepted.into_pin())
            }
            _ => self.source.pin(request),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        self.source.confirm_at_reader(request)
    }

    fn at_reader(&mut self, notice: &str) {
        self.source.at_reader(notice);
    }

    fn insert(&mut self, missing: &str) -> bool {
        self.source.insert(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::login::accepted_pin;
    use super::super::slot::state_with_label;
    use super::*;

    /// A person who types another PIN.
    struct Typing;

    impl PinProvider for Typing {
        fn origin(&mut self) -> PinOrigin {
            PinOrigin::Person
        }

        fn pin(&mut self, _: &PinRequest<'_>) -> Result<Pin, PinError> {
            Ok(Pin::new("typed").unwrap())
        }

        fn confirm_at_reader(&mut self, _: &PinRequest<'_>) -> Result<(), PinError> {
            Ok(())
        }

        fn insert(&mut self, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn an_accepted_pin_is_given_once_and_to_an_ordinary_request_of_its_token() {
        let name = state_with_label("one").name;
        let (own, other) = (name.to_string(), state_with_label("two").name.to_string());
        let ordinary = PinRequest {
            kind: PinKind::User,
            token: &own,
            key: "key",
            shortest: 4,
            longest: 8,
            notice: None,
            confirm: None,
        };
        let officers = PinKind::SecurityOfficer;
        for (request, expected) in [
            (PinRequest { ..ordinary }, ["accepted", "typed"]),
            (PinRequest { token: &other, ..ordinary }, ["typed", "typed"]),
            (PinRequest { kind: officers, ..ordinary }, ["typed", "typed"]),
            (PinRequest { notice: Some("wrong"), ..ordinary }, ["typed", "typed"]),
            (PinRequest { confirm: Some("last"), ..ordinary }, ["typed", "typed"]),
        ] {
            let accepted = accepted_pin(name.clone(), Pin::new("accepted").unwrap());
            let mut typing = Typing;
            let mut pins = HandedOverPin::new(Some(accepted), &mut typing);
            assert_eq!(pins.origin(), PinOrigin::Configuration);
            let first = pins.pin(&request).unwrap();
            // Whatever was asked, it is gone.
            assert_eq!(pins.origin(), PinOrigin::Person);
            let second = pins.pin(&ordinary).unwrap();
            assert_eq!([first.expose(), second.expose()], expected);
        }
    }
}
