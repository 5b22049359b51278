//! The key that is enrolled: found on the token or made there, and what the token says of it.

use super::plan::{AttestationPlan, AttestationSource, KeyIntent, KeyPlan, TouchDemand};
use super::policies::KeyPolicies;
use super::token::{Enrollment, KeyPlace};
use crate::cli::issuance::attestation_from_file;
use crate::cli::question::confirm;
use crate::cli::session::Step;
use crate::enrollment::{Applicant, KeyAttestation, find_key, has_valid_certificate, selector};
use attestation::AttestationBundle;
use attestation::yubikey::TouchPolicy;
use config::{ObjectId, ObjectSelector};
use messages::error::{Error, Exit};
use messages::printable::printable;
use messages::report;
use pin_entry::ask;
use system::clock::unix_time;
use token::{Candidate, KeyReference, NewKey, PivSlot, SlotOptions, SlotPolicy, id_in_use};

/// The key that is enrolled.
pub(super) struct EnrolledKey {
    pub(super) key: KeyReference,
    /// Whether the key has a valid certificate, and the options don't name the key.
    pub(super) is_certified: bool,
}

/// The applicant as the request names them, with what the request says of where the key was made.
pub(super) struct AttestedApplicant {
    pub(super) applicant: Applicant,
    pub(super) attestation: Option<AttestationBundle>,
}

impl Enrollment<'_> {
    /// Finds or makes the applicant's key.
    pub(super) fn key(
        &mut self,
        plan: &KeyPlan,
        applicant: &Applicant,
    ) -> Result<EnrolledKey, Error> {
        let label = self.label(applicant);
        if plan.intent == KeyIntent::FindOrMake
            && let Some(found) = self.present_key(plan, &label)?
        {
            self.check_touch(plan.touch, &found.key.selector)?;
            self.describe_key(&found.key, "on");
            return Ok(found);
        }
        let key = self.make_key(plan, &label)?;
        self.check_touch(plan.touch, &key.selector)?;
        self.describe_key(&key, "made on");
        Ok(EnrolledKey { key, is_certified: false })
    }

    /// The label of the applicant's key: their name, unless an option gives it.
    fn label(&self, applicant: &Applicant) -> String {
        let label = self.config.object.label.clone();
        label.unwrap_or_else(|| applicant.user().to_owned())
    }

    /// Finds a key once more in this session, which was [found](Self::key) in an earlier one. Fails if it isn't there any
    /// more. It isn't noted again.
    pub(super) fn key_again(&mut self, found: &KeyReference) -> Result<KeyReference, Error> {
        self.steps.clear();
        self.token.bare_key(&found.selector, Some(&mut self.pins))
    }

    /// Finds the key at the place that is meant, or with this label; `None` if the token has none.
    fn present_key(&mut self, plan: &KeyPlan, label: &str) -> Result<Option<EnrolledKey>, Error> {
        let now = unix_time();
        let found = find_key(&self.candidates, self.place.id(), label, plan.kind, now)?;
        let Some(found) = found else { return Ok(None) };
        let is_named = matches!(self.place, KeyPlace::Named(_));
        let is_certified = !is_named && has_valid_certificate(found, now);
        let selector = selector(found);
        if !is_certified && !self.has_policies(&selector, plan.given_policies()) {
            let text = format!(
                "the key with {selector} is there, and its PIN and touch policies can't be changed"
            );
            return Err(Error::new(Exit::Object, text).help(
                "leave the policies out to use this key, name another slot with --slot, or have the key \
                 destroyed for a new one with --replace",
            ));
        }
        let key = self.token.bare_key(&selector, Some(&mut self.pins))?;
        Ok(Some(EnrolledKey { key, is_certified }))
    }

    /// Finds a key that an earlier call with this plan may have made in the place of another one: it has no certificate
    /// yet, and the kind and the policies that the plan gives a new key. The caller has to see whether a request was
    /// made for it.
    pub(super) fn replacement(
        &mut self,
        plan: &KeyPlan,
        applicant: &Applicant,
    ) -> Option<KeyReference> {
        if plan.intent != KeyIntent::Replace {
            return None;
        }
        let (label, now) = (self.label(applicant), unix_time());
        let kind = Some(plan.kind.unwrap_or_default());
        // A key that can't be taken up is to be replaced.
        let found = find_key(&self.candidates, self.place.id(), &label, kind, now).ok()??;
        let selector = selector(found);
        let is_certified = has_valid_certificate(found, now);
        if is_certified || !self.has_policies(&selector, self.policies_of_new(plan)) {
            return None;
        }
        self.token.bare_key(&selector, Some(&mut self.pins)).ok()
    }

    /// Goes on with the key that an earlier call has [made](Self::replacement). `request` names the request for it in a
    /// sentence, as in `the request NAME`.
    pub(super) fn go_on_with(
        &mut self,
        plan: &KeyPlan,
        key: KeyReference,
        request: &str,
    ) -> Result<EnrolledKey, Error> {
        self.check_touch(plan.touch, &key.selector)?;
        report::note(&format!(
            "the key with {} was made for {request}, and is gone on with: nothing is destroyed; for another key remove that \
             request first",
            key.selector
        ));
        self.describe_key(&key, "on");
        Ok(EnrolledKey { key, is_certified: false })
    }

    /// The policies of a new key. Those that no option gives are the card's usual ones.
    fn policies_of_new(&self, plan: &KeyPlan) -> KeyPolicies {
        KeyPolicies {
            pin: plan.pin_policy.or_else(|| SlotPolicy::of_pin("default")),
            touch: self.touch_of_new(plan).or_else(|| SlotPolicy::of_touch("default")),
        }
    }

    /// Whether the card says that the key has these policies, as far as they are given.
    fn has_policies(&self, selector: &ObjectSelector, wanted: KeyPolicies) -> bool {
        if wanted.pin.is_none() && wanted.touch.is_none() {
            return true;
        }
        let slot = self.place.id().and_then(PivSlot::of_id);
        let known = KeyAttestation::of(&self.token, selector);
        let claims = known.as_ref().and_then(KeyAttestation::yubikey_claims);
        claims.is_some_and(|claims| wanted.are_those_of(claims, slot))
    }

    /// Fails if the key is to want a touch, and the token says that it wants none.
    fn check_touch(&self, demand: TouchDemand, selector: &ObjectSelector) -> Result<(), Error> {
        if demand == TouchDemand::AsItIs {
            return Ok(());
        }
        let token = self.token.name();
        let Some(known) = KeyAttestation::of(&self.token, selector) else {
            report::warning(&format!(
                "token {token} doesn't say whether it wants a touch for the key with {selector}"
            ));
            return Ok(());
        };
        if known.touch_policy() != Some(TouchPolicy::Never) {
            return Ok(());
        }
        let text = format!("token {token} wants no touch for the key with {selector}");
        Err(Error::new(Exit::Object, text).help(
            "name a slot that is free with --slot, or have this key destroyed with --replace",
        ))
    }

    /// Notes the key, which is `on` the token or `made on` it.
    fn describe_key(&mut self, key: &KeyReference, origin: &str) {
        let KeyReference { public_key, label, .. } = key;
        let id = key.selector.id.as_ref().map_or_else(|| "none".to_owned(), ObjectId::to_string);
        let token = self.token.name();
        let text =
            format!("{public_key}, {origin} token {token}, objectId {id}, label \"{label}\"");
        self.steps.push(Step { title: "key", text });
    }

    /// Makes a key at the place that is meant, or under a free CKA_ID. A key that is there is lost only on a YubiKey,
    /// and after a typed yes.
    fn make_key(&mut self, plan: &KeyPlan, label: &str) -> Result<KeyReference, Error> {
        let (kind, purpose) = (plan.kind.unwrap_or_default(), self.plan.purpose);
        self.token.check_generation(kind, purpose)?;
        let id = match self.place.id() {
            Some(id) => id.clone(),
            None => self.token.unused_id()?,
        };
        let slot = PivSlot::of_id(&id).filter(|_| self.token.state().is_yubikey());
        let in_slot = slot.map_or_else(String::new, |slot| format!(" in slot {}", slot.name()));
        let replaces = plan.intent == KeyIntent::Replace;
        if self.token.is_in_use(&id)? {
            if !replaces {
                return Err(id_in_use(&id, &self.token.name()));
            }
            self.confirm_loss(&id, &in_slot)?;
        }
        let what = format!("for a new key{in_slot}");
        self.token.log_in_to_write(&what, &mut self.pins, &ask)?;
        let new = NewKey { kind, purpose, id: &id, label };
        let touch_policy = self.touch_of_new(plan);
        let options = SlotOptions { pin_policy: plan.pin_policy, touch_policy, replaces };
        let made = self.token.generate(&new, options)?;
        for promise in &made.unconfirmed {
            report::warning(&format!("the token does not confirm of the new key that {promise}"));
        }
        Ok(made.key)
    }

    /// The touch policy of a new key: the one that an option gives, or a touch each time if the key has to want one.
    fn touch_of_new(&self, plan: &KeyPlan) -> Option<SlotPolicy> {
        plan.touch_policy.or_else(|| match plan.touch {
            TouchDemand::Wanted if self.token.state().is_yubikey() => {
                SlotPolicy::of_touch("always")
            }
            TouchDemand::Wanted | TouchDemand::AsItIs => None,
        })
    }

    /// Has a person confirm that the key with this CKA_ID, which is in this slot, will be lost.
    fn confirm_loss(&self, id: &ObjectId, in_slot: &str) -> Result<(), Error> {
        let lost = self.candidates.iter().find(|candidate| candidate.id == id.as_bytes());
        let key = lost.and_then(|candidate| candidate.key.as_ref());
        let kind = key.map_or_else(String::new, |key| format!("{} ", key.kind));
        let certificate = match lost.and_then(Candidate::certificate) {
            Some(certificate) => format!(", which has a certificate of {}", certificate.subject),
            None => String::new(),
        };
        let token = self.token.name();
        let what = format!("the {kind}key{in_slot} of token {token}{certificate}");
        confirm(&what, &printable(&format!("Destroy {what}")))
    }

    /// Has the token say where the key was made, for the request to a cluster, unless that isn't wanted. If the groups
    /// that this opens are asked for, the applicant is in them.
    pub(super) fn attest(
        &mut self,
        plan: &AttestationPlan,
        key: &KeyReference,
        applicant: &Applicant,
    ) -> Result<AttestedApplicant, Error> {
        let known = match &plan.source {
            AttestationSource::LeftOut => None,
            AttestationSource::Token => KeyAttestation::of(&self.token, &key.selector),
            AttestationSource::File(file) => Some(attestation_from_file(file, &key.public_key)?),
        };
        let Some(known) = known else {
            if plan.asks_for_groups {
                return Err(self.attests_nothing(key));
            }
            return Ok(AttestedApplicant { applicant: applicant.clone(), attestation: None });
        };
        self.steps.push(Step { title: "attestation", text: known.disclosure() });
        let applicant = if plan.asks_for_groups {
            applicant.also_in(&known.groups())
        } else {
            applicant.clone()
        };
        Ok(AttestedApplicant { applicant, attestation: Some(known.bundle) })
    }

    /// The error for groups that only an attestation opens, and that are asked for without one.
    fn attests_nothing(&self, key: &KeyReference) -> Error {
        let token = self.token.name();
        let text =
            format!("token {token} doesn't say that it has made the key with {}", key.selector);
        Error::new(Exit::Object, text).help(
            "leave --hardware-groups out, or have a YubiKey behind Yubico's library (libykcs11.so) make the key; behind \
             another library, name with --attestation what `ykman piv keys attest` has written",
        )
    }
}
