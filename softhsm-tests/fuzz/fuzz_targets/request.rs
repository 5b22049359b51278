//! The request decoder and the configuration behind it, on any text: nothing may panic.
//!
//! `cargo +nightly fuzz run --fuzz-dir softhsm-tests/fuzz request corpus softhsm-tests/requests`
//! keeps what it finds in `corpus` and starts from the requests the unit tests know. It looks at
//! files by the paths it makes up, but opens none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::config::Config;
use pkcs11_external_signer::protocol::Request;

fuzz_target!(|text: &str| {
    if let Ok(mut request) = Request::decode(text) {
        let _ = Config::from_map(&mut request.configuration);
    }
});
