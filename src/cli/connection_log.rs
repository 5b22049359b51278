//! What happens on connections that a command makes for itself.

#![forbid(unsafe_code)]

use crate::error::Error;
use crate::report;
use crate::tunnel::TunnelObserver;

/// Passes on what happens on connections.
pub(super) struct ConnectionLog;

impl TunnelObserver for ConnectionLog {
    fn connection(&self, line: &str) {
        log::info!("{line}");
    }

    /// It is the error of the request, too.
    fn trouble(&self, _: &Error) {}

    fn concern(&self, text: &str) {
        report::warning(text);
    }
}
