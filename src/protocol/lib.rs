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

/// The names that a client uses for the kinds. The answer uses the same ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spelling {
    /// The kinds are `CertificateRequest` and `SignRequest`.
    Proposal,
    /// The kinds are `Certificate` and `Sign`, as in the code from before the proposal's last text.
    Reference,
}

/// The error (exit code 2) for a request that can't be answered as it was asked.
pub fn refused(what: impl Into<String>, help: &str) -> Error {
    Error::new(Exit::Request, what).help(help)
}

/// The error that there is no request; `what` is what the variable holds instead.
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
