//! A signer's socket, on any bytes: as a connection's first bytes, as the body of a call, and as the message in one. Whatever
//! comes is answered or refused, nothing of it is repeated, and no token is made.

#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use service_account::fuzzed::LockedSigner;

static SIGNER: LazyLock<LockedSigner> = LazyLock::new(|| LockedSigner::new().expect("a signer"));

/// gRPC's status codes for a message that can't be read, for claims that can't be signed, and for a token that waits for a
/// person.
const INTERNAL: u32 = 13;
const INVALID_ARGUMENT: u32 = 3;
const FAILED_PRECONDITION: u32 = 9;

fuzz_target!(|bytes: &[u8]| {
    let signer = &*SIGNER;
    let answer = signer.hear(bytes);
    let is_http = answer.is_empty() || answer.starts_with(b"HTTP/1.") || answer.get(3) == Some(&4);
    assert!(is_http, "{answer:?}");

    for name in ["Sign", "FetchKeys", "Metadata", "Else"] {
        if let Some((code, _)) = signer.call(name, bytes) {
            assert!(name != "Sign" || code != 0);
        }
        assert_ne!(signer.call(name, &framed(bytes)), None);
    }

    let claims = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let is_object =
        serde_json::from_slice::<serde_json::Value>(bytes).is_ok_and(|it| it.is_object());
    let (code, text) = signer.call("Sign", &framed(&message(&claims))).expect("an answer");
    match code {
        FAILED_PRECONDITION => assert!(text.contains("waits%20for%20a%20person"), "{text}"),
        // A number beyond all bounds is no Value, and is read over.
        INVALID_ARGUMENT => assert!(!is_object),
        INTERNAL => panic!("a message that could not be read"),
        // Longer than a message may be.
        _ => assert!(claims.len() > 250_000, "{code} {text}"),
    }
});

/// A message behind its length, as gRPC has it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0][..], &length, message].concat()
}

/// SignJWTRequest with these claims.
fn message(claims: &str) -> Vec<u8> {
    let mut message = vec![0x0a];
    let mut length = claims.len();
    while length >= 0x80 {
        message.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(claims.as_bytes());
    message
}
