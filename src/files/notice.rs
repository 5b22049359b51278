//! Notices that a person gets only once in a while, whichever of this user's processes would give them.

use std::time::Duration;

use system::clock::unix_time;
use system::limits;

use crate::lock::Lock;

/// Whether the notice of this name, which can be any text, is due: it was not given within the last `pause`. From now on it
/// counts as given. If there is no place for the record, it is always due.
pub fn is_due(name: &str, pause: Duration) -> bool {
    let name = format!("notice {name}");
    let Ok(mut record) = Lock::acquire_within(limits::TOLD_LOCK, &name, &mut |_| {}) else {
        return true;
    };
    let last = record.lines().first().and_then(|line| line.parse().ok());
    let is_due = is_over(pause, last, unix_time());
    if is_due {
        let _ = record.write(&[unix_time().to_string()]);
    }
    is_due
}

/// Whether the pause since `last` is over. A time in the future doesn't count: the clock was set back since.
fn is_over(pause: Duration, last: Option<i64>, now: i64) -> bool {
    let since = last.and_then(|last| u64::try_from(now.checked_sub(last)?).ok());
    since.is_none_or(|since| since >= pause.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_over_in_time_and_for_a_clock_that_was_set_back() {
        let day = Duration::from_secs(86_400);
        assert!(is_over(day, None, 1_000_000));
        assert!(!is_over(day, Some(1_000_000), 1_000_000));
        assert!(!is_over(day, Some(1_000_000), 1_086_399));
        assert!(is_over(day, Some(1_000_000), 1_086_400));
        assert!(is_over(day, Some(1_000_000), 999_999));
    }
}
