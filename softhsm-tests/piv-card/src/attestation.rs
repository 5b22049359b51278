//! What Yubico's cards say of a key that was made on them: an attestation certificate, and metadata.
//! `openssl` signs, with a key of its own for each card.
//!
//! In DIRECTORY/attestation of `--state`: `root.pem`, the certificate that stands for Yubico's, and for
//! each slot what the card answers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `scripts/tokens/piv` installs it.
const OPENSSL: &str = "openssl";

/// Algorithms by Yubico's numbers.
const RSA: [u8; 3] = [0x05, 0x07, 0x16];
const P256: u8 = 0x11;
const P384: u8 = 0x14;

/// What stands before the point of an EC key in a SubjectPublicKeyInfo.
const P256_INFO: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
const P384_INFO: &str = "3076301006072a8648ce3d020106052b81040022036200";
/// The algorithm of an RSA key.
const RSA_INFO: &str = "300d06092a864886f70d0101010500";

/// The PIN and the touch policy of a slot, where the command names none.
fn policies_of(slot: u8) -> [u8; 2] {
    match slot {
        0x9c => [3, 1],
        0x9e => [1, 1],
        _ => [2, 1],
    }
}

pub(crate) struct Attestations {
    place: PathBuf,
    serial: u32,
}

impl Attestations {
    pub(crate) fn new(state: &Path, serial: u32) -> Self {
        Self { place: state.join("attestation"), serial }
    }

    /// The certificate of the key in this slot (ATTEST).
    pub(crate) fn certificate(&self, slot: u8) -> Option<Vec<u8>> {
        fs::read(self.file(slot, "der")).ok()
    }

    /// What was written down about the key in this slot (GET METADATA).
    pub(crate) fn metadata(&self, slot: u8) -> Option<Vec<u8>> {
        fs::read(self.file(slot, "metadata")).ok()
    }

    /// Whether the key in this slot wants a touch for each use. (What a cached one lasts is not told apart.)
    pub(crate) fn wants_touch(&self, slot: u8) -> bool {
        let metadata = self.metadata(slot).unwrap_or_default();
        matches!(content(&metadata, 0x02), Some([_, 2 | 3]))
    }

    /// The card's own certificate, as the object that GET DATA gives.
    pub(crate) fn issuer(&self) -> Option<Vec<u8>> {
        let certificate = fs::read(self.place.join("issuer.der")).ok()?;
        let mut content = tagged(&[0x70], &certificate);
        content.extend([0x71, 1, 0, 0xfe, 0]);
        Some(tagged(&[0x53], &content))
    }

    /// Another key, of elsewhere, is in this slot now.
    pub(crate) fn forget(&self, slot: u8) {
        for ending in ["der", "metadata"] {
            let _ = fs::remove_file(self.file(slot, ending));
        }
    }

    /// A key was made in this slot: the command's data and the card's answer.
    pub(crate) fn generated(&self, slot: u8, data: &[u8], answer: &[u8]) -> io::Result<()> {
        let wanted = content(data, 0xac).unwrap_or_default();
        let algorithm = content(wanted, 0x80).and_then(|it| it.first().copied());
        let algorithm = algorithm.unwrap_or_default();
        let mut policies = policies_of(slot);
        for (tag, policy) in [0xaa, 0xab].into_iter().zip(&mut policies) {
            match content(wanted, tag) {
                Some([0]) | None => {}
                Some(named) => *policy = named[0],
            }
        }
        // Without the tag 7F49.
        let key = content(&answer[1..], 0x49).unwrap_or_default();
        fs::create_dir_all(&self.place)?;
        let metadata = [
            tagged(&[0x01], &[algorithm]),
            tagged(&[0x02], &policies),
            tagged(&[0x03], &[1]),
            tagged(&[0x04], key),
        ];
        fs::write(self.file(slot, "metadata"), metadata.concat())?;
        fs::write(self.place.join("key.der"), public_key(algorithm, key))?;
        self.certify(slot, policies)
    }

    fn certify(&self, slot: u8, [pin, touch]: [u8; 2]) -> io::Result<()> {
        if !self.place.join("issuer.der").exists() {
            self.openssl(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
                 -keyout root.key -out root.pem -subj",
                "/CN=Test PIV Root CA",
            )?;
            self.openssl(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -CA root.pem \
                 -CAkey root.key -keyout issuer.key -out issuer.pem -subj",
                "/CN=Test PIV Attestation",
            )?;
            self.openssl("x509 -in issuer.pem -outform der -out", "issuer.der")?;
        }
        let extensions = format!(
            "1.3.6.1.4.1.41482.3.3=DER:060606\n\
             1.3.6.1.4.1.41482.3.7=ASN1:INTEGER:{}\n\
             1.3.6.1.4.1.41482.3.8=DER:{pin:02x}{touch:02x}\n\
             1.3.6.1.4.1.41482.3.9=DER:01\n",
            self.serial
        );
        fs::write(self.place.join("extensions"), extensions)?;
        self.openssl("pkey -pubin -inform der -in key.der -out", "key.pem")?;
        self.openssl(
            &format!(
                "x509 -new -force_pubkey key.pem -CA issuer.pem -CAkey issuer.key -extfile extensions \
                 -days 3650 -outform der -out {slot:02x}.der -subj"
            ),
            &format!("/CN=YubiKey PIV Attestation {slot:02x}"),
        )
    }

    /// The last argument may have blanks in it.
    fn openssl(&self, arguments: &str, last: &str) -> io::Result<()> {
        let mut command = Command::new(OPENSSL);
        command.args(arguments.split(' ')).arg(last);
        let output = command.current_dir(&self.place).output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("openssl {arguments}: {output:?}"))),
        }
    }

    fn file(&self, slot: u8, ending: &str) -> PathBuf {
        self.place.join(format!("{slot:02x}.{ending}"))
    }
}

/// The SubjectPublicKeyInfo of what GENERATE answers.
fn public_key(algorithm: u8, key: &[u8]) -> Vec<u8> {
    let point = |info| [hex(info), content(key, 0x86).unwrap_or_default().to_vec()].concat();
    match algorithm {
        P256 => point(P256_INFO),
        P384 => point(P384_INFO),
        _ if RSA.contains(&algorithm) => {
            let number = |tag| {
                let mut digits = content(key, tag).unwrap_or_default().to_vec();
                if digits.first().is_some_and(|first| *first >= 0x80) {
                    digits.insert(0, 0);
                }
                tagged(&[0x02], &digits)
            };
            let numbers = tagged(&[0x30], &[number(0x81), number(0x82)].concat());
            let bits = tagged(&[0x03], &[&[0], numbers.as_slice()].concat());
            tagged(&[0x30], &[hex(RSA_INFO), bits].concat())
        }
        _ => Vec::new(),
    }
}

/// What a tag of one byte holds, among others on the same level.
fn content(mut data: &[u8], wanted: u8) -> Option<&[u8]> {
    loop {
        let (tag, rest) = data.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
            0x82 => {
                let length = [*rest.first()?, *rest.get(1)?];
                (usize::from(u16::from_be_bytes(length)), rest.get(2..)?)
            }
            length => (usize::from(*length), rest),
        };
        let content = rest.get(..length)?;
        if *tag == wanted {
            return Some(content);
        }
        data = &rest[length..];
    }
}

fn tagged(tag: &[u8], content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        length @ ..0x80 => vec![length as u8],
        length @ ..0x100 => vec![0x81, length as u8],
        length => [&[0x82], (length as u16).to_be_bytes().as_slice()].concat(),
    };
    [tag, &length, content].concat()
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}
