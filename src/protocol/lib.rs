//! The wire of the external signer protocol (docs/protocol.md), as data: decodes a request strictly, field by
//! field. No error of it quotes a value of the configuration.

#![forbid(unsafe_code)]

mod configuration;
pub mod hash;
mod members;
mod request;
mod signer_options;

#[cfg(test)]
mod corpus;

pub use configuration::Configuration;
pub use request::{Operation, Request, SignRequest};
pub use signer_options::{SaltLength, SignerOptions};

use messages::error::{Error, Exit};

/// The only version there is, in the proposal and in the reference implementation.
pub const API_VERSION: &str = "external-signer.authentication.k8s.io/v1alpha1";

/// The names for the kinds that a client uses; it is answered in the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spelling {
    /// `CertificateRequest`, `SignRequest`.
    Proposal,
    /// `Certificate`, `Sign`: the code that came before the proposal's last text.
    Reference,
}

/// Exit code 2: the request can't be answered as it was asked.
pub fn refused(what: impl Into<String>, help: &str) -> Error {
    Error::new(Exit::Request, what).help(help)
}

/// `what` is what the variable holds instead of a request.
pub fn no_request(what: &str) -> Error {
    let help = "EXTERNAL_SIGNER_PLUGIN_CONFIG must hold one JSON object; docs/protocol.md shows a request of each kind";
    refused(format!("the request is not {what}"), help)
}

fn missing(field: &str) -> Error {
    refused(format!("missing field {field}"), DISAGREEMENT)
}

fn malformed(field: &str, expected: &str) -> Error {
    refused(format!("malformed field {field}: expected {expected}"), DISAGREEMENT)
}

const DISAGREEMENT: &str = "the client that wrote the request and this program disagree on the protocol; \
                            docs/protocol.md shows a request of each kind";
