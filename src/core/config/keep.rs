//! How long a key stays open in the tunnel process.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a client wishes for its key; the shortest of several wishes for a key holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Keep {
    /// Until the last program that uses it has ended. A request of the external signer protocol names
    /// none, so there it is the same as no wish.
    #[default]
    Command,
    /// For so long after its last use; the time in which the machine sleeps counts.
    For(Duration),
    /// Until the terminal's session leader, usually the shell, has ended.
    Terminal,
}

/// The text is none of `command`, `terminal` and a duration.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is none of command, terminal and a duration such as 15m or 1h30m, from 1s to 7d")]
pub struct KeepError;

const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl FromStr for Keep {
    type Err = KeepError;

    fn from_str(text: &str) -> Result<Self, KeepError> {
        match text {
            "command" => Ok(Self::Command),
            "terminal" => Ok(Self::Terminal),
            _ => duration(text).map(Self::For).ok_or(KeepError),
        }
    }
}

/// As [`long_duration`], up to seven days.
pub fn duration(text: &str) -> Option<Duration> {
    long_duration(text).filter(|duration| *duration <= LONGEST)
}

/// As Go writes durations: numbers with units, the largest first; from a second on.
pub fn long_duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    for (unit, length) in UNITS {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        if number.is_empty() || !number.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let part = number.parse::<u64>().ok()?.checked_mul(length)?;
        seconds = seconds.checked_add(part)?;
        rest = after;
    }
    let duration = Duration::from_secs(seconds);
    let is_allowed = rest.is_empty() && !duration.is_zero();
    is_allowed.then_some(duration)
}

/// As it is parsed.
impl Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command => f.write_str("command"),
            Self::Terminal => f.write_str("terminal"),
            Self::For(duration) => {
                let mut rest = duration.as_secs();
                for (unit, length) in UNITS {
                    if rest >= length {
                        write!(f, "{}{unit}", rest / length)?;
                        rest %= length;
                    }
                }
                Ok(())
            }
        }
    }
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
        for text in [
            "",
            "15",
            "m",
            "0s",
            "-1m",
            "+1m",
            "1m1h",
            "8d",
            "1.5h",
            "15 m",
            "Terminal",
            "1m2",
            "99999999999999999999s",
            "9999999999999999999d",
            "1m1m",
        ] {
            assert_eq!(text.parse::<Keep>(), Err(KeepError), "{text}");
        }
    }
}
