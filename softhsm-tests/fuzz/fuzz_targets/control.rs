//! The first message that a client sends to the tunnel process, on any bytes: what is decoded says the same
//! when it is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tunnel_process::Greeting;

fuzz_target!(|line: &[u8]| {
    if let Ok(greeting) = serde_json::from_slice::<Greeting>(line) {
        let written = serde_json::to_vec(&greeting).unwrap();
        assert!(!written.contains(&b'\n'));
        let again: Greeting = serde_json::from_slice(&written).unwrap();
        assert_eq!(serde_json::to_vec(&again).unwrap(), written);
    }
});
