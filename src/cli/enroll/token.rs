//! The token while a key on it is enrolled, in three states. An [`Enrollment`] has the token to itself, and can change it.
//! A [`SharedEnrollment`] leaves it to other processes while it waits for people, and stays logged in. A
//! [`PausedEnrollment`] has left the token, so that a tunnel can use its key.

use std::mem;

use super::choice::{check_yubikey, open_token};
use super::plan::TokenPlan;
use crate::cli::session::{CommandOutput, CommandSession, Step};
use crate::enrollment::{Applicant, sign_request};
use attestation::AttestationBundle;
use config::pin::Pin;
use config::{Config, ObjectId};
use keyring::library::{self, AskingUnlocked, LibraryLock};
use messages::error::Error;
use pin_entry::Sources;
use system::environment::TakenVariables;
use system::limits;
use token::{AcceptedPin, Candidate, KeyPurpose, KeyReference, PivSlot, Token};

/// An enrollment that has the token to itself, in a session in which the token can be changed.
pub(super) struct Enrollment<'a> {
    pub(super) plan: &'a TokenPlan,
    /// The library's lock, which is held except while a person is asked for a PIN ([`AskingUnlocked`]).
    lock: LibraryLock,
    pub(super) token: Token,
    pub(super) config: Config,
    pub(super) pins: AskingUnlocked<Sources>,
    pub(super) place: KeyPlace,
    /// What the token showed after the login, or when it was [looked at again](Self::look_again).
    pub(super) candidates: Vec<Candidate>,
    /// What was found and done, and is not [shown](Self::show) yet.
    pub(super) steps: Vec<Step>,
}

/// An enrollment that waits for people: its session stays open and logged in, and other processes can use the token.
pub(super) struct SharedEnrollment<'a>(Enrollment<'a>);

/// The place on the token where the key is, or is to be.
#[derive(Clone)]
pub(super) enum KeyPlace {
    /// The key can be anywhere: it is found by its label.
    Any,
    /// The key is under the CKA_ID of the slot that a YubiKey has for the key's purpose.
    Usual(ObjectId),
    /// The key is under this CKA_ID, which the options name.
    Named(ObjectId),
}

impl KeyPlace {
    /// The place that this plan means on this token, with what the configuration says of an object.
    fn of(plan: &TokenPlan, token: &Token, config: &Config) -> Self {
        if token.state().is_yubikey() {
            if let Some(slot) = plan.slot {
                return Self::Named(slot.id());
            }
            if !config.object.is_given() {
                return Self::Usual(match plan.purpose {
                    KeyPurpose::Signing => PivSlot::AUTHENTICATION.id(),
                    KeyPurpose::Unsealing => PivSlot::KEY_MANAGEMENT.id(),
                });
            }
        }
        config.object.id.clone().map_or(Self::Any, Self::Named)
    }

    /// The CKA_ID of the place, if it has one.
    pub(super) fn id(&self) -> Option<&ObjectId> {
        match self {
            Self::Any => None,
            Self::Usual(id) | Self::Named(id) => Some(id),
        }
    }
}

/// An enrollment that has left its token to others. It keeps the PIN.
pub(super) struct PausedEnrollment<'a> {
    plan: &'a TokenPlan,
    config: Config,
    place: KeyPlace,
    pins: Sources,
    accepted: Option<Pin>,
}

impl<'a> Enrollment<'a> {
    /// Opens the token of this configuration, and logs in for this user.
    pub(super) fn open(
        plan: &'a TokenPlan,
        mut config: Config,
        user: &str,
        variables: &TakenVariables,
        session: &mut CommandSession,
    ) -> Result<Self, Error> {
        let pins = Sources::new(mem::take(&mut config.pin), variables);
        let (lock, mut token) = open_token(&config, session)?;
        check_yubikey(plan, &token)?;
        let place = KeyPlace::of(plan, &token, &config);
        let mut pins = lock.asking_unlocked(&config.library, pins);
        let candidates = log_in(&mut token, user, &mut pins)?;
        Ok(Self { plan, lock, token, config, pins, place, candidates, steps: Vec::new() })
    }

    /// Prints the steps that are done.
    pub(super) fn show(&mut self, output: &mut CommandOutput) -> Result<(), Error> {
        self.steps.drain(..).try_for_each(|step| output.step(&step))
    }

    /// Reads what the token shows now: another process may have changed it.
    pub(super) fn look_again(&mut self) -> Result<(), Error> {
        self.candidates = self.token.candidates()?;
        Ok(())
    }

    /// Lets other processes use the token.
    pub(super) fn share(self) -> SharedEnrollment<'a> {
        self.lock.release();
        SharedEnrollment(self)
    }

    /// Closes the session, so that another one can use the token.
    pub(super) fn pause(self) -> PausedEnrollment<'a> {
        let Self { plan, token, config, place, pins, .. } = self;
        let pins = pins.into_inner();
        let accepted = token.close().map(AcceptedPin::into_pin);
        PausedEnrollment { plan, config, place, pins, accepted }
    }

    /// Has the key sign a request for a certificate of this applicant, in PEM.
    pub(super) fn sign_request(
        &mut self,
        applicant: &Applicant,
        attestation: Option<&AttestationBundle>,
        key: &KeyReference,
    ) -> Result<String, Error> {
        let (token, pins) = (&mut self.token, &mut self.pins);
        let open = token.key(key.clone(), pins)?;
        let schemes = token.tls_schemes(&key.public_key)?;
        sign_request(
            self.plan.purpose,
            attestation,
            applicant,
            &key.public_key,
            &token.allowed_schemes(&open, &schemes)?,
            |scheme, digest| token.sign(&open, scheme, digest, pins),
        )
    }
}

impl<'a> SharedEnrollment<'a> {
    /// Takes the token back from the other processes. If one of them uses it, this waits.
    pub(super) fn lock(self) -> Result<Enrollment<'a>, Error> {
        self.acquire_lock()?;
        Ok(self.0)
    }

    /// Prints the steps that are done.
    pub(super) fn show(&mut self, output: &mut CommandOutput) -> Result<(), Error> {
        self.0.show(output)
    }

    /// Does this work with the token locked meanwhile.
    pub(super) fn while_locked<T>(
        &mut self,
        work: impl FnOnce(&mut Enrollment<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.acquire_lock()?;
        let outcome = work(&mut self.0);
        self.0.lock.release();
        outcome
    }

    fn acquire_lock(&self) -> Result<(), Error> {
        let Enrollment { lock, config, .. } = &self.0;
        lock.acquire(&config.library, limits::LOCK, &mut library::note_wait)
    }
}

impl<'a> PausedEnrollment<'a> {
    /// The PIN for the token's next session, if the token has accepted one.
    pub(super) fn accepted_pin(&self) -> Option<Pin> {
        self.accepted.as_ref().map(Pin::duplicate)
    }

    /// Opens the token again, and logs in for this user.
    pub(super) fn resume(
        self,
        user: &str,
        session: &mut CommandSession,
    ) -> Result<Enrollment<'a>, Error> {
        let Self { plan, config, place, mut pins, accepted } = self;
        pins.accepted(accepted);
        let (lock, mut token) = open_token(&config, session)?;
        let mut pins = lock.asking_unlocked(&config.library, pins);
        let candidates = log_in(&mut token, user, &mut pins)?;
        let steps = Vec::new();
        Ok(Enrollment { plan, lock, token, config, pins, place, candidates, steps })
    }
}

/// Logs in for this user, and returns what the token shows then.
fn log_in(
    token: &mut Token,
    user: &str,
    pins: &mut AskingUnlocked<Sources>,
) -> Result<Vec<Candidate>, Error> {
    token.log_in_if_required(&format!("to enroll {user}"), pins)?;
    token.candidates()
}
