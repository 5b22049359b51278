//! The sources of a configuration, in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::prompt::{Prompt, open_terminal};
use super::queue::{CANCELLED, PromptPlace, PromptSlot, REFUSED, TIMED_OUT};
use super::{askpass, file, standard_input, wrong_length};
use crate::config::PinSource;
use crate::error::Error;
use crate::pin::{Pin, PinError, PinKind, PinOrigin, PinProvider, PinRequest};
use crate::process::environment::{NotUtf8, TakenVariables};
use crate::process::watchdog;

/// The exit code of failed logins.
const NO_LOGIN: u8 = 7;

/// Where this run's PIN comes from.
pub struct Sources {
    source: PinSource,
    /// What stood in the variable that the source names.
    variable: Taken,
    /// Set when the terminal belongs to a command.
    unattended: Arc<AtomicBool>,
    /// Without a terminal, a prompt doesn't look for its PIN on standard input.
    leaves_input: bool,
    /// Since when a PIN is wanted, where that is longer than it is asked for.
    since: Option<SystemTime>,
    /// Where a person entered a PIN last, and for which token.
    entered: Option<(PromptPlace, String)>,
}

type Taken = Option<Result<String, NotUtf8>>;

/// Where `pinSource` prompt and stdin have the PIN from, as things are.
enum Attended {
    /// The next line of standard input, which was announced.
    Line,
    Prompt,
    /// What is on standard input without a terminal, if it is a PIN and nothing else.
    WholeInput,
}

impl Sources {
    /// To be made before the lock on a library is taken. A variable that the source names has to be
    /// among `variables`.
    pub fn new(source: PinSource, variables: &TakenVariables) -> Self {
        Self { since: Some(SystemTime::now()), ..Self::for_run(source, variables, Arc::default()) }
    }

    /// One of several in the same process. Once `unattended` is set, no question is asked at the
    /// terminal.
    pub fn for_run(
        source: PinSource,
        variables: &TakenVariables,
        unattended: Arc<AtomicBool>,
    ) -> Self {
        let value = source.variable().and_then(|name| variables.get(name));
        let variable = value.map(|value| value.map(str::to_owned));
        Self { source, variable, unattended, leaves_input: false, since: None, entered: None }
    }

    /// For what only a person gives, whatever the configuration's source of the PIN is: the terminal, or
    /// without one the program of `pinSource: askpass`.
    pub fn of_person(source: &PinSource) -> Self {
        let is_program = match source {
            PinSource::Askpass => true,
            _ => {
                let program = askpass::Program::find();
                open_terminal().is_none() && program.is_ok_and(|it| it.can_show_itself())
            }
        };
        let source = match is_program {
            true => PinSource::Askpass,
            false => PinSource::Prompt,
        };
        Self { leaves_input: true, ..Self::new(source, &TakenVariables::default()) }
    }

    /// From now on, what is on standard input is a PIN only where that was announced.
    pub fn leave_input(&mut self) {
        self.leaves_input = true;
    }

    /// The command ends so. If a person has entered a PIN and it has led to no login, that is the same as if
    /// none had been entered: clients run a program that has failed again.
    pub fn failed(&mut self, error: &Error) {
        if error.exit_code() == NO_LOGIN
            && let Some((place, token)) = self.entered.take()
            && let Ok(slot) = PromptSlot::wait(place, &token)
        {
            slot.leave(REFUSED);
        }
    }

    fn attended(&self) -> Attended {
        if matches!(self.source, PinSource::StandardInput) && !standard_input::is_terminal() {
            Attended::Line
        } else if self.leaves_input
            || !standard_input::can_hold_a_line()
            || open_terminal().is_some()
        {
            // Without a terminal it says so.
            Attended::Prompt
        } else {
            Attended::WholeInput
        }
    }

    fn is_left(&self) -> bool {
        self.unattended.load(Ordering::Relaxed)
    }

    /// When the PIN was first wanted, the first time this is asked.
    fn since(&mut self) -> SystemTime {
        self.since.take().unwrap_or_else(SystemTime::now)
    }

    fn ask_by_program(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        let since = self.since();
        let program = askpass::Program::find()?;
        let has_terminal = !self.is_left() && open_terminal().is_some();
        let slot = PromptSlot::take(PromptPlace::Window, request.token, since)?;
        let pin = program.ask(request, has_terminal);
        match &pin {
            Ok(_) => self.entered = Some((PromptPlace::Window, request.token.to_owned())),
            Err(PinError::Cancelled { .. }) => slot.leave(CANCELLED),
            Err(PinError::TimedOut { .. }) => slot.leave(TIMED_OUT),
            Err(_) => {}
        }
        pin
    }

    fn taken(&self, name: &str) -> Result<Pin, PinError> {
        let failure = |reason: &'static str| PinError::Environment {
            name: name.to_owned(),
            reason: reason.into(),
        };
        match &self.variable {
            None => Err(failure("is not set")),
            Some(Err(NotUtf8)) => Err(failure("is not UTF-8 text")),
            Some(Ok(value)) => Pin::new(value).ok_or_else(|| {
                failure(
                    "holds no PIN (empty, too long, or with a line ending or control character)",
                )
            }),
        }
    }
}

/// There is no terminal, and no other source.
fn without_person(request: &PinRequest<'_>) -> PinError {
    let token = request.token.to_owned();
    match request.kind {
        PinKind::User => PinError::NoPin { token },
        kind => PinError::NotFromAPerson { kind, token },
    }
}

impl PinProvider for Sources {
    fn origin(&mut self) -> PinOrigin {
        match &self.source {
            PinSource::Askpass => match askpass::Program::find() {
                Ok(program) => program.origin(),
                // Asked, it will say why it can't.
                Err(_) => PinOrigin::Person,
            },
            PinSource::Configuration(_) => PinOrigin::Configuration,
            PinSource::Environment(name) => PinOrigin::Environment(name.clone()),
            PinSource::File(path) => PinOrigin::File(path.clone()),
            PinSource::Prompt | PinSource::StandardInput => match self.attended() {
                Attended::Line | Attended::WholeInput => PinOrigin::StandardInput,
                Attended::Prompt => PinOrigin::Person,
            },
        }
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        let _pause = watchdog::pause();
        let token = request.token.to_owned();
        let pin = match &self.source {
            PinSource::Askpass => return self.ask_by_program(request),
            PinSource::Configuration(pin) => pin.duplicate(),
            PinSource::Environment(name) => self.taken(name)?,
            PinSource::File(path) => file::read(path)?,
            // What is on standard input by then is the command's, too.
            PinSource::Prompt | PinSource::StandardInput if self.is_left() => {
                return Err(PinError::TerminalLeft { token });
            }
            PinSource::Prompt | PinSource::StandardInput => match self.attended() {
                Attended::Line => standard_input::read_line()?,
                Attended::Prompt => {
                    let prompt = Prompt::open(request.token, self.since())?;
                    let pin = prompt.ok_or_else(|| without_person(request))?.ask(request)?;
                    self.entered = Some((PromptPlace::Terminal, token));
                    return Ok(pin);
                }
                Attended::WholeInput => {
                    let pin = standard_input::whole_line(request.shortest, request.longest);
                    return pin.ok_or(PinError::NoPin { token });
                }
            },
        };
        match request.allows(&pin) {
            true => Ok(pin),
            false => Err(wrong_length(request, self.origin())),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        let _pause = watchdog::pause();
        let since = self.since();
        let token = request.token.to_owned();
        if self.is_left() {
            return Err(PinError::TerminalLeft { token });
        }
        let prompt = Prompt::open(request.token, since)?;
        let prompt = prompt.ok_or(PinError::FinalTryAtReader { token })?;
        prompt.confirm(request, PinOrigin::Reader)
    }
}
