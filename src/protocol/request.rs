//! The request: one JSON object, decoded strictly.
//!
//! It is refused for the first thing that is wrong, in this order: JSON, apiVersion, kind, the
//! kind's fields. Other fields pass, as the protocol may grow.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::members::Members;
use super::signer_options::SignerOptions;
use super::{API_VERSION, Configuration, Spelling};
use super::{malformed, no_request, refused};
use messages::error::Error;
use messages::printable::excerpt;

/// A request that has everything that its kind needs.
pub struct Request {
    pub spelling: Spelling,
    pub configuration: Configuration,
    pub operation: Operation,
}

/// What the client asks for.
pub enum Operation {
    /// The certificate of the key that the configuration names.
    Certificate,
    /// A signature of that key.
    Sign(SignRequest),
}

/// What is to be signed, and how.
pub struct SignRequest {
    /// The digest, as long as the hash in `options`. Without a hash, this is the message, which may have any length but
    /// 0.
    pub digest: Vec<u8>,
    pub options: SignerOptions,
}

impl Request {
    /// Decodes a request. The error names the first thing that is wrong with it, and quotes no value of its
    /// configuration.
    pub fn decode(text: &str) -> Result<Self, Error> {
        // Only the place of the error is told: the rest of serde_json's text quotes the request.
        let fields: Members<'_> = serde_json::from_str(text).map_err(|error| {
            let line = error.line();
            let column = error.column();
            no_request(&format!("a JSON object with each key once (line {line}, column {column})"))
        })?;
        let version = fields.read::<String>("apiVersion", "a string")?;
        if version != API_VERSION {
            return Err(refused(
                format!("unsupported apiVersion \"{}\"", excerpt(&version)),
                "this program understands external-signer.authentication.k8s.io/v1alpha1",
            ));
        }
        let kind = fields.read::<String>("kind", "a string")?;
        let (spelling, signs) = match kind.as_str() {
            "CertificateRequest" => (Spelling::Proposal, false),
            "SignRequest" => (Spelling::Proposal, true),
            "Certificate" => (Spelling::Reference, false),
            "Sign" => (Spelling::Reference, true),
            other => {
                return Err(refused(
                    format!("unknown kind \"{}\"", excerpt(other)),
                    "the kinds are CertificateRequest and SignRequest",
                ));
            }
        };
        let raw: &RawValue = fields.read("configuration", "an object of strings")?;
        let configuration = Configuration::decode(raw)?;
        let operation = if signs {
            Operation::Sign(SignRequest::decode(&fields)?)
        } else {
            Operation::Certificate
        };
        Ok(Self { spelling, configuration, operation })
    }
}

impl SignRequest {
    fn decode(fields: &Members<'_>) -> Result<Self, Error> {
        const BASE64: &str = "base64, standard alphabet and padded";
        let digest = STANDARD
            .decode(fields.read::<String>("digest", BASE64)?)
            .map_err(|_| malformed("digest", BASE64))?;
        let options = SignerOptions::decode(
            &fields.read::<String>("signerOptsType", "a string")?,
            &fields.read::<String>("signerOpts", "a JSON document inside a string")?,
        )?;
        let length = digest.len();
        let fault = match options.hash() {
            _ if digest.is_empty() => "the digest is empty".to_owned(),
            Some(hash) if length != hash.length() => {
                format!("the digest has {length} bytes, but a {hash} digest has {}", hash.length())
            }
            _ => return Ok(Self { digest, options }),
        };
        Err(refused(fault, "the digest must be made with the hash that signerOpts names"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "s3cr3t-pin";

    fn error(text: &str) -> String {
        Request::decode(text).err().unwrap().to_string()
    }

    /// A sign request that decodes.
    fn sign_request() -> String {
        let digest = STANDARD.encode([7; 32]);
        format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"SignRequest","digest":"{digest}","configuration":{{"pathLib":"/l.so","pin":"{PIN}","slotId":"5"}},"signerOptsType":"crypto.Hash","signerOpts":"5"}}"#
        )
    }

    #[test]
    fn faults_are_found_in_the_protocols_order() {
        let mut text = String::from(r#"{"digest":"!","digest":"!""#);
        let no_object = "the request is not a JSON object with each key once (line 1, column 26)";
        assert_eq!(error(&text), no_object);
        text.push('}');
        assert!(error(&text).starts_with("the request is not a JSON object with each key once"));
        text = text.replacen(r#","digest":"!""#, "", 1);
        assert_eq!(error(&text), "missing field apiVersion");
        text.insert_str(1, r#""apiVersion":"v1","#);
        assert_eq!(error(&text), "unsupported apiVersion \"v1\"");
        text = text.replace("v1", API_VERSION);
        assert_eq!(error(&text), "missing field kind");
        text.insert_str(1, r#""kind":"Signature","#);
        assert_eq!(error(&text), "unknown kind \"Signature\"");
        text = text.replace("Signature", "SignRequest");
        assert_eq!(error(&text), "missing field configuration");
        text.insert_str(1, r#""configuration":{},"#);
        assert_eq!(
            error(&text),
            "malformed field digest: expected base64, standard alphabet and padded"
        );
        text = text.replace(r#""digest":"!""#, r#""digest":"""#);
        assert_eq!(error(&text), "missing field signerOptsType");
        text.insert_str(1, r#""signerOptsType":"crypto.Hash","#);
        assert_eq!(error(&text), "missing field signerOpts");
        text.insert_str(1, r#""signerOpts":"0","#);
        assert_eq!(error(&text), "the digest is empty");
        text = text.replace(r#""digest":"""#, r#""digest":"AA==""#);
        assert!(Request::decode(&text).is_ok());
        text = text.replace(r#""signerOpts":"0""#, r#""signerOpts":"5""#);
        assert_eq!(error(&text), "the digest has 1 bytes, but a SHA-256 digest has 32");
    }

    #[test]
    fn documents_of_other_types_are_no_request() {
        let json = ["null", "5", "[]", r#""text""#, r#"[{"apiVersion":1}]"#];
        let none = ["", " ", "{", "[1,", "{} {}", "\u{feff}{}", "{'a':1}", r#"{"\ud800":1}"#];
        for text in json.into_iter().chain(none) {
            assert!(error(text).starts_with("the request is not a JSON object"), "{text}");
        }
    }

    #[test]
    fn only_standard_padded_base64_is_a_digest() {
        let good = STANDARD.encode([0xfb; 32]);
        for bad in [good.replace('+', "-"), good.replace('=', ""), format!("{good}\\n")] {
            let text = sign_request().replace(&STANDARD.encode([7; 32]), &bad);
            assert_eq!(
                error(&text),
                "malformed field digest: expected base64, standard alphabet and padded"
            );
        }
    }

    #[test]
    fn a_certificate_request_needs_no_field_of_a_sign_request() {
        let text = sign_request().replace("SignRequest", "CertificateRequest");
        let text = text.replace(r#""signerOpts":"5""#, r#""signerOpts":5"#);
        let request = Request::decode(&text).ok().unwrap();
        assert!(matches!(request.operation, Operation::Certificate));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = "[".repeat(60_000) + &"]".repeat(60_000);
        let field = |from: &str, to: &str| sign_request().replacen(from, to, 1);
        assert!(Request::decode(&field("{", &format!(r#"{{"unknown":{deep},"#))).is_ok());
        assert!(error(&deep).starts_with("the request is not a JSON object"));
        assert_eq!(
            error(&field(r#""/l.so""#, &deep)),
            "malformed field configuration.pathLib: expected a string"
        );
        assert_eq!(
            error(&field(
                r#""crypto.Hash","signerOpts":"5""#,
                &format!(r#""*rsa.PSSOptions","signerOpts":"{{\"Hash\":{deep}}}""#)
            )),
            "malformed field signerOpts.Hash: expected the number of a hash"
        );
    }

    #[test]
    fn no_error_quotes_the_pin() {
        let text = sign_request();
        for position in 0..text.len() {
            for replacement in ["", "\"", "{", "}", "[", ",", ":", "\\", "0"] {
                let mut damaged = text.clone();
                damaged.replace_range(position..=position, replacement);
                for damaged in [&damaged, &damaged[..position]] {
                    if let Err(error) = Request::decode(damaged) {
                        let shown = format!("{error} {error:?}");
                        assert!(!shown.contains(PIN), "{damaged}: {shown}");
                    }
                }
            }
        }
    }
}
