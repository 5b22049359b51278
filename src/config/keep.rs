//! How long a key stays open in the tunnel process, and how durations are written.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a client wants its key to stay open. If several clients have wishes for a key, the shortest holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Keep {
    /// The key stays open until the last program that uses it has ended. The external signer's requests name no
    /// program.
    #[default]
    Command,
    /// The key stays open for so long after its last use, including the time in which the machine sleeps.
    For(Duration),
    /// The key stays open until the terminal's session leader, usually the shell, has ended.
    Terminal,
}

/// The longest time that a key can stay open after its last use.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl FromStr for Keep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "command" => Ok(Self::Command),
            "terminal" => Ok(Self::Terminal),
            _ => duration(text).ok().filter(|duration| *duration <= LONGEST).map(Self::For).ok_or(
                "it must be command, terminal or a duration such as 15m or 1h30m, from 1s to 7d",
            ),
        }
    }
}

/// The text that [`Keep`] is parsed from.
impl Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command => f.write_str("command"),
            Self::Terminal => f.write_str("terminal"),
            Self::For(duration) => {
                f.write_str(&humantime::format_duration(*duration).to_string().replace(' ', ""))
            }
        }
    }
}

/// Parses a duration: numbers with units, such as `1h30m`, that make whole seconds and at least one. The error follows
/// the text that was given.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text)
        .ok()
        .filter(|duration| duration.as_secs() > 0 && duration.subsec_nanos() == 0)
        .ok_or("it is not a duration such as 5m or 1h30m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for (text, seconds) in
            [("15m", 900), ("90s", 90), ("1h30m", 5_400), ("7d", 604_800), ("1d1h1m1s", 90_061)]
        {
            let keep: Keep = text.parse().unwrap();
            assert_eq!(keep, Keep::For(Duration::from_secs(seconds)));
            assert_eq!(keep.to_string().parse(), Ok(keep));
        }
        for keep in [Keep::Command, Keep::Terminal] {
            assert_eq!(keep.to_string().parse(), Ok(keep));
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "15", "m", "0s", "100ms", "-1m", "8d", "Terminal", "1m2", "99999999999999999999d"]
        {
            text.parse::<Keep>().unwrap_err();
        }
    }
}
