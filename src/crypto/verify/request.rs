//! Whether who asks for a certificate has the key that it is to be for.

use super::verify;
use crate::certificate::{CertificationRequest, PublicKey};
use crate::scheme::Scheme;

/// Whether the request is signed with the key that it names.
pub fn is_signed_by_its_key(request: &CertificationRequest) -> bool {
    let message = request.signed.as_slice();
    let hashed = request.hash.and_then(|hash| Some((hash, hash.digest(&[message])?)));
    let Some((hash, digest)) = hashed else { return false };
    let (scheme, digest) = match &request.public_key {
        PublicKey::Ed25519(_) => (Scheme::Ed25519, message.to_vec()),
        PublicKey::Ecdsa { curve, .. } => (Scheme::Ecdsa { curve: *curve }, digest),
        PublicKey::Rsa { .. } => (Scheme::RsaPkcs1 { hash }, digest),
    };
    verify(&request.public_key, &scheme, &digest, request.signature.clone()).is_some()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256,
        PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    };

    use super::*;

    #[test]
    fn a_request_is_its_keys_or_it_is_not() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut name = DistinguishedName::new();
            name.push(DnType::OrganizationName, "dev");
            name.push(DnType::CommonName, "jane");
            let mut parameters = CertificateParams::default();
            parameters.distinguished_name = name;
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            let mut request = CertificationRequest::from_pem(&pem).unwrap();
            assert_eq!(request.user.as_deref(), Some("jane"));
            assert_eq!(request.groups, ["dev"]);
            assert!(request.is_plain && !request.wants_extensions);
            assert!(is_signed_by_its_key(&request));
            *request.signed.last_mut().unwrap() ^= 1;
            assert!(!is_signed_by_its_key(&request));
        }
    }

    #[test]
    fn what_is_asked_for_beside_user_and_groups_is_seen() {
        let key = KeyPair::generate().unwrap();
        let request = |kind: DnType, names: Vec<String>| {
            let mut parameters = CertificateParams::new(names).unwrap();
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, "jane");
            parameters.distinguished_name.push(kind, "more");
            let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
            CertificationRequest::from_pem(&pem).unwrap()
        };
        assert!(request(DnType::OrganizationName, Vec::new()).is_plain);
        assert!(!request(DnType::OrganizationalUnitName, Vec::new()).is_plain);
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        assert!(!request(uid, Vec::new()).is_plain);
        let named = request(DnType::OrganizationName, vec!["prod.example".to_owned()]);
        assert!(named.wants_extensions);
    }
}
