//! What a token has refused, remembered beyond this process: a wrong PIN that nobody types must not
//! be sent again by the next request, nor by those that run beside this one.
//!
//! The token's own memory is CKF_USER_PIN_COUNT_LOW (PKCS#11, section 3.2). Not all modules report
//! it, so a marker stands beside it, with the token's name and the time. It says nothing of the
//! PIN: whatever could recognise the refused one again, a thief could try PINs against. So only a
//! PIN file that was changed since is known to be another PIN; otherwise a person has to log in.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::slot::{PinState, TokenState};
use crate::error::PinOrigin;
use crate::process::marker::Marker;

/// The memory of one token.
pub(super) struct Refusals {
    marker: Option<Marker>,
}

impl Refusals {
    pub(super) fn of(token: &TokenState) -> Self {
        // Without the slot, which moves.
        let subject = [
            token.manufacturer.as_str(),
            &token.model,
            &token.name.serial,
            &token.name.label,
        ]
        .join("\0");
        Self {
            marker: Marker::of("refused", &subject),
        }
    }

    /// Whether a stored PIN may be the one that was refused.
    pub(super) fn may_include(&self, state: &TokenState, origin: &PinOrigin) -> bool {
        match (self.marker.as_ref().and_then(Marker::time), origin) {
            (Some(refused), PinOrigin::File(path)) => {
                changed(path).is_none_or(|changed| changed <= refused)
            }
            (Some(_), _) => true,
            (None, _) => state.pin == PinState::CountLow,
        }
    }

    /// To be called for each refused PIN, whoever gave it.
    pub(super) fn remember(&self, token: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        if let Some(marker) = &self.marker {
            marker.leave(&format!("token {token} refused a PIN at {seconds}"));
        }
    }

    /// To be called for each login.
    pub(super) fn forget(&self) {
        if let Some(marker) = &self.marker {
            marker.remove();
        }
    }
}

/// When the file got its content or its name (st_ctime, which nobody can set back).
fn changed(path: &Path) -> Option<SystemTime> {
    let found = fs::metadata(path).ok()?;
    let seconds = u64::try_from(found.ctime()).ok()?;
    let nanoseconds = u32::try_from(found.ctime_nsec()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}
