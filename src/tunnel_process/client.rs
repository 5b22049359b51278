//! The client's side of the tunnel process: finds it or starts it, and answers its questions.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::io::Errno;

use super::message::{
    ControlRequest, Conversation, Greeting, Registered, Registration, Reply, StatusDocument,
};
use super::{ARGUMENT, environment};
use crate::control_socket::ControlSocket;
use config::pin::{Pin, PinProvider};
use crypto::scheme::Scheme;
use keyring::library;
use messages::error::Error;
use messages::help::{Help, command};
use messages::report;
use system::background;
use system::limits;
use system::peer::peer;
use system::process::WatchedProcess;
use token::TOUCH_NOTICE;
use tunnel::tunnel_error;

/// How many processes are asked, since one may end while it is asked. Each may have a person asked for the PIN.
const TRIES: usize = 3;

/// Has the key and the clusters served, by the tunnel process that runs or by a new one. `pins` is where a PIN comes from
/// if the key isn't open. What is waited for is reported. The conversation is for [`sign`].
pub fn register(
    mut registration: Registration,
    pins: &mut dyn PinProvider,
) -> Result<(Registered, Conversation), Error> {
    registration.environment = environment::kept();
    registration.pin_origin = pins.origin();
    match ask(ControlRequest::Register(Box::new(registration)), Some(pins))? {
        Some((Reply::Registered(registered), conversation)) => Ok((registered, conversation)),
        Some((Reply::Failed(failure), _)) => Err(failure),
        _ => Err(out_of_turn()),
    }
}

/// Has the tunnel process sign with the key that was registered in this conversation.
pub fn sign(
    mut conversation: Conversation,
    scheme: Scheme,
    digest: &[u8],
) -> Result<Vec<u8>, Error> {
    // Shown here, since the tunnel process has no terminal.
    let _notice = pin_entry::show_after(limits::TOUCH_NOTICE, TOUCH_NOTICE);
    let sent = conversation.send(&(scheme, digest));
    sent.and_then(|()| conversation.receive()).unwrap_or_else(|_| Err(lost()))
}

/// What the tunnel process serves; `None` if none runs.
pub fn status() -> Result<Option<StatusDocument>, Error> {
    match ask(ControlRequest::Status, None)? {
        None => Ok(None),
        Some((Reply::Status(status), _)) => Ok(Some(status)),
        Some(_) => Err(out_of_turn()),
    }
}

/// Ends the tunnel process, with signals if it doesn't end when asked to, and waits for that. Returns whether there was
/// one.
pub fn stop() -> Result<bool, Error> {
    let socket = socket()?;
    let Some(stream) = connect(&socket)? else { return Ok(false) };
    let found = |reason| unreachable(&socket, &reason);
    let number = peer(&stream).map_err(found)?.process;
    drop(stream);
    let process = match WatchedProcess::new(number) {
        // The process has just ended.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => return Ok(true),
        process => process.map_err(found)?,
    };
    let stopped = ask(ControlRequest::Stop, None);
    if !matches!(stopped, Ok(Some(_))) || !process.ends_within(limits::PROCESS) {
        process.end(limits::PROCESS).map_err(found)?;
    }
    Ok(true)
}

/// The tunnel process's reply to the request; `None` if no process runs. With `pins` for its questions, a process is
/// started if none runs, and if one can't serve the request, its end is waited for. If a process ends while it is asked,
/// the next one is asked.
fn ask(
    request: ControlRequest,
    mut pins: Option<&mut dyn PinProvider>,
) -> Result<Option<(Reply<'static>, Conversation)>, Error> {
    let mut socket = socket()?;
    let greeting = Greeting::new(request);
    let mut is_here = false;
    for _ in 0..TRIES {
        let stream = match pins {
            Some(_) => Some(connect_or_start(&mut socket)?),
            None => connect(&socket)?,
        };
        let Some(stream) = stream else { return Ok(None) };
        let mut conversation = Conversation::new(stream);
        let word = first_word(&mut conversation);
        is_here = word.is_ok();
        let outcome = word.and_then(|()| exchange(&mut conversation, &greeting, &mut pins));
        match outcome {
            Ok(Reply::Gone) if pins.is_some() => conversation.wait_for_end(),
            Ok(reply) => return Ok(Some((reply, conversation))),
            Err(error) if is_end(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(unreachable(&socket, &io::Error::other("it doesn't answer")));
            }
            Err(error) => return Err(unreachable(&socket, &error)),
        }
    }
    if is_here {
        return Err(lost());
    }
    Err(unreachable(&socket, &io::Error::other("it has as many connections as it takes")))
}

/// Greets the process with a request, and answers its questions until it has a reply.
fn exchange(
    conversation: &mut Conversation,
    greeting: &Greeting,
    pins: &mut Option<&mut dyn PinProvider>,
) -> io::Result<Reply<'static>> {
    let patience = if pins.is_some() { limits::OPENING } else { limits::PROCESS };
    conversation.be_patient(patience)?;
    conversation.send(greeting)?;
    reply(conversation, pins.as_deref_mut())
}

/// Waits until the process says that it is there. One that has just been started may take a moment; a longer wait is reported.
pub(super) fn first_word(conversation: &mut Conversation) -> io::Result<()> {
    conversation.be_patient(limits::LOCK_NOTICE)?;
    let word = match conversation.receive() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            report::note("waiting for the tunnel process to start");
            conversation.be_patient(limits::FIRST_WORD)?;
            conversation.receive()
        }
        word => word,
    };
    match word? {
        Reply::Here => Ok(()),
        _ => Err(io::Error::other("it is another version of this program")),
    }
}

/// Answers the process's questions until it has a reply.
pub(super) fn reply(
    conversation: &mut Conversation,
    mut pins: Option<&mut (dyn PinProvider + '_)>,
) -> io::Result<Reply<'static>> {
    loop {
        match (conversation.receive()?, &mut pins) {
            (Reply::ConfirmAtReader(request), Some(pins)) => {
                conversation.send(&pins.confirm_at_reader(&request))?;
            }
            (Reply::Pin(request), Some(pins)) => {
                let pin = pins.pin(&request);
                conversation.send(&pin.as_ref().map(Pin::expose))?;
            }
            (Reply::AtReader(notice), _) => report::note(&notice),
            (Reply::Waiting(holder), _) => library::note_wait(holder),
            (reply, _) => return Ok(reply),
        }
    }
}

/// Connects to the tunnel process. If none runs, this process listens in its place, connects, and starts one with the
/// listening socket. It has to connect before: a process that finds no connection waiting ends.
fn connect_or_start(socket: &mut ControlSocket) -> Result<UnixStream, Error> {
    if let Some(stream) = connect(socket)? {
        return Ok(stream);
    }
    socket.lock(|| report::note("waiting for another command that is starting the tunnel process"));
    if let Some(stream) = connect(socket)? {
        return Ok(stream);
    }
    let listener = socket.listen();
    let listener =
        listener.map_err(|reason| no_socket(&format!("{}: {reason}", socket.path().display())))?;
    let stream = connect(socket)?;
    background::start(ARGUMENT, listener.into(), Stdio::null(), environment::kept()).map_err(|reason| {
        socket.remove();
        tunnel_error(
            format!("the tunnel process can't be started: {reason}"),
            "find out what is short: memory, processes, or open files (`ulimit -u`, `ulimit -n`)",
        )
    })?;
    stream.ok_or_else(lost)
}

fn socket() -> Result<ControlSocket, Error> {
    ControlSocket::find().map_err(|reason| no_socket(&reason))
}

fn connect(socket: &ControlSocket) -> Result<Option<UnixStream>, Error> {
    socket.connect().map_err(|reason| unreachable(socket, &reason))
}

/// Whether the error says that the other process has ended, and not merely been silent.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// The error for a tunnel process that was stopped or killed, or has crashed.
fn lost() -> Error {
    tunnel_error("the tunnel process has ended before it answered", "run the command again")
}

fn no_socket(reason: &str) -> Error {
    tunnel_error(
        format!("no place for the control socket: {reason}"),
        "make sure that one of those directories is yours alone (mode 0700) and its disk is not full; where there is \
         none, set XDG_RUNTIME_DIR to one",
    )
}

/// The error for a tunnel process that hangs, serves as many connections as it can, or is another build of this program.
fn unreachable(socket: &ControlSocket, reason: &io::Error) -> Error {
    tunnel_error(
        format!("the tunnel process can't be reached at {}: {reason}", socket.path().display()),
        Help::from("end it with ").and(command("stop")).and(", and run the command again"),
    )
}

fn out_of_turn() -> Error {
    Error::internal("the tunnel process has answered another question")
}
