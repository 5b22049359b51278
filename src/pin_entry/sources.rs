//! The sources of a configuration, in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::prompt::Terminal;
use super::queue::{Place, PromptSlot};
use super::{askpass, file, standard_input, wrong_length};
use crate::config::PinSource;
use crate::pin::{Pin, PinError, PinOrigin, PinProvider, PinRequest};
use crate::process::environment::{NotUtf8, TakenVariables};
use crate::process::watchdog;

/// Where this run's PIN comes from.
pub struct Sources {
    source: PinSource,
    /// What stood in the variable that the source names.
    variable: Taken,
    /// The terminal has been left to somebody else.
    unattended: Arc<AtomicBool>,
    /// Without a terminal, a prompt doesn't look for its PIN on standard input.
    leaves_input: bool,
    /// Since when a PIN is wanted, where that is longer than it is asked for.
    since: Option<SystemTime>,
}

type Taken = Option<Result<String, NotUtf8>>;

impl Sources {
    /// To be made before the lock on a library is taken. A variable that the source names has to be
    /// among `variables`.
    pub fn new(source: PinSource, variables: &TakenVariables) -> Self {
        Self {
            since: Some(SystemTime::now()),
            ..Self::for_run(source, variables, Arc::default())
        }
    }

    /// One of several in the same process; nobody is asked at the terminal once `unattended` is
    /// set.
    pub fn for_run(
        source: PinSource,
        variables: &TakenVariables,
        unattended: Arc<AtomicBool>,
    ) -> Self {
        let value = source.variable().and_then(|name| variables.get(name));
        let variable = value.map(|value| value.map(str::to_owned));
        Self {
            source,
            variable,
            unattended,
            leaves_input: false,
            since: None,
        }
    }

    /// From now on, what is on standard input is a PIN only where that was announced.
    pub fn leave_input(&mut self) {
        self.leaves_input = true;
    }

    /// From a program.
    fn asked_of_program(
        &self,
        request: &PinRequest<'_>,
        since: SystemTime,
    ) -> Result<Pin, PinError> {
        let program = askpass::Program::find()?;
        let is_left = self.unattended.load(Ordering::Relaxed);
        let has_terminal = !is_left && Terminal::open().is_some();
        let slot = PromptSlot::take(Place::Window, request.token, since)?;
        program.ask(request, has_terminal).inspect_err(|error| {
            if matches!(
                error,
                PinError::Cancelled { .. } | PinError::TimedOut { .. }
            ) {
                slot.cancelled();
            }
        })
    }

    fn taken(&self, name: &str) -> Result<Pin, PinError> {
        let failure = |reason| PinError::Environment {
            name: name.to_owned(),
            reason,
        };
        match &self.variable {
            None => Err(failure("is not set")),
            Some(Err(NotUtf8)) => Err(failure("is not UTF-8 text")),
            Some(Ok(value)) => {
                Pin::new(value).ok_or_else(|| failure("is empty or too long for a PIN"))
            }
        }
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
            PinSource::StandardInput if !standard_input::is_terminal() => PinOrigin::StandardInput,
            PinSource::Prompt | PinSource::StandardInput => {
                // Asked, they will say that there is no terminal.
                if self.leaves_input
                    || !standard_input::can_hold_a_line()
                    || Terminal::open().is_some()
                {
                    PinOrigin::Person
                } else {
                    PinOrigin::StandardInput
                }
            }
        }
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, PinError> {
        let _pause = watchdog::pause();
        let since = self.since.take().unwrap_or_else(SystemTime::now);
        self.next(request, since)
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), PinError> {
        let _pause = watchdog::pause();
        let since = self.since.take().unwrap_or_else(SystemTime::now);
        let token = request.token.to_string();
        if self.unattended.load(Ordering::Relaxed) {
            return Err(PinError::TerminalLeft { token });
        }
        let Some(terminal) = Terminal::open() else {
            return Err(PinError::FinalTryAtReader { token });
        };
        let slot = PromptSlot::take(Place::Terminal, &token, since)?;
        terminal.confirm(request, PinOrigin::Reader, &slot)
    }

    fn insert(&mut self, missing: &str) -> bool {
        let asks = match &self.source {
            PinSource::Prompt => true,
            PinSource::StandardInput => standard_input::is_terminal(),
            _ => false,
        };
        if !asks || self.unattended.load(Ordering::Relaxed) {
            return false;
        }
        let _pause = watchdog::pause();
        let since = self.since.unwrap_or_else(SystemTime::now);
        Terminal::open().is_some_and(|terminal| {
            PromptSlot::take(Place::Terminal, missing, since)
                .is_ok_and(|slot| terminal.insert(missing, &slot))
        })
    }
}

impl Sources {
    fn next(&mut self, request: &PinRequest<'_>, since: SystemTime) -> Result<Pin, PinError> {
        // What is on standard input by then is the command's, too.
        let is_left = self.unattended.load(Ordering::Relaxed);
        let pin = match &self.source {
            PinSource::Prompt | PinSource::StandardInput if is_left => {
                return Err(PinError::TerminalLeft {
                    token: request.token.to_string(),
                });
            }
            PinSource::Askpass => return self.asked_of_program(request, since),
            PinSource::Configuration(pin) => pin.duplicate(),
            PinSource::Environment(name) => self.taken(name)?,
            PinSource::File(path) => file::read(path)?,
            PinSource::StandardInput if !standard_input::is_terminal() => {
                standard_input::read_line()?
            }
            PinSource::Prompt | PinSource::StandardInput => {
                return match Terminal::open() {
                    Some(terminal) => {
                        let place = Place::Terminal;
                        let slot = PromptSlot::take(place, request.token, since)?;
                        terminal.ask(request, &slot)
                    }
                    None => {
                        let line = if self.leaves_input {
                            None
                        } else {
                            standard_input::whole_line(request.shortest, request.longest)
                        };
                        line.ok_or_else(|| PinError::NoPin {
                            token: request.token.to_string(),
                        })
                    }
                };
            }
        };
        if request.allows(&pin) {
            Ok(pin)
        } else {
            Err(wrong_length(request, self.origin()))
        }
    }
}
