//! Sealing and opening with keys in memory, in a token's stead.

use aws_lc_rs::agreement::{ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use rcgen::{
    CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256, RsaKeySize,
};

use super::*;
use crate::certificate::{Certificate, Curve};

const CONFIG: &str = r#"{"auths":{
    "registry.example:5000":{"auth":"dXNlcjpwYXNzOndvcmQ="},
    "https://index.docker.io/v1/":{"username":"jane","password":"s3cret","email":"jane@example"}},
    "currentContext":"default"}"#;

/// A node: its certificate, and its key in PKCS #8.
struct Node {
    certificate: Certificate,
    key: Vec<u8>,
}

impl Node {
    fn new(kind: &str, has_identifier: bool) -> Self {
        let key = match kind {
            "P-256" => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            "P-384" => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
            "P-521" => KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512),
            "Ed25519" => KeyPair::generate_for(&PKCS_ED25519),
            _ => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        };
        let key = key.unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = match has_identifier {
            true => IsCa::ExplicitNoCa,
            false => IsCa::NoCa,
        };
        let certificate = parameters.self_signed(&key).unwrap();
        Self {
            certificate: Certificate::from_der(certificate.der(), "the node").unwrap(),
            key: key.serialize_der(),
        }
    }

    fn sealing_key(&self) -> SealingKey {
        SealingKey::of(&self.certificate).unwrap()
    }

    /// What a token does.
    fn unlock(&self, lock: &KeyLock) -> Option<Vec<u8>> {
        match lock {
            KeyLock::Oaep { ciphertext, .. } => {
                let key = PrivateDecryptingKey::from_pkcs8(&self.key).ok()?;
                let key = OaepPrivateDecryptingKey::new(key).ok()?;
                let mut out = vec![0; key.min_output_size()];
                let opened = key.decrypt(&OAEP_SHA256_MGF1SHA256, ciphertext, &mut out, None);
                opened.ok().map(|it| it.to_vec())
            }
            KeyLock::Ecdh { curve, point, .. } => {
                let algorithm = match curve {
                    Curve::P256 => &ECDH_P256,
                    Curve::P384 => &ECDH_P384,
                    Curve::P521 => &ECDH_P521,
                };
                let key = PrivateKey::from_private_key_der(algorithm, &self.key).ok()?;
                let peer = UnparsedPublicKey::new(algorithm, point);
                agree(&key, peer, (), |secret| Ok(secret.to_vec())).ok()
            }
        }
    }

    fn open(&self, text: &[u8]) -> Option<Registries> {
        let file = SealedFile::read(text, "the file").ok()?;
        let names = KeyNames::of(&self.certificate);
        let mut own = file.envelope.recipients.iter();
        let own = own.find(|it| names.contains(&it.name))?;
        file.open(&own.lock, &self.unlock(&own.lock)?).ok()
    }
}

fn registries() -> Registries {
    Registries::from_config(CONFIG.as_bytes()).unwrap()
}

fn sealed_to(nodes: &[&Node]) -> String {
    let keys: Vec<_> = nodes.iter().map(|it| it.sealing_key()).collect();
    seal(&registries(), &keys).unwrap()
}

fn logins(registries: &Registries) -> Vec<(String, &str, &str)> {
    let logins = registries.logins().iter();
    logins.map(|it| (it.registry.to_string(), it.username.as_str(), it.password.as_str())).collect()
}

#[test]
fn each_recipient_opens_it_and_no_other() {
    let kinds = [("P-256", true), ("P-384", false), ("P-521", true), ("RSA", true), ("RSA", false)];
    let nodes: Vec<_> = kinds.iter().map(|(kind, id)| Node::new(kind, *id)).collect();
    let text = sealed_to(&nodes.iter().collect::<Vec<_>>());
    for node in &nodes {
        let opened = node.open(text.as_bytes()).unwrap();
        assert_eq!(
            logins(&opened),
            [
                ("docker.io".to_owned(), "jane", "s3cret"),
                ("registry.example:5000".to_owned(), "user", "pass:word"),
            ]
        );
    }
    assert!(Node::new("P-256", true).open(text.as_bytes()).is_none());
    let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
    assert_eq!(file.describe(), "docker.io, registry.example:5000");
    assert_eq!(file.envelope.recipients.len(), 5);
}

#[test]
fn another_recipients_result_opens_nothing() {
    let (one, other) = (Node::new("P-256", true), Node::new("P-256", true));
    let text = sealed_to(&[&one]);
    let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
    let lock = &file.envelope.recipients[0].lock;
    for unlocked in [other.unlock(lock).unwrap(), vec![0; 32], Vec::new()] {
        let error = file.open(lock, &unlocked).unwrap_err();
        assert!(matches!(error, SealedError::NotOpened { .. }), "{error}");
    }
}

#[test]
fn no_bit_can_be_flipped_and_nothing_be_cut_off() {
    let nodes = [Node::new("P-256", true), Node::new("P-256", false)];
    let text = sealed_to(&[&nodes[0], &nodes[1]]);
    let mut bytes = text.clone().into_bytes();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            bytes[place] ^= 1 << bit;
            assert!(SealedFile::read(&bytes, "the file").is_err(), "bit {bit} of byte {place}");
            bytes[place] ^= 1 << bit;
        }
        assert!(SealedFile::read(&bytes[..place], "the file").is_err());
    }
    assert!(nodes[1].open(&bytes).is_some());
}

/// Without the checksum, as openssl writes it: the structure and the encryption have to notice.
#[test]
fn no_bit_of_the_envelope_can_be_flipped() {
    for kind in ["RSA", "P-256"] {
        let node = Node::new(kind, kind == "RSA");
        let text = sealed_to(&[&node]);
        let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
        let known = node.unlock(&file.envelope.recipients[0].lock).unwrap();
        let names = KeyNames::of(&node.certificate);
        let base64: String = text.split("-----").nth(2).unwrap().split('\n').collect();
        use base64::Engine as _;
        let mut der = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
        let open = |der: &[u8]| -> Option<Registries> {
            let text = file::written(None, der);
            let changed = SealedFile::read(text.as_bytes(), "the file").ok()?;
            let mut own = changed.envelope.recipients.iter();
            let own = own.find(|it| names.contains(&it.name))?;
            let original = &file.envelope.recipients[0].lock;
            // The private key is slow, and so used only for what has changed.
            let unlocked = match (&own.lock, original) {
                (
                    KeyLock::Oaep { hash, mask_hash, ciphertext },
                    KeyLock::Oaep { hash: hash2, mask_hash: mask2, ciphertext: ciphertext2 },
                ) if ciphertext == ciphertext2 => {
                    // Another hash is other padding, which the token refuses.
                    if (hash, mask_hash) != (hash2, mask2) {
                        return None;
                    }
                    known.clone()
                }
                (KeyLock::Ecdh { point, .. }, KeyLock::Ecdh { point: point2, .. })
                    if point == point2 =>
                {
                    known.clone()
                }
                (lock, _) => node.unlock(lock)?,
            };
            changed.open(&own.lock, &unlocked).ok()
        };
        assert!(open(&der).is_some());
        for place in 0..der.len() {
            for bit in 0..8 {
                der[place] ^= 1 << bit;
                assert!(open(&der).is_none(), "{kind}: bit {bit} of byte {place}");
                der[place] ^= 1 << bit;
            }
            assert!(open(&der[..place]).is_none(), "{kind}: {place} bytes");
        }
        assert!(open(&[&der[..], b"\0"].concat()).is_none());
    }
}

#[test]
fn names_beside_the_envelope_have_to_be_those_in_it() {
    let node = Node::new("P-256", true);
    let text = sealed_to(&[&node]);
    let base64: String = text.split("-----").nth(2).unwrap().split('\n').collect();
    use base64::Engine as _;
    let der = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    let other = [Registry::parse("registry.example:5000").unwrap()];
    let text = file::written(Some(&other), &der);
    let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
    let lock = &file.envelope.recipients[0].lock;
    let error = file.open(lock, &node.unlock(lock).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the file is damaged: it has other registries than it says");
}

#[test]
fn a_key_that_only_signs_is_refused() {
    let node = Node::new("Ed25519", true);
    let error = SealingKey::of(&node.certificate).err().unwrap();
    assert!(error.to_string().ends_with("Ed25519 only signs"), "{error}");
    let error = seal(&registries(), &[]).unwrap_err();
    assert!(matches!(error, SealedError::NoRecipient));
}

#[test]
fn other_files_say_what_they_are() {
    let reason = |bytes: &[u8]| SealedFile::read(bytes, "x").unwrap_err().to_string();
    for (text, expected) in [
        ("", "it is empty"),
        ("{\"auths\":{}}", "it is JSON, with readable passwords"),
        ("hello", "no line -----BEGIN CMS-----"),
        ("-----BEGIN CMS-----\r\nMAA=\r\n-----END CMS-----\r\n", "carriage return"),
        ("-----BEGIN PKCS7-----\nMAA=\n-----END PKCS7-----\n", "it is PKCS #7"),
        ("MIME-Version: 1.0\n", "it is S/MIME"),
        ("\u{30}\u{80}", "it is in DER"),
        ("-----BEGIN CMS-----\nMAA=\n", "does not end"),
        ("-----BEGIN CMS-----\nM*A=\n-----END CMS-----\n", "base64"),
        ("-----BEGIN CMS-----\nMAA=\n-----END CMS-----\n", "DER does not parse"),
        ("Hello\n-----BEGIN CMS-----\nMAA=\n-----END CMS-----\n", "not of this program"),
        ("-----BEGIN CMS-----\nMA\nA=\n-----END CMS-----\n", "its form is wrong"),
    ] {
        assert!(reason(text.as_bytes()).contains(expected), "{}", reason(text.as_bytes()));
    }
    assert!(reason(b"\xff\xfe").contains("it is not text"));
}

fn refused(config: &str) -> String {
    Registries::from_config(config.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_config_that_holds_no_passwords_is_refused_without_a_word_of_it() {
    for (config, expected) in [
        ("", "it is not the JSON of a config.json (line 1, column 0)"),
        ("[]", "it is not the JSON of a config.json (line 1, column 0)"),
        ("{}", "it has no entries (auths)"),
        (r#"{"auths":null}"#, "it has no entries (auths)"),
        (
            r#"{"auths":{"a":{}},"credsStore":"desktop"}"#,
            "it names the credential helper \"desktop\" (credsStore), which has the passwords in its stead",
        ),
        (
            r#"{"auths":{"a":{"auth":"YTpi"}},"credHelpers":{"b":"ecr-login"}}"#,
            "it names the credential helper \"ecr-login for b\" (credHelpers), which has the passwords in \
             its stead",
        ),
        (r#"{"auths":{"a":{}}}"#, "the entry for \"a\" has no user name and password"),
        (
            r#"{"auths":{"a":{"auth":"secret"}}}"#,
            "the entry for \"a\" has no user name and password",
        ),
        (
            r#"{"auths":{"a":{"identitytoken":"secret"}}}"#,
            "the entry for \"a\" has identitytoken instead of a password",
        ),
        (r#"{"auths":{"a b":{"auth":"YTpi"}}}"#, "\"a b\" names no registry"),
        (
            r#"{"auths":{"a":{"auth":"YTpi"},"https://A/v1/":{"auth":"YTpi"}}}"#,
            "there are two entries for a",
        ),
        (r#"{"auths":{"a":{"auth":"YTpi"},"a":{"auth":"YTpi"}}}"#, "there are two entries for a"),
        (
            r#"{"auths":{"a":{"auth":{"secret":1}}}}"#,
            "it is not the JSON of a config.json (line 1, column 22)",
        ),
        (
            r#"{"auths":{"a":{"username":"u:v","password":"secret"}}}"#,
            "the user name for a has a colon, is empty or is not one line",
        ),
        (
            r#"{"auths":{"a":{"username":"u","password":"sec\nret"}}}"#,
            "the password for a is empty or is not one line",
        ),
    ] {
        assert_eq!(refused(config), expected, "{config}");
    }
}

#[test]
fn docker_reads_what_is_sealed() {
    let config = registries().to_config();
    assert_eq!(
        config,
        r#"{"auths":{"https://index.docker.io/v1/":{"auth":"amFuZTpzM2NyZXQ="},"registry.example:5000":{"auth":"dXNlcjpwYXNzOndvcmQ="}}}"#
    );
    // docker fills up the password with zeros.
    let padded = r#"{"auths":{"a":{"auth":"dTpwAAA="}}}"#;
    let padded = Registries::from_config(padded.as_bytes()).unwrap();
    assert_eq!(padded.logins()[0].password, "p");
}
