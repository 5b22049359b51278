//! What is done next, by what is on the token. An interrupted enrollment goes on where it was, because
//! this depends on nothing else.

use sha2::{Digest as _, Sha256};

use super::error::EnrollmentError;
use crate::certificate::{Certificate, PublicKey, ValidityState, day};
use crate::config::{ObjectId, ObjectSelector};
use crate::token::{Candidate, FoundKey, KeyKind};

/// Which key is wanted.
pub struct KeyWish<'a> {
    /// The user, or the label that stands for one: the key's CKA_LABEL.
    pub label: &'a str,
    /// The key that is named, or the CKA_ID of the one to be made.
    pub id: Option<&'a ObjectId>,
    /// The CKA_ID is where this token has a user's key, unless one is named.
    pub is_usual: bool,
    pub kind: Option<KeyKind>,
}

/// What there is, and what is done next.
#[derive(Debug, Eq, PartialEq)]
pub struct Plan {
    pub key: PlannedKey,
    pub next: NextStep,
}

/// The key of an enrollment.
#[derive(Debug, Eq, PartialEq)]
pub enum PlannedKey {
    /// To be made, under this CKA_ID or a free one.
    Make {
        id: Option<ObjectId>,
        label: String,
        kind: KeyKind,
    },
    TakeUp(EnrolledKey),
}

/// A key that is on the token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnrolledKey {
    /// CKA_ID; `None` if it has none.
    pub id: Option<ObjectId>,
    pub label: String,
    /// As in `ECDSA P-256`.
    pub kind: String,
}

#[derive(Debug, Eq, PartialEq)]
pub enum NextStep {
    /// A request is made and signed.
    Request,
    /// The certificate is there.
    Done,
}

/// What is done with a certificate.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Installation {
    /// Otherwise it is written.
    pub is_there: bool,
    /// The serial numbers of those that are removed then.
    pub replaced: Vec<String>,
}

impl From<&FoundKey> for EnrolledKey {
    fn from(key: &FoundKey) -> Self {
        let has_id = !key.id.is_empty();
        Self {
            id: has_id.then(|| ObjectId::from_bytes(key.id.clone())),
            label: key.label.clone(),
            kind: key.public_key.to_string(),
        }
    }
}

impl EnrolledKey {
    /// The key of what the token shows.
    pub fn of(candidate: &Candidate) -> Self {
        let has_id = !candidate.id.is_empty();
        Self {
            id: has_id.then(|| ObjectId::from_bytes(candidate.id.clone())),
            label: candidate.label.clone(),
            kind: candidate.key.as_ref().map_or_else(String::new, |key| key.kind.clone()),
        }
    }

    /// What names it.
    pub fn selector(&self) -> ObjectSelector {
        ObjectSelector { id: self.id.clone(), label: self.id.is_none().then(|| self.label.clone()) }
    }
}

impl Plan {
    /// For a request with a new key, whatever there is.
    pub fn for_new_key(wish: &KeyWish<'_>) -> Self {
        Self {
            key: PlannedKey::Make {
                id: wish.id.cloned(),
                label: wish.label.to_owned(),
                kind: wish.kind.unwrap_or_default(),
            },
            next: NextStep::Request,
        }
    }

    /// For a request: a key is made unless there is one to be taken up: the one that is named, or the
    /// only one with the label. Nothing is left to do for one that wasn't named and has a certificate that
    /// is valid. `candidates` is what the token shows after a login; `now` in seconds since 1970.
    ///
    /// # Errors
    /// The key that is named can't be used, or several can be meant.
    pub fn for_request(
        candidates: &[Candidate],
        wish: &KeyWish<'_>,
        now: i64,
    ) -> Result<Self, EnrollmentError> {
        let found = match wish.id {
            Some(id) => named(candidates, id)?,
            None => labelled(candidates, wish.label, now)?,
        };
        let Some(candidate) = found else {
            return Ok(Self::for_new_key(wish));
        };
        let key = EnrolledKey::of(candidate);
        if let Some(kind) = wish.kind.filter(|kind| kind.words() != key.kind) {
            return Err(EnrollmentError::OtherKind {
                key: key.selector().to_string(),
                found: key.kind,
                wanted: kind.words(),
            });
        }
        let next = match wish.id {
            id if id.is_none() || wish.is_usual => match is_certified(candidate, now) {
                true => NextStep::Done,
                false => NextStep::Request,
            },
            _ => NextStep::Request,
        };
        let key = PlannedKey::TakeUp(key);
        Ok(Self { key, next })
    }
}

/// What is done with a certificate for a key on the token: it is written beside those that have expired, or
/// in place of all others if `replaces`, which an earlier call may not have come to remove.
///
/// # Errors
/// [`EnrollmentError::CertificatePresent`] if there is another one that hasn't expired.
pub fn install(
    candidates: &[Candidate],
    key: &EnrolledKey,
    certificate: &Certificate,
    replaces: bool,
    now: i64,
) -> Result<Installation, EnrollmentError> {
    let public_key = certificate.public_key();
    let mut others = of_key(candidates, public_key);
    let count = others.len();
    others.retain(|other| other.der() != certificate.der());
    let is_there = others.len() < count;
    let mut installation = Installation { is_there, replaced: Vec::new() };
    if replaces {
        let replaced = others.iter().map(|other| other.serial_number.clone());
        installation.replaced = replaced.collect();
    }
    let lives = |other: &&&Certificate| other.validity.at(now) != ValidityState::Expired;
    match others.iter().find(lives) {
        Some(other) if !is_there && !replaces => Err(EnrollmentError::CertificatePresent {
            key: key.selector().to_string(),
            present: format!(
                "{}, serial number {}, valid until {}",
                other.subject,
                other.serial_number,
                day(other.validity.not_after)
            ),
        }),
        _ => Ok(installation),
    }
}

/// The public keys with this label whose private key is not on the token.
pub fn lone_public_keys(candidates: &[Candidate], label: &str) -> Vec<EnrolledKey> {
    let is_lone = |it: &&Candidate| {
        let key = it.key.as_ref();
        it.label == label && it.certificate.is_none() && key.is_some_and(|key| !key.is_private)
    };
    let lone = candidates.iter().filter(is_lone);
    lone.map(EnrolledKey::of).collect()
}

/// The CKA_ID of the key that takes over from this certificate's. It follows from the certificate, so that
/// an interrupted call finds the key that it has made, and none that an earlier renewal has left.
pub fn successor_id(certificate: &Certificate) -> ObjectId {
    const BYTES: usize = 4;
    let mut hash = Sha256::digest(certificate.der()).to_vec();
    hash.truncate(BYTES);
    ObjectId::from_bytes(hash)
}

/// The certificates of this key on the token.
pub fn of_key<'a>(candidates: &'a [Candidate], key: &PublicKey) -> Vec<&'a Certificate> {
    let certificates = candidates.iter().filter_map(certificate);
    certificates.filter(|it| it.public_key() == key).collect()
}

fn certificate(candidate: &Candidate) -> Option<&Certificate> {
    candidate.certificate.as_ref()?.as_ref().ok()
}

/// The key with this CKA_ID; `None` if no object that is seen has it.
fn named<'a>(
    candidates: &'a [Candidate],
    id: &ObjectId,
) -> Result<Option<&'a Candidate>, EnrollmentError> {
    let mut with_id = candidates.iter().filter(|it| it.id == id.as_bytes());
    let Some(first) = with_id.next() else {
        return Ok(None);
    };
    let unfit = |reason: &str| {
        Err(EnrollmentError::Unfit { key: format!("objectId \"{id}\""), reason: reason.to_owned() })
    };
    match &first.key {
        None => unfit("there is no key"),
        Some(key) if !key.is_private => unfit("there is no private key"),
        Some(key) if !key.can_sign => unfit("its key is not for signing (CKA_SIGN)"),
        Some(_) => Ok(Some(first)),
    }
}

/// Whether it has a certificate that hasn't expired.
fn is_certified(candidate: &Candidate, now: i64) -> bool {
    certificate(candidate).is_some_and(|it| it.validity.at(now) != ValidityState::Expired)
}

/// The only key with this label, preferably as it is listed with a certificate that hasn't expired.
fn labelled<'a>(
    candidates: &'a [Candidate],
    label: &str,
    now: i64,
) -> Result<Option<&'a Candidate>, EnrollmentError> {
    let is_usable = |it: &&Candidate| {
        let key = it.key.as_ref();
        it.label == label && key.is_some_and(|key| key.is_private && key.can_sign)
    };
    let with_label: Vec<_> = candidates.iter().filter(is_usable).collect();
    let mut ids: Vec<_> = with_label.iter().map(|it| &it.id).collect();
    ids.dedup();
    match (with_label.first(), ids.len()) {
        (first, 0 | 1) => {
            let certified = with_label.iter().find(|it| is_certified(it, now));
            Ok(certified.or(first).copied())
        }
        _ => Err(EnrollmentError::SeveralKeys {
            found: with_label
                .iter()
                .map(|it| {
                    let key = EnrolledKey::of(it);
                    format!("{}: {}", key.selector(), key.kind)
                })
                .collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;
    use crate::token::{Standing, VisibleKey};

    /// 1 June 2030.
    const NOW: i64 = 1_906_502_400;

    fn candidate(id: u8, label: &str, kind: &str) -> Candidate {
        Candidate {
            id: vec![id],
            label: label.to_owned(),
            certificate: None,
            key: Some(VisibleKey {
                is_private: true,
                kind: kind.to_owned(),
                always_authenticate: false,
                can_sign: true,
            }),
            is_contradicted: false,
            is_authority: false,
            standing: Standing::ById,
        }
    }

    /// A certificate for jane from 2029 until this year.
    fn issued(pair: &KeyPair, until: i32) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.not_before = date_time_ymd(2029, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let certificate = params.self_signed(pair).unwrap();
        Certificate::from_der(certificate.der(), "it").unwrap()
    }

    fn with(certificate: Certificate) -> Candidate {
        Candidate { certificate: Some(Ok(certificate)), ..candidate(1, "jane", "ECDSA P-256") }
    }

    fn plan(
        candidates: &[Candidate],
        id: Option<u8>,
        kind: Option<KeyKind>,
    ) -> Result<PlannedKey, EnrollmentError> {
        whole_plan(candidates, id, kind).map(|plan| plan.key)
    }

    fn next(candidates: &[Candidate], id: Option<u8>) -> NextStep {
        whole_plan(candidates, id, None).unwrap().next
    }

    fn whole_plan(
        candidates: &[Candidate],
        id: Option<u8>,
        kind: Option<KeyKind>,
    ) -> Result<Plan, EnrollmentError> {
        let id = id.map(|id| ObjectId::from_bytes(vec![id]));
        let wish = KeyWish { label: "jane", id: id.as_ref(), is_usual: false, kind };
        Plan::for_request(candidates, &wish, NOW)
    }

    fn taken_up(plan: Result<PlannedKey, EnrollmentError>) -> Option<Vec<u8>> {
        match plan {
            Ok(PlannedKey::TakeUp(key)) => Some(key.id?.as_bytes().to_owned()),
            _ => None,
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let made = plan(&[candidate(1, "joe", "RSA-2048")], None, None);
        let expected =
            PlannedKey::Make { id: None, label: "jane".to_owned(), kind: KeyKind::EcP256 };
        assert_eq!(made.unwrap(), expected);
        let own = [candidate(1, "joe", "RSA-2048"), candidate(2, "jane", "ECDSA P-256")];
        assert_eq!(taken_up(plan(&own, None, None)), Some(vec![2]));
        assert_eq!(taken_up(plan(&own, None, Some(KeyKind::EcP256))), Some(vec![2]));
        let error = plan(&own, None, Some(KeyKind::Rsa2048)).unwrap_err();
        assert!(matches!(error, EnrollmentError::OtherKind { .. }), "{error}");
    }

    #[test]
    fn of_several_keys_one_has_to_be_named() {
        let own = [candidate(1, "jane", "RSA-2048"), candidate(2, "jane", "ECDSA P-256")];
        let error = plan(&own, None, None).unwrap_err();
        assert!(matches!(error, EnrollmentError::SeveralKeys { .. }), "{error}");
        assert_eq!(taken_up(plan(&own, Some(1), None)), Some(vec![1]));
    }

    #[test]
    fn what_is_no_private_key_is_not_taken_up() {
        let mut public = candidate(1, "jane", "ECDSA P-256");
        public.key.as_mut().unwrap().is_private = false;
        let mut other = candidate(1, "jane", "ECDSA P-256");
        other.key.as_mut().unwrap().can_sign = false;
        let mut certificate = with(issued(&KeyPair::generate().unwrap(), 2031));
        certificate.key = None;
        let lone = lone_public_keys(std::slice::from_ref(&public), "jane");
        assert_eq!(lone, [EnrolledKey::of(&public)]);
        for fit in [&other, &certificate] {
            assert_eq!(lone_public_keys(std::slice::from_ref(fit), "jane"), []);
        }
        for unfit in [public, other, certificate] {
            let unfit = [unfit];
            assert_eq!(taken_up(plan(&unfit, None, None)), None);
            let error = plan(&unfit, Some(1), None).unwrap_err();
            assert!(matches!(error, EnrollmentError::Unfit { .. }), "{error}");
        }
    }

    #[test]
    fn a_key_with_a_valid_certificate_is_asked_for_another_by_name_alone() {
        let pair = KeyPair::generate().unwrap();
        let valid = [with(issued(&pair, 2031)), with(issued(&pair, 2030))];
        assert_eq!(next(&valid, None), NextStep::Done);
        assert_eq!(next(&valid, Some(1)), NextStep::Request);
        assert_eq!(taken_up(plan(&valid, Some(1), None)), Some(vec![1]));
        let expired = [with(issued(&pair, 2030))];
        assert_eq!(taken_up(plan(&expired, None, None)), Some(vec![1]));
        assert_eq!(next(&expired, None), NextStep::Request);
    }

    #[test]
    fn a_certificate_is_written_once_and_in_place_of_a_valid_one_only_on_request() {
        let pair = KeyPair::generate().unwrap();
        let key = EnrolledKey::of(&candidate(1, "jane", "ECDSA P-256"));
        let new = issued(&pair, 2032);
        let next = |present: &[Candidate], replaces| install(present, &key, &new, replaces, NOW);
        let beside = Installation::default();
        assert_eq!(next(&[candidate(1, "jane", "")], false).unwrap(), beside);
        assert_eq!(next(&[with(issued(&pair, 2030))], false).unwrap(), beside);
        let same = Certificate::from_der(new.der(), "it").unwrap();
        let there = Installation { is_there: true, replaced: Vec::new() };
        assert_eq!(next(&[with(same)], true).unwrap(), there);
        let old = issued(&pair, 2031);
        let replaced = vec![old.serial_number.clone()];
        let present = [with(old)];
        let error = next(&present, false).unwrap_err();
        assert!(matches!(error, EnrollmentError::CertificatePresent { .. }));
        let installation = |is_there| Installation { is_there, replaced: replaced.clone() };
        assert_eq!(next(&present, true).unwrap(), installation(false));
        // The old one is still there, beside the new one.
        let [old] = present;
        let same = Certificate::from_der(new.der(), "it").unwrap();
        let both = [old, with(same)];
        assert_eq!(next(&both, false).unwrap(), there);
        assert_eq!(next(&both, true).unwrap(), installation(true));
    }
}
