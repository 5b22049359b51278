//! The answer to a client's request: one JSON document on standard output.
//!
//! A signature can leave only as a [`VerifiedSignature`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use base::error::Error;
use base::process::output::{StandardOutput, answer_lost};
use crypto::verify::VerifiedSignature;
use protocol::{API_VERSION, Spelling};

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
