//! Connections to clusters: one that a command makes for itself with its key, and what is reported of any connection.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster_api::TokenConnection;
use keyring::{KeyNumber, OpenKeys};
use messages::error::Error;
use messages::report;
use system::locked;
use tunnel::{TunnelObserver, TunnelTarget};

/// How long an error isn't reported again after it was reported: kubectl tries five times before it gives up.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Prepares a connection to the cluster as the user of the key's certificate.
pub(super) fn connect(
    target: TunnelTarget,
    key: KeyNumber,
    keyring: Arc<dyn OpenKeys>,
) -> Result<TokenConnection, Error> {
    TokenConnection::new(target, key, keyring, &(Arc::new(Reporter::default()) as _))
}

/// Reports what happens on connections and, in the tunnels of a run, what the command can't be told.
#[derive(Default)]
pub(super) struct Reporter {
    /// The error that was reported last, and when.
    reported: Mutex<Option<(String, Instant)>>,
}

impl Reporter {
    /// Whether the text is to be reported now, since it is another one than before or was reported long ago.
    fn is_news(&self, text: String, now: Instant) -> bool {
        let mut reported = locked(&self.reported);
        let is_known = reported.as_ref().is_some_and(|(known, at)| {
            *known == text && now.saturating_duration_since(*at) < REPORT_INTERVAL
        });
        if !is_known {
            *reported = Some((text, now));
        }
        !is_known
    }
}

impl TunnelObserver for Reporter {
    fn connection(&self, line: &str) {
        log::info!("{line}");
    }

    fn trouble(&self, error: &Error) {
        if self.is_news(error.to_string(), Instant::now()) {
            report::error(error);
        }
    }

    fn concern(&self, text: &str) {
        report::warning(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_told_once_in_two_seconds() {
        let reporter = Reporter::default();
        let start = Instant::now();
        let is_shown = |seconds, text: &str| {
            reporter.is_news(text.to_owned(), start + Duration::from_secs_f32(seconds))
        };
        let attempts = [(0.0, "gone"), (0.5, "gone"), (1.9, "gone"), (2.1, "gone")];
        assert_eq!(attempts.map(|(at, text)| is_shown(at, text)), [true, false, false, true]);
        // Something else is told at once, and then the first anew.
        let changing = [(2.2, "locked"), (2.3, "gone"), (2.4, "gone")];
        assert_eq!(changing.map(|(at, text)| is_shown(at, text)), [true, true, false]);
    }
}
