//! The keys by which the API server verifies tokens, some of which sign.

use std::path::Path;

use crypto::certificate::PublicKey;
use crypto::jose::{TokenAlgorithm, base64url};
use crypto::verify::TokenVerifier;
use files::ownership::read_trusted;
use messages::error::{Error, Exit};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use x509_cert::der::pem;

use crate::key_list::ListedKey;

/// The longest file with public keys, in bytes.
const LONGEST_FILE: u64 = 64 * 1024;
const BEGIN: &str = "-----BEGIN ";

/// A key that is published.
#[derive(Clone, Debug)]
pub(crate) struct PublishedKey {
    /// The `kid` of its tokens: that which an API server gives a key in a file, so that a key that was moved into a token keeps
    /// it (keyIDFromPublicKey in pkg/serviceaccount/jwt.go).
    pub(crate) id: String,
    /// What the list calls it.
    pub(crate) name: String,
    /// SubjectPublicKeyInfo in DER.
    pub(crate) der: Vec<u8>,
    pub(crate) public_key: PublicKey,
    pub(crate) is_hidden: bool,
    /// How it signs; `None` for a key that only others sign with.
    pub(crate) signing: Option<SigningKey>,
}

/// What is the same for all tokens of a key.
#[derive(Clone, Debug)]
pub(crate) struct SigningKey {
    /// The number by which the process of the token knows it.
    pub(crate) number: usize,
    pub(crate) algorithm: TokenAlgorithm,
    pub(crate) verifier: TokenVerifier,
    /// The first part of its tokens, in base64url.
    pub(crate) header: String,
}

impl PublishedKey {
    /// A key on the token, with the number by which the token's process knows it. An error if API servers take no tokens
    /// of such a key.
    pub(crate) fn on_token(
        listed: &ListedKey,
        number: usize,
        public_key: PublicKey,
    ) -> Result<Self, Error> {
        let unfit = |error: Error| error.about(&listed.name);
        let algorithm = TokenAlgorithm::of(&public_key).map_err(unfit)?;
        let verifier = TokenVerifier::new(&public_key).map_err(unfit)?;
        let mut key = Self::new(listed, public_key)?;
        if !listed.is_hidden {
            let header = json!({"alg": algorithm.name, "kid": key.id, "typ": "JWT"});
            let header = base64url(header.to_string().as_bytes());
            key.signing = Some(SigningKey { number, algorithm, verifier, header });
        }
        Ok(key)
    }

    /// The public keys of a file.
    pub(crate) fn in_file(listed: &ListedKey, path: &Path) -> Result<Vec<Self>, Error> {
        let keys = public_keys(path).map_err(|reason| {
            let text = format!("{} holds no public key to publish: {reason}", path.display());
            Error::new(Exit::Object, text).help(format!(
                "name a file with public keys in PEM; of a private key, `openssl pkey -in sa.key -pubout -out {}` writes it",
                path.display()
            ))
        })?;
        keys.into_iter().map(|key| Self::new(listed, key)).collect()
    }

    fn new(listed: &ListedKey, public_key: PublicKey) -> Result<Self, Error> {
        let der = public_key.to_der()?;
        Ok(Self {
            id: base64url(&Sha256::digest(&der)),
            name: listed.name.clone(),
            der,
            public_key,
            is_hidden: listed.is_hidden,
            signing: None,
        })
    }
}

/// The public keys in a PEM file. The error is the reason why there are none.
fn public_keys(path: &Path) -> Result<Vec<PublicKey>, String> {
    let bytes = read_trusted(path, LONGEST_FILE).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not text")?;
    let blocks = text.match_indices(BEGIN).filter_map(|(start, _)| text.get(start..));
    let keys: Vec<_> = blocks.map(public_key).collect::<Result<_, _>>()?;
    if keys.is_empty() { Err("it has no PEM block".to_owned()) } else { Ok(keys) }
}

/// The public key of the PEM block at the beginning of the text.
fn public_key(text: &str) -> Result<PublicKey, String> {
    let (_, rest) = text.split_once("-----END ").ok_or("a PEM block has no end")?;
    let end = rest.find("-----").map_or(rest.len(), |end| end + "-----".len());
    let block = text.get(..text.len() - rest.len() + end).unwrap_or(text);
    let (label, der) = pem::decode_vec(block.as_bytes()).map_err(|error| error.to_string())?;
    if label != "PUBLIC KEY" {
        return Err(format!("a PEM block is a {label}"));
    }
    match PublicKey::from_der(&der)? {
        PublicKey::Ed25519(_) => Err("API servers take no tokens of Ed25519".to_owned()),
        key => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::key_list::KeyPlace;

    /// Made by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 | openssl pkey -pubout`.
    const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7
6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==
-----END PUBLIC KEY-----
";

    fn read(content: &str) -> Result<Vec<PublishedKey>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sa.pub");
        fs::write(&path, content).unwrap();
        let place = KeyPlace::File(path.clone());
        let listed = ListedKey { name: "sa.pub".to_owned(), place, is_hidden: false };
        PublishedKey::in_file(&listed, &path).map_err(|error| error.to_string())
    }

    #[test]
    fn all_keys_of_a_file_are_read() {
        let [first, second] = read(&format!("a remark\n{KEY}{KEY}")).unwrap().try_into().unwrap();
        assert_eq!(first.id, second.id);
        assert_eq!(first.public_key.to_string(), "ECDSA P-256");
        assert!(first.signing.is_none());
    }

    #[test]
    fn what_is_no_public_key_is_refused() {
        let private = KEY.replace("PUBLIC", "EC PRIVATE");
        for (content, reason) in [
            ("", "it has no PEM block"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n", "a PEM block has no end"),
            (&private, "a PEM block is a EC PRIVATE KEY"),
        ] {
            let error = read(content).err().unwrap();
            assert!(error.ends_with(reason), "{error}");
        }
    }
}
