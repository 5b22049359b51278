//! A signer of service account tokens: the API server asks it by gRPC (KEP-740, `externaljwt/v1`), and the key stays in a
//! PKCS#11 token.
//!
//! ```text
//!  API server ──gRPC──► calls ──► signer ──► signing_process ══pipe══► token_process ──► the library
//!                                   │             (verifies nothing)      (sessions, each with a thread)
//!                                   ├─ rotation: which key signs
//!                                   └─ verifies each signature
//! ```
//!
//! The signer loads no PKCS#11 library: a process of its own does, and is started again when it crashes, hangs or has lost
//! its token. Claims are signed as they come, and are nowhere logged.

#![forbid(unsafe_code)]

mod calls;
mod client;
mod counters;
pub mod externaljwt;
#[cfg(feature = "testing")]
pub mod fuzzed;
mod history_file;
mod key_list;
mod pipe;
mod published_key;
mod rotation;
mod server;
mod signer;
mod signing_process;
mod socket;
mod status;
mod token_process;

pub use client::signer_status;
pub use counters::{Counts, SignerTrouble, TimeRange};
pub use history_file::default_history;
pub use key_list::KeyListSource;
pub use rotation::{KeyState, Timing};
pub use server::{ListenAt, ServerOptions, serve};
pub use signer::SignerOptions;
pub use status::{PublishedKeyStatus, SignerStatus, TokenStatus};
pub use token_process::{TOKEN_ARGUMENT, serve_token};
