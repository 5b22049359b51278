//! The tunnel process: a background process that serves clusters, with keys in tokens, to programs that run the credential
//! plugin. It ends when nothing uses it any longer.
//!
//! A client runs its plugin before it dials, so the plugin can start the tunnel that the client is about to dial. The
//! tunnel process loads no PKCS#11 library: each library has a token process. Clients reach it by a socket of this user's,
//! and a PIN is asked for at the client that wants the key.

#![forbid(unsafe_code)]

mod admission;
mod client;
mod control_socket;
mod environment;
mod identity;
mod lifetime;
mod message;
mod pins;
mod repeated;
mod served;
mod served_client;
mod service;
mod token_process;

pub use admission::caller_error;
pub use client::{register, sign, status, stop};
pub use identity::{identity, identity_or_new};
pub use message::{
    ClusterStatus, Conversation, Greeting, KeyStatus, ProcessStatus, RegisteredCluster,
    Registration, StatusDocument,
};
pub use repeated::{CallDigest, CredentialAnswer, RepeatableCall, repeat};
pub use service::serve;
pub use token_process::{OwnKey, TOKEN_ARGUMENT, serve_token};

/// The argument with which this program becomes the tunnel process.
pub const ARGUMENT: &str = "tunnel-process";

const VERSION: &str = env!("CARGO_PKG_VERSION");
