//! Reports what happens in the tunnels of a run, the same trouble once for each command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::presence::Presence;
use crate::error::Error;
use crate::report;
use crate::tunnel::TunnelObserver;

/// kubectl asks so often before it gives up, each time at once. For all of them the same trouble is
/// told once; trouble that goes on is told to the next command, too.
const ATTEMPTS: u32 = 5;
/// Who asks so long after the trouble is another command.
const PAUSE: Duration = Duration::from_secs(1);
/// The same trouble is told once in this time, whoever asks.
const SAME_TROUBLE: Duration = Duration::from_secs(2);

pub(super) struct Reporter {
    pub(super) is_verbose: bool,
    pub(super) presence: Arc<Presence>,
    pub(super) reported: Mutex<Repetition>,
}

impl TunnelObserver for Reporter {
    fn connection(&self, line: &str) {
        if self.is_verbose {
            report::note(line);
        }
    }

    fn asked(&self) {
        self.presence.asked();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.note_question(Instant::now());
    }

    fn trouble(&self, error: &Error) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_news(error.to_string(), Instant::now()) {
            drop(reported);
            report::error(error);
        }
    }

    fn concern(&self, text: &str) {
        report::warning(text);
    }
}

/// Tells trouble that is new from an attempt of the same command.
#[derive(Default)]
pub(super) struct Repetition(Option<Trouble>);

/// The trouble that was reported last.
struct Trouble {
    text: String,
    reported_at: Instant,
    /// When it came last.
    last_at: Instant,
    /// How often it has come since it was reported.
    times: u32,
    /// Somebody has asked after a pause.
    is_asked: bool,
}

impl Repetition {
    fn note_question(&mut self, now: Instant) {
        if let Some(trouble) = &mut self.0 {
            trouble.is_asked |= now.saturating_duration_since(trouble.last_at) >= PAUSE;
        }
    }

    /// Whether this is to be reported now.
    fn is_news(&mut self, text: String, now: Instant) -> bool {
        if let Some(known) = self.0.as_mut().filter(|known| known.text == text) {
            known.last_at = now;
            known.times += 1;
            let is_young = now.saturating_duration_since(known.reported_at) < SAME_TROUBLE;
            if is_young || !known.is_asked && known.times < ATTEMPTS {
                return false;
            }
        }
        self.0 = Some(Trouble {
            text,
            reported_at: now,
            last_at: now,
            times: 0,
            is_asked: false,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts, each by when it began and ended, in seconds; whether each was told.
    fn told(attempts: &[(f32, f32, &str)]) -> Vec<bool> {
        let mut reported = Repetition::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs_f32(seconds);
        let told = attempts.iter().map(|(began, ended, text)| {
            reported.note_question(at(*began));
            reported.is_news((*text).to_owned(), at(*ended))
        });
        told.collect()
    }

    #[test]
    fn trouble_is_told_once_for_all_attempts_of_a_command() {
        for duration in [0.1, 10.0] {
            let time = |number: u8| f32::from(number) * duration;
            let attempts: Vec<_> = (0..5).map(|it| (time(it), time(it + 1), "gone")).collect();
            assert_eq!(told(&attempts), [true, false, false, false, false]);
        }
    }

    #[test]
    fn trouble_that_goes_on_is_told_to_the_next_command() {
        // Started by a person; started at once by a script, where each asks once.
        assert_eq!(told(&[(0.0, 5.0, "gone"), (7.0, 12.0, "gone")]), [true; 2]);
        let script = (0_u8..7).map(|it| (f32::from(it), f32::from(it) + 1.0, "gone"));
        let script: Vec<_> = script.collect();
        let times = told(&script).into_iter().filter(|told| *told).count();
        assert_eq!(times, 2);
        // Something else is told at once, and then the first anew.
        let changing = [(0.0, 0.1, "gone"), (0.1, 0.2, "locked"), (0.2, 0.3, "gone")];
        assert_eq!(told(&changing), [true; 3]);
    }
}
