//! Background processes: how this program starts itself as one, and what such a process does first.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

use libc::c_int;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::listen;
use rustix::process::setsid;
use rustix::stdio::{dup2_stdin, stdin};
use signal_hook::low_level::pipe;

use crate::descriptors::{keep_to_this_process, raise_limit};
use crate::signals::{INTERRUPTING, is_ignored, restore_defaults};

/// Starts this program with this argument and environment. It gets `input` as its standard input, `errors` as its standard
/// error, and no other descriptor: a client waits until every process has closed the client's standard output.
pub fn start(
    argument: &str,
    input: OwnedFd,
    errors: Stdio,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<Child> {
    let current = std::env::current_exe()?;
    // The program's file was replaced while this process ran.
    let program = if current.exists() { current } else { "/proc/self/exe".into() };
    let mut command = Command::new(program);
    command.arg(argument).stdin(input).stdout(Stdio::null()).stderr(errors);
    // What the loader's variables load into this process should not get into a process that serves other commands.
    let is_loaders = |name: &OsString| {
        let text = name.as_encoded_bytes();
        text.starts_with(b"LD_") || text.starts_with(b"DYLD_") || text == b"GCONV_PATH"
    };
    command.env_clear().envs(environment.into_iter().filter(|(name, _)| !is_loaders(name)));
    // Nothing is to be done between fork and exec, so that no memory has to be copied.
    keep_to_this_process();
    command.spawn()
}

/// Leaves the session and the terminal of the process that has started this one.
pub fn leave_session() {
    // Fails only for the leader of a group, which a child is not.
    let _ = setsid();
    raise_limit();
}

/// Takes what this process got as its standard input, which is /dev/null from then on.
pub fn take_input() -> io::Result<OwnedFd> {
    let input = fcntl_dupfd_cloexec(stdin(), 3)?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(input)
}

/// Takes the listening socket that this process got as its standard input.
pub fn take_listener() -> io::Result<UnixListener> {
    let listener = UnixListener::from(take_input()?);
    // From now on clients see this process as the one that listens, and not the one that has made the socket.
    listen(&listener, -1)?;
    Ok(listener)
}

/// From now on, a signal that would end the process makes the result readable instead.
pub fn on_termination() -> io::Result<UnixStream> {
    on_signals(&INTERRUPTING)
}

/// From now on, one of these signals, all of which would end the process, makes the result readable instead.
pub fn on_signals(signals: &[c_int]) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    // Needed because signal-hook also calls the earlier handler, which ends the process.
    restore_defaults(signals);
    for signal in signals.iter().copied().filter(|signal| !is_ignored(*signal)) {
        pipe::register(signal, write.try_clone()?)?;
    }
    Ok(read)
}
