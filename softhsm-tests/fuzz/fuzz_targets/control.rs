//! The first message that a client sends to the tunnel process, on any bytes: what is decoded says the same
//! when it is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::tunnel_process::Greeting;

fuzz_target!(|line: &[u8]| {
    if let Some(greeting) = Greeting::decode(line) {
        let written = greeting.encode().unwrap();
        assert!(!written.contains(&b'\n'));
        let again = Greeting::decode(&written).unwrap();
        assert_eq!(again.encode().unwrap(), written);
    }
});
