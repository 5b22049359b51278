//! An external signer for Kubernetes client certificates whose key stays in a PKCS#11 token.
//!
//! The modules are listed from the bottom to the top, after those of `core/lib.rs`: each may use those before it
//! in this list and none after it. `scripts/check-layers` holds the code to that order, and to what each
//! module may touch of the outside (files, the environment, the terminal, …).

#![forbid(unsafe_code)]

pub use pkcs11_external_signer_core::{
    answer, certificate, config, error, hash, library, pin, pin_entry, plugin, printable, process,
    protocol, report, scheme, start, token, verify,
};

// The messages of exec credential plugins, as data.
pub mod exec_credential;
// Registry passwords that only a token can open, as data.
pub mod sealed;
// The messages of kubelet's credential provider plugins, as data.
pub mod credential_provider;
// JSON Web Tokens that API servers take, as data.
pub mod jose;
// Finds the PKCS#11 libraries of this machine.
pub mod discovery;
// Reads, redirects and writes kubeconfigs.
pub mod kubeconfig;
// The keys of a run: tokens that stay open from their first use to its end.
pub mod keyring;
// Connects clients on 127.0.0.1 to API servers, authenticated with the token's key.
pub mod tunnel;
// Asks a cluster's API server, through kubectl or a connection of our own.
pub mod cluster_api;
// The process that serves the credential plugin's clients.
pub mod tunnel_process;
// A key's certificate: the request for one, and what is checked of the one that was issued.
pub mod enrollment;
// The commands.
pub mod cli;
