//! Requests with evidence of a YubiKey that is none: its root is the test's own.

use std::rc::Rc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName,
    DnType, IsCa, KeyPair,
};

use crate::fixture::der::{
    COMMON_NAME, ORGANIZATION, element, relative, request_pem, request_with,
};

/// id-aa-attestation, and a YubiKey's attestation certificate.
const ATTRIBUTE: &[u8] = b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x02\x3b";
const STATEMENT: &[u8] = b"\x06\x0a\x2b\x06\x01\x04\x01\x82\xc4\x0a\x03\x01";

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Yubico's extensions, by the last number of their identifiers.
pub(super) type Claims = Vec<(u64, Vec<u8>)>;

/// Of YubiKey 15873456 with firmware 5.7.4, PIN once, touch never.
pub(super) fn claims() -> Claims {
    vec![(3, vec![5, 7, 4]), (7, vec![2, 4, 0, 0xf2, 0x35, 0xb0]), (8, vec![2, 1])]
}

/// The same, with one that says something else.
pub(super) fn claims_with(number: u64, value: &[u8]) -> Claims {
    let others = claims().into_iter().filter(|(other, _)| *other != number);
    others.chain([(number, value.to_vec())]).collect()
}

/// What makes keys and attests them.
pub(super) struct Device {
    root: Rc<Issuer>,
    device: Issuer,
}

impl Device {
    pub(super) fn new() -> Self {
        let root = CertifiedIssuer::self_signed(authority("Test Root", 1), key()).unwrap();
        Self::below(Rc::new(root), |_| {})
    }

    /// Another one below the same root, whose certificate is changed like this.
    pub(super) fn sibling(&self, change: impl FnOnce(&mut CertificateParams)) -> Self {
        Self::below(Rc::clone(&self.root), change)
    }

    fn below(root: Rc<Issuer>, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut device = authority("Yubico PIV Attestation", 0);
        change(&mut device);
        Self { device: CertifiedIssuer::signed_by(device, key(), &root).unwrap(), root }
    }

    /// The root's certificate.
    pub(super) fn root_pem(&self) -> String {
        self.root.pem()
    }

    /// The device's certificate, in DER.
    pub(super) fn certificate(&self) -> Vec<u8> {
        self.device.der().to_vec()
    }

    /// The certificate by which it attests a key in slot 9a, in DER.
    pub(super) fn attest(&self, slot_key: &KeyPair, claims: Claims) -> Vec<u8> {
        self.attest_with(slot_key, claims, |_| {})
    }

    pub(super) fn attest_with(
        &self,
        slot_key: &KeyPair,
        claims: Claims,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Vec<u8> {
        let mut parameters = named("YubiKey PIV Attestation 9a");
        let extension = |(number, value): (u64, Vec<u8>)| {
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 41482, 3, number], value)
        };
        parameters.custom_extensions = claims.into_iter().map(extension).collect();
        change(&mut parameters);
        parameters.signed_by(slot_key, &self.device).unwrap().der().to_vec()
    }

    /// Jane's request for a key of this device, with its evidence.
    pub(super) fn request(&self, groups: &[&str], claims: Claims) -> String {
        let slot_key = key();
        let attestation = self.attest(&slot_key, claims);
        janes(&slot_key, groups, &[&bundle(&[&attestation], &[&self.certificate()])])
    }
}

pub(super) fn key() -> KeyPair {
    KeyPair::generate().unwrap()
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

/// The attribute with these attestations, and these certificates beside them.
pub(super) fn bundle(attestations: &[&[u8]], certificates: &[&[u8]]) -> Vec<u8> {
    let statements = attestations.iter().map(|der| element(0x30, &[STATEMENT, der]));
    let statements = element(0x30, &[&statements.collect::<Vec<_>>().concat()]);
    let value = element(0x30, &[&statements, &element(0x30, certificates)]);
    element(0x30, &[ATTRIBUTE, &element(0x31, &[&value])])
}

/// A request of user jane for this key, in PEM.
pub(super) fn janes(key: &KeyPair, groups: &[&str], attributes: &[&[u8]]) -> String {
    let mut parts: Vec<_> = groups.iter().map(|group| relative(ORGANIZATION, group)).collect();
    parts.push(relative(COMMON_NAME, "jane"));
    request_pem(&request_with(key, &element(0x30, &[&parts.concat()]), attributes))
}
