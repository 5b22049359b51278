//! Certificates, signature schemes and the verification of what a token has signed. Pure: no file, no network, no token.
//!
//! The modules are listed from the bottom to the top.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod jose;
pub mod scheme;
pub mod verify;
