//! The key's side of the signer: from a request or a configuration to a verified signature.
//!
//! The modules are listed from the bottom to the top: each may use those before it in this list and
//! none after it. This is a crate of its own, so that nothing here can use a kubeconfig, a tunnel or a command, and
//! so that what a request runs lies together in the executable.

// The hashes that TLS signatures are made over.
pub mod hash;
// Makes text from elsewhere fit for a terminal.
pub mod printable;
// An error: its exit code, its text and the remedy.
pub mod error;
// The operating system: memory, environment, signals, locks, the end of the process.
pub mod process;
// A PIN, the request for one, and the trait of its provider.
pub mod pin;
// The messages of the external signer protocol, as data.
pub mod protocol;
// The configuration map, checked and typed.
pub mod config;
// What a certificate says of its key, its holder and its validity.
pub mod certificate;
// The signature scheme that a request's options and a public key ask for.
pub mod scheme;
// Verifies a signature with the certificate's public key; the only source of a `VerifiedSignature`.
pub mod verify;
// The one document that answers a request.
pub mod answer;
// The only part that speaks PKCS#11: from a configuration to a verified signature.
pub mod token;
// The PIN sources of the configuration: a file, a prompt at the terminal, another program.
pub mod pin_entry;
// Writes messages to standard error.
pub mod report;
// A library under its lock; reports what it waits for.
pub mod library;
// The external signer: one request, one answer.
pub mod plugin;
// The start of every process; whether it answers a request or runs a command.
pub mod start;
