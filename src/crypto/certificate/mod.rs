//! Certificates: what the public key is, and what else an operator asks about one.
//!
//! The public key comes from the certificate: public-key objects are optional, and odd in practice.

mod acceptance;
mod chain;
mod ml_dsa;
mod name;
mod request;
mod validity;

pub use chain::CertificateChain;
pub use ml_dsa::MlDsaSet;
pub use request::{CertificationRequest, SignatureAlgorithm, fingerprint};
pub use validity::{Validity, ValidityState, minute, rfc_3339};

use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::hex;

use std::fmt;

use serde::{Deserialize, Serialize};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{Any, AnyRef, BitString, ObjectIdentifier, UintRef};
use x509_cert::der::oid::db::{rfc5912, rfc8410};
use x509_cert::der::{self, Decode as _, Encode as _, Tag, TagNumber, Tagged as _};
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, SubjectKeyIdentifier,
};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

use self::name::Subject;

/// The lengths that an RSA key may have in order to sign here, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 1024..=8192;

/// The extended key usages that allow TLS clients. One of them is enough.
const CLIENT_USAGES: [ObjectIdentifier; 2] =
    [rfc5912::ID_KP_CLIENT_AUTH, rfc5912::ANY_EXTENDED_KEY_USAGE];

/// The tag of a certificate's extensions (RFC 5280, section 4.1).
const EXTENSIONS: Tag = Tag::ContextSpecific { constructed: true, number: TagNumber(3) };

/// A parsed certificate, with a serial number of any length.
type Parsed = CertificateInner<Raw>;

/// An X.509 certificate (RFC 5280) with which TLS clients can sign. Its texts may hold anything.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: Vec<u8>,
    public_key: PublicKey,
    /// Whether the certificate is a CA's, as its basic constraints say (RFC 5280, section 4.2.1.9).
    pub is_ca: bool,
    /// The serial number in hexadecimal digits, as `openssl x509 -serial` prints it.
    pub serial_number: String,
    pub subject: String,
    /// The user for whom the API server takes the bearer: the subject's common name.
    pub user: Option<String>,
    /// The groups that the API server adds: the subject's organizations.
    pub groups: Vec<String>,
    pub issuer_text: String,
    pub validity: Validity,
    /// Whether TLS clients may use the certificate, as its extended key usage says, if it has one (RFC 5280, section
    /// 4.2.1.12).
    pub is_for_clients: bool,
    /// Why an API server refuses the certificate, whoever has issued it and whenever it comes. Each text follows the
    /// certificate's name.
    pub objections: Vec<String>,
}

impl Certificate {
    /// Parses a certificate, which zeros may follow. Messages call it `source`. An error for what doesn't have DER's
    /// only form, for a key that can't sign here, and for a subject that parsers read differently.
    pub fn from_der(der: &[u8], source: &str) -> Result<Self, Error> {
        let unparsed = |error| unusable(source, &format!("its DER does not parse ({error})"));
        if der.is_empty() {
            return Err(unusable(source, "it is empty"));
        }
        let (parsed, rest) = Parsed::from_der_partial(der).map_err(unparsed)?;
        // Some tokens add zeros.
        if rest.iter().any(|byte| *byte != 0) {
            return Err(unusable(source, "something follows it"));
        }
        let der = der.strip_suffix(rest).unwrap_or(der).to_owned();
        if !is_canonical(&parsed, &der).map_err(unparsed)? {
            let reason = "it is not in DER's only form, and servers may read it otherwise";
            return Err(unusable(source, reason));
        }
        let signed = parsed.tbs_certificate();
        let public_key = PublicKey::from_info(signed.subject_public_key_info())
            .map_err(|algorithm| unsupported_key(source, &algorithm))?;
        let subject = Subject::of(signed.subject()).map_err(|reason| {
            unusable(source, &reason).help("have its CA issue another one, with names in UTF-8")
        })?;
        let constraints = signed.get_extension::<BasicConstraints>().map_err(unparsed)?;
        let usages = signed.get_extension::<ExtendedKeyUsage>().map_err(unparsed)?;
        Ok(Self {
            public_key,
            is_ca: constraints.is_some_and(|(_, constraints)| constraints.ca),
            serial_number: hex(signed.serial_number().as_bytes()).to_uppercase(),
            subject: subject.text,
            user: subject.user,
            groups: subject.groups,
            issuer_text: name::text(signed.issuer()),
            validity: Validity::of(signed.validity()),
            is_for_clients: usages.is_none_or(|(_, usages)| allows_clients(&usages)),
            objections: acceptance::objections(&parsed),
            der,
        })
    }

    /// The certificate itself, without what followed it.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether a token's value is this certificate. Some tokens add zeros to it.
    pub fn is_in(&self, value: &[u8]) -> bool {
        value.strip_prefix(self.der()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
    }

    /// The public key that is certified.
    pub fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// The certificate's names.
    pub fn names(&self) -> Option<CertificateNames> {
        let parsed = Parsed::from_der(&self.der).ok()?;
        let signed = parsed.tbs_certificate();
        Some(CertificateNames {
            subject: signed.subject().to_der().ok()?,
            issuer: signed.issuer().to_der().ok()?,
            serial_number: signed.serial_number().to_der().ok()?,
        })
    }

    /// The certificate's id in an API server's audit log: the `credential-id` of whoever comes with it.
    pub fn credential_id(&self) -> String {
        format!("X509SHA256={}", fingerprint(&self.der))
    }

    /// What to say of the certificate's end, if it should be renewed by now; `now` in seconds since 1970.
    pub fn renewal(&self, now: i64) -> Option<String> {
        let is_due = self.validity.at(now) == ValidityState::RenewalDue;
        is_due.then(|| format!("it expires {}", minute(self.validity.not_after)))
    }

    /// Fails if the certificate has expired, so that nobody is asked for a PIN in vain; `now` is in seconds since 1970.
    pub fn check_end(&self, now: i64) -> Result<(), Error> {
        if self.validity.at(now) != ValidityState::Expired {
            return Ok(());
        }
        let text = of_subject(&self.subject, self.validity.concern(now).unwrap_or_default());
        let help = Help::from("have the cluster issue another one for the same key: ");
        Err(Error::new(Exit::Object, text).help(help.and(command("enroll").and(HelpPart::Key))))
    }

    /// Why an API server refuses this certificate as a client's; `now` in seconds since 1970.
    pub fn concerns(&self, now: i64) -> Vec<String> {
        let usage = (!self.is_for_clients)
            .then(|| "its extended key usage does not allow TLS clients".to_owned());
        let objections = self.objections.iter().cloned();
        self.validity.concern(now).into_iter().chain(usage).chain(objections).collect()
    }

    /// What [`Self::renewal`] says, with what to do.
    pub fn renewal_warning(&self, now: i64) -> Option<String> {
        let help = renewal_remedy().in_this_call();
        self.renewal(now).map(|expiry| of_subject(&self.subject, format!("{expiry}; {help}")))
    }

    /// All that should not stay as it is at `now`, in seconds since 1970.
    pub fn warnings(&self, now: i64) -> Vec<String> {
        let concerns = self.concerns(now).into_iter();
        let concerns = concerns.map(|concern| of_subject(&self.subject, concern));
        concerns.chain(self.renewal_warning(now)).collect()
    }
}

/// The names of a certificate, each in DER. A token keeps them beside the certificate.
pub struct CertificateNames {
    pub subject: Vec<u8>,
    pub issuer: Vec<u8>,
    pub serial_number: Vec<u8>,
}

/// A public key of a kind with which TLS clients can sign here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PublicKey {
    /// The point is encoded as in SEC 1.
    Ecdsa { curve: Curve, point: Vec<u8> },
    /// The point is encoded as in RFC 8032.
    Ed25519([u8; 32]),
    /// The key is encoded as in FIPS 204, and as long as the keys of its set are.
    MlDsa { set: MlDsaSet, key: Vec<u8> },
    /// The numbers are big-endian, without leading zeros.
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
}

/// The curves of TLS's ECDSA signatures (RFC 8446, section 4.2.3).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Curve {
    P256,
    P384,
    P521,
}

impl Curve {
    /// The curve that CKA_EC_PARAMS names (PKCS#11, section 6.3.3; the DER of its object identifier).
    pub fn from_parameters(parameters: &[u8]) -> Option<Self> {
        let mut all = [Self::P256, Self::P384, Self::P521].into_iter();
        all.find(|curve| curve.parameters() == parameters)
    }

    /// The length of a field element in bytes.
    pub fn field_length(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The length in bytes of a point that isn't compressed (SEC 1, section 2.3.3).
    pub fn point_length(self) -> usize {
        1 + 2 * self.field_length()
    }

    /// The curve's CKA_EC_PARAMS (PKCS#11, section 6.3.3): the DER of its object identifier.
    pub fn parameters(self) -> &'static [u8] {
        match self {
            Self::P256 => b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
            Self::P384 => b"\x06\x05\x2b\x81\x04\x00\x22",
            Self::P521 => b"\x06\x05\x2b\x81\x04\x00\x23",
        }
    }
}

impl PublicKey {
    /// The length of an RSA modulus in bits; 0 for other keys.
    pub fn modulus_bits(&self) -> usize {
        match self {
            Self::Rsa { modulus, .. } => bits(modulus),
            Self::Ecdsa { .. } | Self::Ed25519(_) | Self::MlDsa { .. } => 0,
        }
    }

    /// The length of an RSA modulus, and so of a signature, in bytes; 0 for other keys.
    pub fn modulus_length(&self) -> usize {
        self.modulus_bits().div_ceil(8)
    }

    /// The key as a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    pub fn info(&self) -> der::Result<SubjectPublicKeyInfoOwned> {
        let (oid, parameters, bits) = match self {
            Self::Ecdsa { curve, point } => {
                (rfc5912::ID_EC_PUBLIC_KEY, Some(Any::from_der(curve.parameters())?), point.clone())
            }
            Self::Ed25519(point) => (rfc8410::ID_ED_25519, None, point.to_vec()),
            Self::MlDsa { set, key } => (set.oid(), None, key.clone()),
            Self::Rsa { modulus, exponent } => {
                let mut numbers = UintRef::new(modulus)?.to_der()?;
                numbers.extend(UintRef::new(exponent)?.to_der()?);
                let key = AnyRef::new(Tag::Sequence, &numbers)?.to_der()?;
                (rfc5912::RSA_ENCRYPTION, Some(Any::null()), key)
            }
        };
        Ok(SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned { oid, parameters },
            subject_public_key: BitString::from_bytes(&bits)?,
        })
    }

    /// The DER of [`info`](Self::info): what Go calls PKIX, and openssl a public key.
    pub fn to_der(&self) -> Result<Vec<u8>, Error> {
        let info = self.info().and_then(|info| info.to_der());
        info.map_err(|error| Error::internal(format!("the DER of a public key: {error}")))
    }

    /// The key of a SubjectPublicKeyInfo in DER. The error says why it isn't one that is signed with here.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        let info = SubjectPublicKeyInfoOwned::from_der(der).map_err(|error| error.to_string())?;
        Self::from_info(&info)
    }

    /// Reads a SubjectPublicKeyInfo. The error names the algorithm of a key that can't sign here.
    fn from_info(info: &SubjectPublicKeyInfoOwned) -> Result<Self, String> {
        let algorithm = info.algorithm.oid;
        let bits = info.subject_public_key.as_bytes().unwrap_or_default();
        if algorithm == rfc8410::ID_ED_25519 {
            let point = bits.try_into();
            return Ok(Self::Ed25519(point.map_err(|_| "Ed25519 with a malformed key")?));
        }
        if let Some(set) = MlDsaSet::from_oid(algorithm) {
            let key = Self::of_ml_dsa(set, bits).filter(|_| info.algorithm.parameters.is_none());
            return key.ok_or_else(|| format!("{set} with a malformed key"));
        }
        if algorithm == rfc5912::ID_EC_PUBLIC_KEY {
            let parameters = info.algorithm.parameters.as_ref();
            let name = parameters.and_then(|named| named.decode_as::<ObjectIdentifier>().ok());
            let name = name.ok_or("an elliptic curve without a name")?;
            let parameters = name.to_der().unwrap_or_default();
            let curve = Curve::from_parameters(&parameters).ok_or_else(|| {
                format!("an elliptic curve other than P-256, P-384 and P-521 ({name})")
            })?;
            let point = bits.to_vec();
            return Ok(Self::Ecdsa { curve, point });
        }
        if algorithm != rfc5912::RSA_ENCRYPTION {
            return Err(algorithm.to_string());
        }
        // The numbers of an RSAPublicKey are modulus and exponent.
        let numbers = Vec::<UintRef<'_>>::from_der(bits).unwrap_or_default();
        let [modulus, exponent] = numbers.as_slice() else {
            return Err("RSA with a malformed key".to_owned());
        };
        let modulus = without_leading_zeros(modulus.as_bytes());
        let exponent = without_leading_zeros(exponent.as_bytes());
        let bits = self::bits(&modulus);
        Self::of_rsa(modulus, exponent).ok_or_else(|| format!("RSA of {bits} bits"))
    }

    /// An ML-DSA key in the encoding of FIPS 204; `None` if it hasn't the length of this set's keys.
    pub fn of_ml_dsa(set: MlDsaSet, key: &[u8]) -> Option<Self> {
        (key.len() == set.public_key_length()).then(|| Self::MlDsa { set, key: key.to_owned() })
    }

    /// An RSA key with these numbers, which have no leading zeros; `None` if it is too short or too long to sign with.
    pub fn of_rsa(modulus: Vec<u8>, exponent: Vec<u8>) -> Option<Self> {
        let is_fit = RSA_BITS.contains(&bits(&modulus)) && !exponent.is_empty();
        is_fit.then_some(Self::Rsa { modulus, exponent })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ecdsa { curve, .. } => write!(f, "ECDSA {curve}"),
            Self::Ed25519(_) => f.write_str("Ed25519"),
            Self::MlDsa { set, .. } => write!(f, "{set}"),
            Self::Rsa { .. } => write!(f, "RSA-{}", self.modulus_bits()),
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
        })
    }
}

/// A sentence about a certificate, which its subject names.
pub fn of_subject(subject: &str, concern: impl fmt::Display) -> String {
    format!("the certificate of {subject}: {concern}")
}

/// What to do about a certificate that expires soon.
pub fn renewal_remedy() -> Help {
    Help::from("renew it: ").and(command("renew").and(HelpPart::Key))
}

/// Chooses among certificates that a selector fits, and returns their indices. For each public key, it is the one that
/// is valid at `now` (seconds since 1970), or else the one that is valid longest. Certificates of CAs are ignored if
/// there are others.
pub fn best_per_key(certificates: &[&Certificate], now: i64) -> Vec<usize> {
    let has_others = certificates.iter().any(|certificate| !certificate.is_ca);
    let rank = |certificate: &Certificate| {
        let validity = certificate.validity;
        let is_valid = matches!(validity.at(now), ValidityState::Valid | ValidityState::RenewalDue);
        (is_valid, certificate.is_for_clients, validity.not_after, validity.not_before)
    };
    let mut best: Vec<(usize, &Certificate)> = Vec::new();
    for (index, certificate) in certificates.iter().enumerate() {
        if has_others && certificate.is_ca {
            continue;
        }
        let same =
            |(_, other): &&mut (usize, &Certificate)| other.public_key == certificate.public_key;
        match best.iter_mut().find(same) {
            Some(best) if rank(certificate) > rank(best.1) => *best = (index, certificate),
            Some(_) => {}
            None => best.push((index, certificate)),
        }
    }
    best.into_iter().map(|(index, _)| index).collect()
}

/// Whether the DER has the only form that it can have. An extension may say `critical FALSE` all the same.
fn is_canonical(parsed: &Parsed, der: &[u8]) -> der::Result<bool> {
    let canonical = parsed.to_der()?;
    Ok(canonical == der || without_explicit_false(der).is_ok_and(|plain| plain == canonical))
}

/// Whether this extended key usage allows TLS clients.
fn allows_clients(usages: &ExtendedKeyUsage) -> bool {
    usages.0.iter().any(|usage| CLIENT_USAGES.contains(usage))
}

/// The certificate without `critical FALSE`, which DER leaves out, since it is the default. Go and OpenSSL read both
/// forms alike.
fn without_explicit_false(der: &[u8]) -> der::Result<Vec<u8>> {
    let mut certificate = Vec::<Any>::from_der(der)?;
    if let Some(signed) = certificate.first_mut() {
        let mut fields: Vec<Any> = signed.decode_as()?;
        // The extensions are tagged explicitly, and come last.
        if let Some(tagged) = fields.last_mut().filter(|last| last.tag() == EXTENSIONS) {
            let extensions = Vec::<Any>::from_der(tagged.value())?;
            let extensions = extensions.iter().map(|extension| {
                let mut parts: Vec<Any> = extension.decode_as()?;
                parts.retain(|part| part.tag() != Tag::Boolean || part.value() != [0]);
                Any::encode_from(&parts)
            });
            let extensions = extensions.collect::<der::Result<Vec<_>>>()?;
            *tagged = Any::new(EXTENSIONS, extensions.to_der()?)?;
        }
        *signed = Any::encode_from(&fields)?;
    }
    certificate.to_der()
}

fn unsupported_key(source: &str, algorithm: &str) -> Error {
    let text = format!("{source} holds a key of an unsupported type: {algorithm}");
    Error::new(Exit::Object, text).help(
        "use an RSA key of 1024 to 8192 bits, an ECDSA key on P-256, P-384 or P-521, or an Ed25519 or ML-DSA key",
    )
}

fn unusable(source: &str, reason: &str) -> Error {
    let text = format!("{source} is not a usable X.509 certificate: {reason}");
    Error::new(Exit::Object, text).help(
        "write the certificate to the token again, as DER, or set certificateFile (--certificate-file)",
    )
}

/// The issuer that a certificate in DER names; `None` for a root, and for what isn't a certificate.
pub fn issuer_of(der: &[u8]) -> Option<Vec<u8>> {
    let parsed = Parsed::from_der(der).ok()?;
    let signed = parsed.tbs_certificate();
    let is_own = signed.issuer() == signed.subject();
    (!is_own).then(|| signed.issuer().to_der().ok())?
}

/// Finds the issuer of this certificate among the candidates, all in DER. It goes by the name and by the identifiers of
/// keys, since an authority may have had several (RFC 5280, section 4.2.1.1). If several fit, the one that is valid
/// longest is taken. Roots are left out: every server that trusts one has it.
pub fn issuer_among<'a>(candidates: &'a [Vec<u8>], der: &[u8]) -> Option<&'a Vec<u8>> {
    let parsed = Parsed::from_der(der).ok()?;
    let certificate = parsed.tbs_certificate();
    let authority = certificate.get_extension::<AuthorityKeyIdentifier>().ok()?;
    let wanted = authority.and_then(|(_, authority)| authority.key_identifier);
    let fitting = candidates.iter().filter_map(|candidate| {
        let parsed = Parsed::from_der(candidate).ok()?;
        let issuer = parsed.tbs_certificate();
        let key_id = issuer.get_extension::<SubjectKeyIdentifier>().ok()?;
        let is_other =
            key_id.zip(wanted.as_ref()).is_some_and(|((_, key_id), wanted)| key_id.0 != *wanted);
        let is_named = issuer.subject() == certificate.issuer();
        let is_root = issuer.subject() == issuer.issuer();
        let end = issuer.validity().not_after.to_unix_duration();
        (is_named && !is_other && !is_root).then_some((end, candidate))
    });
    fitting.max_by_key(|(end, _)| *end).map(|(_, found)| found)
}

/// The length in bits of a big-endian number without leading zeros.
pub fn bits(number: &[u8]) -> usize {
    number.first().map_or(0, |first| number.len() * 8 - first.leading_zeros() as usize)
}

/// A big-endian number in so many bytes, with zeros in front; `None` if it needs more.
pub fn with_leading_zeros(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let missing = length.checked_sub(number.len())?;
    Some([&vec![0; missing], number].concat())
}

/// A big-endian number in as few bytes as it needs.
pub fn without_leading_zeros(number: &[u8]) -> Vec<u8> {
    number.iter().copied().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa,
        KeyPair, date_time_ymd,
    };

    use super::*;

    #[test]
    fn a_modulus_is_as_long_as_its_number() {
        for (modulus, bits, length) in [(&[0xff; 128][..], 1024, 128), (&[0x01; 129], 1025, 129)] {
            let key = PublicKey::Rsa { modulus: modulus.to_vec(), exponent: vec![3] };
            assert_eq!((key.modulus_bits(), key.modulus_length()), (bits, length));
        }
    }

    #[test]
    fn of_issuers_with_one_name_it_is_the_one_whose_key_has_signed() {
        let key = || KeyPair::generate().unwrap();
        let parameters = |name: &str, end: i32| {
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, name);
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters.use_authority_key_identifier_extension = true;
            parameters.not_after = date_time_ymd(end, 1, 1);
            parameters
        };
        let root = CertifiedIssuer::self_signed(parameters("root", 4000), key()).unwrap();
        let middle =
            |key, end| CertifiedIssuer::signed_by(parameters("middle", end), key, &root).unwrap();
        let pem = key().serialize_pem();
        let same = || KeyPair::from_pem(&pem).unwrap();
        let [other, old, new] = [middle(key(), 3000), middle(same(), 1990), middle(same(), 2990)];
        let below = parameters("jane", 2980).signed_by(&key(), &new).unwrap();
        let of = |issuer: &CertifiedIssuer<'_, KeyPair>| issuer.der().to_vec();
        let mut all = [&other, &old, &new, &root].map(of).to_vec();
        all.push(b"garbage".to_vec());
        for _ in &all.clone() {
            assert_eq!(issuer_among(&all, below.der()), Some(&of(&new)));
            all.rotate_left(1);
        }
        assert_eq!(issuer_among(&[of(&old)], below.der()), Some(&of(&old)));
        assert_eq!(issuer_among(&[of(&other)], below.der()), None);
        assert_eq!(issuer_among(&all, new.der()), None);
    }

    /// Another file or form of it changes nothing.
    #[test]
    fn one_with_a_name_that_can_be_read_in_two_ways_is_to_be_issued_anew() {
        let mut certificate = issued("J@rgen");
        let at = certificate.windows(6).rposition(|bytes| bytes == b"J@rgen").unwrap();
        // ü in Latin-1, which TeletexString is taken for by some.
        certificate[at + 1] = 0xfc;
        certificate[at - 2] = 0x14;
        let error = Certificate::from_der(&certificate, "it").unwrap_err();
        assert!(error.to_string().ends_with("is no text that all read alike"), "{error}");
        assert!(error.remedy().to_string().contains("have its CA issue another one"));
    }

    /// A self-signed certificate with this CN.
    pub(super) fn issued(user: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }
}
