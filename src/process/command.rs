//! The command that a run is for: started with what is its own, signalled, waited for.
//!
//! It is in our process group, so that the terminal and a pipeline see one job: keys reach it as
//! if we were not there, and what is sent to us alone is passed on to it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getrlimit, kill_process, setrlimit, waitpid,
};
use rustix::stdio;
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use super::descriptors::{close_on_exec, open_descriptors};
use super::error::RunError;
use super::signals;

/// Above the numbers that a program would take for its own.
const LOWEST_DESCRIPTOR: RawFd = 10;

const PASSED_ON: [i32; 9] = [
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
];

/// What this process was started with and the command is to have, though we change it for
/// ourselves.
pub struct Inheritance {
    /// Standard output, out of reach of what a library prints.
    output: OwnedFd,
    /// Descriptors beyond the first three: a shell's `<(…)`, for one.
    descriptors: Vec<RawFd>,
    core: Rlimit,
    files: Rlimit,
}

impl Inheritance {
    /// To be called before a library is loaded. `core` is the limit before
    /// [`harden`](super::harden::harden).
    pub fn keep(core: Rlimit) -> io::Result<Self> {
        let descriptors = open_descriptors();
        let output = fcntl_dupfd_cloexec(stdio::stdout(), LOWEST_DESCRIPTOR)?;
        stdio::dup2_stdout(stdio::stderr())?;
        let files = getrlimit(Resource::Nofile);
        // Each connection takes two. Programs that use select(2) want the old limit.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: files.maximum,
                maximum: files.maximum,
            },
        );
        Ok(Self {
            output,
            descriptors,
            core,
            files,
        })
    }
}

/// While it lives, no signal ends this process: they are kept for the command.
pub struct Signals {
    received: SignalsInfo<WithOrigin>,
}

impl Signals {
    /// What the parent had ignored (`nohup`) stays ignored, also for the command.
    pub fn hold() -> io::Result<Self> {
        signals::unannounce();
        let wanted = PASSED_ON
            .into_iter()
            .filter(|signal| !signals::is_ignored(*signal));
        Ok(Self {
            received: SignalsInfo::new(wanted)?,
        })
    }

    /// A signal to end, that came while there was no command to end.
    pub fn came_early(&mut self) -> Option<i32> {
        self.received
            .pending()
            .map(|origin| origin.signal)
            .find(|signal| [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(signal))
    }
}

/// A command that runs.
pub struct Running {
    process: Pid,
}

impl Running {
    /// Starts the command with these variables set beyond our environment. From now on the signals
    /// are passed on to it, by a thread of its own.
    ///
    /// # Errors
    /// [`RunError::CommandNotFound`] and [`RunError::Command`]
    pub fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
        inheritance: Inheritance,
        signals: Signals,
    ) -> Result<Self, RunError> {
        let Some((name, arguments)) = command.split_first() else {
            let name = OsString::new();
            return Err(RunError::CommandNotFound { name });
        };
        let failed = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound => RunError::CommandNotFound { name: name.clone() },
            _ => RunError::Command {
                name: name.clone(),
                reason,
            },
        };
        let Inheritance {
            output,
            descriptors,
            core,
            files,
        } = inheritance;
        for descriptor in open_descriptors() {
            if !descriptors.contains(&descriptor) {
                close_on_exec(descriptor);
            }
        }
        let mut command = Command::new(name);
        command.args(arguments).envs(variables).stdout(output);
        // SAFETY: between fork and exec it makes system calls only.
        unsafe {
            command.pre_exec(move || {
                let _ = setrlimit(Resource::Core, core);
                let _ = setrlimit(Resource::Nofile, files);
                Ok(())
            });
        }
        // First, since it can fail: a command that runs is not to be told to be none.
        let receiver = pass_on(signals).map_err(failed)?;
        let process = Pid::from_child(&command.spawn().map_err(failed)?);
        let _ = receiver.send(process);
        Ok(Self { process })
    }

    /// Waits for its end, and gives its exit code as a shell has it. While it is stopped, so are we:
    /// the shell above us waits for that.
    pub fn wait(self) -> io::Result<u8> {
        loop {
            let status = match waitpid(Some(self.process), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) => status,
                Ok(None) | Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let killed = status.terminating_signal().map(|signal| 128 + signal);
            if let Some(code) = status.exit_status().or(killed) {
                return Ok(u8::try_from(code).unwrap_or(255));
            }
            if status.stopped() {
                let _ = kill_process(getpid(), Signal::STOP);
                // In a group of its own it has not been continued with us.
                let _ = kill_process(self.process, Signal::CONT);
            }
        }
    }
}

/// Passes on what somebody sends to us, to the process that is told of. What the terminal sends,
/// it sends to the command as well.
fn pass_on(signals: Signals) -> io::Result<Sender<Pid>> {
    let mut received = signals.received;
    let (receiver, told) = mpsc::channel::<Pid>();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let Ok(process) = told.recv() else { return };
            for origin in &mut received {
                // The kernel, for the terminal, is no process. Somebody outside our PID namespace is
                // one, though its number is 0: what stops a container is.
                let by_somebody = origin
                    .process
                    .is_some_and(|sender| sender.pid != process.as_raw_nonzero().get());
                if let Some(signal) = Signal::from_named_raw(origin.signal)
                    && by_somebody
                {
                    let _ = kill_process(process, signal);
                }
            }
        })?;
    Ok(receiver)
}
