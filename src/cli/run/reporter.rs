//! Reports what happens in the tunnels of a run, the same error once for each command.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cli::presence::Presence;
use crate::error::Error;
use crate::report;
use crate::tunnel::TunnelObserver;

/// How often kubectl tries, each time at once, before it gives up. An error is reported once for all
/// of these attempts, and again for the next command.
const ATTEMPTS: u32 = 5;
/// A connection that is asked for so long after an error is another command's.
const PAUSE: Duration = Duration::from_secs(1);
/// The same error is reported at most once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

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

/// Distinguishes a new error from another attempt of the same command.
#[derive(Default)]
pub(super) struct Repetition(Option<ReportedError>);

/// The error that was reported last.
struct ReportedError {
    text: String,
    reported_at: Instant,
    /// When it last occurred.
    last_at: Instant,
    /// How often it has occurred since it was reported.
    times: u32,
    /// A connection was asked for after a pause.
    is_asked: bool,
}

impl Repetition {
    fn note_question(&mut self, now: Instant) {
        if let Some(error) = &mut self.0 {
            error.is_asked |= now.saturating_duration_since(error.last_at) >= PAUSE;
        }
    }

    /// Whether this is to be reported now.
    fn is_news(&mut self, text: String, now: Instant) -> bool {
        if let Some(known) = self.0.as_mut().filter(|known| known.text == text) {
            known.last_at = now;
            known.times += 1;
            let is_young = now.saturating_duration_since(known.reported_at) < REPORT_INTERVAL;
            if is_young || !known.is_asked && known.times < ATTEMPTS {
                return false;
            }
        }
        self.0 = Some(ReportedError {
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
