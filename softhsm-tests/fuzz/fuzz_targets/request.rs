//! The request decoder and the configuration behind it, on any text: what is decoded is what the
//! JSON says, and what is refused is refused in one readable line.
//!
//! `scripts/fuzz SECONDS request` starts from the requests the unit tests know. It looks at files
//! by the paths it makes up, but opens none.

#![no_main]

use config::Config;
use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::plugin::Response;
use protocol::{Operation, Request, Spelling};
use serde_json::Value;

fuzz_target!(|text: &str| match Request::decode(text) {
    Ok(mut request) => {
        compare(text, &request);
        let _ = Config::from_map(&mut request.configuration);
    }
    Err(error) => {
        let error = error.to_string();
        assert!(error.len() < 1000, "{error}");
    }
});

/// With another decoder's view of the same text.
fn compare(text: &str, request: &Request) {
    // The comparing decoder refuses what is deep or a number beyond all bounds, which unknown fields may be.
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return;
    };
    let configuration = document["configuration"].as_object();
    for (key, value) in configuration.expect("an object") {
        assert_eq!(request.configuration.value(key), value.as_str());
    }
    let kind = document["kind"].as_str().expect("a text");
    let is_proposals = kind.ends_with("Request");
    assert_eq!(request.spelling == Spelling::Proposal, is_proposals);
    let Operation::Sign(sign) = &request.operation else {
        assert!(kind.starts_with("Certificate"), "{kind}");
        return;
    };
    assert!(kind.starts_with("Sign"), "{kind}");
    assert!(!sign.digest.is_empty());
    if let Some(hash) = sign.options.hash() {
        assert_eq!(sign.digest.len(), hash.length());
    }
    // The answer is encoded as the request's digest is.
    let answer = Response::Certificate(&sign.digest).encode(request.spelling);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["certificate"], document["digest"]);
}
