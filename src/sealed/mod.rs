//! Sealed registry passwords: docker's `config.json` as CMS AuthEnvelopedData (RFC 5083) with AES-256-GCM, which
//! the private keys of its recipients open, each inside its token.
//!
//! Sealing needs the recipients' certificates alone. Opening is in two steps, because the middle one is the
//! token's: [`Recipient::lock`] says what the token has to compute, and [`SealedEnvelope::open`] takes its result. Nothing here
//! knows a file or a token.

mod agreement;
mod envelope;
mod error;
mod file;
mod recipient;
mod registries;
mod registry;
mod seal;

pub use envelope::{KeyLock, Recipient, SealedEnvelope};
pub use error::SealedError;
pub use file::{LONGEST_FILE, SealedFile};
pub use recipient::{KeyNames, RecipientName};
pub use registries::{Registries, RegistryError, RegistryLogin};
pub use registry::Registry;
pub use seal::{SealingKey, seal};

#[cfg(test)]
mod tests;
