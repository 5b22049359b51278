//! An approver's policy, on any bytes: a file that is none is refused in a readable line, and what is read lets nobody in
//! whose key nothing shows to be in hardware, whoever asks for whatever.

#![no_main]

use attestation::policy::Asked;
use attestation::{Claims, Policy, YubiKeyClaims};
use libfuzzer_sys::fuzz_target;
use messages::printable::printable;
use pkcs11_external_signer_fuzz::told;

/// What a YubiKey says of a key.
const ATTESTATION: &[u8] = include_bytes!("../seeds/attestation/attestation.der");

fuzz_target!(|content: &[u8]| {
    let policy = match Policy::from_yaml(content, "policy.yaml") {
        Ok(policy) => policy,
        Err(error) => {
            let error = told(error);
            assert!(error.exit_code() == 3 && error.to_string().len() < 1000, "{error}");
            return;
        }
    };
    assert_eq!(policy.sha256.len(), 64);
    let claims = Claims::YubiKey(YubiKeyClaims::unproven(ATTESTATION).expect("claims"));
    let groups = claims.groups();
    let text = String::from_utf8_lossy(content);
    let users = text.split(|it: char| it.is_whitespace() || ",:[]{}\"'".contains(it)).take(100);
    for user in users.map(Some).chain([None]) {
        let requester = user.unwrap_or_default();
        let asked = Asked { requester, user, groups: &[], seconds: Some(600), claims: None };
        assert!(!policy.objections(&asked).is_empty(), "{user:?}");
        let asked = Asked { groups: &groups, claims: Some(&claims), ..asked };
        for objection in policy.objections(&asked) {
            let text = printable(&objection.to_string()).into_owned();
            assert!(text.starts_with("line ") && !text.contains('\n'), "{text:?}");
        }
    }
});
