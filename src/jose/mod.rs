//! JSON Web Tokens, and what an API server has to know to take them: the key, the discovery document and
//! the entry in its AuthenticationConfiguration.
//!
//! Sources: RFC 7515 (JWS), 7517 (JWK), 7518 (algorithms), 7519 (JWT), 7638 (thumbprint), OpenID Connect
//! Discovery 1.0. Pure functions; signing is the pipeline's.

#![forbid(unsafe_code)]

mod algorithm;
mod authentication;
mod error;
mod issuer;
mod jwk;
mod jwt;

pub use algorithm::Algorithm;
pub use authentication::TrustedIssuer;
pub use error::JoseError;
pub use issuer::{Issuer, IssuerError};
pub use jwk::Jwk;
pub use jwt::{Claims, UnsignedToken};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Base64 as all of these RFCs use it (RFC 7515, section 2).
fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
