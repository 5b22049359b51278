//! Reasons for which Go, and so every API server, refuses a certificate.

use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::{rfc5280, rfc5912};
use x509_cert::der::{Tag, Tagged as _};
use x509_cert::name::Name;

use super::Parsed;

/// Signature algorithms with a broken hash, and the hash's name.
const BROKEN: [(ObjectIdentifier, &str); 6] = [
    (rfc5912::MD_2_WITH_RSA_ENCRYPTION, "MD2"),
    (rfc5912::MD_5_WITH_RSA_ENCRYPTION, "MD5"),
    (rfc5912::SHA_1_WITH_RSA_ENCRYPTION, "SHA-1"),
    (rfc5912::DSA_WITH_SHA_1, "SHA-1"),
    // ecdsa-with-SHA1, and what Windows has called sha1RSA.
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"), "SHA-1"),
    (ObjectIdentifier::new_unwrap("1.3.14.3.2.29"), "SHA-1"),
];

/// The extensions that Go's verifier knows, in one release or another.
const KNOWN: [ObjectIdentifier; 13] = [
    rfc5280::ID_CE_SUBJECT_KEY_IDENTIFIER,
    rfc5280::ID_CE_KEY_USAGE,
    rfc5280::ID_CE_SUBJECT_ALT_NAME,
    rfc5280::ID_CE_BASIC_CONSTRAINTS,
    rfc5280::ID_CE_NAME_CONSTRAINTS,
    rfc5280::ID_CE_CRL_DISTRIBUTION_POINTS,
    rfc5280::ID_CE_CERTIFICATE_POLICIES,
    rfc5280::ID_CE_POLICY_MAPPINGS,
    rfc5280::ID_CE_AUTHORITY_KEY_IDENTIFIER,
    rfc5280::ID_CE_POLICY_CONSTRAINTS,
    rfc5280::ID_CE_EXT_KEY_USAGE,
    rfc5280::ID_CE_INHIBIT_ANY_POLICY,
    rfc5280::ID_PE_AUTHORITY_INFO_ACCESS,
];

/// The value of [`super::Certificate::objections`].
pub(super) fn objections(certificate: &Parsed) -> Vec<String> {
    let signed = certificate.tbs_certificate();
    let mut found = Vec::new();
    for (name, of) in [(signed.subject(), "subject"), (signed.issuer(), "issuer")] {
        if let Some(text) = forbidden_text(name) {
            found.push(format!(
                "API servers refuse the {of}'s name: \"{text}\" in a PrintableString"
            ));
        }
    }
    // The number is in two's complement.
    if signed.serial_number().as_bytes().first().is_some_and(|first| first & 0x80 != 0) {
        found.push("API servers refuse its serial number, which is negative".to_owned());
    }
    let algorithm = certificate.signature_algorithm().oid;
    if let Some((_, hash)) = BROKEN.iter().find(|(oid, _)| *oid == algorithm) {
        found.push(format!("API servers refuse its signature, which is made with {hash}"));
    }
    let extensions = signed.extensions().into_iter().flatten();
    let critical = extensions.filter(|extension| extension.critical);
    for unknown in critical.filter(|extension| !KNOWN.contains(&extension.extn_id)) {
        let oid = unknown.extn_id;
        found.push(format!(
            "API servers refuse its critical extension {oid}, which they don't know"
        ));
    }
    found
}

/// A PrintableString of the name that has characters that are not allowed in one (X.680, section 41.4; Go allows `*`
/// and `&`, too).
fn forbidden_text(name: &Name) -> Option<String> {
    let is_printable = |byte: &u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte);
    let mut values = name.iter().map(|attribute| &attribute.value);
    let forbidden = values.find(|value| {
        value.tag() == Tag::PrintableString && !value.value().iter().all(is_printable)
    })?;
    Some(String::from_utf8_lossy(forbidden.value()).into_owned())
}
