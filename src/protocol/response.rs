//! The answer: exactly one JSON document.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{API_VERSION, Spelling};

/// What was asked for.
pub enum Response<'a> {
    /// The raw DER of one X.509 certificate; the protocol has no place for intermediates.
    Certificate(&'a [u8]),
    /// As TLS carries it: for ECDSA the DER of `SEQUENCE { r, s }`.
    Signature(&'a [u8]),
}

impl Response<'_> {
    /// The document, without a newline.
    pub fn encode(&self, spelling: Spelling) -> String {
        let (kind, field, value) = match (self, spelling) {
            (Self::Certificate(der), Spelling::Proposal) => {
                ("CertificateResponse", "certificate", der)
            }
            (Self::Certificate(der), Spelling::Reference) => {
                ("ExternalPublicKey", "certificate", der)
            }
            (Self::Signature(bytes), Spelling::Proposal) => ("SignResponse", "signature", bytes),
            (Self::Signature(bytes), Spelling::Reference) => ("ExternalSigner", "signature", bytes),
        };
        // None of the parts has a character that JSON escapes.
        let value = STANDARD.encode(value);
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{kind}","{field}":"{value}"}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_answered_in_the_spelling_it_was_asked_in() {
        let bytes: &[u8] = &[0xfb, 0xff, 0x00, 0x30];
        for (response, spelling, rest) in [
            (
                Response::Certificate(bytes),
                Spelling::Proposal,
                r#""kind":"CertificateResponse","certificate":"+/8AMA=="}"#,
            ),
            (
                Response::Certificate(bytes),
                Spelling::Reference,
                r#""kind":"ExternalPublicKey","certificate":"+/8AMA=="}"#,
            ),
            (
                Response::Signature(bytes),
                Spelling::Proposal,
                r#""kind":"SignResponse","signature":"+/8AMA=="}"#,
            ),
            (
                Response::Signature(bytes),
                Spelling::Reference,
                r#""kind":"ExternalSigner","signature":"+/8AMA=="}"#,
            ),
        ] {
            assert_eq!(
                response.encode(spelling),
                format!(
                    r#"{{"apiVersion":"external-signer.authentication.k8s.io/v1alpha1",{rest}"#
                )
            );
        }
    }
}
