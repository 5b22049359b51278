//! When a YubiKey wants its PIN and a touch for a key: what options ask for, compared with what the card says of the key.

use attestation::YubiKeyClaims;
use attestation::yubikey::{PinPolicy, TouchPolicy};
use token::{PivSlot, SlotPolicy};

/// When a YubiKey is to want its PIN and a touch for a key. A policy that isn't given may be as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyPolicies {
    pub(super) pin: Option<SlotPolicy>,
    pub(super) touch: Option<SlotPolicy>,
}

impl KeyPolicies {
    /// Whether a key in this slot, of which the card says this, has the policies that are given.
    pub(super) fn are_those_of(self, claims: &YubiKeyClaims, slot: Option<PivSlot>) -> bool {
        self.pin.is_none_or(|wanted| is_pin_policy(wanted, claims.pin_policy, slot))
            && self.touch.is_none_or(|wanted| is_touch_policy(wanted, claims.touch_policy))
    }
}

fn is_pin_policy(wanted: SlotPolicy, present: PinPolicy, slot: Option<PivSlot>) -> bool {
    let name = match present {
        PinPolicy::Never => "never",
        PinPolicy::Once => "once",
        PinPolicy::Always => "always",
        // These policies are about fingerprints, for which there is no option.
        PinPolicy::MatchOnce | PinPolicy::MatchAlways => return false,
    };
    // These are a card's own defaults (Yubico, "YubiKey PIV introduction", slot information).
    let usual = match slot.map(PivSlot::name).as_deref() {
        Some("9c") => PinPolicy::Always,
        Some("9e") => PinPolicy::Never,
        _ => PinPolicy::Once,
    };
    SlotPolicy::of_pin(name) == Some(wanted)
        || present == usual && SlotPolicy::of_pin("default") == Some(wanted)
}

fn is_touch_policy(wanted: SlotPolicy, present: TouchPolicy) -> bool {
    let names: &[&str] = match present {
        TouchPolicy::Never => &["never", "default"],
        TouchPolicy::Always => &["always"],
        TouchPolicy::Cached => &["cached"],
    };
    names.iter().any(|name| SlotPolicy::of_touch(name) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_that_of_the_key_or_the_usual_one_of_its_slot() {
        let pin = |name: &str, present, slot: &str| {
            is_pin_policy(SlotPolicy::of_pin(name).unwrap(), present, PivSlot::named(slot))
        };
        assert!(pin("once", PinPolicy::Once, "9a") && pin("default", PinPolicy::Once, "82"));
        assert!(pin("default", PinPolicy::Always, "9c") && pin("default", PinPolicy::Never, "9e"));
        assert!(!pin("default", PinPolicy::Always, "9a") && !pin("never", PinPolicy::Once, "9a"));
        assert!(!pin("always", PinPolicy::MatchAlways, "9a"));
        let touch =
            |name: &str, present| is_touch_policy(SlotPolicy::of_touch(name).unwrap(), present);
        assert!(touch("default", TouchPolicy::Never) && touch("cached", TouchPolicy::Cached));
        assert!(!touch("default", TouchPolicy::Always) && !touch("always", TouchPolicy::Cached));
    }
}
