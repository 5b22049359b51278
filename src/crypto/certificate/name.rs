//! A distinguished name: as text, and as the API server reads it.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{BmpString, ObjectIdentifier};
use x509_cert::der::{Tag, Tagged as _};
use x509_cert::name::Name;

use messages::printable::hex;

const COMMON_NAME: &str = "CN";
const ORGANIZATION: &str = "O";

/// The short names of RFC 4514, section 3, and of other attributes that certificates of people have.
const SHORT: [(ObjectIdentifier, &str); 12] = [
    (ObjectIdentifier::new_unwrap("2.5.4.3"), COMMON_NAME),
    (ObjectIdentifier::new_unwrap("2.5.4.10"), ORGANIZATION),
    (ObjectIdentifier::new_unwrap("2.5.4.11"), "OU"),
    (ObjectIdentifier::new_unwrap("2.5.4.6"), "C"),
    (ObjectIdentifier::new_unwrap("2.5.4.7"), "L"),
    (ObjectIdentifier::new_unwrap("2.5.4.8"), "ST"),
    (ObjectIdentifier::new_unwrap("2.5.4.9"), "STREET"),
    (ObjectIdentifier::new_unwrap("2.5.4.5"), "serialNumber"),
    (ObjectIdentifier::new_unwrap("2.5.4.12"), "title"),
    (ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25"), "DC"),
    (ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"), "UID"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1"), "emailAddress"),
];

/// The attributes in the certificate's order: `CN=jane, O=dev\, ops`. Each value is escaped so that it can't pass for
/// several (RFC 4514, section 2.4).
pub(super) fn text(name: &Name) -> String {
    let relatives = name.iter_rdn().map(|relative| {
        let attributes = relative.iter().map(|attribute| {
            let kind = short(attribute).map_or_else(|| attribute.oid.to_string(), str::to_owned);
            match value(attribute) {
                Some(value) => format!("{kind}={}", escaped(&value)),
                None => format!("{kind}=#{}", hex(attribute.value.value())),
            }
        });
        attributes.collect::<Vec<_>>().join(" + ")
    });
    relatives.collect::<Vec<_>>().join(", ")
}

/// The user and the groups for which an API server takes the bearer of a certificate.
pub(super) struct Subject {
    pub(super) text: String,
    /// The last common name, which is the one that Go reads. An empty one is no user's.
    pub(super) user: Option<String>,
    pub(super) groups: Vec<String>,
}

impl Subject {
    /// Reads the name. An error for one that parsers read in several ways; its text follows an `it`.
    pub(super) fn of(name: &Name) -> Result<Self, String> {
        if name.iter_rdn().any(|relative| relative.is_empty()) {
            return Err("its subject has an empty part, at which some stop reading".to_owned());
        }
        let mut user = None;
        let mut groups = Vec::new();
        for attribute in name.iter() {
            let Some(kind @ (COMMON_NAME | ORGANIZATION)) = short(attribute) else { continue };
            let Some(value) = value(attribute) else {
                return Err(format!("the {kind} of its subject is no text that all read alike"));
            };
            if kind == COMMON_NAME {
                user = Some(value);
            } else {
                groups.push(value);
            }
        }
        Ok(Self { text: text(name), user: user.filter(|user| !user.is_empty()), groups })
    }
}

/// The short name of an attribute's type.
fn short(attribute: &AttributeTypeAndValue) -> Option<&'static str> {
    let known = SHORT.iter().find(|(oid, _)| *oid == attribute.oid);
    known.map(|(_, short)| *short)
}

/// The text of an attribute; `None` for a value that isn't text, or that some versions of Go read differently.
fn value(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let text = || String::from_utf8(value.value().to_owned()).ok();
    match value.tag() {
        Tag::Utf8String => text(),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::TeletexString => {
            text().filter(|text| text.is_ascii())
        }
        Tag::BmpString => {
            let text = value.decode_as::<BmpString>().ok()?;
            // Go takes a NUL for the end.
            Some(text.chars().collect::<String>()).filter(|text| !text.contains('\0'))
        }
        _ => None,
    }
}

/// The value with a backslash before each character that would end it, or could be taken for the beginning of another
/// one.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for (index, character) in value.char_indices() {
        let is_last = index + character.len_utf8() == value.len();
        let is_special = matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\')
            || index == 0 && matches!(character, ' ' | '#')
            || is_last && character == ' ';
        if is_special {
            text.push('\\');
        }
        text.push(character);
    }
    text
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
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
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
