//! Attestations as a request brings it, good and bad.

use std::cell::RefCell;

use const_oid::ObjectIdentifier;
use const_oid::db::rfc5912;
use der::asn1::{Any, BitString, OctetString, SetOfVec};
use der::pem::{LineEnding, encode_string};
use der::{Decode as _, Encode as _};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_RSA_SHA256, PublicKeyData as _, SignatureAlgorithm, date_time_ymd,
};
use serde_json::{Value, json};
use x509_cert::attr::Attribute;
use x509_cert::ext::Extension;
use x509_cert::name::Name;
use x509_cert::request::{CertReqInfo, ExtensionReq, Version};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_parser::pem::Pem;

use super::roots::{Anchor, Purpose};
use super::yubikey::{Advisory, Firmware, Slot};
use super::*;

/// 27 November 2026.
const NOW: i64 = 1_795_800_000;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Yubico's extensions, by the last number of their identifiers.
type Claims = Vec<(u64, Vec<u8>)>;

fn claims() -> Claims {
    vec![(3, vec![5, 7, 4]), (7, vec![2, 4, 0, 0xf2, 0x35, 0xb0]), (8, vec![2, 1]), (9, vec![3])]
}

/// The claims with one that says something else.
fn claims_with(number: u64, value: &[u8]) -> Claims {
    let others = claims().into_iter().filter(|(other, _)| *other != number);
    others.chain([(number, value.to_vec())]).collect()
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

fn authority(name: &str, below: u8) -> CertificateParams {
    let mut parameters = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    parameters
}

fn attestation(claims: Claims) -> CertificateParams {
    let mut parameters = named("YubiKey PIV Attestation 9a");
    parameters.custom_extensions = extensions(claims);
    parameters
}

fn extensions(claims: Claims) -> Vec<CustomExtension> {
    let extension = |(number, value): (u64, Vec<u8>)| {
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 41482, 3, number], value)
    };
    claims.into_iter().map(extension).collect()
}

fn with(
    mut parameters: CertificateParams,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateParams {
    change(&mut parameters);
    parameters
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

fn signed(parameters: CertificateParams, above: &Issuer) -> Issuer {
    CertifiedIssuer::signed_by(parameters, key(), above).unwrap()
}

fn der(issuer: &Issuer) -> Vec<u8> {
    issuer.der().to_vec()
}

fn pem(issuer: &Issuer) -> String {
    issuer.pem()
}

/// A root, a YubiKey, and the key in its slot 9a.
struct World {
    root: Issuer,
    device: Issuer,
    slot_key: KeyPair,
}

impl World {
    fn new() -> Self {
        Self::with_device(authority("Yubico PIV Attestation", 0))
    }

    fn with_device(device: CertificateParams) -> Self {
        let root = CertifiedIssuer::self_signed(authority("root", 1), key()).unwrap();
        Self { device: signed(device, &root), root, slot_key: key() }
    }

    fn roots(&self) -> Roots {
        Roots::from_pem(pem(&self.root).as_bytes(), "the file").unwrap()
    }

    /// With these authorities above the device, the root first.
    fn below(authorities: &[&str]) -> (Self, Vec<Issuer>) {
        let mut above = Vec::<Issuer>::new();
        for name in authorities {
            let next = match above.last() {
                Some(issuer) => signed(authority(name, 9), issuer),
                None => CertifiedIssuer::self_signed(authority(name, 9), key()).unwrap(),
            };
            above.push(next);
        }
        let device = signed(authority("device", 0), above.last().unwrap());
        (Self { root: above.remove(0), device, slot_key: key() }, above)
    }

    fn attest(&self, parameters: CertificateParams) -> AttestationBundle {
        let attestation = parameters.signed_by(&self.slot_key, &self.device).unwrap();
        let statement = Statement::YubiKey(attestation.der().to_vec());
        AttestationBundle { statement, certificates: vec![der(&self.device)] }
    }

    fn request(&self, attributes: Vec<Attribute>) -> Vec<u8> {
        request(&self.slot_key.subject_public_key_info(), attributes)
    }

    fn verify(&self, sent: &AttestationBundle) -> Result<Verdict, Refusal> {
        verified(&self.request(vec![attribute(sent)]), &self.roots())
    }

    /// Why an attestation with these parameters is refused.
    fn refusal(&self, parameters: CertificateParams) -> String {
        self.verify(&self.attest(parameters)).unwrap_err().to_string()
    }
}

fn roots_for(root: &Issuer, purpose: Purpose) -> Roots {
    let certificate = Certificate::from_der(&der(root), "it").unwrap();
    Roots { anchors: vec![Anchor { certificate, purpose }], intermediates: Vec::new() }
}

/// Nobody asks here whether it is signed.
fn request(public_key_info: &[u8], attributes: Vec<Attribute>) -> Vec<u8> {
    let request = CertReq {
        info: CertReqInfo {
            version: Version::V1,
            subject: Name::default(),
            public_key: SubjectPublicKeyInfoOwned::from_der(public_key_info).unwrap(),
            attributes: SetOfVec::try_from(attributes).unwrap(),
        },
        algorithm: AlgorithmIdentifierOwned { oid: rfc5912::ECDSA_WITH_SHA_256, parameters: None },
        signature: BitString::from_bytes(&[]).unwrap(),
    };
    request.to_der().unwrap()
}

fn attribute(sent: &AttestationBundle) -> Attribute {
    Attribute::from_der(&sent.to_attribute().unwrap()).unwrap()
}

/// The attribute with another value.
fn attribute_of(values: Vec<Any>) -> Attribute {
    let oid = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.2.59");
    Attribute { oid, values: SetOfVec::try_from(values).unwrap() }
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    Any::new(der::Tag::Sequence, parts.concat()).unwrap().to_der().unwrap()
}

fn statement(kind: &str, certificate: &[u8]) -> Vec<u8> {
    let kind = ObjectIdentifier::new_unwrap(kind).to_der().unwrap();
    sequence(&[kind, certificate.to_vec()])
}

const YUBIKEY: &str = "1.3.6.1.4.1.41482.3.1";

/// Yubico's form.
fn extension_request(extensions: &[(&str, &[u8])]) -> Attribute {
    let extension = |(id, value): &(&str, &[u8])| Extension {
        extn_id: ObjectIdentifier::new_unwrap(id),
        critical: false,
        extn_value: OctetString::new(*value).unwrap(),
    };
    ExtensionReq(extensions.iter().map(extension).collect()).try_into().unwrap()
}

fn verified(request: &[u8], roots: &Roots) -> Result<Verdict, Refusal> {
    verify(request, Trust { roots, verifier: None }, NOW)
}

/// The attestation certificate.
fn leaf(sent: &AttestationBundle) -> &[u8] {
    match &sent.statement {
        Statement::YubiKey(der) => der,
        Statement::Other(other) => panic!("{other:?}"),
    }
}

fn leaf_mut(sent: &mut AttestationBundle) -> &mut Vec<u8> {
    match &mut sent.statement {
        Statement::YubiKey(der) => der,
        Statement::Other(other) => panic!("{other:?}"),
    }
}

fn proven(verdict: Result<Verdict, Refusal>) -> YubiKeyClaims {
    match verdict {
        Ok(Verdict::Proven(crate::Claims::YubiKey(claims))) => claims,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_attestation_proves_nothing() {
    let world = World::new();
    let verdict = verified(&world.request(Vec::new()), &world.roots());
    assert_eq!(verdict, Ok(Verdict::Unattested));
    let others = extension_request(&[("2.5.29.15", &[3, 2, 5, 0xa0])]);
    let verdict = verified(&world.request(vec![others]), &world.roots());
    assert_eq!(verdict, Ok(Verdict::Unattested));
}

#[test]
fn a_yubikeys_word_is_proven_by_its_root() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let claims = proven(world.verify(&sent));
    let shown = "YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch never";
    assert_eq!(claims.to_string(), shown);
    assert_eq!(
        claims.form_factor.map(|form_factor| form_factor.to_string()).as_deref(),
        Some("USB-C keychain")
    );
    assert!(!claims.is_fips_certified && !claims.is_cspn_certified);
    assert_eq!(YubiKeyClaims::unproven(leaf(&sent)), Ok(claims));
}

#[test]
fn policies_have_words_and_certifications_stand_in_either_certificate() {
    let mut device = authority("Yubico PIV Attestation", 0);
    device.custom_extensions = extensions(vec![(3, vec![5, 7, 4]), (10, Vec::new())]);
    let world = World::with_device(device);
    for (policies, shown) in [
        ([1, 2], "PIN never, touch always"),
        ([3, 3], "PIN always, touch cached"),
        ([4, 1], "fingerprint or PIN once, touch never"),
        ([5, 1], "fingerprint or PIN always, touch never"),
    ] {
        let mut claims = claims_with(8, &policies);
        claims.push((11, vec![1]));
        let claims = proven(world.verify(&world.attest(attestation(claims))));
        assert!(claims.to_string().ends_with(shown), "{claims}");
        assert!(claims.is_fips_certified && claims.is_cspn_certified);
    }
}

#[test]
fn every_kind_of_key_and_order_of_certificates_is_taken() {
    let kinds: [&'static SignatureAlgorithm; 3] =
        [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256];
    for kind in kinds {
        let key = || KeyPair::generate_for(kind).unwrap();
        let root = CertifiedIssuer::self_signed(authority("root", 3), key()).unwrap();
        let upper = CertifiedIssuer::signed_by(authority("upper", 2), key(), &root).unwrap();
        let lower = CertifiedIssuer::signed_by(authority("lower", 1), key(), &upper).unwrap();
        let device = CertifiedIssuer::signed_by(authority("device", 0), key(), &lower).unwrap();
        let world = World { root, device, slot_key: key() };
        let mut sent = world.attest(attestation(claims()));
        sent.certificates.extend([&lower, &upper, &world.root].map(der));
        for _ in 0..sent.certificates.len() {
            sent.certificates.rotate_left(1);
            proven(world.verify(&sent));
        }
        let lacking =
            AttestationBundle { certificates: vec![der(&world.device), der(&upper)], ..sent };
        let refusal = world.verify(&lacking).unwrap_err().to_string();
        assert_eq!(
            refusal,
            "the certificate of CN=device was issued by CN=lower, which is neither a root that is trusted nor among \
             the certificates with it"
        );
    }
}

#[test]
fn a_devices_certificate_can_be_the_root() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let request = world.request(vec![attribute(&sent)]);
    let roots = Roots::from_pem(pem(&world.device).as_bytes(), "it").unwrap();
    proven(verified(&request, &roots));
    let others = World::new().roots();
    proven(verified(&request, &others.and(roots)));
}

#[test]
fn yubicos_own_form_is_read() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let device = sent.certificates[0].as_slice();
    for kind in [YUBIKEY, "1.3.6.1.4.1.41482.3.11"] {
        let asked = [(kind, leaf(&sent)), ("1.3.6.1.4.1.41482.3.2", device)];
        let request = world.request(vec![extension_request(&asked)]);
        proven(verified(&request, &world.roots()));
    }
    let devices = vec![("1.3.6.1.4.1.41482.3.2", device); 9];
    let many = [vec![(YUBIKEY, leaf(&sent))], devices].concat();
    let refused = verified(&world.request(vec![extension_request(&many)]), &world.roots());
    assert_eq!(refused, Err(RequestRefusal::TooManyCertificates(9).into()));
    let long = sequence(&[OctetString::new(vec![7; 20_000]).unwrap().to_der().unwrap()]);
    let huge = [(YUBIKEY, leaf(&sent)), ("1.3.6.1.4.1.41482.3.2", &long)];
    let refused = verified(&world.request(vec![extension_request(&huge)]), &world.roots());
    assert!(
        matches!(refused, Err(Refusal::Request(RequestRefusal::TooLong(20_000..)))),
        "{refused:?}"
    );
    let alone = extension_request(&[("1.3.6.1.4.1.41482.3.2", device)]);
    let refused = verified(&world.request(vec![alone]), &world.roots());
    assert_eq!(refused, Err(RequestRefusal::NoAttestation.into()));
}

#[test]
fn what_is_written_is_what_is_read() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let written = SetOfVec::try_from(vec![attribute(&sent)]).unwrap();
    assert_eq!(AttestationBundle::in_attributes(&written), Ok(Some(sent.clone())));
    let bare = AttestationBundle { certificates: Vec::new(), ..sent };
    let written = SetOfVec::try_from(vec![attribute(&bare)]).unwrap();
    assert_eq!(AttestationBundle::in_attributes(&written), Ok(Some(bare)));
}

/// What ykman writes of a key and, behind that, of the device.
#[test]
fn a_file_has_one_attestation_of_the_key_and_what_leads_to_a_root() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let info = world.slot_key.subject_public_key_info();
    let text = |certificates: &[&[u8]]| {
        let block = |der: &&[u8]| encode_string("CERTIFICATE", LineEnding::LF, der).unwrap();
        certificates.iter().map(block).collect::<String>()
    };
    let (leaf, device) = (leaf(&sent), sent.certificates[0].as_slice());
    let read = |text: &str| AttestationBundle::from_pem(text.as_bytes(), "the file", &info);
    for order in [[leaf, device], [device, leaf]] {
        assert_eq!(read(&text(&order)).unwrap(), sent);
    }
    assert!(!sent.lacks_device());
    assert!(read(&text(&[leaf])).unwrap().lacks_device());
    let other = World { slot_key: key(), ..world }.attest(attestation(claims()));
    let other_leaf = self::leaf(&other);
    for (certificates, reason) in [
        (&[][..], "it has no CERTIFICATE in PEM"),
        (&[device], "it has 0 attestations, and one is wanted"),
        (&[leaf, device, leaf], "it has 2 attestations, and one is wanted"),
        (
            &[other_leaf, device],
            "the certificate of CN=YubiKey PIV Attestation 9a is about another key than the request's",
        ),
    ] {
        assert_eq!(
            read(&text(certificates)).unwrap_err().to_string(),
            format!("the file has no attestation of the key: {reason}")
        );
    }
}

/// Of a TPM, say, whose attestations a verifier can read.
#[test]
fn a_statement_of_another_type_travels_to_the_verifier_as_it_is() {
    struct Mirror(RefCell<Value>);
    impl ExternalVerifier for Mirror {
        fn name(&self) -> &str {
            "mirror"
        }
        fn sha256(&self) -> &str {
            "0f5a"
        }
        fn answer(&self, question: &str) -> Result<Vec<u8>, String> {
            let question: Value = serde_json::from_str(question).unwrap();
            let answer = json!({
                "apiVersion": question["apiVersion"],
                "kind": "AttestationClaims",
                "publicKey": question["publicKey"],
                "device": "laptop-17",
                "claims": ["made there"],
            });
            self.0.replace(question);
            Ok(answer.to_string().into_bytes())
        }
    }
    let world = World::new();
    let info = world.slot_key.subject_public_key_info();
    let block = |label: &str, der: &[u8]| encode_string(label, LineEnding::LF, der).unwrap();
    let of_tpm = statement("2.23.133.20.1", &sequence(&[vec![4, 1, 7]]));
    let of_tpm = block("ATTESTATION STATEMENT", &of_tpm);
    let read = |text: &str| AttestationBundle::from_pem(text.as_bytes(), "the file", &info);
    let ca = block("CERTIFICATE", &der(&world.root));
    let sent = read(&format!("{of_tpm}{ca}")).unwrap();
    assert!(!sent.lacks_device());
    let request = world.request(vec![attribute(&sent)]);
    let verifier = Mirror(RefCell::default());
    let roots = world.roots();
    let verdict = verify(&request, Trust { roots: &roots, verifier: Some(&verifier) }, NOW);
    let Ok(Verdict::Proven(claims)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(claims.recorded(), "laptop-17: made there, says mirror with SHA-256 0f5a");
    let question = verifier.0.borrow();
    assert_eq!(question["type"], "2.23.133.20.1");
    assert_eq!(question["statement"], "MAMEAQc=");
    assert_eq!(question["certificates"].as_array().unwrap().len(), 1);
    assert_eq!(verified(&request, &roots).unwrap_err().to_string(), NO_VERIFIER);

    let of_yubikey = statement(YUBIKEY, &der(&world.root));
    for (text, reason) in [
        (format!("{of_tpm}{of_tpm}"), "it has 2 attestations, and one is wanted"),
        (block("ATTESTATION STATEMENT", &[4, 1, 7]), "its ATTESTATION STATEMENT is no SEQUENCE"),
        (
            block("ATTESTATION STATEMENT", &of_yubikey),
            "a YubiKey's attestation is given as a CERTIFICATE",
        ),
        (
            format!("{of_tpm}{}", block("PUBLIC KEY", &info)),
            "something else than a CERTIFICATE stands in it",
        ),
    ] {
        let refused = read(&text).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

const NO_VERIFIER: &str = "the request's attestation is of the type 2.23.133.20.1, which a verifier judges, and none is \
                           named (docs/policy.md)";

#[test]
fn what_is_not_one_attestation_is_refused() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let good = attribute(&sent);
    let leaf = leaf(&sent);
    let other = world.attest(attestation(claims_with(8, &[1, 1])));
    let bundle = |parts: &[Vec<u8>]| attribute_of(vec![Any::from_der(&sequence(parts)).unwrap()]);
    let one = sequence(&[statement(YUBIKEY, leaf)]);
    let certificates = |count: usize, length: usize| {
        sequence(&vec![
            sequence(&[OctetString::new(vec![7; length]).unwrap().to_der().unwrap()]);
            count
        ])
    };
    let in_extension = extension_request(&[(YUBIKEY, leaf)]);
    let twice_in_extension = extension_request(&[(YUBIKEY, leaf), (YUBIKEY, leaf)]);
    let values = good.values.iter().cloned().chain([Any::null()]).collect();
    let unbundled = "the request's attestation does not parse, or is not in DER's only form";
    for (attributes, expected) in [
        (vec![good.clone(), good.clone()], "the request has the attestation attribute twice"),
        (vec![good.clone(), attribute(&other)], "the request has the attestation attribute twice"),
        (
            vec![attribute_of(values)],
            "the request's attestation attribute has 2 values instead of one",
        ),
        (
            vec![attribute_of(Vec::new())],
            "the request's attestation attribute has 0 values instead of one",
        ),
        (
            vec![bundle(&[sequence(&[statement(YUBIKEY, leaf), statement(YUBIKEY, leaf)])])],
            "the request has 2 attestations, and one is wanted",
        ),
        (vec![bundle(&[sequence(&[])])], "the request has 0 attestations, and one is wanted"),
        (vec![good.clone(), in_extension], "the request has 2 attestations, and one is wanted"),
        (vec![twice_in_extension], "the request has 2 attestations, and one is wanted"),
        (vec![bundle(&[sequence(&[statement("2.23.133.20.1", leaf)])])], NO_VERIFIER),
        (
            vec![bundle(&[one.clone(), certificates(100, 1000)])],
            "the request's attestation has 101511 bytes, and 16384 are the most",
        ),
        (
            vec![bundle(&[one.clone(), certificates(9, 100)])],
            "9 certificates come with the request's attestation, and 8 are the most",
        ),
        (vec![bundle(&[one.clone(), vec![5, 0]])], unbundled),
        (vec![bundle(&[one.clone(), sequence(&[])])], unbundled),
        (vec![bundle(&[one.clone(), sequence(&[vec![5, 0]])])], unbundled),
        (vec![bundle(&[one.clone(), certificates(1, 9), vec![5, 0]])], unbundled),
        (vec![bundle(&[sequence(&[statement(YUBIKEY, &[5, 0])])])], unbundled),
        // A length that takes more bytes than it needs.
        (vec![bundle(&[vec![0x30, 0x81, 0x00]])], unbundled),
        (vec![attribute_of(vec![Any::null()])], unbundled),
    ] {
        let refusal = verified(&world.request(attributes), &world.roots()).unwrap_err();
        let refusal = refusal.to_string();
        // How long signatures are differs by a byte or two.
        let shown = refusal.replace(|character: char| character.is_ascii_digit(), "#");
        let wanted = expected.replace(|character: char| character.is_ascii_digit(), "#");
        assert_eq!(shown, wanted, "{refusal}");
    }
}

#[test]
fn no_byte_follows_anything() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let mut request = world.request(vec![attribute(&sent)]);
    request.push(0);
    assert_eq!(verified(&request, &world.roots()), Err(RequestRefusal::NoRequest.into()));
    for byte in [0, 7] {
        let mut longer = sent.clone();
        leaf_mut(&mut longer).push(byte);
        assert_eq!(longer.to_attribute(), Err(RequestRefusal::NotDer.into()));
        let asked = extension_request(&[(YUBIKEY, leaf(&longer))]);
        let refused = verified(&world.request(vec![asked]), &world.roots());
        assert_eq!(refused, Err(RequestRefusal::NotDer.into()));
        let refusal = YubiKeyClaims::unproven(leaf(&longer)).unwrap_err();
        assert!(refusal.to_string().contains("the attestation certificate"), "{refusal}");
    }
}

/// Another parser could see other attributes.
#[test]
fn attributes_stand_in_ders_order() {
    let world = World::new();
    let sent = attribute(&world.attest(attestation(claims())));
    let other = extension_request(&[("2.5.29.15", &[3, 2, 5, 0xa0])]);
    let request = world.request(vec![sent.clone(), other.clone()]);
    proven(verified(&request, &world.roots()));
    let [sent, other] = [sent, other].map(|attribute| attribute.to_der().unwrap());
    let ordered = [other.as_slice(), &sent].concat();
    let at = request.windows(ordered.len()).position(|window| window == ordered).unwrap();
    let swapped = [&request[..at], &sent, &other, &request[at + ordered.len()..]].concat();
    assert_eq!(verified(&swapped, &world.roots()), Err(RequestRefusal::NoRequest.into()));
}

#[test]
fn what_is_too_much_or_no_certificate_is_not_written() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let with = |certificates| AttestationBundle { certificates, ..sent.clone() }.to_attribute();
    let device = sent.certificates[0].clone();
    assert_eq!(with(vec![device; 9]), Err(RequestRefusal::TooManyCertificates(9).into()));
    let huge = sequence(&[OctetString::new(vec![7; 20_000]).unwrap().to_der().unwrap()]);
    assert!(matches!(with(vec![huge]), Err(Refusal::Request(RequestRefusal::TooLong(20_000..)))));
    assert_eq!(with(vec![b"garbage".to_vec()]), Err(RequestRefusal::NotDer.into()));
}

#[test]
fn an_attestation_of_another_key_is_refused() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let request = request(&key().subject_public_key_info(), vec![attribute(&sent)]);
    let refusal = verified(&request, &world.roots()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the certificate of CN=YubiKey PIV Attestation 9a is about another key than the request's"
    );
}

#[test]
fn claims_are_read_strictly() {
    let world = World::new();
    let without = |number| claims().into_iter().filter(|(other, _)| *other != number).collect();
    let serial =
        "the attestation's serial number is not a number of up to 32 bits in DER's only form";
    for (claims, expected) in [
        (claims_with(8, &[2]), "the attestation's PIN and touch policy has 1 byte instead of 2"),
        (
            claims_with(8, &[2, 1, 1]),
            "the attestation's PIN and touch policy has 3 bytes instead of 2",
        ),
        (claims_with(3, &[5, 7]), "the attestation's firmware has 2 bytes instead of 3"),
        (claims_with(3, &[4, 3, 5, 7, 4]), "the attestation's firmware has 5 bytes instead of 3"),
        (claims_with(9, &[]), "the attestation's form factor has 0 bytes instead of 1"),
        (claims_with(8, &[0, 1]), "the attestation's PIN policy has an unknown number: 0"),
        (claims_with(8, &[6, 1]), "the attestation's PIN policy has an unknown number: 6"),
        (claims_with(8, &[1, 0]), "the attestation's touch policy has an unknown number: 0"),
        (claims_with(8, &[1, 4]), "the attestation's touch policy has an unknown number: 4"),
        // More zeros than needed, negative, too great, cut off, longer, no INTEGER.
        (claims_with(7, &[2, 4, 0, 0x12, 0x35, 0xb0]), serial),
        (claims_with(7, &[2, 1, 0x80]), serial),
        (claims_with(7, &[2, 5, 1, 0, 0, 0, 0]), serial),
        (claims_with(7, &[2, 4, 0, 0xf2]), serial),
        (claims_with(7, &[2, 1, 1, 0]), serial),
        (claims_with(7, &[4, 1, 1]), serial),
        (without(3), "the attestation does not say the firmware"),
        (without(7), "the attestation does not say the serial number"),
        (without(8), "the attestation does not say the PIN and touch policy"),
    ] {
        assert_eq!(world.refusal(attestation(claims)), expected);
    }
    let twice = claims().into_iter().chain([(8, vec![2, 2])]).collect();
    assert_eq!(
        world.refusal(attestation(twice)),
        "the certificate of CN=YubiKey PIV Attestation 9a has the extension 1.3.6.1.4.1.41482.3.8 twice"
    );
}

#[test]
fn the_subject_names_a_slot_of_users() {
    let world = World::new();
    for (name, expected) in [
        ("YubiKey PIV Attestation f9", "names a slot that holds no keys of users"),
        ("YubiKey PIV Attestation 9A", "names a slot that holds no keys of users"),
        ("YubiKey PIV Attestation +9", "names a slot that holds no keys of users"),
        ("YubiKey PIV Attestation 9a, O=dev", "names a slot that holds no keys of users"),
        ("Yubico PIV Attestation", "is no attestation of a YubiKey's PIV application"),
        ("jane\u{202e}", "is no attestation of a YubiKey's PIV application"),
    ] {
        let parameters =
            with(named(name), |parameters| parameters.custom_extensions = extensions(claims()));
        let refusal = world.refusal(parameters);
        assert!(refusal.ends_with(expected) && !refusal.contains('\u{202e}'), "{refusal}");
    }
    for name in ["82", "95", "9a", "9c", "9d", "9e"] {
        assert_eq!(Slot::from_name(name).unwrap().to_string(), name);
    }
    for name in ["", "81", "96", "9b", "f9", "9A", "+9", "09a"] {
        assert_eq!(Slot::from_name(name), None);
    }
}

#[test]
fn another_root_or_device_is_refused() {
    let [world, other] = [World::new(), World::new()];
    let sent = world.attest(attestation(claims()));
    let request = world.request(vec![attribute(&sent)]);
    assert_eq!(
        verified(&request, &other.roots()).unwrap_err().to_string(),
        "the certificate of CN=Yubico PIV Attestation names CN=root as its issuer, whose key has not signed it"
    );
    assert_eq!(
        verified(&request, &Roots::yubico().unwrap()).unwrap_err().to_string(),
        "the certificate of CN=Yubico PIV Attestation was issued by CN=root, which is neither a root that is trusted \
         nor among the certificates with it"
    );
    // Neither of the two roots becomes one by being sent.
    for root in [&world.root, &other.root] {
        let mut with_root = sent.clone();
        with_root.certificates.push(der(root));
        let request = world.request(vec![attribute(&with_root)]);
        assert!(verified(&request, &other.roots()).is_err());
        let refusal = verified(&request, &Roots::yubico().unwrap()).unwrap_err();
        assert!(matches!(
            refusal,
            Refusal::Chain(ChainRefusal::UnknownIssuer { .. })
                | Refusal::Chain(ChainRefusal::WrongSignature { .. })
        ));
    }
    let mut other_device = sent.clone();
    other_device.certificates = vec![der(&other.device)];
    let mut no_device = sent;
    no_device.certificates.clear();
    let attested = "the certificate of CN=YubiKey PIV Attestation 9a";
    for (sent, expected) in [
        (
            other_device,
            "names CN=Yubico PIV Attestation as its issuer, whose key has not signed it",
        ),
        (
            no_device,
            "was issued by CN=Yubico PIV Attestation, which is neither a root that is trusted nor among the \
             certificates with it",
        ),
    ] {
        let refusal = world.verify(&sent).unwrap_err().to_string();
        assert_eq!(refusal, format!("{attested} {expected}"));
    }
}

#[test]
fn only_cas_issue() {
    let device = "the certificate of CN=device";
    let usage = |usages: Vec<KeyUsagePurpose>| {
        with(authority("device", 0), |parameters| parameters.key_usages = usages)
    };
    for (parameters, expected) in [
        (
            with(named("device"), |parameters| parameters.is_ca = IsCa::ExplicitNoCa),
            "has issued another, and is no CA (CA:FALSE)",
        ),
        (
            named("device"),
            "has issued another, and doesn't say that it is a CA (no basic constraints)",
        ),
        (
            usage(vec![KeyUsagePurpose::DigitalSignature]),
            "has issued another, which its key usage does not allow",
        ),
    ] {
        let world = World::with_device(parameters);
        assert_eq!(world.refusal(attestation(claims())), format!("{device} {expected}"));
    }
    let world = World::with_device(usage(vec![KeyUsagePurpose::KeyCertSign]));
    proven(world.verify(&world.attest(attestation(claims()))));
    let parameters = with(attestation(claims()), |parameters| {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))
    });
    assert_eq!(
        world.refusal(parameters),
        "the certificate of CN=YubiKey PIV Attestation 9a is a CA's, so it attests no key of a slot"
    );
}

/// As some YubiKeys', whose root signs nothing else.
#[test]
fn a_device_need_not_say_that_it_is_a_ca_where_only_devices_are_signed() {
    let roots = |world: &World| roots_for(&world.root, Purpose::PivDevices);
    let verdict = |world: &World, sent: &AttestationBundle| {
        verified(&world.request(vec![attribute(sent)]), &roots(world))
    };
    let silent = World::with_device(named("device"));
    proven(verdict(&silent, &silent.attest(attestation(claims()))));
    let explicit = World::with_device(with(named("device"), |parameters| {
        parameters.is_ca = IsCa::ExplicitNoCa
    }));
    let refused = verdict(&explicit, &explicit.attest(attestation(claims())));
    assert!(matches!(refused, Err(Refusal::Chain(ChainRefusal::NoCa { .. }))), "{refused:?}");
    // One that isn't signed by that root itself.
    let parent = World::with_device(authority("device", 1));
    let device = signed(named("below"), &parent.device);
    let below = World { root: parent.root, device, slot_key: key() };
    let mut sent = below.attest(attestation(claims()));
    sent.certificates.push(der(&parent.device));
    let refused = verdict(&below, &sent);
    assert!(
        matches!(refused, Err(Refusal::Chain(ChainRefusal::NoConstraints { .. }))),
        "{refused:?}"
    );
}

/// A YubiHSM below the same root attests what its owner has in mind.
#[test]
fn the_root_of_all_applications_vouches_by_its_authority_for_piv() {
    for (authorities, is_for_piv) in [
        (&["root", "upper", "Yubico PIV Attestation B2 1"][..], true),
        (&["root", "upper", "YubiHSM Attestation B2 1"], false),
        (&["root", "upper", "Yubico PIV Attestation"], false),
        (&["root", "Yubico PIV Attestation A 1"], false),
        (&["root"], false),
        (&["root", "upper", "YubiHSM Attestation B2 1", "Yubico PIV Attestation A 1"], false),
    ] {
        let (world, above) = World::below(authorities);
        let mut sent = world.attest(attestation(claims()));
        sent.certificates.extend(above.iter().map(der));
        let request = world.request(vec![attribute(&sent)]);
        let roots = roots_for(&world.root, Purpose::Applications);
        let verdict = verified(&request, &roots);
        if is_for_piv {
            proven(verdict);
        } else {
            assert_eq!(
                verdict.unwrap_err().to_string(),
                "the certificate of CN=device was issued below Yubico's root, but not by its authority for YubiKeys' PIV \
                 application"
            );
        }
        proven(verified(&request, &world.roots()));
    }
}

#[test]
fn a_way_is_as_long_as_its_cas_allow() {
    let root = CertifiedIssuer::self_signed(authority("root", 0), key()).unwrap();
    let device = signed(authority("device", 0), &root);
    let world = World { root, device, slot_key: key() };
    assert_eq!(
        world.refusal(attestation(claims())),
        "the certificate of CN=root allows 0 CAs between it and an attestation, and there are more"
    );
}

#[test]
fn every_certificate_is_valid_now() {
    let device =
        with(authority("device", 0), |parameters| parameters.not_after = date_time_ymd(2026, 1, 1));
    assert_eq!(
        World::with_device(device).refusal(attestation(claims())),
        "the certificate of CN=device: it expired 2026-01-01 00:00 UTC"
    );
    let world = World::new();
    let parameters =
        with(attestation(claims()), |parameters| parameters.not_before = date_time_ymd(2030, 1, 1));
    assert_eq!(
        world.refusal(parameters),
        "the certificate of CN=YubiKey PIV Attestation 9a: it is not valid before 2030-01-01 00:00 UTC; is the clock \
         right?"
    );
    let parameters =
        with(authority("root", 1), |parameters| parameters.not_after = date_time_ymd(2027, 1, 1));
    let root = CertifiedIssuer::self_signed(parameters, key()).unwrap();
    let device = signed(authority("device", 0), &root);
    let world = World { root, device, slot_key: key() };
    let request = world.request(vec![attribute(&world.attest(attestation(claims())))]);
    proven(verified(&request, &world.roots()));
    let trust = Trust { roots: &world.roots(), verifier: None };
    let refusal = verify(&request, trust, NOW + 365 * 24 * 60 * 60).unwrap_err();
    assert_eq!(refusal.to_string(), "the certificate of CN=root: it expired 2027-01-01 00:00 UTC");
}

#[test]
fn a_critical_extension_is_heeded_or_refused() {
    let mut unknown = CustomExtension::from_oid_content(&[2, 5, 29, 30], vec![0x30, 0]);
    unknown.set_criticality(true);
    for (is_device, name) in [(true, "device"), (false, "YubiKey PIV Attestation 9a")] {
        let (mut device, mut attested) = (authority("device", 0), attestation(claims()));
        let changed = if is_device { &mut device } else { &mut attested };
        changed.custom_extensions.push(unknown.clone());
        assert_eq!(
            World::with_device(device).refusal(attested),
            format!(
                "the certificate of CN={name} has a critical extension that is not known here: 2.5.29.30"
            )
        );
    }
}

#[test]
fn the_device_was_made_with_the_firmware_that_it_says() {
    let mut device = authority("device", 0);
    device.custom_extensions = extensions(vec![(3, vec![4, 3, 1])]);
    assert_eq!(
        World::with_device(device).refusal(attestation(claims())),
        "the attestation says firmware 5.7.4, and the device's certificate 4.3.1"
    );
}

#[test]
fn few_signatures_are_verified() {
    let world = World::new();
    let mut sent = world.attest(attestation(claims()));
    let other = || der(&World::new().device);
    sent.certificates.splice(0..0, (0..6).map(|_| other()));
    proven(world.verify(&sent));
    sent.certificates.insert(0, other());
    assert_eq!(world.verify(&sent), Err(ChainRefusal::TooManySignatures.into()));
}

#[test]
fn a_changed_certificate_is_refused() {
    let world = World::new();
    let sent = world.attest(attestation(claims()));
    let offset = |needle: &[u8]| {
        leaf(&sent).windows(needle.len()).position(|window| window == needle).unwrap()
    };
    // Firmware, policies, and the last byte of the signature.
    let last = leaf(&sent).len() - 1;
    for index in [offset(&[4, 3, 5, 7, 4]) + 4, offset(&[4, 2, 2, 1]) + 3, last] {
        let mut changed = sent.clone();
        leaf_mut(&mut changed)[index] ^= 3;
        let refusal = world.verify(&changed).unwrap_err();
        assert!(
            matches!(refusal, Refusal::Chain(ChainRefusal::WrongSignature { .. })),
            "{refusal}"
        );
    }
}

#[test]
fn weak_firmware_is_named() {
    let firmware = |major, minor, patch| Firmware { major, minor, patch };
    let certificate = |key: &KeyPair| {
        let certificate = named("it").self_signed(key).unwrap();
        crypto::certificate::Certificate::from_der(certificate.der(), "it").unwrap()
    };
    let [ecdsa, rsa] = [&PKCS_ECDSA_P256_SHA256, &PKCS_RSA_SHA256]
        .map(|kind| certificate(&KeyPair::generate_for(kind).unwrap()));
    let (ecdsa, rsa) = (ecdsa.public_key(), rsa.public_key());
    for (firmware, of_ecdsa, of_rsa) in [
        (firmware(4, 3, 4), Some(Advisory::Eucleak), Some(Advisory::Roca)),
        (firmware(4, 3, 5), Some(Advisory::Eucleak), None),
        (firmware(5, 6, 255), Some(Advisory::Eucleak), None),
        (firmware(5, 7, 0), None, None),
        (firmware(10, 0, 0), None, None),
    ] {
        assert_eq!(firmware.advisory(ecdsa), of_ecdsa, "{firmware}");
        assert_eq!(firmware.advisory(rsa), of_rsa, "{firmware}");
    }
    assert!(Advisory::Roca.to_string().contains("YSA-2017-01"));
    assert!(Advisory::Eucleak.to_string().contains("YSA-2024-03"));
}

#[test]
fn a_file_of_roots_is_whole() {
    let world = World::new();
    let good = pem(&world.root);
    let text = format!("Yubico's, of 2024:\n\n{good}\nand\n{}", pem(&world.device));
    assert_eq!(Roots::from_pem(text.as_bytes(), "it").unwrap().anchors.len(), 2);
    let refusal = |pem: &str| Roots::from_pem(pem.as_bytes(), "the file").unwrap_err().to_string();
    assert_eq!(refusal(""), "the file has no usable roots: it has no CERTIFICATE in PEM");
    let key = world.slot_key.serialize_pem();
    assert!(refusal(&key).ends_with("something else than a CERTIFICATE stands in it"));
    for damaged in [good.replacen("MII", "M*I", 1), good.replacen("-----END", "-----", 1)] {
        assert!(refusal(&damaged).contains("its PEM is damaged"), "{}", refusal(&damaged));
    }
}

/// The SHA-256 of docs/decisions/0009-attestation-roots.md.
#[test]
fn the_built_in_roots_are_yubicos_and_lead_to_each_other() {
    let roots = Roots::yubico().unwrap();
    let fingerprints = |certificates: Vec<&Certificate>| {
        let fingerprint = |certificate: &&Certificate| certificate.fingerprint();
        certificates.iter().map(fingerprint).collect::<Vec<_>>()
    };
    let anchors: Vec<_> = roots.anchors.iter().map(|anchor| &anchor.certificate).collect();
    assert_eq!(
        fingerprints(anchors.clone()),
        [
            "63ece914e54dd87915f34033c85af4c0696ba1512f8add66ced738331207b546",
            "62760c6a6ef91679f454c8902b80fd009825b3f25da90f1fbace2ec6586cd5a8",
        ]
    );
    assert_eq!(
        fingerprints(roots.intermediates.iter().collect()),
        [
            "4698a1d3389c3ec60016c216250f1d0439922832d65142327436376dc2942b55",
            "6de693f05376f5d8ca29069261e1c8626c75d503bd2edbfd75354cad1f722870",
            "d4cc3f456fdaf4e7812a21aab1dfe9d8e27d24e2fd2d6f21c9940109f0daa754",
            "2d55b7998f4e42569d6d8fa382b6dc77d1dacf07358b19701163892922b17052",
        ]
    );
    let purposes: Vec<_> = roots.anchors.iter().map(|anchor| anchor.purpose).collect();
    assert_eq!(purposes, [Purpose::PivDevices, Purpose::Applications]);
    let given = Roots::from_pem(include_bytes!("roots/yubico-attestation-root-1.pem"), "it");
    assert_eq!(given.unwrap().anchors[0].purpose, Purpose::Applications);
    for anchor in anchors {
        assert!(anchor.names_as_issuer(anchor) && anchor.is_signed_by(anchor));
    }
    let root = &roots.anchors[1].certificate;
    for pair in roots.intermediates.chunks(2) {
        let [upper, lower] = pair else { panic!("a pair") };
        assert!(upper.is_signed_by(root) && lower.is_signed_by(upper));
        assert!(lower.names_as_issuer(upper) && upper.names_as_issuer(root));
        let constraints = lower.basic_constraints.as_ref().unwrap();
        assert!(constraints.ca && constraints.path_len_constraint == Some(1));
    }
}

/// An attestation and its device's certificate, and the request that would bring them.
fn real(pem: &str) -> (AttestationBundle, Vec<u8>) {
    let mut certificates: Vec<_> =
        Pem::iter_from_buffer(pem.as_bytes()).map(|block| block.unwrap().contents).collect();
    let statement = Statement::YubiKey(certificates.remove(0));
    let sent = AttestationBundle { statement, certificates };
    let attested = Certificate::from_der(leaf(&sent), "it").unwrap();
    let request = request(attested.public_key_info(), vec![attribute(&sent)]);
    (sent, request)
}

/// What piv-go and attestation-validator have in their tests.
#[test]
fn real_yubikeys_attestations_are_proven() {
    let roots = Roots::yubico().unwrap();
    for (pem, shown, shape) in [
        (
            include_str!("fixtures/yubikey-5.4.3-slot-9a.pem"),
            "YubiKey 15732500, firmware 5.4.3, slot 9a, PIN once, touch never",
            "USB-C nano",
        ),
        (
            include_str!("fixtures/yubikey-5.2.7-slot-9c.pem"),
            "YubiKey 15422467, firmware 5.2.7, slot 9c, PIN always, touch never",
            "USB-C keychain",
        ),
    ] {
        let (_, request) = real(pem);
        let claims = proven(verified(&request, &roots));
        assert_eq!(claims.to_string(), shown);
        assert_eq!(
            claims.form_factor.map(|form_factor| form_factor.to_string()).as_deref(),
            Some(shape)
        );
    }
}

/// It was signed, by mistake, by Yubico's root for FIDO, which allows no CA below it.
#[test]
fn a_real_yubikey_of_a_bad_batch_is_refused() {
    let (sent, request) = real(include_str!("fixtures/yubikey-4.3.7-slot-9a.pem"));
    assert_eq!(
        verified(&request, &Roots::yubico().unwrap()).unwrap_err().to_string(),
        "the certificate of CN=Yubico PIV Attestation was issued by CN=Yubico U2F Root CA Serial 457200631, which is \
         neither a root that is trusted nor among the certificates with it"
    );
    let refused = YubiKeyClaims::unproven(leaf(&sent));
    assert_eq!(refused, Err(ClaimRefusal::MissingClaim("serial number").into()));
}

/// Both devices' certificates have the same subject.
#[test]
fn real_yubikeys_do_not_vouch_for_each_other() {
    let [(mut first, _), (second, _)] = [
        include_str!("fixtures/yubikey-5.4.3-slot-9a.pem"),
        include_str!("fixtures/yubikey-5.2.7-slot-9c.pem"),
    ]
    .map(real);
    first.certificates = second.certificates;
    let attested = Certificate::from_der(leaf(&first), "it").unwrap();
    let request = request(attested.public_key_info(), vec![attribute(&first)]);
    let refused = verified(&request, &Roots::yubico().unwrap());
    assert!(
        matches!(refused, Err(Refusal::Chain(ChainRefusal::WrongSignature { .. }))),
        "{refused:?}"
    );
}
