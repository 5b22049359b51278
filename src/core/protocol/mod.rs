//! The wire of the external signer protocol, as data.
//!
//! Decodes one request strictly, field by field, and encodes exactly one answer. It knows no
//! environment, no file and no token, and no error of it quotes a value of the configuration.
//! Source: the enhancement proposal "External TLS certificate authenticator", and for what that
//! leaves open, its reference implementation; `docs/protocol.md` has both.

mod configuration;
mod error;
mod members;
mod request;
mod signer_options;

#[cfg(test)]
mod corpus;

pub use configuration::Configuration;
pub(crate) use error::{no_request, refused};
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
