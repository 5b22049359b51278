//! Sealed registry passwords: docker's `config.json` as CMS AuthEnvelopedData (RFC 5083) with AES-256-GCM, which
//! the private keys of its recipients open, each inside its token.
//!
//! Sealing needs the recipients' certificates alone. Opening is in two steps, because the middle one is the
//! token's: [`Recipient::locked`] is what the token has to decrypt, and [`SealedFile::open`] takes its result. Nothing here
//! knows a token.

#![forbid(unsafe_code)]

pub mod credential_provider;

mod encoding;
mod envelope;
mod registries;
mod registry;
mod seal;

pub use envelope::{Recipient, SealedFile, describe, names};
pub use registries::{ImageLogin, Registries, RegistryLogin};
pub use registry::Registry;
pub use seal::NewEnvelope;

#[cfg(test)]
mod tests;
