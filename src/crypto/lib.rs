//! Certificates, signature schemes and the verification of what a token has signed. Pure: no file, no network, no token.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod jose;
pub mod scheme;
pub mod verify;
