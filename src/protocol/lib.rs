//! The wire of the external signer protocol (docs/protocol.md), as data: decodes a request strictly, field by
//! field. No error of it quotes a value of the configuration.

#![forbid(unsafe_code)]

mod configuration;
mod error;
mod members;
mod request;
mod signer_options;

#[cfg(test)]
mod corpus;

pub use configuration::Configuration;
pub use error::{no_request, refused};
pub use request::{Operation, Request, SignRequest};
pub use signer_options::{SaltLength, SignerOptions};

/// The only version there is, in the proposal and in the reference implementation.
pub const API_VERSION: &str = "external-signer.authentication.k8s.io/v1alpha1";

/// Whose names for the kinds a client uses; it is answered in the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spelling {
    /// `CertificateRequest`, `SignRequest`.
    Proposal,
    /// `Certificate`, `Sign`: the code that came before the proposal's last text.
    Reference,
}
