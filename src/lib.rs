//! An external signer for Kubernetes client certificates whose key stays in a PKCS#11 token.
//!
//! Each folder of `src/` with a `Cargo.toml` is a crate, and its dependencies say what it can use.

#![forbid(unsafe_code)]

pub use base::{error, hash, help, limits, pin, printable, process, report};
pub use cluster_api;
pub use config;
pub use crypto::{certificate, jose, scheme, verify};
pub use keyring;
pub use keyring::library;
pub use kubeconfig;
pub use kubeconfig::exec_credential;
pub use pin_entry;
pub use protocol;
pub use sealed;
pub use sealed::credential_provider;
pub use token;
pub use tunnel;
pub use tunnel_process;

// Finds the PKCS#11 libraries of this machine.
pub mod discovery;
// A key's certificate: the request for one, and what is checked of the one that was issued.
pub mod enrollment;
// The external signer: one request, and the one document that answers it.
pub mod plugin;
// The start of every process; whether it answers a request or runs a command.
pub mod start;
// The commands.
pub mod cli;
