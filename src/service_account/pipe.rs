//! What a signer and the process of its token say to each other, over a socket: a line of JSON for each message.

use std::ffi::{CString, OsString};
use std::io::{self, BufRead, Read as _, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use config::KeySelection;
use config::pin::{PinOrigin, PinRequest};
use crypto::scheme::Scheme;
use messages::error::Error;
use system::memory::wipe_stack;

/// The longest message, in bytes: many times what a list of keys takes.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The first message to the process: what it is to open.
#[derive(Deserialize, Serialize)]
pub(crate) struct Opening {
    /// The path of the library that was checked.
    pub(crate) library: OsString,
    pub(crate) init_args: Option<CString>,
    /// Keys of one token.
    pub(crate) keys: Vec<KeySelection>,
    /// How many sessions to open, each with a thread.
    pub(crate) sessions: usize,
    pub(crate) pin_origin: PinOrigin,
}

/// A message of the process while it opens the keys. The last one is not a question.
#[derive(Deserialize, Serialize)]
pub(crate) enum OpeningReply<'a> {
    /// Answered with a `Result<String, Error>`.
    Pin(PinRequest<'a>),
    /// The public keys of the keys, each a SubjectPublicKeyInfo in DER, in their order.
    Opened(Vec<Vec<u8>>),
    Failed(Error),
}

/// Asks for a signature.
#[derive(Deserialize, Serialize)]
pub(crate) struct SignatureRequest {
    /// By which the answer is known.
    pub(crate) number: u64,
    /// The key's place among those that were opened.
    pub(crate) key: usize,
    pub(crate) scheme: Scheme,
    /// In base64.
    pub(crate) digest: String,
}

/// A signature that nobody has verified.
#[derive(Deserialize, Serialize)]
pub(crate) struct SignatureReply {
    pub(crate) number: u64,
    /// In base64.
    pub(crate) signature: Result<String, SigningFailure>,
}

/// Why there is no signature.
#[derive(Deserialize, Serialize)]
pub(crate) struct SigningFailure {
    pub(crate) error: Error,
    /// Whether it may help to open the token anew.
    pub(crate) is_token_lost: bool,
}

/// The message as a line.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&line(message)?)
}

/// Receives the next message. Something that can't be read as one is an error, as is the end.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let mut line = Vec::new();
    from.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = serde_json::from_slice(&line);
    // There may have been a PIN in it.
    wipe_stack();
    Ok(message?)
}
