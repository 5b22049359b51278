//! The client's side of the tunnel process: finds it or starts it, and answers its questions.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;

use super::error;
use super::message::{
    Answer, ControlRequest, Conversation, Greeting, Question, Registered, Registration, Reply,
    ToSign,
};
use super::status::StatusDocument;
use super::{ARGUMENT, VERSION};
use crate::config::Keep;
use crate::error::Error;
use crate::library;
use crate::pin::{Pin, PinProvider};
use crate::pin_entry;
use crate::plugin::{KeptKey, KeptKeys};
use crate::process::background;
use crate::process::control_socket::{ControlSocket, peer};
use crate::process::watched::WatchedProcess;
use crate::report;
use crate::scheme::Scheme;
use crate::token::{TOUCH_NOTICE, TOUCH_NOTICE_DELAY};

/// How long the process may be silent: another process may use the library, and a person type a PIN there.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a process may take to say that it listens: one that was stopped never does.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// How long the end of a process may take.
const END: Duration = Duration::from_secs(10);
/// A process may end while it is asked.
const TRIES: usize = 3;

/// Serves the key and the clusters, in the process that lives or in a new one. `pins` is where a PIN comes
/// from if the key isn't open. What is waited for is reported.
pub fn register(
    registration: Registration,
    pins: &mut dyn PinProvider,
) -> Result<Registered, Error> {
    Ok(begin(registration, pins)?.0)
}

/// [`register`], with the conversation for what the client wants to have signed.
fn begin(
    registration: Registration,
    pins: &mut dyn PinProvider,
) -> Result<(Registered, Conversation), Error> {
    let socket = socket()?;
    let greeting = greeting(ControlRequest::Register(registration));
    for _ in 0..TRIES {
        let connect = || connect_or_start(&socket).map(Some);
        let Some(mut conversation) = reach(&socket, PATIENCE, connect)? else {
            break;
        };
        match converse(&mut conversation, &greeting, pins) {
            Ok(Reply::Registered(registered)) => return Ok((registered, conversation)),
            Ok(Reply::Failed(failure)) => return Err(failure),
            Ok(Reply::Gone) => conversation.wait_for_end(),
            Ok(_) => return Err(out_of_turn()),
            Err(error) if is_end(&error) => {}
            Err(reason) => return Err(unreachable(&socket, &reason)),
        }
    }
    Err(error::lost())
}

/// Answers the process's questions until it has a reply.
fn converse(
    conversation: &mut Conversation,
    greeting: &Greeting,
    pins: &mut dyn PinProvider,
) -> io::Result<Reply> {
    conversation.send(greeting)?;
    loop {
        match conversation.receive()? {
            Reply::Question(question) => conversation.send(&answer(question, pins))?,
            Reply::AtReader(notice) => report::note(&notice),
            Reply::Waiting(holder) => library::note_wait(holder),
            reply => return Ok(reply),
        }
    }
}

/// A key that signs in the tunnel process, for requests of the external signer protocol.
#[derive(Default)]
pub struct ProcessKeys(Option<Conversation>);

impl KeptKeys for ProcessKeys {
    fn open(
        &mut self,
        key: Vec<(String, String)>,
        keep: Keep,
        pins: &mut dyn PinProvider,
    ) -> Result<KeptKey, Error> {
        let registration = Registration {
            configuration: key,
            keep,
            caller: None,
            clusters: Vec::new(),
            authority: None,
            signs: true,
        };
        let (registered, conversation) = begin(registration, pins)?;
        self.0 = Some(conversation);
        for warning in &registered.warnings {
            report::warning(warning);
        }
        Ok(KeptKey { certificate: registered.token_certificate, is_new: registered.is_new })
    }

    fn sign(&mut self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, Error> {
        let mut conversation = self.0.take().ok_or_else(out_of_turn)?;
        let digest = digest.to_vec();
        // The process itself has no terminal.
        let _notice = pin_entry::show_after(TOUCH_NOTICE_DELAY, TOUCH_NOTICE);
        let sent = conversation.send(&ToSign { scheme, digest });
        match sent.and_then(|()| conversation.receive()) {
            Ok(Reply::Signature(signature)) => Ok(signature),
            Ok(Reply::Failed(failure)) => Err(failure),
            Ok(_) => Err(out_of_turn()),
            Err(_) => Err(error::lost()),
        }
    }
}

/// What the process serves; `None` if there is none.
pub fn status() -> Result<Option<StatusDocument>, Error> {
    match ask(ControlRequest::Status)? {
        None => Ok(None),
        Some(Reply::Status(status)) => Ok(Some(status)),
        Some(_) => Err(out_of_turn()),
    }
}

/// Ends the process and waits until it has ended; whether there was one. One that doesn't end when it is
/// told to is ended by signals.
pub fn stop() -> Result<bool, Error> {
    let socket = socket()?;
    let Some(stream) = connect(&socket)? else {
        return Ok(false);
    };
    let found = |reason| unreachable(&socket, &reason);
    let number = peer(&stream).map_err(found)?.process;
    drop(stream);
    let process = match WatchedProcess::new(number) {
        // It has ended meanwhile.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(true),
        process => process.map_err(found)?,
    };
    let stopped = ask(ControlRequest::Stop);
    if !matches!(stopped, Ok(Some(_))) || !process.ends_within(END) {
        process.end(END).map_err(found)?;
    }
    Ok(true)
}

fn ask(request: ControlRequest) -> Result<Option<Reply>, Error> {
    let socket = socket()?;
    let Some(mut conversation) = reach(&socket, END, || connect(&socket))? else {
        return Ok(None);
    };
    let reply = conversation.send(&greeting(request)).and_then(|()| conversation.receive());
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if is_end(&error) => Ok(None),
        Err(reason) => Err(unreachable(&socket, &reason)),
    }
}

fn greeting(request: ControlRequest) -> Greeting {
    Greeting {
        version: VERSION.to_owned(),
        process: i32::try_from(std::process::id()).unwrap_or_default(),
        request,
    }
}

/// Connects to the process. Where there is none, listens in its place and starts it with the listening
/// socket, so that it finds this connection waiting.
fn connect_or_start(socket: &ControlSocket) -> Result<UnixStream, Error> {
    if let Some(stream) = connect(socket)? {
        return Ok(stream);
    }
    socket.lock();
    if let Some(stream) = connect(socket)? {
        return Ok(stream);
    }
    let listener = socket
        .listen()
        .map_err(|reason| error::no_socket(&format!("{}: {reason}", socket.path().display())))?;
    background::start(ARGUMENT, listener.into()).map_err(|reason| {
        if let Ok(identity) = socket.identity() {
            socket.remove(identity);
        }
        error::not_started(&reason)
    })?;
    connect(socket)?.ok_or_else(error::lost)
}

fn answer(question: Question, pins: &mut dyn PinProvider) -> Answer {
    match question {
        Question::ConfirmAtReader(question) => {
            Answer::ConfirmAtReader(pins.confirm_at_reader(&question.request()))
        }
        Question::Origin => Answer::Origin(pins.origin()),
        Question::Pin(question) => {
            let pin = pins.pin(&question.request());
            Answer::Pin(pin.map(|pin: Pin| pin.expose().to_owned()))
        }
    }
}

fn socket() -> Result<ControlSocket, Error> {
    ControlSocket::find().map_err(|reason| error::no_socket(&reason))
}

fn connect(socket: &ControlSocket) -> Result<Option<UnixStream>, Error> {
    socket.connect().map_err(|reason| unreachable(socket, &reason))
}

/// A conversation with a process that listens, which may be silent for `patience` from then on; `None` if there is
/// none.
fn reach(
    socket: &ControlSocket,
    patience: Duration,
    connect: impl Fn() -> Result<Option<UnixStream>, Error>,
) -> Result<Option<Conversation>, Error> {
    for _ in 0..TRIES {
        let Some(stream) = connect()? else {
            return Ok(None);
        };
        let mut conversation =
            Conversation::new(stream, FIRST_WORD).map_err(|reason| unreachable(socket, &reason))?;
        let reason = match conversation.receive() {
            Ok(Reply::Here) => match conversation.be_patient(patience) {
                Ok(()) => return Ok(Some(conversation)),
                Err(reason) => reason,
            },
            Ok(_) => io::Error::other("it is another version of this program"),
            Err(error) if is_end(&error) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                io::Error::other("it doesn't answer")
            }
            Err(error) => error,
        };
        return Err(unreachable(socket, &reason));
    }
    let reason = io::Error::other("it has as many connections as it takes");
    Err(unreachable(socket, &reason))
}

/// Whether the other process has ended, and not merely said nothing.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn unreachable(socket: &ControlSocket, reason: &io::Error) -> Error {
    error::unreachable(socket.path(), reason)
}

fn out_of_turn() -> Error {
    Error::internal("the tunnel process has answered another question")
}
