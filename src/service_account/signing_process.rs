//! The process of the token, seen from the signer: it is opened with a PIN, signs several digests at once, and is ended.

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use crate::key_list::{KeyList, KeyPlace};
use crate::pipe::{
    LONGEST, Opening, OpeningReply, SignatureReply, SignatureRequest, SigningFailure, line,
    receive, send,
};
use crate::token_process::TOKEN_ARGUMENT;
use config::pin::{PinProvider, PinRequest};
use crypto::certificate::PublicKey;
use crypto::scheme::Scheme;
use messages::error::{Error, Exit, Kind};
use pin_entry::Sources;
use system::environment::TakenVariables;
use system::limits::{TOKEN_PROCESS_END, service_account as limits};
use system::process::child_ends_within;
use system::{background, locked, shortage};
use token::kind;

/// How many requests the process may have for each of its sessions: one is signed, and one waits in the process, so that a
/// session needs to wait for nobody.
const REQUESTS_PER_SESSION: usize = 2;

/// A call on the token has failed before the process had a PIN: it may be made again without a person.
pub(crate) const FAILED_WITHOUT_PIN: Kind = Kind::new("failed without a PIN");

/// A process that has opened the keys.
pub(crate) struct SigningProcess {
    requests: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
    /// How many more requests may be sent.
    room: Arc<Semaphore>,
    lost: Arc<Lost>,
    child: Arc<Mutex<OwnedChild>>,
    /// Whether it hung, and was ended here.
    has_hung: AtomicBool,
    library: PathBuf,
}

/// Who waits for which signature; `None` once the process has ended.
type Waiting = Option<HashMap<u64, oneshot::Sender<Result<Vec<u8>, SigningFailure>>>>;

/// Whether the process is of no use any more: it has ended, hangs, or has lost its token.
#[derive(Default)]
struct Lost {
    is_lost: AtomicBool,
    told: Notify,
}

impl Lost {
    fn set(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

/// Why a process gave no signature.
pub(crate) enum NoSignature {
    /// The process is gone, and another one may sign.
    ProcessLost(Error),
    /// The token has refused it.
    Refused(Error),
}

/// A child that is ended and reaped when nobody holds it any more, so that none is left as a zombie.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A process with its keys, before it is asked for signatures. It ends if it is dropped.
pub(crate) struct OpenedProcess {
    child: OwnedChild,
    socket: UnixStream,
    library: PathBuf,
    sessions: usize,
    /// Those of the list that are on the token, in their order.
    pub(crate) keys: Vec<PublicKey>,
}

impl OpenedProcess {
    /// Starts a process and has it open the keys of the list. Waits for that. The PIN comes from the list's source, and is
    /// sent as the rules for one that nobody types allow it.
    pub(crate) fn open(
        list: KeyList,
        sessions: usize,
        variables: &TakenVariables,
    ) -> Result<Self, Error> {
        let library = list.library.path().to_owned();
        let mut pins = Sources::for_run(list.pin, variables, Arc::new(AtomicBool::new(true)));
        let keys = list.keys.into_iter().filter_map(|key| match key.place {
            KeyPlace::Token(selection) => Some(selection),
            KeyPlace::File(_) => None,
        });
        let opening = Opening {
            library: library.clone().into_os_string(),
            init_args: list.init_args,
            keys: keys.collect(),
            sessions,
            pin_origin: pins.origin(),
        };
        let (socket, input) = UnixStream::pair().map_err(shortage)?;
        let environment = std::env::vars_os();
        let started =
            background::start(TOKEN_ARGUMENT, input.into(), Stdio::inherit(), environment);
        let mut child = OwnedChild(started.map_err(shortage)?);
        match converse(&socket, &opening, &mut pins) {
            Ok(Ok(keys)) => Ok(Self { child, socket, library, sessions, keys }),
            Ok(Err(error)) => {
                drop(socket);
                let _ = end(&mut child.0);
                Err(error)
            }
            Err(_) => Err(has_ended(&library, end(&mut child.0))),
        }
    }

    /// The process, ready to sign. To be called in the runtime.
    pub(crate) fn run(self) -> Result<SigningProcess, Error> {
        self.socket.set_nonblocking(true).map_err(shortage)?;
        let socket = tokio::net::UnixStream::from_std(self.socket).map_err(shortage)?;
        let (replies, mut writer) = socket.into_split();
        let (requests, mut to_send) = mpsc::unbounded_channel::<Vec<u8>>();
        let waiting: Arc<Mutex<Waiting>> = Arc::new(Mutex::new(Some(HashMap::new())));
        let lost = Arc::<Lost>::default();
        tokio::spawn(async move {
            while let Some(line) = to_send.recv().await {
                if writer.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(hand_out(replies, Arc::clone(&waiting), Arc::clone(&lost)));
        Ok(SigningProcess {
            requests,
            waiting,
            next: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(self.sessions * REQUESTS_PER_SESSION)),
            lost,
            child: Arc::new(Mutex::new(self.child)),
            has_hung: AtomicBool::new(false),
            library: self.library,
        })
    }
}

/// Has the process open the keys, and gives it PINs. The outer error is that of the socket.
fn converse(
    socket: &UnixStream,
    opening: &Opening,
    pins: &mut Sources,
) -> io::Result<Result<Vec<PublicKey>, Error>> {
    socket.set_read_timeout(Some(limits::OPENING))?;
    let mut writer = socket;
    // Nothing is sent before it is asked for: what is read ahead here would be lost.
    let mut reader = BufReader::new(socket);
    send(&mut writer, opening)?;
    let mut is_pin_given = false;
    loop {
        match receive::<OpeningReply<'_>>(&mut reader)? {
            OpeningReply::Pin(request) => {
                is_pin_given = true;
                send(&mut writer, &given(pins, &request))?;
            }
            OpeningReply::Opened(keys) => return Ok(public_keys(&keys)),
            OpeningReply::Failed(error) if !is_pin_given && error.is(&kind::CALL_FAILED) => {
                return Ok(Err(error.kind(FAILED_WITHOUT_PIN)));
            }
            OpeningReply::Failed(error) => return Ok(Err(error)),
        }
    }
}

fn given(pins: &mut Sources, request: &PinRequest<'_>) -> Result<String, Error> {
    pins.pin(request).map(|pin| pin.expose().to_owned())
}

fn public_keys(keys: &[Vec<u8>]) -> Result<Vec<PublicKey>, Error> {
    let keys = keys.iter().map(|key| PublicKey::from_der(key));
    keys.collect::<Result<_, _>>()
        .map_err(|reason| Error::internal(format!("a public key: {reason}")))
}

/// Hands the signatures out to those who wait for them, until the process ends.
async fn hand_out(replies: OwnedReadHalf, waiting: Arc<Mutex<Waiting>>, lost: Arc<Lost>) {
    let mut replies = tokio::io::BufReader::new(replies);
    let mut text = Vec::new();
    loop {
        // What has no end is an end: it can't be read as a message.
        let mut message = (&mut replies).take(LONGEST);
        let Ok(1..) = message.read_until(b'\n', &mut text).await else { break };
        let Ok(reply) = serde_json::from_slice::<SignatureReply>(&text) else { break };
        text.clear();
        let signature = reply.signature.and_then(|signature| {
            BASE64.decode(signature).map_err(|error| SigningFailure {
                error: Error::internal(format!("a signature: {error}")),
                is_token_lost: false,
            })
        });
        let waiter = locked(&waiting).as_mut().and_then(|waiting| waiting.remove(&reply.number));
        if let Some(waiter) = waiter {
            let _ = waiter.send(signature);
        }
    }
    // Those who wait see that their senders are gone.
    *locked(&waiting) = None;
    lost.set();
}

impl SigningProcess {
    /// Has a key sign the digest, in its turn. Nobody has verified the signature. If the caller gives up, the token is
    /// still let finish.
    pub(crate) async fn sign(
        self: &Arc<Self>,
        key: usize,
        scheme: Scheme,
        digest: &[u8],
    ) -> Result<Vec<u8>, NoSignature> {
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
            return Err(NoSignature::ProcessLost(self.lost_error().await));
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let request = SignatureRequest { number, key, scheme, digest: BASE64.encode(digest) };
        let Ok(line) = line(&request) else {
            return Err(NoSignature::Refused(Error::internal("a request without a text")));
        };
        let is_waited_for =
            locked(&self.waiting).as_mut().map(|waiting| waiting.insert(number, sender));
        if is_waited_for.is_none() || self.requests.send(line).is_err() {
            return Err(NoSignature::ProcessLost(self.lost_error().await));
        }
        let process = Arc::clone(self);
        // A task of its own, which goes on when the caller gives up. `None` if no answer will come.
        let answer = tokio::spawn(async move {
            let answer = tokio::time::timeout(limits::SIGNATURE, receiver).await;
            drop(room);
            if answer.is_err() {
                process.give_up();
            }
            answer.ok()?.ok()
        });
        match answer.await.ok().flatten() {
            Some(Ok(signature)) => Ok(signature),
            Some(Err(SigningFailure { error, is_token_lost: false })) => {
                Err(NoSignature::Refused(error))
            }
            Some(Err(SigningFailure { error, is_token_lost: true })) => {
                self.lost.set();
                Err(NoSignature::ProcessLost(error))
            }
            None => Err(NoSignature::ProcessLost(self.lost_error().await)),
        }
    }

    /// Returns once the process is of no use any more.
    pub(crate) async fn lost(&self) {
        let told = self.lost.told.notified();
        let mut told = std::pin::pin!(told);
        told.as_mut().enable();
        if !self.lost.is_lost.load(Ordering::Acquire) {
            told.await;
        }
    }

    /// Ends a process that hangs. Whoever waits for it learns that.
    fn give_up(&self) {
        self.has_hung.store(true, Ordering::Release);
        let _ = locked(&self.child).0.kill();
        self.lost.set();
    }

    /// Why the process is lost: it has ended, or will be ended.
    async fn lost_error(&self) -> Error {
        let child = Arc::clone(&self.child);
        let status = if self.has_hung.load(Ordering::Acquire) {
            Ok(None)
        } else {
            let status = tokio::task::spawn_blocking(move || status_soon(&mut locked(&child).0));
            status.await.unwrap_or(Ok(None))
        };
        has_ended(&self.library, status)
    }
}

impl Drop for SigningProcess {
    /// The process ends when it has answered what it was asked, or is ended.
    fn drop(&mut self) {
        let child = Arc::clone(&self.child);
        // The socket is closed when the tasks of the runtime notice that their channels are.
        let _ = std::thread::Builder::new().spawn(move || {
            let _ = child_ends_within(&locked(&child).0, TOKEN_PROCESS_END);
            let _ = end(&mut locked(&child).0);
        });
    }
}

/// The status of a process that has closed its socket: it is about to end by itself, and by what is worth saying. `None`
/// if it doesn't.
fn status_soon(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    let _ = child_ends_within(child, limits::STATUS_OF_ENDED);
    child.try_wait()
}

fn end(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    if let Ok(Some(status)) = status_soon(child) {
        return Ok(Some(status));
    }
    let _ = child.kill();
    child.wait().map(|_| None)
}

/// The error for a process that has ended; without a status, because it hung and was ended.
fn has_ended(library: &std::path::Path, status: io::Result<Option<ExitStatus>>) -> Error {
    let library = library.display();
    let text = match status {
        Ok(Some(status)) if status.signal().is_some() => {
            format!("PKCS#11 library {library} has crashed: its process has ended ({status})")
        }
        Ok(Some(status)) => {
            format!("the process of PKCS#11 library {library} has ended ({status})")
        }
        _ => format!("PKCS#11 library {library} hangs, and its process is ended"),
    };
    Error::new(Exit::Library, text).help(
        "nothing has to be done: the signer starts it again; if it comes again, check the HSM's connection and its service, \
         and update the library",
    )
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, test_kill_process};

    use super::*;

    #[test]
    fn a_process_that_is_not_used_ends_and_is_reaped() {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        drop(OwnedChild(child));
        assert!(test_kill_process(pid).is_err());
    }
}
