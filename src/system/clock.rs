//! Clocks.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// The time, in whole seconds since 1970; 0 if the clock is set to a time before that.
pub fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The time since the machine was started, including the time in which it slept.
pub fn time_since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::try_from(now).unwrap_or_default()
}
