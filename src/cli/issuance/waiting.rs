//! Waiting for people and for clocks, and how the time is shown.

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use crypto::certificate::{Certificate, rfc_3339};
use messages::report;
use system::clock::unix_time;

/// How far the clock of a signer may be ahead, in seconds: until then, its certificates are waited for.
const LONGEST_SKEW: i64 = 60;
/// The pause between two looks at this machine's clock.
const PAUSE: Duration = Duration::from_millis(200);
/// Says that a person's approval is waited for. At a terminal, the line shows the time that is left, and changes.
pub(super) struct WaitingClock {
    limit: String,
    has_terminal: bool,
    is_shown: bool,
}

impl WaitingClock {
    /// Begins to wait for at most `limit`, in words such as `5 minutes`.
    pub(super) fn new(limit: &str) -> Self {
        let has_terminal = io::stderr().is_terminal();
        Self { limit: limit.to_owned(), has_terminal, is_shown: false }
    }

    pub(super) fn show(&mut self, left: Duration) {
        if self.has_terminal {
            let (minutes, seconds) = (left.as_secs() / 60, left.as_secs() % 60);
            report::in_place(&format!("  waiting for the approval, {minutes}:{seconds:02} left"));
        } else if !self.is_shown {
            report::lines(&format!("  waiting for the approval, at most {}", self.limit));
        }
        self.is_shown = true;
    }

    pub(super) fn end(&mut self) {
        if self.has_terminal && self.is_shown {
            report::in_place("");
        }
        self.is_shown = false;
    }
}

impl Drop for WaitingClock {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a certificate that will be valid in a moment: the clock of its signer may be ahead of this machine's.
pub(in crate::cli) fn wait_until_valid(certificate: &Certificate) {
    let begin = certificate.validity.not_before;
    let left = || begin.saturating_sub(unix_time());
    if (1..=LONGEST_SKEW).contains(&left()) {
        report::note(&format!(
            "the certificate of {} is valid from {} on; waiting for that",
            certificate.subject,
            rfc_3339(begin)
        ));
        while (1..=LONGEST_SKEW).contains(&left()) {
            thread::sleep(PAUSE);
        }
    }
}

/// A duration in words, in the largest unit that leaves no rest and of which there are several. From two days on, it is
/// given in days, about.
pub(in crate::cli) fn shown_duration(seconds: Option<i64>) -> String {
    let Some(seconds) = seconds else {
        return "as the signer chooses (often one year)".to_owned();
    };
    const DAY: i64 = 86_400;
    let units = [(DAY, "days"), (3_600, "hours"), (60, "minutes")];
    match units.iter().find(|(size, _)| seconds >= 2 * size && seconds % size == 0) {
        Some((size, unit)) if *size == DAY || seconds < 2 * DAY => {
            format!("{} {unit}", seconds / size)
        }
        _ if seconds >= 2 * DAY => format!("about {} days", seconds / DAY),
        _ => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_the_largest_unit_that_it_is_made_of() {
        for (seconds, expected) in [
            (Some(600), "10 minutes"),
            (Some(3_600), "60 minutes"),
            (Some(31_536_000), "365 days"),
            (Some(601), "601 seconds"),
            (Some(90_000), "25 hours"),
            (Some(180_000), "about 2 days"),
            (Some(2_147_483_647), "about 24855 days"),
            (Some(-600), "-600 seconds"),
        ] {
            assert_eq!(shown_duration(seconds), expected);
        }
        assert!(shown_duration(None).contains("signer"));
    }
}
