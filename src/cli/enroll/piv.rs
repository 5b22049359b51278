//! What a YubiKey's slot is made with: `--slot`, `--pin-policy` and `--touch-policy`.

use crate::cli::key_options::HEADING;
use crate::token::{PivSlot, SlotOptions, SlotPolicy};

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct PivOptions {
    /// The slot of a YubiKey, instead of --object-id: 9a, 9c, 9d, 9e, or 82 to 95
    #[arg(long, value_name = "SLOT", value_parser = slot, conflicts_with = "object_id", help_heading = HEADING)]
    pub(super) slot: Option<PivSlot>,
    /// When a YubiKey wants its PIN for the new key: default, never, once or always
    #[arg(long, value_name = "POLICY", value_parser = pin_policy, conflicts_with = "certificate")]
    pin_policy: Option<SlotPolicy>,
    /// When it wants to be touched for it: default, never, always or cached (for 15 seconds)
    #[arg(long, value_name = "POLICY", value_parser = touch_policy, conflicts_with = "certificate")]
    touch_policy: Option<SlotPolicy>,
}

impl PivOptions {
    /// One of them that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        [
            (self.slot.is_some(), "--slot"),
            (self.pin_policy.is_some(), "--pin-policy"),
            (self.touch_policy.is_some(), "--touch-policy"),
        ]
        .into_iter()
        .find_map(|(is_given, option)| is_given.then_some(option))
    }

    pub(super) fn of_new_key(&self, replaces: bool) -> SlotOptions {
        SlotOptions { pin_policy: self.pin_policy, touch_policy: self.touch_policy, replaces }
    }

    /// Whether the new key was to have a policy of its own.
    pub(super) fn has_policy(&self) -> bool {
        self.pin_policy.is_some() || self.touch_policy.is_some()
    }
}

fn slot(name: &str) -> Result<PivSlot, &'static str> {
    PivSlot::named(name).ok_or("it is none of 9a, 9c, 9d, 9e and 82 to 95")
}

fn pin_policy(name: &str) -> Result<SlotPolicy, &'static str> {
    SlotPolicy::of_pin(name).ok_or("it is none of default, never, once and always")
}

fn touch_policy(name: &str) -> Result<SlotPolicy, &'static str> {
    SlotPolicy::of_touch(name).ok_or("it is none of default, never, always and cached")
}
