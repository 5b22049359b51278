//! The integration tests: the real executable, real modules, a real terminal, and openssl as the
//! judge of what comes out. Nothing is skipped: a tool that is missing fails the test that needs
//! it and says which package to install.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

/// Libraries that an administrator allows.
#[cfg(target_os = "linux")]
mod allowed;
/// `approve`: what an approver is shown, and what is approved.
mod approve;
/// PINs that come from another program.
mod askpass;
/// `check`: each step, and its remedy.
mod check;
/// A real client and a real API server.
mod cluster;
/// Names, help and completions.
mod commands;
/// Simultaneous requests.
mod concurrency;
/// `credential`: the usual clients, with no prefix.
#[cfg(target_os = "linux")]
mod credential;
/// Descriptors that the programs it starts inherit.
mod descriptors;
/// The documents: links, and the names of tests and variables.
mod documentation;
/// `enroll`: a key, the request for its certificate, and the certificate.
mod enroll;
/// `enroll`, answered by a real cluster.
mod enroll_cluster;
/// Libraries that misbehave.
mod faults;
/// Fixtures: tokens, the program, a terminal, openssl, a cluster.
mod fixture;
/// Whom a request or a certificate is for, as Go reads it.
mod identities;
/// Keys that are opened and closed in a process that lives on.
mod keyring;
/// Kubeconfigs, read as kubectl reads them.
mod kubeconfig;
/// `kubeconfig --external-signer`: from a key to a kubeconfig that works.
mod kubeconfig_command;
/// `kubeconfig --context`: a context that stock clients can use, and back.
mod kubeconfig_plugin;
/// Registry passwords that a node's token opens.
mod kubelet;
/// Libraries whose answers make no sense.
mod lies;
/// `list`: tokens, keys and certificates.
mod list;
/// Other languages' settings.
mod locale;
/// Every call, failing in every way.
mod matrix;
/// Libraries that load and libraries that don't.
mod module;
/// Stored PINs, and standard input.
mod pin;
/// The external signer protocol.
mod protocol;
/// The README's commands, run unchanged.
mod readme;
/// `renew`: a certificate's successor, from a real signer.
mod renew;
/// Several certificates and keys under one id.
mod renewal;
/// `run`: commands whose clusters are reached with a key in a token.
mod run;
/// `seal`: registry passwords, for nodes.
mod seal;
/// Who can read a PIN, and how long it is in memory.
mod secrecy;
/// Which token, certificate and key.
mod selection;
/// `credential --as` and `jwks`: what lives minutes.
mod short_lived;
/// A machine without disk space, descriptors, processes or directories.
#[cfg(target_os = "linux")]
mod shortage;
/// Signatures, judged by openssl.
mod signing;
/// Malicious kubeconfigs, requests and tokens.
mod stranger;
/// Prompts at a terminal.
mod terminal;
/// Tokens other than SoftHSM's.
#[cfg(target_os = "linux")]
mod tokens;
/// PIN tries over many processes; prompts one at a time.
mod tries;
/// Keys named by a URI.
mod uri;
