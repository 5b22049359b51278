//! A PIN from another program: one that a graphical session has for passwords, or pinentry.
//!
//! The environment alone says which program, and never a kubeconfig. It gets a few known variables, and answers through a
//! pipe.

use std::fmt::Display;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::prompt::{Settings, open_terminal};
use super::queue::{CANCELLED, PromptSlot, TIMED_OUT};
use super::stored::TimedInput;
use super::{first_line, pinentry, question, timed_out, wrong_length};
use config::pin::{self, MAX_PIN_LENGTH, Pin, PinOrigin, PinRequest};
use messages::error::{Error, Exit};
use messages::printable::printable;
use system::descriptors::hand_on;
use system::limits;
use system::process::child_ends_within;

/// The variables that such a program needs in order to show itself. Nothing else of the environment is passed on.
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

const CHOOSE_ANOTHER: &str = "set PKCS11_EXTERNAL_SIGNER_ASKPASS to the whole path of a program that asks for \
     passwords (ksshaskpass, ssh-askpass), install pinentry, or choose another pinSource (--pin-source)";

pub(super) struct Program {
    path: PathBuf,
    is_pinentry: bool,
}

impl Program {
    /// Finds the program: the one of `PKCS11_EXTERNAL_SIGNER_ASKPASS`, or else of `SSH_ASKPASS`, or else pinentry. If
    /// one is named and doesn't exist, that is an error, since the user means it.
    pub(super) fn find() -> Result<Self, Error> {
        for variable in ["PKCS11_EXTERNAL_SIGNER_ASKPASS", "SSH_ASKPASS"] {
            let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) else {
                continue;
            };
            let path = PathBuf::from(path);
            if !path.is_absolute() || !is_executable(&path) {
                let reason = format!("{variable} names it, and it is not the path of a program");
                return Err(no_pin(&path, reason));
            }
            return Ok(Self { path, is_pinentry: false });
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders)
            .filter(|folder| folder.is_absolute())
            // On macOS, the pinentry with windows has a name of its own, and may exist beside one without windows.
            .flat_map(|folder| ["pinentry-mac", "pinentry"].map(|name| folder.join(name)))
            .find(|path| is_executable(path))
            .map(|path| Self { path, is_pinentry: true })
            .ok_or_else(|| {
                Error::new(Exit::Login, "pinSource askpass: no program to ask for the PIN")
                    .help(CHOOSE_ANOTHER)
            })
    }

    pub(super) fn origin(&self) -> PinOrigin {
        let path = self.path.clone();
        if self.is_pinentry { PinOrigin::Pinentry(path) } else { PinOrigin::Askpass(path) }
    }

    /// Whether the program may ask on the terminal rather than in a window.
    pub(super) fn draws_on_terminal(&self) -> bool {
        self.is_pinentry
    }

    /// Has the program ask once. With `has_terminal`, pinentry may draw on the terminal, since no other program does.
    pub(super) fn ask(
        &self,
        request: &PinRequest<'_>,
        has_terminal: bool,
        slot: &PromptSlot,
        limit: Instant,
    ) -> Result<Pin, Error> {
        let deadline = limit.min(Instant::now() + limits::ANSWER);
        if request.confirm.is_some() && !self.is_pinentry {
            // Such a program's answer could be a script's, and no person's yes.
            return Err(pin::final_try(&request.token, &self.origin()));
        }
        let failed = |error: io::Error| no_pin(&self.path, error);
        // The settings are restored after the program has ended: it may have to be killed, and leaves its own behind
        // then.
        let is_drawn_on = has_terminal && self.is_pinentry;
        let _settings = is_drawn_on.then(open_terminal).flatten().and_then(Settings::save);
        let child = hand_on(&mut self.command(request, has_terminal), Vec::new()).spawn();
        let mut child = Asking(child.map_err(failed)?);
        match self.talk(request, has_terminal, &mut child.0, deadline) {
            Ok(Some(pin)) if request.allows(&pin) => Ok(pin),
            Ok(Some(_)) => Err(wrong_length(request, &self.origin())),
            Ok(None) => {
                slot.leave(CANCELLED);
                Err(pin::cancelled(&request.token))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                slot.leave(TIMED_OUT);
                Err(timed_out(&request.token))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Talks with the program, and returns the PIN; `None` if a person has given none.
    fn talk(
        &self,
        request: &PinRequest<'_>,
        has_terminal: bool,
        child: &mut Child,
        deadline: Instant,
    ) -> io::Result<Option<Pin>> {
        let Some(output) = child.stdout.take() else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // The deadline also ends the wait if another program still holds the pipe.
        let output = TimedInput { input: output, deadline };
        if let Some(input) = child.stdin.take() {
            return pinentry::ask(request, has_terminal, input, output);
        }
        let mut bytes = Vec::new();
        output.take(MAX_PIN_LENGTH as u64 + 2).read_to_end(&mut bytes)?;
        // By an empty line or a failure, these programs say that a person has cancelled.
        Ok(if is_success(child, deadline)? { first_line(&bytes) } else { None })
    }

    fn command(&self, request: &PinRequest<'_>, has_terminal: bool) -> Command {
        let mut command = Command::new(&self.path);
        let kept = KEPT.into_iter().filter(|name| has_terminal || *name != "GPG_TTY");
        let kept = kept.filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.env_clear().envs(kept);
        if self.is_pinentry {
            command.stdin(Stdio::piped());
        } else {
            let notice = request.notice.iter().map(|notice| format!("{}\n", printable(notice)));
            let text: String = notice.chain([question(request)]).collect();
            command.arg(text).stdin(Stdio::null());
        }
        command.stdout(Stdio::piped());
        command
    }
}

fn no_pin(program: &Path, reason: impl Display) -> Error {
    Error::new(Exit::Login, format!("pinSource: {} gave no PIN: {reason}", program.display()))
        .help(CHOOSE_ANOTHER)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A program that asks for a PIN. It is killed when this is dropped.
struct Asking(Child);

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_success(child: &mut Child, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    if !child_ends_within(child, left)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(child.wait()?.success())
}
