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

/// What to do with a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyAction {
    Close,
    /// Until one of the processes ends, or it is used no longer.
    Keep,
    /// The same, for so long at most.
    KeepFor(Duration),
}

impl KeyUse {
    /// A key in use is never closed.
    pub(super) fn action(&self) -> KeyAction {
        match self.requested() {
            _ if self.has_callers || self.has_connections => KeyAction::Keep,
            KeyAction::Close if !self.awaited.is_zero() => KeyAction::KeepFor(self.awaited),
            action => action,
        }
    }

    /// Whether a further client may use the key without a PIN. What is open for a client whose caller has ended
    /// isn't open for others.
    pub(super) fn admits_clients(&self) -> bool {
        self.has_callers || self.requested() != KeyAction::Close
    }

    /// A key that isn't in use is closed with the first `keep` that has run out.
    fn requested(&self) -> KeyAction {
        let is_over = |(keep, has_ended): &(Keep, bool)| match keep {
            Keep::Command => true,
            Keep::Terminal => *has_ended,
            Keep::For(limit) => *limit <= self.idle,
        };
        if self.keep_requests.is_empty() || self.keep_requests.iter().any(is_over) {
            return KeyAction::Close;
        }
        let limits = self.keep_requests.iter().filter_map(|(keep, _)| match keep {
            Keep::For(limit) => Some(limit.saturating_sub(self.idle)),
            Keep::Command | Keep::Terminal => None,
        });
        limits.min().map_or(KeyAction::Keep, KeyAction::KeepFor)
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

    fn action(keep_requests: &[(Keep, bool)]) -> KeyAction {
        let used = KeyUse { keep_requests: keep_requests.to_vec(), ..UNUSED };
        assert_eq!(used.admits_clients(), used.action() != KeyAction::Close);
        used.action()
    }

    #[test]
    fn a_key_lives_as_long_as_its_wish() {
        assert_eq!(action(&[]), KeyAction::Close);
        assert_eq!(action(&[(Keep::Command, false)]), KeyAction::Close);
        assert_eq!(action(&[(Keep::Terminal, false)]), KeyAction::Keep);
        assert_eq!(action(&[(Keep::Terminal, true)]), KeyAction::Close);
        assert_eq!(action(&[(Keep::For(MINUTE), false)]), KeyAction::Close);
        let three = Keep::For(3 * MINUTE);
        assert_eq!(action(&[(three, false)]), KeyAction::KeepFor(2 * MINUTE));
    }

    #[test]
    fn a_key_in_use_is_kept() {
        for wish in [(Keep::Command, true), (Keep::Terminal, true), (Keep::For(MINUTE), false)] {
            for (has_callers, has_connections) in [(true, false), (false, true)] {
                let used =
                    KeyUse { keep_requests: vec![wish], has_callers, has_connections, ..UNUSED };
                assert_eq!(used.action(), KeyAction::Keep);
                // A connection alone may be that of a command that has ended.
                assert_eq!(used.admits_clients(), has_callers);
            }
        }
    }

    #[test]
    fn a_client_that_can_not_be_watched_has_a_while_to_connect() {
        let used =
            KeyUse { keep_requests: vec![(Keep::Command, false)], awaited: FIRST_USE, ..UNUSED };
        assert_eq!(used.action(), KeyAction::KeepFor(FIRST_USE));
        assert!(!used.admits_clients());
    }

    #[test]
    fn the_shortest_of_several_wishes_holds() {
        let terminal = (Keep::Terminal, false);
        let three = (Keep::For(3 * MINUTE), false);
        let two = (Keep::For(2 * MINUTE), false);
        assert_eq!(action(&[terminal, (Keep::Command, true)]), KeyAction::Close);
        assert_eq!(action(&[terminal, (Keep::Terminal, true)]), KeyAction::Close);
        assert_eq!(action(&[terminal, three]), KeyAction::KeepFor(2 * MINUTE));
        assert_eq!(action(&[three, two]), KeyAction::KeepFor(MINUTE));
    }
}
