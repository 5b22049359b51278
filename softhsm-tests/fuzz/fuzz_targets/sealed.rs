//! A sealed file, on any bytes: what is no recipient's key opens nothing, and one that is refused is refused in a readable
//! line. A config.json that is accepted is the same after it was written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use messages::error::Error;
use pkcs11_external_signer_fuzz::told;
use sealed::{Registries, SealedFile, describe};

fn refused(error: impl Into<Error>) {
    assert_eq!(told(error).exit_code(), 3);
}

fuzz_target!(|bytes: &[u8]| {
    match SealedFile::read(bytes, "the file") {
        Ok(file) => {
            for recipient in &file.recipients {
                assert!(!describe(&recipient.name).is_empty());
                // Not its key.
                assert!(file.open(recipient, &[0; 32]).is_err());
            }
        }
        Err(error) => refused(error),
    }
    match Registries::from_config(bytes, "config.json") {
        Ok(registries) => {
            let again = Registries::from_config(registries.to_config().as_bytes(), "").unwrap();
            assert_eq!(again.logins.len(), registries.logins.len());
            for (one, other) in again.logins.iter().zip(&registries.logins) {
                assert_eq!(one.registry, other.registry);
                assert_eq!(one.username, other.username);
                assert_eq!(one.password, other.password);
            }
        }
        Err(error) => refused(error),
    }
});
