//! The tunnel process: serves clusters with keys in tokens to programs that run the credential plugin, and
//! ends when nothing uses it any longer.
//!
//! A plugin can start what its client is about to dial, since clients run plugins first. It loads no PKCS#11 library: each
//! has a token process. Clients reach it by a socket of this user's; a PIN is asked for at the client that wants the key.

#![forbid(unsafe_code)]

mod admission;
mod background;
mod client;
mod control_socket;
mod environment;
mod identity;
mod lifetime;
mod message;
mod pins;
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
pub use service::serve;
pub use token_process::{OwnKey, TOKEN_ARGUMENT, serve_token};

/// What this program is started with to be the process.
pub const ARGUMENT: &str = "tunnel-process";

const VERSION: &str = env!("CARGO_PKG_VERSION");
