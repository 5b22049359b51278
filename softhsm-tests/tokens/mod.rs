//! Tokens other than SoftHSM's: the same requests, through the modules that operators have. Each is
//! set up by the script of its name in `scripts/tokens`; what was seen stands in `docs/tokens.md`.
//!
//! What takes long to set up is ignored here, and `scripts/test --all` runs it.

mod conformance;
mod differences;
mod environment;
mod guide;
mod kryoptic;
mod nss;
mod opencryptoki;
mod opening;
mod opensc;
mod p11_kit;
mod piv;
mod tpm2;
