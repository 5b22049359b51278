//! A distinguished name, as text and as the API server reads it.

use std::fmt::Write as _;

use crate::printable::hex;

use x509_parser::der_parser::{Oid, oid};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The short names of RFC 4514, section 3, and of what else certificates of people have. A
/// registry of everything would have to be built each time for the two or three that occur.
const SHORT: [(Oid<'_>, &str); 12] = [
    (oid!(2.5.4.3), "CN"),
    (oid!(2.5.4.10), "O"),
    (oid!(2.5.4.11), "OU"),
    (oid!(2.5.4.6), "C"),
    (oid!(2.5.4.7), "L"),
    (oid!(2.5.4.8), "ST"),
    (oid!(2.5.4.9), "STREET"),
    (oid!(2.5.4.5), "serialNumber"),
    (oid!(2.5.4.12), "title"),
    (oid!(0.9.2342.19200300.100.1.25), "DC"),
    (oid!(0.9.2342.19200300.100.1.1), "UID"),
    (oid!(1.2.840.113549.1.9.1), "emailAddress"),
];

/// Attributes in the certificate's order, each value escaped so that it can't pass for several
/// (RFC 4514, section 2.4): `CN=jane, O=dev\, ops`.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for (place, relative) in name.iter_rdn().enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        for (place, attribute) in relative.iter().enumerate() {
            if place > 0 {
                text.push_str(" + ");
            }
            let kind = attribute.attr_type();
            match SHORT.iter().find(|(known, _)| known == kind) {
                Some((_, short)) => text.push_str(short),
                // Writing to a String can't fail.
                None => drop(write!(text, "{kind}")),
            }
            text.push('=');
            match value(attribute) {
                Some(value) => push_escaped(&mut text, value),
                None => {
                    text.push('#');
                    text.push_str(&hex(attribute.attr_value().data));
                }
            }
        }
    }
    text
}

/// The Kubernetes user: the last common name, as Go has it.
pub(super) fn user(name: &X509Name<'_>) -> Option<String> {
    name.iter_common_name()
        .filter_map(value)
        .last()
        .map(str::to_owned)
}

/// The Kubernetes groups: every organization.
pub(super) fn groups(name: &X509Name<'_>) -> Vec<String> {
    name.iter_by_oid(&oid!(2.5.4.10))
        .filter_map(value)
        .map(str::to_owned)
        .collect()
}

/// `None` for a value that is no text.
fn value<'a>(attribute: &'a AttributeTypeAndValue<'_>) -> Option<&'a str> {
    attribute.as_str().ok()
}

fn push_escaped(text: &mut String, value: &str) {
    let last = value.chars().count().saturating_sub(1);
    for (place, character) in value.chars().enumerate() {
        let is_special = matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\')
            || place == 0 && matches!(character, ' ' | '#')
            || place == last && character == ' ';
        if is_special {
            text.push('\\');
        }
        text.push(character);
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::super::Certificate;

    fn certificate(attributes: &[(DnType, &str)]) -> Certificate {
        let mut name = DistinguishedName::new();
        for (kind, value) in attributes {
            name.push(kind.clone(), *value);
        }
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name;
        let certificate = parameters
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap();
        Certificate::from_der(certificate.der(), "it").unwrap()
    }

    #[test]
    fn one_value_does_not_pass_for_two() {
        for (value, shown) in [
            ("jane", "CN=jane"),
            ("a, O=system:masters", "CN=a\\, O=system:masters"),
            ("a+b\"c\\d<e>f;g", "CN=a\\+b\\\"c\\\\d\\<e\\>f\\;g"),
            ("#1 ", "CN=\\#1\\ "),
            (" ", "CN=\\ "),
            ("größe", "CN=größe"),
        ] {
            let certificate = certificate(&[(DnType::CommonName, value)]);
            assert_eq!(certificate.subject, shown);
            assert_eq!(certificate.user.as_deref(), Some(value));
        }
    }

    #[test]
    fn organizations_are_groups() {
        let name = certificate(&[
            (DnType::OrganizationName, "system:masters"),
            (DnType::CommonName, "jane"),
        ]);
        assert_eq!(name.subject, "O=system:masters, CN=jane");
        assert_eq!(name.issuer_text, "O=system:masters, CN=jane");
        assert_eq!(name.groups, ["system:masters"]);
        let nobody = certificate(&[(DnType::CountryName, "CH")]);
        assert_eq!((nobody.user, nobody.groups.len()), (None, 0));
    }
}
