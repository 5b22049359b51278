//! Which key signs, and what becomes of the others: pure functions of when each was published and used.
//!
//! A new key stands first in the list. It is published at once, and signs as soon as it has been published for so long
//! that every API server knows it. The one before it stays published as long as its tokens live.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::published_key::PublishedKey;

/// How long keys are published before and after they sign.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often API servers ask for the keys.
    pub refresh: Duration,
    /// For how long a key is published before it signs.
    pub publish_first: Duration,
    /// The longest life of a token.
    pub longest_life: Duration,
}

/// What is remembered of the keys of a list, by their ids, beyond the end of the process.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct KeyHistory(BTreeMap<String, KeyUse>);

/// What is remembered of a key.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyUse {
    /// In seconds since 1970.
    pub(crate) published_since: i64,
    /// In seconds since 1970; up to a minute later than the key has signed last, and never earlier.
    pub(crate) last_signed: Option<i64>,
}

/// What a key does at present, and until when.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "time")]
pub enum KeyState {
    /// It is published, and signs from this time on, in seconds since 1970.
    SignsFrom(i64),
    Signs,
    /// Tokens that it has signed may live until this time, in seconds since 1970.
    VerifiesUntil(i64),
    /// Only others have signed with it, and when they did so last isn't known here.
    VerifiesForOthers,
    /// All tokens that it has signed have expired.
    NotNeeded,
}

impl KeyHistory {
    /// Notes that these keys, and no others, are published from now on. A key that was published already goes on.
    pub(crate) fn publish(&mut self, keys: &[PublishedKey], now: i64) {
        self.0.retain(|id, _| keys.iter().any(|key| key.id == *id));
        for key in keys {
            let new = KeyUse { published_since: now, last_signed: None };
            self.0.entry(key.id.clone()).or_insert(new);
        }
    }

    /// Notes that the key has signed. Returns whether the note is worth writing down.
    pub(crate) fn signed(&mut self, id: &str, now: i64) -> bool {
        /// How far the noted time is ahead, in seconds, so that few notes have to be written.
        const LAG: i64 = 60;
        let Some(key) = self.0.get_mut(id) else { return false };
        // A token may live until the noted time and its life: it must never be before the last signature.
        let is_news = key.last_signed.is_none_or(|last| last <= now);
        if is_news {
            key.last_signed = Some(now + LAG);
        }
        is_news
    }

    pub(crate) fn of(&self, id: &str) -> Option<KeyUse> {
        self.0.get(id).copied()
    }

    /// The key that signs now, as an index of the list: the first one that has been published for long enough. If none
    /// has, it is the one that has signed last, or else the last one of the list, which is the oldest.
    pub(crate) fn signer(&self, keys: &[PublishedKey], timing: Timing, now: i64) -> Option<usize> {
        let mut candidates = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let Some(used) = self.of(&key.id).filter(|_| key.signing.is_some()) else { continue };
            if signs_from(used, timing) <= now {
                return Some(index);
            }
            candidates.push((used.last_signed, index));
        }
        candidates.into_iter().max().map(|(_, index)| index)
    }

    /// What each key of the list does.
    pub(crate) fn states(&self, keys: &[PublishedKey], timing: Timing, now: i64) -> Vec<KeyState> {
        let signer = self.signer(keys, timing, now);
        let state = |(index, key): (usize, &PublishedKey)| {
            if signer == Some(index) {
                return KeyState::Signs;
            }
            let used =
                self.of(&key.id).unwrap_or(KeyUse { published_since: now, last_signed: None });
            let is_newer = signer.is_none_or(|signer| index < signer);
            if is_newer && key.signing.is_some() {
                return KeyState::SignsFrom(signs_from(used, timing));
            }
            let Some(last) = used.last_signed else { return KeyState::VerifiesForOthers };
            match last.saturating_add(seconds(timing.longest_life)) {
                end if end > now => KeyState::VerifiesUntil(end),
                _ => KeyState::NotNeeded,
            }
        };
        keys.iter().enumerate().map(state).collect()
    }
}

fn signs_from(used: KeyUse, timing: Timing) -> i64 {
    used.published_since.saturating_add(seconds(timing.publish_first))
}

pub(crate) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use crypto::certificate::{Curve, PublicKey};
    use p256::ecdsa::SigningKey;

    use super::*;
    use crate::key_list::{KeyPlace, ListedKey};

    const HOUR: i64 = 3600;
    const TIMING: Timing = Timing {
        refresh: Duration::from_secs(300),
        publish_first: Duration::from_secs(3600),
        longest_life: Duration::from_secs(24 * 3600),
    };

    fn key(name: u8) -> PublishedKey {
        let place = KeyPlace::File("/".into());
        let listed = ListedKey { name: name.to_string(), place, is_hidden: false };
        let secret = SigningKey::from_slice(&[name; 32]).unwrap();
        let point = secret.verifying_key().to_sec1_point(false).as_bytes().to_vec();
        let public_key = PublicKey::Ecdsa { curve: Curve::P256, point };
        PublishedKey::on_token(&listed, 0, public_key).unwrap()
    }

    /// A key that only others sign with.
    fn of_others(name: u8) -> PublishedKey {
        PublishedKey { signing: None, ..key(name) }
    }

    #[test]
    fn the_only_key_signs_at_once() {
        let mut history = KeyHistory::default();
        let keys = [key(1), of_others(2)];
        history.publish(&keys, 0);
        let expected = [KeyState::Signs, KeyState::VerifiesForOthers];
        assert_eq!(history.states(&keys, TIMING, 0), expected);
        // Others may sign with theirs at any time, for as long as it is listed.
        assert_eq!(history.states(&keys, TIMING, 1000 * HOUR), expected);
    }

    #[test]
    fn a_new_key_is_published_before_it_signs_and_the_old_one_as_long_as_its_tokens_live() {
        let mut history = KeyHistory::default();
        history.publish(&[key(1)], 0);
        let keys = [key(2), key(1)];
        history.publish(&keys, 10 * HOUR);
        assert!(history.signed(&keys[1].id, 10 * HOUR));
        assert!(!history.signed(&keys[1].id, 10 * HOUR + 1));
        let at = |time| history.states(&keys, TIMING, time);
        assert_eq!(at(10 * HOUR), [KeyState::SignsFrom(11 * HOUR), KeyState::Signs]);
        assert_eq!(at(11 * HOUR - 1), [KeyState::SignsFrom(11 * HOUR), KeyState::Signs]);
        let end = 34 * HOUR + 60;
        assert_eq!(at(11 * HOUR), [KeyState::Signs, KeyState::VerifiesUntil(end)]);
        assert_eq!(at(end - 1), [KeyState::Signs, KeyState::VerifiesUntil(end)]);
        assert_eq!(at(end), [KeyState::Signs, KeyState::NotNeeded]);
    }

    #[test]
    fn the_noted_time_is_never_before_the_last_signature() {
        let mut history = KeyHistory::default();
        let keys = [key(1)];
        history.publish(&keys, 0);
        for now in (0..600).step_by(7) {
            history.signed(&keys[0].id, now);
            assert!(history.of(&keys[0].id).unwrap().last_signed > Some(now));
        }
    }

    #[test]
    fn without_a_history_the_oldest_key_signs_first() {
        let mut history = KeyHistory::default();
        let keys = [key(2), key(1), of_others(3)];
        history.publish(&keys, 0);
        assert_eq!(history.signer(&keys, TIMING, 0), Some(1));
        assert_eq!(history.signer(&keys, TIMING, HOUR), Some(0));
    }

    #[test]
    fn the_one_that_signs_goes_on_while_another_is_new() {
        let mut history = KeyHistory::default();
        let keys = [key(2), key(1)];
        history.publish(&keys, 0);
        history.signed(&keys[0].id, 1);
        assert_eq!(history.signer(&keys, TIMING, 2), Some(0));
    }

    #[test]
    fn a_key_that_was_taken_out_is_published_anew() {
        let mut history = KeyHistory::default();
        history.publish(&[key(1)], 0);
        history.publish(&[key(2)], HOUR);
        history.publish(&[key(1), key(2)], 2 * HOUR);
        let since = |name: u8| history.of(&key(name).id).map(|used| used.published_since);
        assert_eq!([1, 2].map(since), [Some(2 * HOUR), Some(HOUR)]);
    }
}
