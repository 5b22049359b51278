//! Go's `crypto.SignerOpts`, as a type name and a JSON document inside a JSON string.
//!
//! `crypto.Hash` alone does not say which scheme is meant: `scheme` decides that by the key.

use super::members::Members;
use super::{malformed, refused};
use crate::hash::Hash;
use messages::error::Error;
use messages::printable::excerpt;

/// How a signature is to be made, as far as the client says it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignerOptions {
    /// `crypto.Hash`: the digest was made with this hash.
    Hashed(Hash),
    /// `*rsa.PSSOptions`, never with [`Hash::Md5Sha1`].
    Pss { hash: Hash, salt: SaltLength },
    /// `crypto.Hash` 0: the message itself is to be signed.
    Unhashed,
}

/// `SaltLength` of Go's `rsa.PSSOptions`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SaltLength {
    /// −1: the salt is as long as the hash.
    EqualsHash,
    /// A number of bytes, at least 1. It can be far longer than any key.
    Exactly(usize),
    /// 0: the salt is as long as the key allows.
    Longest,
}

impl SignerOptions {
    /// The hash that the digest was made with; `None` if the message itself is to be signed.
    pub fn hash(self) -> Option<Hash> {
        match self {
            Self::Hashed(hash) | Self::Pss { hash, .. } => Some(hash),
            Self::Unhashed => None,
        }
    }

    pub(super) fn decode(type_name: &str, options: &str) -> Result<Self, Error> {
        match type_name {
            "*rsa.PSSOptions" => pss(options),
            "crypto.Hash" => match serde_json::from_str(options) {
                Ok(0) => Ok(Self::Unhashed),
                Ok(number) => hash(number).map(Self::Hashed),
                Err(_) => Err(malformed("signerOpts", "the number of a hash, inside a string")),
            },
            _ => Err(refused(
                format!("unknown signerOptsType \"{}\"", excerpt(type_name)),
                "the types are *rsa.PSSOptions and crypto.Hash",
            )),
        }
    }
}

fn pss(options: &str) -> Result<SignerOptions, Error> {
    let members: Members<'_> = serde_json::from_str(options)
        .map_err(|_| malformed("signerOpts", "a JSON object inside a string, each key once"))?;
    let hash = match members.read("signerOpts.Hash", "the number of a hash")? {
        number @ (0 | 8) => return Err(unsupported(number)),
        number => hash(number)?,
    };
    let salt = match members.read::<i64>("signerOpts.SaltLength", "a whole number")? {
        -1 => SaltLength::EqualsHash,
        0 => SaltLength::Longest,
        // A length that no machine can hold is as useless as the longest one that it can.
        length @ 1.. => SaltLength::Exactly(usize::try_from(length).unwrap_or(usize::MAX)),
        length => {
            return Err(refused(
                format!("invalid SaltLength {length} in signerOpts"),
                "SaltLength is -1 (as long as the hash), 0 (as long as possible) or a number of bytes",
            ));
        }
    };
    Ok(SignerOptions::Pss { hash, salt })
}

/// The hash of this number in Go's `crypto.Hash`.
fn hash(number: i64) -> Result<Hash, Error> {
    match number {
        3 => Ok(Hash::Sha1),
        4 => Ok(Hash::Sha224),
        5 => Ok(Hash::Sha256),
        6 => Ok(Hash::Sha384),
        7 => Ok(Hash::Sha512),
        8 => Ok(Hash::Md5Sha1),
        _ => Err(unsupported(number)),
    }
}

fn unsupported(hash: i64) -> Error {
    refused(
        format!("unsupported hash {hash} in signerOpts"),
        "crypto.Hash numbers understood here: 3 (SHA-1), 4 (SHA-224), 5 (SHA-256), 6 (SHA-384) and 7 (SHA-512); \
         outside *rsa.PSSOptions also 8 (MD5SHA1) and, for Ed25519 and ECDSA, 0 (not hashed)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PSS: &str = "*rsa.PSSOptions";
    const HASH: &str = "crypto.Hash";

    #[test]
    fn every_hash_number_of_go_is_known() {
        let supported = [
            (3, Hash::Sha1),
            (4, Hash::Sha224),
            (5, Hash::Sha256),
            (6, Hash::Sha384),
            (7, Hash::Sha512),
            (8, Hash::Md5Sha1),
        ];
        for number in (1..=19).chain([-1, 20, i64::MAX, i64::MIN]) {
            let decoded = SignerOptions::decode(HASH, &number.to_string());
            match supported.iter().find(|(known, _)| *known == number) {
                Some((_, hash)) => assert_eq!(decoded.unwrap(), SignerOptions::Hashed(*hash)),
                None => assert_eq!(
                    decoded.unwrap_err().to_string(),
                    format!("unsupported hash {number} in signerOpts")
                ),
            }
        }
        assert_eq!(SignerOptions::decode(HASH, " 0 ").unwrap(), SignerOptions::Unhashed);
    }

    #[test]
    fn salt_lengths_mean_what_go_means() {
        for (length, salt) in [
            (-1, SaltLength::EqualsHash),
            (0, SaltLength::Longest),
            (1, SaltLength::Exactly(1)),
            (64, SaltLength::Exactly(64)),
            (i64::MAX, SaltLength::Exactly(usize::try_from(i64::MAX).unwrap_or(usize::MAX))),
        ] {
            let options = format!(r#"{{"SaltLength":{length},"Hash":5,"Other":[{{}}]}}"#);
            assert_eq!(
                SignerOptions::decode(PSS, &options).unwrap(),
                SignerOptions::Pss { hash: Hash::Sha256, salt }
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        const NO_OBJECT: &str =
            "malformed field signerOpts: expected a JSON object inside a string, each key once";
        for (type_name, options, error) in [
            (PSS, r#"{"SaltLength":-1}"#, "missing field signerOpts.Hash"),
            (PSS, r#"{"Hash":5}"#, "missing field signerOpts.SaltLength"),
            (
                PSS,
                r#"{"SaltLength":-1,"Hash":"5"}"#,
                "malformed field signerOpts.Hash: expected the number of a hash",
            ),
            (
                PSS,
                r#"{"SaltLength":9223372036854775808,"Hash":5}"#,
                "malformed field signerOpts.SaltLength: expected a whole number",
            ),
            (PSS, r#"{"SaltLength":-1,"Hash":5,"SaltLength":0}"#, NO_OBJECT),
            (PSS, r#"{"SaltLength":-2,"Hash":5}"#, "invalid SaltLength -2 in signerOpts"),
            (PSS, r#"{"SaltLength":-1,"Hash":0}"#, "unsupported hash 0 in signerOpts"),
            (PSS, r#"{"SaltLength":-1,"Hash":8}"#, "unsupported hash 8 in signerOpts"),
            (PSS, "5", NO_OBJECT),
            (PSS, "{", NO_OBJECT),
            (PSS, "{}{}", NO_OBJECT),
            (
                HASH,
                r#"{"SaltLength":-1,"Hash":5}"#,
                "malformed field signerOpts: expected the number of a hash, inside a string",
            ),
            (
                HASH,
                "5.0",
                "malformed field signerOpts: expected the number of a hash, inside a string",
            ),
            ("*ed25519.Options", "{}", "unknown signerOptsType \"*ed25519.Options\""),
        ] {
            let actual = SignerOptions::decode(type_name, options).unwrap_err();
            assert_eq!(actual.to_string(), error, "{type_name} {options}");
        }
    }
}
