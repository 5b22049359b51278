//! How long a key stays open, by the `keep` settings of those who use it.

use std::time::Duration;

use crate::config::Keep;

/// How long a key stays open for a client that can't be watched: it was handed the credential by a program
/// that has ended since, such as a script around the plugin. Clients connect at once.
pub(super) const FIRST_USE: Duration = Duration::from_secs(15);

/// What is known of a key's use at one moment.
#[derive(Clone, Debug)]
pub(super) struct KeyUse {
    /// The `keep` settings, each with whether the process that it is bound to has ended.
    pub(super) keep_requests: Vec<(Keep, bool)>,
    /// A program that was given the credential runs, and its `keep` doesn't end before it.
    pub(super) has_callers: bool,
    pub(super) has_connections: bool,
    /// How much longer a client that can't be watched may take to connect.
    pub(super) awaited: Duration,
    /// The time since the last use.
    pub(super) idle: Duration,
}

impl KeyUse {
    /// How much longer the key stays open if nothing changes: nothing for one that is to be closed now, and
    /// [`Duration::MAX`] for one in use, or one that only the end of a process closes.
    pub(super) fn rest(&self) -> Duration {
        match self.has_callers || self.has_connections {
            true => Duration::MAX,
            false => self.requested().max(self.awaited),
        }
    }

    /// Whether a further client may use the key without a PIN. What is open for a client whose caller has ended
    /// isn't open for others.
    pub(super) fn admits_clients(&self) -> bool {
        self.has_callers || !self.requested().is_zero()
    }

    /// A key that isn't in use is closed with the first `keep` that has run out.
    fn requested(&self) -> Duration {
        let rests = self.keep_requests.iter().map(|(keep, has_ended)| match keep {
            Keep::Terminal if !has_ended => Duration::MAX,
            Keep::Command | Keep::Terminal => Duration::ZERO,
            Keep::For(limit) => limit.saturating_sub(self.idle),
        });
        rests.min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const UNUSED: KeyUse = KeyUse {
        keep_requests: Vec::new(),
        has_callers: false,
        has_connections: false,
        awaited: Duration::ZERO,
        idle: MINUTE,
    };

    fn rest(keep_requests: &[(Keep, bool)]) -> Duration {
        let used = KeyUse { keep_requests: keep_requests.to_vec(), ..UNUSED };
        assert_eq!(used.admits_clients(), !used.rest().is_zero());
        used.rest()
    }

    #[test]
    fn a_key_lives_as_long_as_its_wish() {
        assert_eq!(rest(&[]), Duration::ZERO);
        assert_eq!(rest(&[(Keep::Command, false)]), Duration::ZERO);
        assert_eq!(rest(&[(Keep::Terminal, false)]), Duration::MAX);
        assert_eq!(rest(&[(Keep::Terminal, true)]), Duration::ZERO);
        assert_eq!(rest(&[(Keep::For(MINUTE), false)]), Duration::ZERO);
        let three = Keep::For(3 * MINUTE);
        assert_eq!(rest(&[(three, false)]), 2 * MINUTE);
    }

    #[test]
    fn a_key_in_use_is_kept() {
        for wish in [(Keep::Command, true), (Keep::Terminal, true), (Keep::For(MINUTE), false)] {
            for (has_callers, has_connections) in [(true, false), (false, true)] {
                let used =
                    KeyUse { keep_requests: vec![wish], has_callers, has_connections, ..UNUSED };
                assert_eq!(used.rest(), Duration::MAX);
                // A connection alone may be that of a command that has ended.
                assert_eq!(used.admits_clients(), has_callers);
            }
        }
    }

    #[test]
    fn a_client_that_can_not_be_watched_has_a_while_to_connect() {
        let used =
            KeyUse { keep_requests: vec![(Keep::Command, false)], awaited: FIRST_USE, ..UNUSED };
        assert_eq!(used.rest(), FIRST_USE);
        assert!(!used.admits_clients());
    }

    #[test]
    fn the_shortest_of_several_wishes_holds() {
        let terminal = (Keep::Terminal, false);
        let three = (Keep::For(3 * MINUTE), false);
        let two = (Keep::For(2 * MINUTE), false);
        assert_eq!(rest(&[terminal, (Keep::Command, true)]), Duration::ZERO);
        assert_eq!(rest(&[terminal, (Keep::Terminal, true)]), Duration::ZERO);
        assert_eq!(rest(&[terminal, three]), 2 * MINUTE);
        assert_eq!(rest(&[three, two]), MINUTE);
    }
}
