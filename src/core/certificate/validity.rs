//! When a certificate is valid, in words.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The time in which a certificate counts (RFC 5280, section 4.1.2.5), in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    pub not_before: i64,
    pub not_after: i64,
}

/// What a [`Validity`] says at a given time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValidityState {
    NotYetValid,
    Valid,
    /// Valid for less than a fifth of its life more, and for less than 30 days.
    RenewalDue,
    Expired,
}

impl Validity {
    /// The state at `now`, in seconds since 1970.
    pub fn at(&self, now: i64) -> ValidityState {
        if now > self.not_after {
            ValidityState::Expired
        } else if now < self.not_before {
            ValidityState::NotYetValid
        } else if self.not_after.saturating_sub(now) < self.renewal_period() {
            ValidityState::RenewalDue
        } else {
            ValidityState::Valid
        }
    }

    /// How long before its end it should be renewed, in seconds.
    fn renewal_period(&self) -> i64 {
        let life = self.not_after.saturating_sub(self.not_before);
        (life / 5).min(LONGEST_RENEWAL_PERIOD)
    }

    /// How far its end is from `now` (seconds since 1970): `in 3 months`, `2 days ago`.
    pub fn expiry(&self, now: i64) -> String {
        if now > self.not_after {
            format!("{} ago", duration(now.saturating_sub(self.not_after)))
        } else {
            format!("in {}", duration(self.not_after.saturating_sub(now)))
        }
    }

    /// Why a server refuses it at `now`.
    pub fn concern(&self, now: i64) -> Option<String> {
        match self.at(now) {
            ValidityState::Expired => Some(format!("it expired {}", self.expiry(now))),
            ValidityState::NotYetValid => {
                let wait = duration(self.not_before.saturating_sub(now));
                Some(format!("it is not valid yet, but in {wait}; is the clock right?"))
            }
            ValidityState::RenewalDue | ValidityState::Valid => None,
        }
    }
}

/// The moment, in seconds since 1970, as RFC 3339 writes it; empty for what no calendar has.
pub fn rfc_3339(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|date| date.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// Its day, in UTC: `2026-11-22`.
pub fn day(seconds: i64) -> String {
    let mut day = rfc_3339(seconds);
    day.truncate(day.find('T').unwrap_or_default());
    day
}

const LONGEST_RENEWAL_PERIOD: i64 = 30 * DAY;
const YEAR: i64 = 365 * DAY + DAY / 4;
const MONTH: i64 = YEAR / 12;
const DAY: i64 = 24 * HOUR;
const HOUR: i64 = 60 * MINUTE;
const MINUTE: i64 = 60;

/// Rounded down, in the largest unit of which there are at least two or three (days: one): `3 days`.
fn duration(seconds: i64) -> String {
    let (unit, name) = [
        (YEAR, 2 * YEAR, "year"),
        (MONTH, 3 * MONTH, "month"),
        (DAY, DAY, "day"),
        (HOUR, HOUR, "hour"),
        (MINUTE, MINUTE, "minute"),
    ]
    .into_iter()
    .find(|(_, from, _)| seconds >= *from)
    .map_or((1, "second"), |(unit, _, name)| (unit, name));
    let count = seconds / unit;
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {name}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn validity(not_before: i64, not_after: i64) -> Validity {
        Validity { not_before: NOW + not_before, not_after: NOW + not_after }
    }

    #[test]
    fn a_concern_is_what_a_server_would_object_to() {
        for (not_before, not_after, expected) in [
            (-DAY, 14 * DAY, None),
            (-DAY, 3 * HOUR, None),
            (-2 * DAY, -DAY, Some("it expired 1 day ago")),
            (-2 * DAY, -30, Some("it expired 30 seconds ago")),
            (
                5 * MINUTE,
                90 * DAY,
                Some("it is not valid yet, but in 5 minutes; is the clock right?"),
            ),
        ] {
            let concern = validity(not_before, not_after).concern(NOW);
            assert_eq!(concern.as_deref(), expected);
        }
    }

    #[test]
    fn a_renewal_is_due_in_the_last_fifth_of_a_life_and_30_days_before_its_end_at_most() {
        for (not_before, not_after, expected) in [
            (-4 * YEAR, 30 * DAY, ValidityState::Valid),
            (-4 * YEAR, 30 * DAY - 1, ValidityState::RenewalDue),
            (-80 * DAY, 20 * DAY, ValidityState::Valid),
            (-80 * DAY, 20 * DAY - 2, ValidityState::RenewalDue),
            (-8 * MINUTE, 2 * MINUTE, ValidityState::Valid),
            (-8 * MINUTE, 2 * MINUTE - 2, ValidityState::RenewalDue),
            (-8 * MINUTE, 0, ValidityState::RenewalDue),
            (-8 * MINUTE, -1, ValidityState::Expired),
            (1, 8 * MINUTE, ValidityState::NotYetValid),
        ] {
            let state = validity(not_before, not_after).at(NOW);
            assert_eq!(state, expected, "{not_before} {not_after}");
        }
    }

    #[test]
    fn expiry_is_told_in_the_unit_people_would_take() {
        for (seconds, expected) in [
            (0, "in 0 seconds"),
            (90 * MINUTE, "in 1 hour"),
            (90 * DAY, "in 90 days"),
            (92 * DAY, "in 3 months"),
            (23 * MONTH, "in 23 months"),
            (2 * YEAR, "in 2 years"),
            (-400 * DAY, "13 months ago"),
        ] {
            assert_eq!(validity(-10 * YEAR, seconds).expiry(NOW), expected);
        }
        let forever = Validity { not_before: i64::MIN, not_after: i64::MAX };
        assert_eq!(forever.at(i64::MIN), ValidityState::Valid);
        assert!(forever.expiry(-1).starts_with("in "));
    }
}
