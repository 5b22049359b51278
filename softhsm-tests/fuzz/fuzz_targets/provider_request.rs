//! kubelet's request for a registry login, on any bytes: what is decoded is what the JSON says, what is answered is one line
//! of JSON for the same version and image, and what is refused is refused in one readable line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer_fuzz::told;
use sealed::credential_provider::{ProviderRequest, answer};
use sealed::{Registries, RegistryLogin};

/// What the sealed file has entries for.
const ENTRIES: [&str; 4] =
    ["registry.example", "registry.example/team", "registry.example:5000", "docker.io"];

fuzz_target!(|bytes: &[u8]| {
    let request = match ProviderRequest::decode(bytes) {
        Ok(request) => request,
        Err(error) => return assert_eq!(told(error).exit_code(), 2),
    };
    // The comparing decoder refuses what is deep or a number beyond all bounds, which unknown fields may be.
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) else {
        return;
    };
    assert_eq!(json["kind"], "CredentialProviderRequest");
    assert_eq!(json["apiVersion"], request.version);
    assert_eq!(json["image"], request.image.to_string());
    let login = |entry: &str| RegistryLogin::new(entry.into(), "u".into(), "p".into()).unwrap();
    let registries = Registries { logins: ENTRIES.map(login).into() };
    let answer = answer(&request, &registries, None);
    assert!(answer.ends_with('\n') && !answer.trim_end().contains('\n'));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["apiVersion"], request.version);
    // kubelet compares the beginnings of paths: the key is this image or its registry.
    for key in answer["auth"].as_object().unwrap().keys() {
        assert!(*key == request.image.to_string() || *key == request.image.authority);
    }
});
