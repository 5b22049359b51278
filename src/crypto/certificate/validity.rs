//! When a certificate is valid.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use x509_cert::certificate::Raw;
use x509_cert::time::Time;

/// The time in which a certificate counts (RFC 5280, section 4.1.2.5), in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    pub not_before: i64,
    pub not_after: i64,
}

/// Where a moment lies in relation to a certificate's validity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValidityState {
    NotYetValid,
    Valid,
    /// The certificate is still valid, but for less than a fifth of its life and less than 30 days.
    RenewalDue,
    Expired,
}

impl Validity {
    /// The validity of a parsed certificate.
    pub(super) fn of(parsed: &x509_cert::time::Validity<Raw>) -> Self {
        let seconds = |time: Time| time.to_unix_duration().as_secs().cast_signed();
        Self { not_before: seconds(parsed.not_before), not_after: seconds(parsed.not_after) }
    }

    /// The moment from which on the certificate is to be renewed, in seconds since 1970.
    pub fn renewal_due(&self) -> i64 {
        const LONGEST_RENEWAL_PERIOD: i64 = 30 * 24 * 60 * 60;
        let life = self.not_after.saturating_sub(self.not_before);
        self.not_after.saturating_sub((life / 5).min(LONGEST_RENEWAL_PERIOD)).saturating_add(1)
    }

    /// The state of the certificate at `now`, in seconds since 1970.
    pub fn at(&self, now: i64) -> ValidityState {
        if now > self.not_after {
            ValidityState::Expired
        } else if now < self.not_before {
            ValidityState::NotYetValid
        } else if now >= self.renewal_due() {
            ValidityState::RenewalDue
        } else {
            ValidityState::Valid
        }
    }

    /// Why a server refuses the certificate at `now`, in seconds since 1970.
    pub fn concern(&self, now: i64) -> Option<String> {
        match self.at(now) {
            ValidityState::Expired => Some(format!("it expired {}", minute(self.not_after))),
            ValidityState::NotYetValid => {
                let begin = minute(self.not_before);
                Some(format!("it is not valid before {begin}; is the clock right?"))
            }
            ValidityState::RenewalDue | ValidityState::Valid => None,
        }
    }
}

/// A moment, in seconds since 1970, in RFC 3339; empty if no calendar has it.
pub fn rfc_3339(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|date| date.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// A moment, in seconds since 1970, for people: `2026-11-22 14:05 UTC`; empty if no calendar has it.
pub fn minute(seconds: i64) -> String {
    let text = rfc_3339(seconds);
    text.get(..16).map_or_else(String::new, |minute| minute.replacen('T', " ", 1) + " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 15 January 2027, 8:00.
    const NOW: i64 = 1_800_000_000;
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;

    fn validity(not_before: i64, not_after: i64) -> Validity {
        Validity { not_before: NOW + not_before, not_after: NOW + not_after }
    }

    #[test]
    fn a_concern_is_what_a_server_would_object_to() {
        for (not_before, not_after, expected) in [
            (-DAY, 14 * DAY, None),
            (-DAY, 3 * HOUR, None),
            (-2 * DAY, -DAY, Some("it expired 2027-01-14 08:00 UTC")),
            (-2 * DAY, -30, Some("it expired 2027-01-15 07:59 UTC")),
            (
                5 * MINUTE,
                90 * DAY,
                Some("it is not valid before 2027-01-15 08:05 UTC; is the clock right?"),
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
    fn what_no_calendar_has_is_no_date() {
        let forever = Validity { not_before: i64::MIN, not_after: i64::MAX };
        assert_eq!(forever.at(i64::MIN), ValidityState::Valid);
        assert_eq!(minute(i64::MAX), "");
    }
}
