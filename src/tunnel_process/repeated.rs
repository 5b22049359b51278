//! A call of the credential plugin that was answered before: clients make the same one again for each command, and the
//! tunnel process knows what it asks for. So the small program can answer it, without options, YAML and TLS.
//!
//! What is remembered is the registration, and not the answer: the client is admitted again each time.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::client::first_word;
use super::control_socket::ControlSocket;
use super::message::{ControlRequest, Conversation, Greeting, Registration, Reply};
use crypto::certificate::rfc_3339;
use keyring::KeyNumber;
use kubeconfig::exec_credential::{ExecProof, exec_answer};
use system::clock::unix_time;
use system::limits;
use tunnel::ClientCertificate;

/// The most calls that are remembered. A shell in each of many directories makes one of its own.
const CALLS: usize = 256;

/// The SHA-256 digest of all that a call of the plugin follows from, apart from files: its arguments, its directory and its
/// environment, in which the client's request stands.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct CallDigest([u8; 32]);

impl CallDigest {
    /// The digest of the call with which this process was started. To be asked for before anything is taken out of the
    /// environment. `None` if the process's directory has been removed.
    pub fn of_this_process() -> Option<Self> {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_ne_bytes());
            digest.update(part);
        };
        add(env::current_dir().ok()?.as_os_str().as_bytes());
        for argument in env::args_os() {
            add(argument.as_bytes());
        }
        // Where the arguments end: no argument holds a NUL.
        add(b"\0");
        for (name, value) in env::vars_os() {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        Some(Self(digest.finalize().into()))
    }
}

/// A call of the plugin that may be repeated, and how it is answered.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RepeatableCall {
    pub digest: CallDigest,
    pub answer: CredentialAnswer,
    /// The file with the authority of the cluster that is asked for, if the request names one.
    pub authority_file: Option<PathBuf>,
}

/// What a client gets besides a certificate.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CredentialAnswer {
    /// One of [`VERSIONS`](kubeconfig::exec_credential::VERSIONS).
    pub version: String,
    /// After which time the client has to ask again.
    pub lifetime: Duration,
}

impl CredentialAnswer {
    /// The document with this certificate, which is valid from now on.
    pub fn document(&self, client: ClientCertificate) -> String {
        let ClientCertificate { certificate_pem: certificate, key_pem: key } = client;
        let seconds = i64::try_from(self.lifetime.as_secs()).unwrap_or_default();
        let expires = rfc_3339(unix_time().saturating_add(seconds));
        exec_answer(&self.version, &ExecProof::Certificate { certificate, key }, &expires)
    }
}

/// A client's request to answer a call as before.
#[derive(Deserialize, Serialize)]
pub struct Repetition {
    pub(super) digest: CallDigest,
    /// The process number of the program that waits for the credential.
    pub(super) caller: i32,
}

/// A call that was answered.
#[derive(Clone)]
pub(super) struct KnownCall {
    pub(super) call: RepeatableCall,
    pub(super) registration: Arc<Registration>,
    pub(super) key: KeyNumber,
}

/// The calls that were answered, of which an arbitrary one makes room for the next where there are too many.
#[derive(Default)]
pub(super) struct KnownCalls(HashMap<CallDigest, KnownCall>);

impl KnownCall {
    /// Whether the file that was read for the call still says the same.
    pub(super) fn is_unchanged(&self) -> bool {
        let Some(file) = &self.call.authority_file else { return true };
        let mut clusters = self.registration.clusters.iter();
        fs::read(file).is_ok_and(|now| {
            clusters.all(|registered| registered.cluster.authority.as_ref() == Some(&now))
        })
    }
}

impl KnownCalls {
    pub(super) fn find(&self, digest: &CallDigest) -> Option<KnownCall> {
        self.0.get(digest).cloned()
    }

    pub(super) fn remember(&mut self, known: KnownCall) {
        if self.0.len() >= CALLS
            && !self.0.contains_key(&known.call.digest)
            && let Some(other) = self.0.keys().next().cloned()
        {
            self.0.remove(&other);
        }
        self.0.insert(known.call.digest.clone(), known);
    }
}

/// The answer of the tunnel process to a call that it has answered before, for this caller. `None` if none runs, or it
/// doesn't know the call, or the key isn't open any more: then the call is to be made in full, which also says what is
/// wrong.
pub fn repeat(digest: CallDigest, caller: i32) -> Option<String> {
    let stream = ControlSocket::find().ok()?.connect().ok()??;
    let mut conversation = Conversation::new(stream);
    ask(&mut conversation, Repetition { digest, caller }).ok()?
}

fn ask(conversation: &mut Conversation, repetition: Repetition) -> io::Result<Option<String>> {
    first_word(conversation)?;
    conversation.be_patient(limits::PROCESS)?;
    conversation.send(&Greeting::new(ControlRequest::Repeat(repetition)))?;
    Ok(match conversation.receive()? {
        Reply::Answered(document) => document,
        // A question, such as for a PIN. It is left to the full call, for which it is asked again.
        _ => None,
    })
}
