//! The start of every process: a request in the environment is answered here; for anything else another program is
//! run, that of the commands.
//!
//! So a process that answers a request holds nothing of theirs, starts in half the time and takes a third of the memory.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Rlimit;

use crate::cli::KubeletCall;
use crate::plugin;
use messages::error::{self, Error, Exit, PLUGIN};
use messages::help::{self, Call};
use messages::report;
use system::environment::{self, SingleThreaded};
use system::output::{StandardOutput, answer_lost};
use system::process::parent;
use system::{descriptors, memory, signals};
use tunnel_process::CallDigest;

/// The variable that holds a request of the external signer protocol.
const REQUEST: &str = "EXTERNAL_SIGNER_PLUGIN_CONFIG";

/// The variable that holds the request of a client of the credential plugin.
pub const CLIENT_REQUEST: &str = "KUBERNETES_EXEC_INFO";

/// The program of the commands. It lies beside that of the requests, which is the one that people and clients run.
const COMMANDS: &str = "pkcs11-external-signer-commands";

/// A hardened process.
pub struct Started {
    /// The limit of core files that it was started with.
    pub core: Rlimit,
    pub alone: SingleThreaded,
    /// What the environment held of the external signer protocol.
    request: Option<OsString>,
}

/// Answers the request in the environment, a call of the credential plugin that the tunnel process has answered before, or
/// a call of kubelet's; the exit code. For anything else it becomes the commands' program.
pub fn request(alone: SingleThreaded) -> u8 {
    if is_call_of_client() {
        open_streams();
        return run(alone, |_| answer_again().unwrap_or_else(become_commands));
    }
    if let Some(call) = KubeletCall::of_this_process() {
        open_streams();
        signals::use_crash_stack();
        return run(alone, |started| call.answer(started));
    }
    if std::env::args_os().len() > 1 || std::env::var_os(REQUEST).is_none() {
        return become_commands();
    }
    open_streams();
    signals::use_crash_stack();
    run(alone, |Started { alone, request, .. }| {
        help::set_call(Call { program: Some(called()), ..Call::default() });
        report::log_steps(report::logged());
        plugin::run(request.unwrap_or_default(), alone)
    })
}

/// Does for the standard streams what Rust's own start does.
fn open_streams() {
    descriptors::open_standard();
    signals::ignore_broken_pipes();
}

/// Whether a client has called the credential plugin.
fn is_call_of_client() -> bool {
    let command = std::env::args_os().nth(1);
    command.is_some_and(|command| command == "credential")
        && std::env::var_os(CLIENT_REQUEST).is_some()
}

/// Has the tunnel process answer the client's call as before; the exit code. `None` if the call has to be made in full.
fn answer_again() -> Option<u8> {
    // Before anything takes time.
    let caller = parent()?;
    let document = tunnel_process::repeat(CallDigest::of_this_process()?, caller)?;
    // What was watched may have been a later process with the number of one that had ended.
    if parent() != Some(caller) {
        return None;
    }
    let written = StandardOutput::set_aside()
        .and_then(|mut client| client.write(&document).map_err(|error| answer_lost(&error)));
    Some(written.map_or_else(|error| report::error_in_one_line(&error), |()| 0))
}

/// Hardens the process and does its work; the exit code.
pub fn run(alone: SingleThreaded, work: impl FnOnce(Started) -> u8) -> u8 {
    let core = memory::harden();
    memory::share_heap();
    signals::install_handlers();
    // A panic's own message could show the value that caused it.
    panic::set_hook(Box::new(|info| {
        system::note_own_fault();
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        report::error(&Error::internal(format!("panic at {location}")));
    }));
    let request = environment::take(REQUEST, &alone);
    let started = Started { core, alone, request };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| work(started)));
    outcome.unwrap_or(Exit::Internal as u8)
}

/// Becomes the program of the commands. Returns only if that fails, with the exit code.
fn become_commands() -> u8 {
    let mut arguments = std::env::args_os();
    // A caller may give none at all.
    let name = arguments.next().unwrap_or_else(|| error::PROGRAM.into());
    let reason = match commands_program() {
        Ok(program) => Command::new(program).arg0(name).args(arguments).exec(),
        Err(error) => error,
    };
    report::error(
        &Error::new(Exit::NotExecutable, format!("{COMMANDS} can't be run: {reason}"))
            .help("install it beside this program, which answers requests alone"),
    )
}

/// The program of the commands, unless it is neither root's nor of whoever this program belongs to: in a directory where
/// others can write, too, somebody could have put it there.
fn commands_program() -> io::Result<PathBuf> {
    let here = std::env::current_exe()?.canonicalize()?;
    let owner = here.metadata()?.uid();
    let program = here.with_file_name(COMMANDS);
    // Who owns a link can lead it elsewhere.
    for found in [program.symlink_metadata()?, program.metadata()?] {
        if ![0, owner].contains(&found.uid()) {
            let reason =
                format!("{} belongs to another user (uid {})", program.display(), found.uid());
            return Err(io::Error::other(reason));
        }
    }
    Ok(program)
}

/// What the user types to run this program.
pub fn called() -> &'static str {
    let called_as = std::env::args_os().next().map(PathBuf::from);
    let name = called_as.as_deref().and_then(Path::file_name);
    if name.is_some_and(|name| name == PLUGIN) { "kubectl pkcs11" } else { error::PROGRAM }
}
