//! An external signer for Kubernetes client certificates whose key stays in a PKCS#11 token.
//!
//! The library is the room for the key behind every door of the program: *find the key the
//! configuration names, log in if the token asks, sign, verify, wipe*. Modules depend in one
//! direction, from the bottom of this list to its top; `scripts/check-layers` holds them to it.

// The hashes a TLS signature is made over.
pub mod hash;
// Text from elsewhere, made fit for a terminal.
pub mod printable;
// Values that are wiped when they are dropped.
pub mod secret;

// What can go wrong: the text, the remedy and the exit code of each error.
pub mod error;

// The wire of the external signer protocol, as data.
pub mod protocol;

// The configuration map, made typed.
pub mod config;

// Which PKCS#11 libraries this machine has.
pub mod discovery;

// Which clusters and users there are: kubectl's own file, found, merged and led elsewhere.
pub mod kubeconfig;

// Certificates: what the public key is, and what else an operator asks about one.
pub mod certificate;
// What to compute: from the request's options and the key to a signature scheme.
pub mod scheme;
// The only way to a signature that may leave: the certificate's key has accepted it.
pub mod verify;

// Where a PIN can come from.
pub mod pin;
// What makes the process fit to hold a PIN.
pub mod process;
// The only part that speaks PKCS#11.
pub mod token;

// The room: from a configuration to an identity, from a scheme to a verified signature.
pub mod signer;

// The keys of a run: tokens that stay open from their first use to its end.
pub mod keyring;

// Tunnels from a port on 127.0.0.1 to an API server, with the token's key.
pub mod tunnel;

// The whole way from a configuration to a verified signature, one step at a time.
pub mod diagnosis;

// The doors: who knocks, and what they are handed.
pub mod cli;
// The only writer to standard error.
pub mod report;
