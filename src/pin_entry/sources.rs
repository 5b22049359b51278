//! The PIN sources of a configuration, as providers of PINs.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use super::prompt::{Prompt, open_terminal};
use super::queue::{PromptKind, PromptSlot, REFUSED};
use super::{askpass, stored, wrong_length};
use config::PinSource;
use config::pin::{self, Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use system::environment::TakenVariables;
use system::limits;
use system::locked;

/// Where a person has last entered a PIN, and for which token.
static ENTERED: Mutex<Option<(PromptKind, String)>> = Mutex::new(None);

/// The source that a configuration names, as a provider of PINs.
pub struct Sources {
    source: PinSource,
    /// The value of the variable that the source names.
    variable: Option<OsString>,
    /// A PIN that the token has accepted already, for another login.
    accepted: Option<Pin>,
    /// Set once the terminal belongs to a command.
    unattended: Arc<AtomicBool>,
    /// When the PIN was first wanted, if that is earlier than when it is asked for.
    since: Option<SystemTime>,
}

impl Sources {
    /// The provider for a command. It is to be made before a library's lock is taken. `variables` must have the one
    /// that the source names.
    pub fn new(source: PinSource, variables: &TakenVariables) -> Self {
        Self { since: Some(SystemTime::now()), ..Self::for_run(source, variables, Arc::default()) }
    }

    /// The provider for one of several keys of a run. Once `unattended` is set, no question is asked at the terminal.
    pub fn for_run(
        source: PinSource,
        variables: &TakenVariables,
        unattended: Arc<AtomicBool>,
    ) -> Self {
        let variable = source.variable().and_then(|name| variables.get(name));
        let variable = variable.map(OsStr::to_owned);
        Self { source, variable, accepted: None, unattended, since: None }
    }

    /// Gives this PIN at the next request, and only then.
    pub fn accepted(&mut self, pin: Option<Pin>) {
        self.accepted = pin;
    }

    fn is_left(&self) -> bool {
        self.unattended.load(Ordering::Relaxed)
    }

    /// When the PIN was first wanted. Unless it was set before, that is the first call of this function.
    fn since(&mut self) -> SystemTime {
        self.since.take().unwrap_or_else(SystemTime::now)
    }

    /// Opens a prompt at the terminal, unless the terminal belongs to a command by now.
    fn prompt(
        &mut self,
        request: &PinRequest<'_>,
        none: impl FnOnce() -> Error,
    ) -> Result<Prompt, Error> {
        let deadline = Instant::now() + limits::PERSON;
        let since = self.since();
        let token = &request.token;
        if !self.is_left() {
            return Prompt::open(token, since, deadline)?.ok_or_else(none);
        }
        let text =
            format!("token {token} wants a PIN, which can no longer be asked for at the terminal");
        let help = Help::from("end the run or the tunnel process (")
            .and(command("stop"))
            .and(") and start it again, or set pinSource (--pin-source)");
        Err(Error::new(Exit::Login, text).help(help))
    }

    fn ask_by_program(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let deadline = Instant::now() + limits::PERSON;
        let since = self.since();
        let program = askpass::Program::find()?;
        let has_terminal = !self.is_left() && open_terminal().is_some();
        let slot = PromptSlot::take(PromptKind::Window, &request.token, since, deadline)?;
        // Only one program asks on a terminal at a time, whichever it is.
        let is_drawn_on = has_terminal && program.draws_on_terminal();
        let drawn = is_drawn_on
            .then(|| PromptSlot::wait(PromptKind::Terminal, &request.token, deadline))
            .transpose()?;
        let pin = program.ask(request, has_terminal, &slot, deadline)?;
        drop(drawn);
        entered(PromptKind::Window, request);
        Ok(pin)
    }

    fn taken(&self, name: &str) -> Result<Pin, Error> {
        let failure = |reason| {
            let text = format!("pinSource: the environment variable {name} {reason}");
            Error::new(Exit::Login, text).help(
                "export it where the client starts, or choose another pinSource (--pin-source)",
            )
        };
        let value = self.variable.as_ref().ok_or_else(|| failure("is not set"))?;
        value.to_str().and_then(Pin::new).ok_or_else(|| {
            failure("holds no PIN (it is not text, is empty or too long, or has a line ending or control character)")
        })
    }
}

fn entered(kind: PromptKind, request: &PinRequest<'_>) {
    *locked(&ENTERED) = Some((kind, request.token.clone().into_owned()));
}

/// Notes that the command ends with this error. If a person has entered a PIN that has led to no login, that counts as
/// if they had entered none: clients run a program that has failed again. This is to be called after the error was
/// reported.
pub fn failed(error: &Error) {
    let entered = locked(&ENTERED).take();
    if let Some((kind, token)) = entered
        && error.exits_with(Exit::Login)
        && let Ok(slot) = PromptSlot::wait(kind, &token, Instant::now() + limits::OTHER_PROMPT)
    {
        slot.leave(REFUSED);
    }
}

impl PinProvider for Sources {
    fn origin(&mut self) -> PinOrigin {
        PinOrigin::Stored(match &self.source {
            // The program can't be found, and says why when it is asked.
            PinSource::Askpass => {
                return askpass::Program::find()
                    .map_or(PinOrigin::Person, |program| program.origin());
            }
            PinSource::Configuration(_) => "pin in the configuration".to_owned(),
            PinSource::Environment(name) => format!("the environment variable {name}"),
            PinSource::File(path) => format!("the file {}", path.display()),
            PinSource::StandardInput if !stdin().is_terminal() => "standard input".to_owned(),
            PinSource::Prompt | PinSource::StandardInput => return PinOrigin::Person,
        })
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        if let Some(pin) = self.accepted.take().filter(|_| request.confirm.is_none()) {
            return Ok(pin);
        }
        let pin = match &self.source {
            PinSource::Askpass => return self.ask_by_program(request),
            PinSource::Configuration(pin) => pin.duplicate(),
            PinSource::Environment(name) => self.taken(name)?,
            PinSource::File(path) => stored::read_file(path)?,
            // Once a command has the terminal, what comes from it is the command's, too.
            PinSource::StandardInput if !self.is_left() && !stdin().is_terminal() => {
                stored::read_line()?
            }
            PinSource::Prompt | PinSource::StandardInput => {
                let pin = self.prompt(request, || pin::no_pin(&request.token))?.ask(request)?;
                entered(PromptKind::Terminal, request);
                return Ok(pin);
            }
        };
        if request.allows(&pin) { Ok(pin) } else { Err(wrong_length(request, &self.origin())) }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        let none = || pin::final_try(&request.token, &PinOrigin::Reader);
        self.prompt(request, none)?.confirm(request, PinOrigin::Reader)
    }
}
