//! Which server each local port was chosen for, in whichever of this user's kubeconfigs.
//!
//! A port is free for another program as long as no tunnel serves it. So two kubeconfigs could be given the same
//! one for two clusters, above all at the same moment.

use crate::process::fnv_1a;
use crate::process::lock::{self, Lock};

/// The name of the lock whose lines they are.
const NAME: &str = "local ports of kubeconfigs";

/// Locked against the user's other commands that choose a port, until this is dropped. Where there can be no lock,
/// each chooses by itself.
pub(super) struct LocalPorts(Option<Lock>);

impl LocalPorts {
    pub(super) fn lock() -> Self {
        Self(Lock::acquire_within(lock::LIMIT, NAME, &mut |_| {}).ok())
    }

    /// Whether the port was given to another server.
    pub(super) fn is_anothers(&self, port: u16, server: &str) -> bool {
        let own = line(port, server);
        let begin = format!("{port} ");
        let lines = self.0.as_ref().map(Lock::lines).unwrap_or_default();
        lines.iter().any(|it| it.starts_with(&begin) && *it != own)
    }

    /// Notes that it is this server's from now on.
    pub(super) fn give(&mut self, port: u16, server: &str) {
        let own = line(port, server);
        if let Some(lock) = &mut self.0
            && !lock.lines().contains(&own)
        {
            // What can't be noted was chosen all the same.
            let _ = lock.add(&own);
        }
    }
}

/// A server's URL can be long.
fn line(port: u16, server: &str) -> String {
    format!("{port} {:016x}", fnv_1a(server))
}
