//! kubelet's request for a registry login, on any bytes: what is decoded is what the JSON says, what is answered is one line
//! of JSON for the same version and image, and what is refused is refused in one readable line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::credential_provider::{
    Image, ProviderAnswer, ProviderLogin, ProviderRequest, best,
};
use pkcs11_external_signer::sealed::{Registry, RegistryLogin};
use pkcs11_external_signer_fuzz::told;

/// What the sealed files have entries for.
const ENTRIES: [&str; 4] =
    ["registry.example", "registry.example/team", "*.example:5000", "docker.io"];

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(image) = Image::normalized(text)
    {
        // What a person names is what kubelet would ask for.
        assert_eq!(Image::parse(&image.text).as_ref(), Ok(&image));
    }
    let request = match ProviderRequest::decode(bytes) {
        Ok(request) => request,
        Err(error) => return assert_eq!(told(error).exit_code(), 2),
    };
    let json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(json["kind"], "CredentialProviderRequest");
    assert_eq!(json["apiVersion"], request.version.name());
    assert_eq!(json["image"], request.image.text.as_str());
    let entries = ENTRIES.map(|it| Registry::parse(it).unwrap());
    let logins = ENTRIES.map(|it| RegistryLogin::new(it.into(), "u".into(), "p".into()).unwrap());
    let answer = match best(&request.image, &entries) {
        None => ProviderAnswer::Nothing,
        Some(place) => {
            assert!(request.image.fits_host(&entries[place]));
            ProviderAnswer::Login(ProviderLogin::new(
                &request.image,
                &logins[place],
                &entries,
                None,
            ))
        }
    };
    let answer = answer.encode(request.version);
    assert!(answer.ends_with('\n') && !answer.trim_end().contains('\n'));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["apiVersion"], request.version.name());
    // kubelet compares the beginnings of paths: the key is this image or its registry.
    for key in answer["auth"].as_object().unwrap().keys() {
        assert!(*key == request.image.text || *key == request.image.registry());
    }
});
