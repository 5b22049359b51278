//! How the command of a run is started, gets the signals that are meant for it, and is waited for.
//!
//! The command is in this program's process group, so that the terminal and a pipeline see one job. Signals of the
//! terminal's keys reach it directly. A signal that is sent to this program alone is passed on to it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getpid, kill_process, setrlimit, waitid,
};
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::descriptors::{hand_on, open_descriptors, raise_limit};
use crate::{output, signals};
use messages::error::{Error, Exit};
use messages::help::{Help, command};

const PASSED_ON: [i32; 9] =
    [SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH];

/// What this process has inherited and changes for itself, but passes on to the command unchanged.
pub struct Inheritance {
    /// Standard output, which the libraries in this process can't print to.
    output: OwnedFd,
    /// Descriptors beyond the first three, such as those of a shell's `<(…)`.
    descriptors: Vec<RawFd>,
    core: Rlimit,
    files: Rlimit,
}

impl Inheritance {
    /// Notes what was inherited. To be called before a library is loaded. `core` is the limit from before it was lowered.
    pub fn keep(core: Rlimit) -> io::Result<Self> {
        let descriptors = open_descriptors();
        let output = output::duplicate()?;
        Ok(Self {
            output,
            descriptors,
            core,
            // The command gets the old limit, which programs that use select(2) need.
            files: raise_limit(),
        })
    }
}

/// While it exists, signals don't end this process but are kept for the command.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    /// From now on, keeps signals for the command. Those that the parent had ignored (`nohup`) stay ignored, also by the
    /// command.
    pub fn hold() -> io::Result<Self> {
        signals::restore_defaults(&signals::INTERRUPTING);
        let wanted = PASSED_ON.into_iter().filter(|signal| !signals::is_ignored(*signal));
        Ok(Self(SignalsInfo::new(wanted)?))
    }

    /// A signal that ends the process and has come before there was a command to pass it on to.
    pub fn came_early(&mut self) -> Option<i32> {
        let mut received = self.0.pending().map(|origin| origin.signal);
        received.find(|signal| [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(signal))
    }
}

/// The running command of a run.
pub struct Running(Pid);

impl Running {
    /// Starts the command with these variables. From now on a thread passes signals on to it.
    pub fn start(
        command: &[OsString],
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
        inheritance: Inheritance,
        signals: Signals,
    ) -> Result<Self, Error> {
        let Some((name, arguments)) = command.split_first() else {
            return Err(command_not_found("".as_ref()));
        };
        let failed = |reason: io::Error| match reason.kind() {
            io::ErrorKind::NotFound => command_not_found(name),
            _ => {
                let text = format!("{} can't be started: {reason}", name.display());
                Error::new(Exit::NotExecutable, text)
                    .help("check that it is a program that you may execute")
            }
        };
        let Inheritance { output, descriptors, core, files } = inheritance;
        let mut command = Command::new(name);
        command.args(arguments).envs(variables).stdout(output);
        hand_on(&mut command, descriptors);
        // SAFETY: between fork and exec it makes system calls only.
        unsafe {
            command.pre_exec(move || {
                let _ = setrlimit(Resource::Core, core);
                let _ = setrlimit(Resource::Nofile, files);
                Ok(())
            });
        }
        // First, so that after an error no command runs.
        let started = pass_on(signals).map_err(failed)?;
        let process = Pid::from_child(&command.spawn().map_err(failed)?);
        let _ = started.send(process);
        Ok(Self(process))
    }

    /// Waits for the command's end, and returns its exit code or, as a shell does, 128 plus the number of the signal that
    /// has ended it. When the command is stopped, this process stops, too: the shell that has started it waits for that.
    /// The command isn't reaped, so that no other process gets its number while signals are still passed on.
    pub fn wait(self) -> io::Result<u8> {
        let process = WaitId::Pid(self.0);
        let news = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        loop {
            let status = match waitid(process.clone(), news) {
                Ok(Some(status)) => status,
                Ok(None) | Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let killed = status.terminating_signal().map(|signal| 128 + signal);
            if let Some(code) = status.exit_status().or(killed) {
                return Ok(u8::try_from(code).unwrap_or(255));
            }
            // Reads that the command is stopped, so that this isn't seen again.
            let _ = waitid(process.clone(), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
            let _ = kill_process(getpid(), Signal::STOP);
            // A command that has put itself into another group was not continued along with this process.
            let _ = kill_process(self.0, Signal::CONT);
        }
    }
}

fn command_not_found(name: &OsStr) -> Error {
    Error::new(Exit::NotFound, format!("{}: command not found", name.display())).help(
        Help::from("check its spelling and PATH; the command follows `--`, as in ")
            .and(command("run -- kubectl get pods")),
    )
}

/// Starts a thread that passes signals on to the process whose number is sent through the channel: those that other
/// processes have sent. The terminal sends its signals to the command itself.
fn pass_on(signals: Signals) -> io::Result<Sender<Pid>> {
    let Signals(mut received) = signals;
    let (sender, process) = mpsc::channel::<Pid>();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(process) = process.recv() else { return };
        for origin in &mut received {
            // The kernel, which sends the terminal's signals, has no origin. A sender outside this PID namespace has one
            // with the number 0: what stops a container, for instance.
            let is_from_another =
                origin.process.is_some_and(|sender| sender.pid != process.as_raw_nonzero().get());
            if let Some(signal) = Signal::from_named_raw(origin.signal)
                && is_from_another
            {
                let _ = kill_process(process, signal);
            }
        }
    })?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    #[test]
    fn the_number_of_a_command_that_has_ended_is_not_given_to_another_process() {
        for (script, code) in [("exit 3", 3), ("kill -9 $$", 137)] {
            let mut command = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let process = Pid::from_child(&command);
            assert_eq!(Running(process).wait().unwrap(), code);
            assert!(test_kill_process(process).is_ok());
            command.wait().unwrap();
            assert!(test_kill_process(process).is_err());
        }
    }
}
