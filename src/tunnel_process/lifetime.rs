//! How long a key stays open, by the wishes of those who use it.

use std::time::Duration;

use crate::config::Keep;

/// What is known of a key's use at one moment.
#[derive(Clone, Debug)]
pub(super) struct Use<'a> {
    /// The wishes, each with whether the process that it is bound to has ended.
    pub(super) wishes: &'a [(Keep, bool)],
    /// A program that was given the credential runs, and its wish doesn't end before it.
    pub(super) has_callers: bool,
    pub(super) has_connections: bool,
    /// The time since the last use.
    pub(super) idle: Duration,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Close,
    /// Until one of the processes ends, or it is used no longer.
    Keep,
    /// The same, for so long at most.
    KeepFor(Duration),
}

impl Use<'_> {
    /// A key in use is never closed. One that isn't is closed with the first wish that has run out.
    pub(super) fn fate(&self) -> Fate {
        if self.has_callers || self.has_connections {
            return Fate::Keep;
        }
        let mut commands = self
            .wishes
            .iter()
            .filter(|(keep, _)| *keep == Keep::Command);
        let are_commands_over = commands.next().is_some();
        let terminal = |(keep, has_ended): &(Keep, bool)| *keep == Keep::Terminal && *has_ended;
        let is_over = are_commands_over || self.wishes.iter().any(terminal);
        if self.wishes.is_empty() || is_over {
            return Fate::Close;
        }
        let limits = self.wishes.iter().filter_map(|(keep, _)| match keep {
            Keep::For(limit) => Some(limit.saturating_sub(self.idle)),
            Keep::Command | Keep::Terminal => None,
        });
        match limits.min() {
            None => Fate::Keep,
            Some(Duration::ZERO) => Fate::Close,
            Some(rest) => Fate::KeepFor(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const UNUSED: Use<'static> = Use {
        wishes: &[],
        has_callers: false,
        has_connections: false,
        idle: MINUTE,
    };

    fn fate(wishes: &[(Keep, bool)]) -> Fate {
        Use { wishes, ..UNUSED }.fate()
    }

    #[test]
    fn a_key_lives_as_long_as_its_wish() {
        assert_eq!(fate(&[]), Fate::Close);
        assert_eq!(fate(&[(Keep::Command, false)]), Fate::Close);
        assert_eq!(fate(&[(Keep::Terminal, false)]), Fate::Keep);
        assert_eq!(fate(&[(Keep::Terminal, true)]), Fate::Close);
        assert_eq!(fate(&[(Keep::For(MINUTE), false)]), Fate::Close);
        let three = Keep::For(3 * MINUTE);
        assert_eq!(fate(&[(three, false)]), Fate::KeepFor(2 * MINUTE));
    }

    #[test]
    fn a_key_in_use_is_kept() {
        for wish in [
            (Keep::Command, true),
            (Keep::Terminal, true),
            (Keep::For(MINUTE), false),
        ] {
            for (has_callers, has_connections) in [(true, false), (false, true)] {
                let used = Use {
                    wishes: &[wish],
                    has_callers,
                    has_connections,
                    ..UNUSED
                };
                assert_eq!(used.fate(), Fate::Keep);
            }
        }
    }

    #[test]
    fn the_shortest_of_several_wishes_holds() {
        let terminal = (Keep::Terminal, false);
        let three = (Keep::For(3 * MINUTE), false);
        let two = (Keep::For(2 * MINUTE), false);
        assert_eq!(fate(&[terminal, (Keep::Command, true)]), Fate::Close);
        assert_eq!(fate(&[terminal, (Keep::Terminal, true)]), Fate::Close);
        assert_eq!(fate(&[terminal, three]), Fate::KeepFor(2 * MINUTE));
        assert_eq!(fate(&[three, two]), Fate::KeepFor(MINUTE));
    }
}
