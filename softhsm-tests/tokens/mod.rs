//! Tokens other than SoftHSM's: the same requests, through the modules that operators have. Each is
//! set up by the script of its name in `scripts/tokens`; what was seen stands in `docs/tokens.md`.
//!
//! What takes long to set up is ignored here, and `scripts/test --all` runs it.

/// What every module has to do.
mod conformance;
/// What a script sets up, for as long as a test needs it.
mod environment;
/// The commands of docs/tokens.md.
mod guide;
/// kryoptic: PIN flags, the lock, and what the program pads by itself.
mod kryoptic;
/// NSS, which has to be told where its databases are.
mod nss;
/// opencryptoki's soft token.
mod opencryptoki;
/// Sealed files, opened by a token.
mod opening;
/// OpenSC without a card.
mod opensc;
/// p11-kit's proxy, a token of another host, and certificates that want no login.
mod p11_kit;
/// PIV cards, through OpenSC and Yubico's library.
mod piv;
/// A TPM.
mod tpm2;
