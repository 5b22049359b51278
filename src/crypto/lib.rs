//! Certificates, signature schemes and the verification of what a token has signed. Pure: no file, no network, no token.
//!
//! The modules are listed from the bottom to the top.

#![forbid(unsafe_code)]

// What a certificate says of its key, its holder and its validity.
pub mod certificate;
// The signature scheme that a request's options and a public key ask for.
pub mod scheme;
// Verifies a signature with the certificate's public key; the only source of a `VerifiedSignature`.
pub mod verify;
// JSON Web Tokens that API servers take, as data.
pub mod jose;
