//! Attestations of devices other than YubiKeys. A program of the administrator's judges them, by a question and an
//! answer in JSON.
//!
//! The question has the attestation and the key that the request is for. The answer has the key that the attestation is
//! about, the device that holds it, and what is shown of it. An answer that is anything else is a refusal.

use std::fmt::{self, Display};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::bundle::OtherStatement;
use crate::policy::API_VERSION;
use crate::yubikey::HARDWARE_GROUPS;
use messages::printable::{excerpt, is_harmful, printable};

/// The question's `kind`.
const QUESTION: &str = "Attestation";
/// The answer's `kind`.
const ANSWER: &str = "AttestationClaims";

/// The most bytes of an answer.
pub const LONGEST_ANSWER: u64 = 16 * 1024;
/// The most bytes of a device's name.
const LONGEST_NAME: usize = 64;
/// The most bytes of one claim.
const LONGEST_CLAIM: usize = 200;
/// The most claims of an answer.
const MOST_CLAIMS: usize = 16;

/// A program that judges the attestations of devices that this crate doesn't know.
pub trait ExternalVerifier {
    /// The name of the program's file, for people.
    fn name(&self) -> &str;

    /// The SHA-256 of the program's file, in hexadecimal digits.
    fn sha256(&self) -> &str;

    /// Runs the program with this question, in JSON, and returns what it prints, which has at most [`LONGEST_ANSWER`] bytes.
    /// The error says in a line why there is no answer.
    fn answer(&self, question: &str) -> Result<Vec<u8>, String>;
}

/// What a verifier says of a key. It is shown as `laptop-17: made in its TPM, can't leave it, says verify-tpm`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceClaims {
    /// The device that holds the key, in the verifier's words: letters, digits, `.`, `_` and `-`.
    pub device: String,
    /// What is shown of the key, for people. There is at least one claim.
    pub claims: Vec<String>,
    /// The verifier's name.
    pub verifier: String,
    /// The SHA-256 of the verifier's file, in hexadecimal digits.
    pub verifier_sha256: String,
}

impl DeviceClaims {
    /// The groups that the claims open: `hw:attested`, and `hw:device:laptop-17` for this device alone.
    pub fn groups(&self) -> [String; 2] {
        let device = &self.device;
        [format!("{HARDWARE_GROUPS}attested"), format!("{HARDWARE_GROUPS}device:{device}")]
    }
}

impl Display for DeviceClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, claims, verifier, .. } = self;
        write!(f, "{device}: {}, says {}", claims.join(", "), printable(verifier))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    api_version: &'static str,
    kind: &'static str,
    /// The SubjectPublicKeyInfo of the request, in DER and base64. All the following are in base64, too.
    public_key: String,
    /// The statement's type: an object identifier, such as `2.23.133.20.1`.
    r#type: String,
    statement: String,
    certificates: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Answer {
    api_version: String,
    kind: String,
    /// The SubjectPublicKeyInfo of the key that the attestation is about, in DER and base64.
    public_key: String,
    device: String,
    claims: Vec<String>,
}

/// Has a verifier judge an attestation, which comes with these certificates in a request for this key
/// (SubjectPublicKeyInfo in DER).
pub(crate) fn judge(
    verifier: &dyn ExternalVerifier,
    statement: &OtherStatement,
    certificates: &[Vec<u8>],
    public_key_info: &[u8],
) -> Result<DeviceClaims, Refusal> {
    let refused =
        |reason: String| Refusal::ByVerifier { verifier: verifier.name().to_owned(), reason };
    let question = Question {
        api_version: API_VERSION,
        kind: QUESTION,
        public_key: STANDARD.encode(public_key_info),
        r#type: statement.kind.to_string(),
        statement: STANDARD.encode(&statement.der),
        certificates: certificates.iter().map(|der| STANDARD.encode(der)).collect(),
    };
    let question = serde_json::to_string(&question).map_err(|error| refused(error.to_string()))?;
    let answer = verifier.answer(&question).map_err(refused)?;
    let Answer { device, claims, .. } = Answer::read(&answer, public_key_info)
        .map_err(|reason| refused(format!("its answer can't be used: {reason}")))?;
    let (verifier, verifier_sha256) = (verifier.name().to_owned(), verifier.sha256().to_owned());
    Ok(DeviceClaims { device, claims, verifier, verifier_sha256 })
}

impl Answer {
    fn read(json: &[u8], public_key_info: &[u8]) -> Result<Self, String> {
        let answer: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        for (field, found, wanted) in
            [("apiVersion", &answer.api_version, API_VERSION), ("kind", &answer.kind, ANSWER)]
        {
            if found != wanted {
                return Err(format!("its {field} {:?} is not {wanted}", excerpt(found)));
            }
        }
        if STANDARD.decode(&answer.public_key).ok().as_deref() != Some(public_key_info) {
            return Err("it is about another key than the request's".to_owned());
        }
        answer.check_device()?;
        answer.check_claims()?;
        Ok(answer)
    }

    /// Checks the device's name, which becomes a part of a group's.
    fn check_device(&self) -> Result<(), String> {
        if is_device_name(&self.device) {
            return Ok(());
        }
        Err(format!("its device {:?} is not {DEVICE_NAME}", excerpt(&self.device)))
    }

    fn check_claims(&self) -> Result<(), String> {
        let is_fit = |claim: &String| {
            (1..=LONGEST_CLAIM).contains(&claim.trim().len()) && !claim.chars().any(is_harmful)
        };
        match self.claims.len() {
            0 => Err("it has no claims".to_owned()),
            1..=MOST_CLAIMS if self.claims.iter().all(is_fit) => Ok(()),
            1..=MOST_CLAIMS => Err(format!(
                "each claim is a line of 1 to {LONGEST_CLAIM} bytes without control characters"
            )),
            count => Err(format!("it has {count} claims, and {MOST_CLAIMS} are the most")),
        }
    }
}

/// What the name of a device can be, for messages.
pub(crate) const DEVICE_NAME: &str = "1 to 64 letters, digits, '.', '_' and '-'";

/// Whether this can be the name of a device. It becomes a part of a group's.
pub(crate) fn is_device_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use const_oid::ObjectIdentifier;
    use serde_json::{Value, json};

    use super::*;

    const KEY: &[u8] = b"a SubjectPublicKeyInfo";

    /// Gives the same answer always, and keeps the question.
    struct Fixed {
        answer: Result<Vec<u8>, String>,
        question: RefCell<String>,
    }

    impl ExternalVerifier for Fixed {
        fn name(&self) -> &str {
            "verify"
        }

        fn sha256(&self) -> &str {
            "0f5a"
        }

        fn answer(&self, question: &str) -> Result<Vec<u8>, String> {
            *self.question.borrow_mut() = question.to_owned();
            self.answer.clone()
        }
    }

    fn judged(answer: Result<Vec<u8>, String>) -> (Result<DeviceClaims, Refusal>, Value) {
        let kind = ObjectIdentifier::new_unwrap("2.23.133.20.1");
        let statement = OtherStatement { kind, der: b"statement".to_vec() };
        let verifier = Fixed { answer, question: RefCell::default() };
        let judged = judge(&verifier, &statement, &[b"certificate".to_vec()], KEY);
        let question = serde_json::from_str(&verifier.question.borrow()).unwrap();
        (judged, question)
    }

    fn answer() -> Value {
        json!({
            "apiVersion": "pkcs11-external-signer/v1alpha1",
            "kind": "AttestationClaims",
            "publicKey": STANDARD.encode(KEY),
            "device": "laptop-17",
            "claims": ["made in its TPM", "can't leave it"],
        })
    }

    #[test]
    fn a_verifier_is_asked_for_what_it_needs_and_its_answer_is_kept() {
        let (judged, question) = judged(Ok(answer().to_string().into_bytes()));
        let expected = json!({
            "apiVersion": "pkcs11-external-signer/v1alpha1",
            "kind": "Attestation",
            "publicKey": STANDARD.encode(KEY),
            "type": "2.23.133.20.1",
            "statement": STANDARD.encode("statement"),
            "certificates": [STANDARD.encode("certificate")],
        });
        assert_eq!(question, expected);
        let claims = judged.unwrap();
        let shown = "laptop-17: made in its TPM, can't leave it, says verify";
        assert_eq!(claims.to_string(), shown);
        assert_eq!(claims.groups(), ["hw:attested", "hw:device:laptop-17"]);
        assert_eq!(claims.verifier_sha256, "0f5a");
    }

    #[test]
    fn any_other_answer_is_a_refusal_with_its_reason() {
        let with = |field: &str, value: Value| {
            let mut changed = answer();
            changed[field] = value;
            changed.to_string()
        };
        let mut lacking = answer();
        lacking.as_object_mut().unwrap().remove("claims");
        for (answer, reason) in [
            (String::new(), "EOF while parsing"),
            ("yes".to_owned(), "expected value"),
            (format!("{}{}", answer(), answer()), "trailing characters"),
            (with("more", json!(1)), "unknown field `more`"),
            (lacking.to_string(), "missing field `claims`"),
            (with("apiVersion", json!("v2")), "its apiVersion \"v2\" is not"),
            (with("kind", json!("Claims")), "its kind \"Claims\" is not AttestationClaims"),
            (with("publicKey", json!("AAAA")), "it is about another key than the request's"),
            (with("publicKey", json!("?")), "it is about another key than the request's"),
            (with("device", json!("")), "its device \"\" is not 1 to 64 letters"),
            (with("device", json!("a:b")), "its device \"a:b\" is not 1 to 64 letters"),
            (with("device", json!("x".repeat(65))), "is not 1 to 64 letters"),
            (with("claims", json!([])), "it has no claims"),
            (with("claims", json!([" "])), "each claim is a line"),
            (with("claims", json!(["a\nb"])), "each claim is a line"),
            (with("claims", json!(vec!["a"; 17])), "it has 17 claims, and 16 are the most"),
        ] {
            let refusal = judged(Ok(answer.clone().into_bytes())).0.unwrap_err().to_string();
            assert!(refusal.starts_with("verify: its answer can't be used: "), "{refusal}");
            assert!(refusal.contains(reason), "{answer}: {refusal}");
        }
        let refusal = judged(Err("it ended with exit code 1".to_owned())).0.unwrap_err();
        assert_eq!(refusal.to_string(), "verify: it ended with exit code 1");
    }
}
