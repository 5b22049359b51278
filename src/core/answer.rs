//! The answer to a client's request: one JSON document on standard output.
//!
//! A signature can leave only as a [`VerifiedSignature`], which [`verify`](crate::verify::verify)
//! alone makes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;
use crate::process::output::{StandardOutput, answer_lost};
use crate::protocol::{API_VERSION, Spelling};
use crate::verify::VerifiedSignature;

pub enum Response<'a> {
    /// The DER of one X.509 certificate; the protocol has no place for intermediates.
    Certificate(&'a [u8]),
    /// Encoded as in TLS: for ECDSA the DER of `SEQUENCE { r, s }`.
    Signature(&'a VerifiedSignature),
}

impl Response<'_> {
    /// The document, without a newline.
    pub fn encode(&self, spelling: Spelling) -> String {
        let (field, value) = match self {
            Self::Certificate(der) => ("certificate", *der),
            Self::Signature(signature) => ("signature", signature.as_bytes()),
        };
        let kind = match (self, spelling) {
            (Self::Certificate(_), Spelling::Proposal) => "CertificateResponse",
            (Self::Certificate(_), Spelling::Reference) => "ExternalPublicKey",
            (Self::Signature(_), Spelling::Proposal) => "SignResponse",
            (Self::Signature(_), Spelling::Reference) => "ExternalSigner",
        };
        // None of the parts has a character that JSON escapes.
        let value = STANDARD.encode(value);
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{kind}","{field}":"{value}"}}"#)
    }

    /// Writes the document, after which nothing else can be answered.
    pub fn send(&self, spelling: Spelling, mut client: StandardOutput) -> Result<(), Error> {
        let document = self.encode(spelling) + "\n";
        client.write(&document).map_err(|error| answer_lost(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::PublicKey;
    use crate::scheme::Scheme;
    use crate::verify::verify;

    // RFC 8032, section 7.1, test 1: the empty message.
    const KEY: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    const SIGNATURE: &str =
        "5VZDAMNgrHKQhuLMgG6CioSHfx645dl02HPgZSJJAVVfuIIVkKM7rMYeOXAc+bRr0lv18FlbviRlUUFDjnoQCw==";

    #[test]
    fn each_kind_is_answered_in_the_spelling_it_was_asked_in() {
        let [key, signature] = [KEY, SIGNATURE].map(|text| STANDARD.decode(text).unwrap());
        let key = PublicKey::Ed25519(key.try_into().unwrap());
        let signature = verify(&key, &Scheme::Ed25519, &[], signature).unwrap();
        let (certificate, signature) =
            (Response::Certificate(&[0xfb, 0xff, 0x00, 0x30]), Response::Signature(&signature));
        for (response, spelling, kind, field, value) in [
            (&certificate, Spelling::Proposal, "CertificateResponse", "certificate", "+/8AMA=="),
            (&certificate, Spelling::Reference, "ExternalPublicKey", "certificate", "+/8AMA=="),
            (&signature, Spelling::Proposal, "SignResponse", "signature", SIGNATURE),
            (&signature, Spelling::Reference, "ExternalSigner", "signature", SIGNATURE),
        ] {
            let version = "external-signer.authentication.k8s.io/v1alpha1";
            assert_eq!(
                response.encode(spelling),
                format!(r#"{{"apiVersion":"{version}","kind":"{kind}","{field}":"{value}"}}"#)
            );
        }
    }
}
