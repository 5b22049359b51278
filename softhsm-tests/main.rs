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
/// PINs that come from another program.
mod askpass;
/// `check`: what works, what doesn't, and what to do.
mod check;
/// A real client and a real API server.
mod cluster;
/// Names, help and completions.
mod commands;
/// Many requests at once.
mod concurrency;
/// The configuration map.
mod configuration;
/// What the programs that it starts can get hold of.
mod descriptors;
/// What the documents say of the tests.
mod documentation;
/// Libraries that misbehave.
mod faults;
/// What the tests are written in.
mod fixture;
/// The files kubectl reads, read as kubectl does.
mod kubeconfig;
/// `kubeconfig`: from a key to a kubeconfig that works.
mod kubeconfig_command;
/// Answers that make no sense.
mod lies;
/// `list`: what there is to authenticate with.
mod list;
/// Every call, failing in every way.
mod matrix;
/// Libraries that load and libraries that don't.
mod module;
/// PINs that nobody types.
mod pin;
/// What others can see of the process.
mod process;
/// The wire.
mod protocol;
/// The README's commands, as they stand.
mod readme;
/// Several certificates and keys under one id.
mod renewal;
/// `run`: commands whose clusters are reached with a key in a token.
mod run;
/// The PIN: who can read it, and how long it is there.
mod secrecy;
/// Which token, certificate and key.
mod selection;
/// A machine that lacks something: room, files, processes, directories.
#[cfg(target_os = "linux")]
mod shortage;
/// Signatures, judged by openssl.
mod signing;
/// Kubeconfigs, requests and tokens from strangers.
mod stranger;
/// Somebody at a terminal.
mod terminal;
/// Tokens other than SoftHSM's.
#[cfg(target_os = "linux")]
mod tokens;
/// PIN tries over many processes, and prompts one at a time.
mod tries;
/// Keys named by a URI.
mod uri;
