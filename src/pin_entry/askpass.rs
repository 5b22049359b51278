//! A PIN from another program: one that a graphical session has for passwords, or pinentry.
//!
//! Which program is for the environment to say and for nobody else, least of all a kubeconfig. It
//! gets an environment of a few known variables, a text to show, and a pipe to answer through.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::file::first_line;
use super::{ANSWER_LIMIT, pinentry, question, wrong_length};
use crate::pin::{MAX_PIN_LENGTH, Pin, PinError, PinOrigin, PinRequest};
use crate::printable::printable;
use crate::process::descriptors::hand_on_none;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// What such a program needs to show itself; nothing else of the environment is handed on.
const KEPT: [&str; 18] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "GPG_TTY",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LOGNAME",
    "PATH",
    "TERM",
    "TMPDIR",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "PINENTRY_USER_DATA",
];

/// A program that asks for a PIN.
#[derive(Clone)]
pub(super) struct Program {
    path: PathBuf,
    is_pinentry: bool,
}

impl Program {
    /// That of `PKCS11_EXTERNAL_SIGNER_ASKPASS`, else of `SSH_ASKPASS`, else pinentry. One that is
    /// named and isn't there is an error: somebody means it.
    pub(super) fn find() -> Result<Self, PinError> {
        for variable in ["PKCS11_EXTERNAL_SIGNER_ASKPASS", "SSH_ASKPASS"] {
            let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) else {
                continue;
            };
            let path = PathBuf::from(path);
            if !path.is_absolute() || !is_executable(&path) {
                return Err(PinError::Askpass {
                    program: path,
                    reason: format!("it is named by {variable}, and is no path of a program"),
                });
            }
            return Ok(Self {
                path,
                is_pinentry: false,
            });
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join("pinentry"))
            .find(|path| is_executable(path))
            .map(|path| Self {
                path,
                is_pinentry: true,
            })
            .ok_or(PinError::NoAskpass)
    }

    pub(super) fn origin(&self) -> PinOrigin {
        PinOrigin::Askpass(self.path.clone())
    }

    /// Asks once. `has_terminal`: there is one, and pinentry may draw on it, since nobody else does.
    pub(super) fn ask(
        &self,
        request: &PinRequest<'_>,
        has_terminal: bool,
    ) -> Result<Pin, PinError> {
        if request.confirm.is_some() && !self.is_pinentry {
            // What such a program answers to a question can't be told from a script's habit.
            return Err(PinError::FinalTry {
                token: request.token.to_string(),
                origin: self.origin(),
            });
        }
        let failed = |reason: String| PinError::Askpass {
            program: self.path.clone(),
            reason,
        };
        let dialog = pinentry::Dialog::new(request, has_terminal);
        let _screen = SavedTerminal::save(has_terminal && self.is_pinentry);
        let child = hand_on_none(&mut self.command(request, has_terminal))
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let is_pinentry = self.is_pinentry;
        let answer = within(child, move |child| {
            if is_pinentry {
                dialog.hold(child)
            } else {
                one_line(child)
            }
        });
        let token = request.token.to_string();
        match answer {
            None => Err(PinError::TimedOut {
                token,
                seconds: ANSWER_LIMIT.as_secs(),
            }),
            Some(Err(error)) => Err(failed(error.to_string())),
            Some(Ok(None)) => Err(PinError::Cancelled { token }),
            Some(Ok(Some(pin))) if request.allows(&pin) => Ok(pin),
            Some(Ok(Some(_))) => Err(wrong_length(request, self.origin())),
        }
    }

    fn command(&self, request: &PinRequest<'_>, has_terminal: bool) -> Command {
        let mut command = Command::new(&self.path);
        command.env_clear().envs(kept(has_terminal));
        if self.is_pinentry {
            command.stdin(Stdio::piped());
        } else {
            let mut text = request
                .notice
                .map_or_else(String::new, |notice| format!("{}\n", printable(notice)));
            text.push_str(&question(request));
            command.arg(text).stdin(Stdio::null());
        }
        command.stdout(Stdio::piped());
        command
    }
}

fn kept(has_terminal: bool) -> Vec<(&'static str, OsString)> {
    KEPT.into_iter()
        .filter(|name| has_terminal || *name != "GPG_TTY")
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .collect()
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The outcome of a talk with the child; `None` where it took too long. The child is killed then.
fn within<T: Send + 'static>(
    mut child: Child,
    talk: impl FnOnce(&mut Child) -> io::Result<T> + Send + 'static,
) -> Option<io::Result<T>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let outcome = talk(&mut child);
        // Whatever it does now, its part is over.
        let _ = child.kill();
        let _ = child.wait();
        let _ = sender.send(outcome);
    });
    let outcome = receiver.recv_timeout(ANSWER_LIMIT).ok();
    if outcome.is_none()
        && let Some(pid) = pid
    {
        // Somebody else may still hold its end of the pipe: who reads that is not waited for.
        let _ = kill_process(pid, Signal::KILL);
    }
    outcome
}

/// The first line of what it prints, if it ends well; `None` for an empty one and for a failure,
/// which is how these programs say that somebody has cancelled.
fn one_line(child: &mut Child) -> io::Result<Option<Pin>> {
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        // As much as a PIN and its line ending can be.
        let mut beginning = output.take(MAX_PIN_LENGTH as u64 + 2);
        beginning.read_to_end(&mut bytes)?;
    }
    Ok(child
        .wait()?
        .success()
        .then(|| first_line(&bytes))
        .flatten())
}

/// The terminal's settings, put back when it is dropped: a pinentry that had to be killed leaves
/// its own behind.
struct SavedTerminal(Option<(File, Termios)>);

impl SavedTerminal {
    fn save(is_wanted: bool) -> Self {
        let terminal = is_wanted.then(|| File::open("/dev/tty").ok()).flatten();
        Self(terminal.and_then(|terminal| {
            let settings = tcgetattr(&terminal).ok()?;
            Some((terminal, settings))
        }))
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        if let Some((terminal, settings)) = &self.0 {
            let _ = tcsetattr(terminal, OptionalActions::Now, settings);
        }
    }
}
