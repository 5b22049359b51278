//! An external signer for Kubernetes client certificates whose key stays in a PKCS#11 token.
//!
//! Each folder of `src/` with a `Cargo.toml` is a crate, and its dependencies say what it can use. From the bottom to the
//! top:
//!
//! | crate | what it is |
//! |---|---|
//! | [`messages`] | errors with what to do about them, and everything that is written to standard error |
//! | [`system`] | the operating system: the process and its memory, signals, clock, limits |
//! | [`files`] | locks, records, and files that are replaced as a whole |
//! | [`protocol`] | the external signer protocol: a request, as data |
//! | [`config`] | where the library, token, key and PIN are named: the request's configuration, a PKCS#11 URI |
//! | [`crypto`] | certificates, signature schemes, and the check of each signature before it leaves |
//! | [`attestation`] | what a device attests of a key in a request, verified; an approver's policy |
//! | [`token`] | a PKCS#11 library and its tokens: keys, logins, signatures |
//! | [`pin_entry`] | where a PIN comes from: a person, a program, a file |
//! | [`kubeconfig`] | kubeconfigs, and the messages of exec plugins |
//! | [`sealed`] | registry passwords that only a token's key opens |
//! | [`keyring`] | open keys, each asked for when it is first used |
//! | [`tunnel`] | the TLS connections that kubectl makes through this program |
//! | [`cluster_api`] | an API server's requests for certificates and for tokens |
//! | [`tunnel_process`] | the process in the background, and those that ask it |
//!
//! The program itself: [`start`] is the beginning of every process, [`plugin`] answers one request of the external signer
//! protocol, [`cli`] are the commands, with [`enrollment`] and [`discovery`] below them.

#![forbid(unsafe_code)]

pub mod cli;
pub mod discovery;
pub mod enrollment;
pub mod plugin;
pub mod start;
