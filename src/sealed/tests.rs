//! Sealing and opening with keys in memory, in a token's stead.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use rcgen::{
    CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};

use super::*;
use crypto::certificate::Certificate;
use crypto::scheme::LockedSecret;

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
            _ => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        };
        let key = key.unwrap();
        let mut parameters = CertificateParams::default();
        parameters.is_ca = if has_identifier { IsCa::ExplicitNoCa } else { IsCa::NoCa };
        let certificate = parameters.self_signed(&key).unwrap();
        Self {
            certificate: Certificate::from_der(certificate.der(), "the node").unwrap(),
            key: key.serialize_der(),
        }
    }

    /// What a token does.
    fn decrypt(&self, recipient: &Recipient) -> Option<Vec<u8>> {
        match &recipient.locked {
            LockedSecret::Oaep(ciphertext) => {
                let key = PrivateDecryptingKey::from_pkcs8(&self.key).ok()?;
                let key = OaepPrivateDecryptingKey::new(key).ok()?;
                let mut out = vec![0; key.min_output_size()];
                let opened = key.decrypt(&OAEP_SHA256_MGF1SHA256, ciphertext, &mut out, None);
                opened.ok().map(|secret| secret.to_vec())
            }
            LockedSecret::Ecdh { point, .. } => {
                let key = PrivateKey::from_private_key_der(&ECDH_P256, &self.key).ok()?;
                let peer = UnparsedPublicKey::new(&ECDH_P256, point);
                agree(&key, peer, (), |secret| Ok(secret.to_vec())).ok()
            }
        }
    }

    fn recipient<'a>(&self, file: &'a SealedFile) -> Option<&'a Recipient> {
        let names = names(&self.certificate);
        file.recipients.iter().find(|recipient| names.contains(&recipient.name))
    }
}

fn registries() -> Registries {
    Registries::from_config(CONFIG.as_bytes(), "config.json").unwrap()
}

fn sealed_to(node: &Node) -> String {
    NewEnvelope::new(std::slice::from_ref(&node.certificate)).unwrap().seal(&registries()).unwrap()
}

#[test]
fn another_recipients_result_opens_nothing() {
    let one = Node::new("P-256", true);
    let other = Node::new("P-256", true);
    let text = sealed_to(&one);
    let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
    let recipient = &file.recipients[0];
    for decrypted in [other.decrypt(recipient).unwrap(), vec![0; 32], Vec::new()] {
        let error = file.open(recipient, &decrypted).err().unwrap();
        assert_eq!(error.to_string(), "the file is damaged, or was sealed to another key");
    }
}

#[test]
fn the_length_shows_no_password() {
    let length = |password: &str| {
        let login = RegistryLogin::new("a".into(), "u".into(), password.into()).unwrap();
        Registries { logins: vec![login] }.to_config().len()
    };
    assert_eq!(length("p"), 1024);
    assert_eq!(length(&"p".repeat(500)), 1024);
    assert_eq!(length(&"p".repeat(1000)), 2048);
}

/// The structure and the encryption notice it.
#[test]
fn no_bit_of_the_envelope_can_be_flipped() {
    for kind in ["RSA", "P-256"] {
        let node = Node::new(kind, kind == "RSA");
        let text = sealed_to(&node);
        let file = SealedFile::read(text.as_bytes(), "the file").unwrap();
        let original = &file.recipients[0];
        let known = node.decrypt(original).unwrap();
        let (_, mut der) = der::pem::decode_vec(text.as_bytes()).unwrap();
        let open = |der: &[u8]| -> Option<Registries> {
            let text = der::pem::encode_string("CMS", der::pem::LineEnding::LF, der).ok()?;
            let changed = SealedFile::read(text.as_bytes(), "the file").ok()?;
            let recipient = node.recipient(&changed)?;
            // The private key is slow, and so used only for what has changed.
            let decrypted = if recipient.locked == original.locked {
                known.clone()
            } else {
                node.decrypt(recipient)?
            };
            changed.open(recipient, &decrypted).ok()
        };
        assert!(open(&der).is_some());
        for index in 0..der.len() {
            for bit in 0..8 {
                der[index] ^= 1 << bit;
                assert!(open(&der).is_none(), "{kind}: bit {bit} of byte {index}");
                der[index] ^= 1 << bit;
            }
            assert!(open(&der[..index]).is_none(), "{kind}: {index} bytes");
        }
        assert!(open(&[&der[..], b"\0"].concat()).is_none());
    }
}

#[test]
fn other_files_are_refused() {
    for text in [
        "",
        "{\"auths\":{}}",
        "-----BEGIN PKCS7-----\nMAA=\n-----END PKCS7-----\n",
        "MIME-Version: 1.0\n",
        "\u{30}\u{80}",
        "-----BEGIN CMS-----\nMAA=\n",
        "-----BEGIN CMS-----\nM*A=\n-----END CMS-----\n",
        "-----BEGIN CMS-----\nMAA=\n-----END CMS-----\n",
    ] {
        let error = SealedFile::read(text.as_bytes(), "x").unwrap_err();
        assert_eq!(error.exit_code(), 3, "{text}");
        assert!(error.to_string().starts_with("x is no sealed file: "), "{error}");
    }
}

/// Some CAs give longer ones than RFC 5280 allows.
#[test]
fn a_long_serial_number_is_no_fault_of_the_key() {
    let of = |has_identifier: bool| {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut parameters = CertificateParams::default();
        parameters.serial_number = Some(vec![0x7f; 30].into());
        parameters.is_ca = if has_identifier { IsCa::ExplicitNoCa } else { IsCa::NoCa };
        let certificate = parameters.self_signed(&key).unwrap();
        let certificate = Certificate::from_der(certificate.der(), "the node").unwrap();
        Node { certificate, key: key.serialize_der() }
    };
    let node = of(true);
    let file = SealedFile::read(sealed_to(&node).as_bytes(), "the file").unwrap();
    let recipient = node.recipient(&file).unwrap();
    file.open(recipient, &node.decrypt(recipient).unwrap()).unwrap();
    let error = NewEnvelope::new(&[of(false).certificate]).err().unwrap().to_string();
    let reason = ": it has no subject key identifier, and its serial number has more than 20 bytes";
    assert!(error.ends_with(reason), "{error}");
}

#[test]
fn a_config_that_holds_no_passwords_is_refused_without_a_word_of_it() {
    for (config, expected) in [
        ("", "x: it is not the JSON of a config.json (line 1, column 0)"),
        ("[]", "x: it is not the JSON of a config.json (line 1, column 2)"),
        ("{}", "x: it has no entries (auths)"),
        (r#"{"auths":null}"#, "x: it has no entries (auths)"),
        (
            r#"{"auths":{"a":{}},"credsStore":"desktop"}"#,
            "x: a credential helper has the passwords in its stead",
        ),
        (
            r#"{"auths":{"a":{"auth":"YTpi"}},"credHelpers":{"b":"ecr-login"}}"#,
            "x: a credential helper has the passwords in its stead",
        ),
        (r#"{"auths":{"a":{}}}"#, "x: the entry for \"a\" has no user name and password"),
        (
            r#"{"auths":{"a":{"auth":"secret"}}}"#,
            "x: the entry for \"a\" has an auth that is not UTF-8",
        ),
        (
            r#"{"auths":{"a":{"auth":"YTpi","identitytoken":"secret"}}}"#,
            "x: the entry for \"a\" has no user name and password",
        ),
        (
            r#"{"auths":{"a b":{"auth":"YTpi"}}}"#,
            "x: \"a b\" names no registry by HOST, HOST:PORT or HOST/PATH",
        ),
        (
            r#"{"auths":{"a":{"auth":"YTpi"},"https://A/v1/":{"auth":"YTpi"}}}"#,
            "x: there are two entries for a",
        ),
        (
            r#"{"auths":{"a":{"auth":{"secret":1}}}}"#,
            "x: it is not the JSON of a config.json (line 1, column 22)",
        ),
        (
            r#"{"auths":{"a":{"username":"u:v","password":"secret"}}}"#,
            "x: user name (without a colon) and password for a are not one line each",
        ),
        (
            r#"{"auths":{"a":{"username":"u","password":"sec\nret"}}}"#,
            "x: user name (without a colon) and password for a are not one line each",
        ),
    ] {
        let error = Registries::from_config(config.as_bytes(), "x").err().unwrap();
        assert_eq!((error.exit_code(), error.to_string().as_str()), (3, expected), "{config}");
    }
}

#[test]
fn docker_reads_what_is_sealed() {
    let config = registries().to_config();
    assert_eq!(
        config.trim_end(),
        r#"{"auths":{"https://index.docker.io/v1/":{"auth":"amFuZTpzM2NyZXQ="},"registry.example:5000":{"auth":"dXNlcjpwYXNzOndvcmQ="}}}"#
    );
    // docker fills up the password with zeros.
    let padded = r#"{"auths":{"a":{"auth":"dTpwAAA="}}}"#;
    let padded = Registries::from_config(padded.as_bytes(), "config.json").unwrap();
    assert_eq!(padded.logins[0].password, "p");
}
