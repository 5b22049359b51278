//! The integration tests: the real executable, real modules, a real terminal, and openssl as the judge of what comes
//! out. A tool that is missing fails the test that needs it and says which package to install; what is skipped says why
//! (`fixture/isolation.rs`).

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[cfg(target_os = "linux")]
mod allowed;
mod approve;
mod askpass;
#[cfg(target_os = "linux")]
mod attack;
mod check;
mod cluster;
mod commands;
mod concurrency;
#[cfg(target_os = "linux")]
mod credential;
mod descriptors;
mod documentation;
mod enroll;
mod enroll_cluster;
mod faults;
mod fixture;
mod growth;
mod identities;
mod keyring;
mod kubeconfig;
mod kubeconfig_command;
mod kubeconfig_plugin;
mod kubelet;
mod lies;
mod list;
mod locale;
mod matrix;
mod module;
mod pin;
mod protocol;
mod readme;
mod renew;
mod renewal;
mod revoke;
mod run;
mod seal;
mod secrecy;
mod selection;
mod short_lived;
#[cfg(target_os = "linux")]
mod shortage;
mod signing;
mod stranger;
mod terminal;
#[cfg(target_os = "linux")]
mod tokens;
mod tries;
mod uri;
