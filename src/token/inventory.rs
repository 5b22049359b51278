//! The certificates and keys on a token that could authenticate a user, paired by CKA_ID or else by their public key, for a
//! person who has to choose among them. What the token hides before a login is not in the list.

use cryptoki::object::{AttributeType, ObjectClass};

use super::Token;
use super::raw::ObjectHandle;
use super::yubikey::{ATTESTATION_KEY, is_placeholder};
use config::ObjectSelector;
use crypto::certificate::{Certificate, PublicKey, best_per_key};
use messages::error::Error;
use system::clock::unix_time;

/// A certificate and its key, or one of the two.
#[derive(Default)]
pub struct Candidate {
    /// The CKA_ID of the certificate, or of the key if there is no certificate; empty if there is none.
    pub id: Vec<u8>,
    /// The CKA_LABEL of the certificate, or of the key if there is no certificate.
    pub label: String,
    /// The certificate; `None` if the token shows none under this CKA_ID, and an error for one that can't be used.
    pub certificate: Option<Result<Certificate, Error>>,
    /// The key; `None` if the token shows none, as most do before a login.
    pub key: Option<VisibleKey>,
    /// The public key of the certificate, or what the token shows of a key without one.
    pub public_key: Option<PublicKey>,
    /// Whether the keys that the token shows under this CKA_ID aren't the certificate's.
    pub is_contradicted: bool,
    /// Whether this is the certificate of a CA, without a key.
    pub is_authority: bool,
    /// How a request has to name the candidate among all that the token shows.
    pub standing: Standing,
}

/// What the token shows of a key object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VisibleKey {
    /// The key's CKA_ID, which may differ from that of its certificate.
    pub id: Vec<u8>,
    pub is_private: bool,
    /// The key's type and size, as in `RSA-2048` or `ECDSA P-256`; the standard's name for a type that can't sign here.
    pub kind: String,
    /// CKA_ALWAYS_AUTHENTICATE, which only private keys have.
    pub always_authenticate: bool,
    /// CKA_SIGN of a private key; true if the key doesn't show it.
    pub can_sign: bool,
}

impl Token {
    /// The certificates and keys that could authenticate, in the order of CKA_ID; without those that
    /// exist in the session alone, a YubiKey's attesting key, and what its library has made up.
    pub fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let mut keys = self.keys()?;
        let mut candidates: Vec<Candidate> = Vec::new();
        for object in self.find_stored(ObjectClass::CERTIFICATE, &ObjectSelector::default())? {
            candidates.push(self.with_certificate(object, &mut keys)?);
        }
        let keys_alone = keys.iter().filter(|key| !key.is_listed);
        candidates.extend(keys_alone.map(|key| self.without_certificate(key, &keys)));
        // Short ids first, so that 2 stands before 0x0101.
        candidates.sort_by_cached_key(|candidate| {
            (candidate.id.len(), candidate.id.clone(), candidate.label.clone())
        });
        candidates.dedup_by(|one, other| one.is_same(other));
        let standings: Vec<_> =
            candidates.iter().map(|candidate| candidate.standing_among(&candidates)).collect();
        for (candidate, standing) in candidates.iter_mut().zip(standings) {
            candidate.standing = standing;
        }
        if self.state.is_yubikey() {
            remove_made_up(&mut candidates);
        }
        Ok(candidates)
    }

    /// A certificate, with the key that a request would use for it. The key is marked as listed.
    fn with_certificate(
        &self,
        object: ObjectHandle,
        keys: &mut [KeyObject],
    ) -> Result<Candidate, Error> {
        let label = self.label(object)?;
        let id = self.bytes(object, AttributeType::Id)?;
        let names = ObjectNames { id, label };
        let certificate = Certificate::from_der(&self.bytes(object, AttributeType::Value)?, "it");
        let public_key = certificate.as_ref().ok().map(Certificate::public_key);
        let belongs = |key: &KeyObject| self.belongs_to(key.object, public_key?).ok().flatten();
        let key_names = KeyObject::elsewhere(keys, &names, belongs);
        let matching = KeyObject::taken(keys, key_names.as_ref().unwrap_or(&names), belongs);
        let answers: Vec<_> = matching.iter().map(|key| belongs(key)).collect();
        // A public key that doesn't show whose it is stands beside each of cackey's.
        let has_key =
            matching.iter().any(|key| key.shown.is_private) || answers.contains(&Some(true));
        Ok(Candidate {
            key: matching.first().map(|key| key.shown.clone()),
            public_key: public_key.cloned(),
            is_contradicted: answers.contains(&Some(false)) && !answers.contains(&Some(true)),
            is_authority: !has_key
                && certificate.as_ref().is_ok_and(|certificate| certificate.is_ca),
            id: names.id,
            label: names.label,
            certificate: Some(certificate),
            ..Candidate::default()
        })
    }

    /// A key without a certificate. Its public key is what any key object of the same names shows.
    fn without_certificate(&self, key: &KeyObject, keys: &[KeyObject]) -> Candidate {
        let mut same = keys.iter().filter(|other| other.belongs_to(&key.names));
        Candidate {
            key: Some(key.shown.clone()),
            public_key: same.find_map(|other| self.public_key(other.object).ok().flatten()),
            id: key.names.id.clone(),
            label: key.names.label.clone(),
            ..Candidate::default()
        }
    }

    /// The private keys and the public keys. A public key is marked as listed if its private key is visible.
    fn keys(&self) -> Result<Vec<KeyObject>, Error> {
        let mut keys: Vec<KeyObject> = Vec::new();
        for class in [ObjectClass::PRIVATE_KEY, ObjectClass::PUBLIC_KEY] {
            let is_private = class == ObjectClass::PRIVATE_KEY;
            for object in self.find_stored(class, &ObjectSelector::default())? {
                let label = self.label(object)?;
                let id = self.bytes(object, AttributeType::Id)?;
                if id.is_empty() && label.is_empty() {
                    continue; // No configuration can name it.
                }
                let names = ObjectNames { id, label };
                let is_listed = !is_private && keys.iter().any(|key| key.belongs_to(&names));
                let own = |kind| self.flag(object, kind).ok().flatten().filter(|_| is_private);
                let shown = VisibleKey {
                    id: names.id.clone(),
                    is_private,
                    kind: self.key_kind(object),
                    always_authenticate: own(AttributeType::AlwaysAuthenticate) == Some(true),
                    can_sign: own(AttributeType::Sign) != Some(false),
                };
                keys.push(KeyObject { object, shown, names, is_listed });
            }
        }
        Ok(keys)
    }
}

impl Candidate {
    /// The certificate, if there is one and it can be used.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()?.as_ref().ok()
    }

    /// Whether both are the same certificate under the same names, which is shown once.
    fn is_same(&self, other: &Self) -> bool {
        let both = self.certificate().zip(other.certificate());
        both.is_some_and(|(one, other)| one.der() == other.der())
            && (&self.id, &self.label) == (&other.id, &other.label)
    }

    /// How a request has to name this candidate so that it is chosen among all of them.
    fn standing_among(&self, all: &[Self]) -> Standing {
        let has_id = !self.id.is_empty();
        let same_id: Vec<_> =
            all.iter().filter(|candidate| has_id && candidate.id == self.id).collect();
        let Some(certificate) = self.certificate() else {
            return if same_id.len() == 1 { Standing::ById } else { Standing::ByLabel };
        };
        let is_rival = |candidate: &&Self| {
            candidate.label == self.label && (!has_id || candidate.id == self.id)
        };
        let by_label = Choice::among(all.iter().filter(is_rival), certificate);
        let by_id =
            if has_id { Choice::among(same_id.iter().copied(), certificate) } else { by_label };
        if !by_id.is_included {
            let is_named_by_label = has_id && by_label.is_included && by_label.is_only;
            return Standing::Superseded { is_named_by_label };
        }
        // A key without a certificate may have to be distinguished from this one's.
        let all_have_certificates = same_id.iter().all(|candidate| candidate.certificate.is_some());
        if has_id && by_id.is_only && all_have_certificates {
            Standing::ById
        } else if by_label.is_only {
            Standing::ByLabel
        } else {
            Standing::Ambiguous
        }
    }
}

/// Removes a YubiKey's attesting key, and the certificates that its library has made up.
fn remove_made_up(candidates: &mut Vec<Candidate>) {
    candidates.retain(|candidate| candidate.id != ATTESTATION_KEY);
    for candidate in candidates {
        candidate.certificate.take_if(|certificate| certificate.as_ref().is_ok_and(is_placeholder));
    }
}

/// How a request names a certificate or a key so that it is the one that is chosen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Standing {
    /// A request names it by its CKA_ID alone.
    #[default]
    ById,
    /// A request names it by its CKA_LABEL, along with its CKA_ID if it has one.
    ByLabel,
    /// Nothing names it: the certificate of another key has the same CKA_ID and label.
    Ambiguous,
    /// Its CKA_ID would choose another certificate of the same key.
    Superseded {
        /// Whether its label chooses it all the same.
        is_named_by_label: bool,
    },
}

impl Standing {
    /// Whether the CKA_ID alone doesn't name it, and the label helps or is the best there is.
    pub fn needs_label(self) -> bool {
        match self {
            Self::ById => false,
            Self::ByLabel | Self::Ambiguous => true,
            Self::Superseded { is_named_by_label } => is_named_by_label,
        }
    }
}

/// What a request's choice, the best certificate of each key, means for one certificate.
#[derive(Clone, Copy)]
struct Choice {
    /// Whether the certificate is one of those chosen.
    is_included: bool,
    /// Whether only one is chosen, because all are of the same key.
    is_only: bool,
}

impl Choice {
    /// The choice among the usable certificates of these candidates, of which `certificate` is one.
    fn among<'a>(
        candidates: impl Iterator<Item = &'a Candidate>,
        certificate: &Certificate,
    ) -> Self {
        let certificates: Vec<_> = candidates.filter_map(Candidate::certificate).collect();
        let best = best_per_key(&certificates, unix_time());
        let index = certificates.iter().position(|other| std::ptr::eq(*other, certificate));
        Self {
            is_included: index.is_some_and(|index| best.contains(&index)),
            is_only: best.len() == 1,
        }
    }
}

/// The names that objects of the same key have in common.
#[derive(Clone)]
struct ObjectNames {
    /// CKA_ID.
    id: Vec<u8>,
    /// CKA_LABEL.
    label: String,
}

/// A key object while certificates are paired with keys.
struct KeyObject {
    object: ObjectHandle,
    shown: VisibleKey,
    names: ObjectNames,
    /// Whether the key is listed already, with its certificate or with another object of the same key.
    is_listed: bool,
}

impl KeyObject {
    /// The names of a certificate's key objects if none has the certificate's own names: those of an object that shows its
    /// public key.
    fn elsewhere(
        keys: &[Self],
        names: &ObjectNames,
        belongs: impl Fn(&Self) -> Option<bool>,
    ) -> Option<ObjectNames> {
        if keys.iter().any(|key| key.belongs_to(names)) {
            return None;
        }
        keys.iter().find(|key| belongs(key) == Some(true)).map(|key| key.names.clone())
    }

    /// The key objects that a request would use for a certificate with these names, which are marked as listed: one private
    /// key and all public keys. Of several private keys with the CKA_ID, what they show and then the label decides.
    fn taken<'k>(
        keys: &'k mut [Self],
        names: &ObjectNames,
        belongs: impl Fn(&Self) -> Option<bool>,
    ) -> Vec<&'k mut Self> {
        let matching = keys.iter_mut().filter(|key| key.belongs_to(names));
        let mut matching: Vec<_> = matching.collect();
        matching.sort_by_cached_key(|key| {
            let is_unfit = !key.shown.can_sign || belongs(key) == Some(false);
            (!key.shown.is_private, is_unfit, key.names.label != names.label)
        });
        // The private ones are in front by now: the first of them stays, with all public ones.
        let private_count = matching.partition_point(|key| key.shown.is_private);
        if private_count > 1 {
            matching.drain(1..private_count);
        }
        for key in &mut matching {
            key.is_listed = true;
        }
        matching
    }

    /// Whether the key belongs to what has these names: by the CKA_ID, or by the label where there is none.
    fn belongs_to(&self, names: &ObjectNames) -> bool {
        self.names.id == names.id && (!names.id.is_empty() || self.names.label == names.label)
    }
}
