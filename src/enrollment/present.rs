//! Which key on a token is meant, and which certificates a new one takes the place of. An interrupted enrollment goes
//! on where it was, because this depends on nothing but the token.

use config::{ObjectId, ObjectSelector};
use crypto::certificate::{Certificate, PublicKey, ValidityState, minute};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use token::{Candidate, KeyKind};

/// Finds the key with this CKA_ID, or the only one with this CKA_LABEL. `None` if there is none yet, and an error if it
/// isn't of the kind that is wanted. `candidates` is what the token shows after a login; `now` is in seconds since
/// 1970.
pub fn find_key<'a>(
    candidates: &'a [Candidate],
    id: Option<&ObjectId>,
    label: &str,
    wanted: Option<KeyKind>,
    now: i64,
) -> Result<Option<&'a Candidate>, Error> {
    let found = match id {
        Some(id) => named(candidates, id)?,
        None => labelled(candidates, label, now)?,
    };
    let kind = found.and_then(|candidate| candidate.key.as_ref()).map_or("", |key| &key.kind);
    match (found, wanted) {
        (Some(found), Some(wanted)) if wanted.description() != kind => Err(Error::new(
            Exit::Object,
            format!("the key with {} is {kind}, not {}", selector(found), wanted.description()),
        )
        .help("leave --key out to use this key, or name a free --object-id for another one")),
        _ => Ok(found),
    }
}

/// The names by which the candidate's key can be selected.
pub fn selector(candidate: &Candidate) -> ObjectSelector {
    let id = key_id(candidate);
    ObjectSelector::of(id, id.is_empty().then_some(&candidate.label))
}

/// The candidate's CKA_ID: the key's, or else the certificate's.
fn key_id(candidate: &Candidate) -> &[u8] {
    candidate.key.as_ref().map_or(&candidate.id, |key| &key.id)
}

/// Whether the candidate has a certificate that hasn't expired.
pub fn has_valid_certificate(candidate: &Candidate, now: i64) -> bool {
    let certificate = candidate.certificate();
    certificate.is_some_and(|certificate| certificate.validity.at(now) != ValidityState::Expired)
}

/// What a token has already when a certificate is to be installed.
pub struct Installation<'a> {
    /// Whether the token has the certificate itself.
    pub is_there: bool,
    /// The other certificates of the key, which the new one takes the place of.
    pub replaced: Vec<&'a Certificate>,
}

/// Looks for what the token has already when a certificate is to be installed. With `replaces`, it takes the place of
/// all others of its key, some of which an earlier call may not have come to remove. Otherwise it is written beside
/// those that have expired, and one that hasn't expired is an error. `now` is in seconds since 1970.
pub fn installation<'a>(
    candidates: &'a [Candidate],
    certificate: &Certificate,
    replaces: bool,
    now: i64,
) -> Result<Installation<'a>, Error> {
    let mut others = of_key(candidates, certificate.public_key());
    let count = others.len();
    others.retain(|other| other.der() != certificate.der());
    let is_there = others.len() < count;
    if replaces {
        return Ok(Installation { is_there, replaced: others });
    }
    let is_valid = |other: &&Certificate| other.validity.at(now) != ValidityState::Expired;
    match others.into_iter().find(is_valid) {
        Some(valid) if !is_there => Err(has_another(valid)),
        _ => Ok(Installation { is_there, replaced: Vec::new() }),
    }
}

fn has_another(certificate: &Certificate) -> Error {
    let text = format!(
        "the key has another certificate already: {}, serial number {}, valid until {}",
        certificate.subject,
        certificate.serial_number,
        minute(certificate.validity.not_after)
    );
    Error::new(Exit::Object, text)
        .help("leave it as it is, or put the new one in its place with --replace, at a terminal")
}

/// The certificates of this key on the token.
pub fn of_key<'a>(candidates: &'a [Candidate], key: &PublicKey) -> Vec<&'a Certificate> {
    let certificates = candidates.iter().filter_map(Candidate::certificate);
    certificates.filter(|certificate| certificate.public_key() == key).collect()
}

/// Finds the key with this CKA_ID; `None` if no visible object has it.
fn named<'a>(candidates: &'a [Candidate], id: &ObjectId) -> Result<Option<&'a Candidate>, Error> {
    let has_id = |candidate: &&Candidate| {
        candidate.id == id.as_bytes() || key_id(candidate) == id.as_bytes()
    };
    let mut of_id = candidates.iter().filter(has_id);
    let Some(first) =
        of_id.clone().find(|candidate| candidate.key.is_some()).or_else(|| of_id.next())
    else {
        return Ok(None);
    };
    let reason = match &first.key {
        None => "there is no key",
        Some(key) if !key.is_private => "there is no private key",
        Some(key) if !key.can_sign => "its key is not for signing (CKA_SIGN)",
        Some(_) => return Ok(Some(first)),
    };
    let text = format!("what is under objectId \"{id}\" can't be taken up: {reason}");
    let help = Help::from("name a key that can sign, or a free --object-id to have one made; ")
        .and(command("list").and(HelpPart::Token).and(" --login"))
        .and(" shows what there is");
    Err(Error::new(Exit::Object, text).help(help))
}

/// Finds the only key with this label. If it is listed several times, the one with a certificate that hasn't expired is
/// preferred.
fn labelled<'a>(
    candidates: &'a [Candidate],
    label: &str,
    now: i64,
) -> Result<Option<&'a Candidate>, Error> {
    let is_usable = |candidate: &&Candidate| {
        let key = candidate.key.as_ref();
        candidate.label == label && key.is_some_and(|key| key.is_private && key.can_sign)
    };
    let with_label: Vec<_> = candidates.iter().filter(is_usable).collect();
    let mut ids: Vec<_> = with_label.iter().map(|candidate| key_id(candidate)).collect();
    ids.sort();
    ids.dedup();
    if ids.len() < 2 {
        let certified = with_label.iter().find(|candidate| has_valid_certificate(candidate, now));
        return Ok(certified.or_else(|| with_label.first()).copied());
    }
    let found = with_label.iter().map(|candidate| {
        let kind = candidate.key.as_ref().map_or("", |key| &key.kind);
        format!("{}: {kind}", selector(candidate))
    });
    let found: Vec<_> = found.collect();
    let text = format!("{} keys of the token match", found.len());
    Err(Error::new(Exit::Object, text)
        .help(Help::from("name one with --object-id:").with_candidates(&found)))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;
    use token::VisibleKey;

    /// 1 June 2030.
    const NOW: i64 = 1_906_502_400;

    fn candidate(id: u8, label: &str, kind: &str) -> Candidate {
        Candidate {
            id: vec![id],
            label: label.to_owned(),
            key: Some(VisibleKey {
                id: vec![id],
                is_private: true,
                kind: kind.to_owned(),
                always_authenticate: false,
                can_sign: true,
            }),
            ..Candidate::default()
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

    fn find(
        candidates: &[Candidate],
        id: Option<u8>,
        kind: Option<KeyKind>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let id = id.map(|id| ObjectId::from_bytes(vec![id]));
        let found = find_key(candidates, id.as_ref(), "jane", kind, NOW)?;
        Ok(found.map(|candidate| candidate.id.clone()))
    }

    fn refusal(candidates: &[Candidate], id: Option<u8>, kind: Option<KeyKind>) -> String {
        find(candidates, id, kind).unwrap_err().to_string()
    }

    #[test]
    fn a_key_is_made_once() {
        assert_eq!(find(&[candidate(1, "joe", "RSA-2048")], None, None).unwrap(), None);
        let candidates = [candidate(1, "joe", "RSA-2048"), candidate(2, "jane", "ECDSA P-256")];
        assert_eq!(find(&candidates, None, None).unwrap(), Some(vec![2]));
        assert_eq!(find(&candidates, None, Some(KeyKind::EcP256)).unwrap(), Some(vec![2]));
        let other = refusal(&candidates, None, Some(KeyKind::Rsa2048));
        assert_eq!(other, "the key with objectId \"2\" is ECDSA P-256, not RSA-2048");
    }

    #[test]
    fn of_several_keys_one_has_to_be_named() {
        let candidates = [candidate(1, "jane", "RSA-2048"), candidate(2, "jane", "ECDSA P-256")];
        assert_eq!(refusal(&candidates, None, None), "2 keys of the token match");
        assert_eq!(find(&candidates, Some(1), None).unwrap(), Some(vec![1]));
    }

    #[test]
    fn what_is_no_private_key_is_not_taken_up() {
        let mut public = candidate(1, "jane", "ECDSA P-256");
        public.key.as_mut().unwrap().is_private = false;
        let mut other = candidate(1, "jane", "ECDSA P-256");
        other.key.as_mut().unwrap().can_sign = false;
        let mut certificate = with(issued(&KeyPair::generate().unwrap(), 2031));
        certificate.key = None;
        for unfit in [public, other, certificate] {
            let unfit = [unfit];
            assert_eq!(find(&unfit, None, None).unwrap(), None);
            assert!(refusal(&unfit, Some(1), None).contains("can't be taken up"));
        }
    }

    #[test]
    fn the_certificate_that_is_valid_counts() {
        let pair = KeyPair::generate().unwrap();
        let [valid, expired] = [2031, 2030].map(|until| with(issued(&pair, until)));
        assert!(has_valid_certificate(&valid, NOW) && !has_valid_certificate(&expired, NOW));
        let both = [expired, valid];
        let found = find_key(&both, None, "jane", None, NOW).unwrap().unwrap();
        assert!(has_valid_certificate(found, NOW));
    }

    #[test]
    fn a_certificate_is_written_once_and_in_place_of_a_valid_one_only_on_request() {
        let pair = KeyPair::generate().unwrap();
        let new = issued(&pair, 2032);
        let next = |present: &[Candidate], replaces| {
            let found = installation(present, &new, replaces, NOW)?;
            Ok::<_, Error>((found.is_there, found.replaced.len()))
        };
        assert_eq!(next(&[candidate(1, "jane", "")], false).unwrap(), (false, 0));
        assert_eq!(next(&[with(issued(&pair, 2030))], false).unwrap(), (false, 0));
        let same = Certificate::from_der(new.der(), "it").unwrap();
        assert_eq!(next(&[with(same)], true).unwrap(), (true, 0));
        let present = [with(issued(&pair, 2031))];
        let error = next(&present, false).unwrap_err().to_string();
        assert!(error.contains("has another certificate already"), "{error}");
        assert_eq!(next(&present, true).unwrap(), (false, 1));
        // The old one is still there, beside the new one.
        let [old] = present;
        let same = Certificate::from_der(new.der(), "it").unwrap();
        let both = [old, with(same)];
        assert_eq!(next(&both, false).unwrap(), (true, 0));
        assert_eq!(next(&both, true).unwrap(), (true, 1));
    }
}
