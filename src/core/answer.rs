//! The answer to a client's request: one JSON document on standard output.
//!
//! A signature can leave only as a [`VerifiedSignature`], which [`verify`](crate::verify::verify)
//! alone makes.

#![forbid(unsafe_code)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::Error;
use crate::process::output::StandardOutput;
use crate::process::output::answer_lost;
use crate::protocol::{API_VERSION, Spelling};
use crate::verify::VerifiedSignature;

/// What the client asked for.
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
}

/// The connection to the client. While one exists, nothing has been answered yet, and modules
/// can't write to it. It sends one document.
pub struct AnswerChannel(StandardOutput);

impl AnswerChannel {
    /// To be called once, before a module is loaded.
    pub fn open() -> Result<Self, Error> {
        StandardOutput::set_aside().map(Self)
    }

    /// Writes the document and a newline.
    pub fn send(mut self, response: &Response<'_>, spelling: Spelling) -> Result<(), Error> {
        let document = response.encode(spelling) + "\n";
        self.0.write(&document).map_err(|error| answer_lost(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::PublicKey;
    use crate::scheme::Scheme;
    use crate::verify::verify;

    // RFC 8032, section 7.1, test 1: the empty message.
    const KEY: [u8; 32] = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07,
        0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07,
        0x51, 0x1a,
    ];
    const SIGNATURE: [u8; 64] = [
        0xe5, 0x56, 0x43, 0x00, 0xc3, 0x60, 0xac, 0x72, 0x90, 0x86, 0xe2, 0xcc, 0x80, 0x6e, 0x82,
        0x8a, 0x84, 0x87, 0x7f, 0x1e, 0xb8, 0xe5, 0xd9, 0x74, 0xd8, 0x73, 0xe0, 0x65, 0x22, 0x49,
        0x01, 0x55, 0x5f, 0xb8, 0x82, 0x15, 0x90, 0xa3, 0x3b, 0xac, 0xc6, 0x1e, 0x39, 0x70, 0x1c,
        0xf9, 0xb4, 0x6b, 0xd2, 0x5b, 0xf5, 0xf0, 0x59, 0x5b, 0xbe, 0x24, 0x65, 0x51, 0x41, 0x43,
        0x8e, 0x7a, 0x10, 0x0b,
    ];

    fn signature() -> VerifiedSignature {
        verify(&PublicKey::Ed25519(KEY), &Scheme::Ed25519, &[], SIGNATURE.to_vec()).unwrap()
    }

    #[test]
    fn each_kind_is_answered_in_the_spelling_it_was_asked_in() {
        let signature = signature();
        let (certificate, signature) =
            (Response::Certificate(&[0xfb, 0xff, 0x00, 0x30]), Response::Signature(&signature));
        let encoded = STANDARD.encode(SIGNATURE);
        for (response, spelling, kind, field, value) in [
            (&certificate, Spelling::Proposal, "CertificateResponse", "certificate", "+/8AMA=="),
            (&certificate, Spelling::Reference, "ExternalPublicKey", "certificate", "+/8AMA=="),
            (&signature, Spelling::Proposal, "SignResponse", "signature", &encoded),
            (&signature, Spelling::Reference, "ExternalSigner", "signature", &encoded),
        ] {
            let version = "external-signer.authentication.k8s.io/v1alpha1";
            assert_eq!(
                response.encode(spelling),
                format!(r#"{{"apiVersion":"{version}","kind":"{kind}","{field}":"{value}"}}"#)
            );
        }
    }
}
