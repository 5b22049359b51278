//! PIV cards: YubiKeys behind Yubico's own library, ykcs11, and how to tell a card behind OpenSC, which can do less with
//! it.
//!
//! Behind ykcs11 a slot of the card has one CKA_ID and one certificate. A key is made, and a certificate
//! written, after a login with the management key.

use cryptoki::object::{Attribute, AttributeType};

use super::module::TokenState;
use config::ObjectId;
use crypto::certificate::{Certificate, issuer_of};

/// CKA_ID of slot F9, whose key attests the others and authenticates no user.
pub(super) const ATTESTATION_KEY: [u8; 1] = [25];

/// CKA_YUBICO_TOUCH_POLICY and CKA_YUBICO_PIN_POLICY, which ykcs11 knows from 2.3 on.
const TOUCH_POLICY: u64 = 0x8000_0000 + 0x5955_4201;
const PIN_POLICY: u64 = 0x8000_0000 + 0x5955_4202;

/// The slots of the standard (SP 800-73-4, part 1, section 4.3), and those of the retired keys. Behind ykcs11 and
/// OpenSC, they are CKA_ID 1, 2 and so on.
fn numbers() -> impl Iterator<Item = u8> {
    [0x9a, 0x9c, 0x9d, 0x9e].into_iter().chain(0x82..=0x95)
}

impl TokenState {
    /// Whether this is a YubiKey behind Yubico's own library, in which a [slot](PivSlot) has one key and one certificate.
    /// Yubico's HSM has the same manufacturer but another model. Behind OpenSC, a YubiKey looks like any other card.
    pub fn is_yubikey(&self) -> bool {
        self.manufacturer.starts_with("Yubico") && self.model.starts_with("YubiKey")
    }

    /// Whether this is a PIV card behind OpenSC, which can't write to it, and shows only keys that have a certificate.
    pub fn is_piv_of_opensc(&self) -> bool {
        self.manufacturer.to_lowercase().starts_with("piv_ii") && self.model.contains("PKCS#15")
    }
}

/// Whether this is the placeholder that ykcs11 writes beside each key that it makes: a certificate that no CA has issued.
pub(super) fn is_placeholder(certificate: &Certificate) -> bool {
    issuer_of(certificate.der()).is_none()
        && certificate.subject.starts_with("CN=YubiKey PIV Slot ")
}

/// A slot of a PIV card for a user's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PivSlot(u8);

impl PivSlot {
    /// PIV authentication: the key of a user who logs in.
    pub const AUTHENTICATION: Self = Self(0x9a);
    /// Key management: what is encrypted to others.
    pub const KEY_MANAGEMENT: Self = Self(0x9d);

    /// The slot of this number in hexadecimal digits.
    pub fn named(name: &str) -> Option<Self> {
        numbers().map(Self).find(|slot| slot.name() == name.to_lowercase())
    }

    /// The slot that this CKA_ID stands for.
    pub fn of_id(id: &ObjectId) -> Option<Self> {
        numbers().map(Self).find(|slot| slot.id() == *id)
    }

    /// The CKA_ID of the slot's key.
    pub fn id(self) -> ObjectId {
        let before = numbers().take_while(|number| *number != self.0).count();
        ObjectId::from_bytes(vec![before as u8 + 1])
    }

    /// The number of the slot in hexadecimal digits, as `--slot` takes it.
    pub fn name(self) -> String {
        format!("{:02x}", self.0)
    }
}

/// When the card wants its PIN, or a touch, for a key: the value of one of ykcs11's attributes, where 0 is the card's
/// default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotPolicy {
    attribute: u64,
    value: u8,
}

impl SlotPolicy {
    /// The policy of this name: how often the card wants its PIN.
    pub fn of_pin(name: &str) -> Option<Self> {
        Self::named(name, PIN_POLICY, &["default", "never", "once", "always"])
    }

    /// The policy of this name: how often the card wants a touch. `cached` is once within fifteen seconds.
    pub fn of_touch(name: &str) -> Option<Self> {
        Self::named(name, TOUCH_POLICY, &["default", "never", "always", "cached"])
    }

    fn named(name: &str, attribute: u64, names: &[&str]) -> Option<Self> {
        let value = names.iter().position(|known| *known == name)?;
        Some(Self { attribute, value: u8::try_from(value).ok()? })
    }
}

/// Options for a new key that only a YubiKey has.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotOptions {
    pub pin_policy: Option<SlotPolicy>,
    pub touch_policy: Option<SlotPolicy>,
    /// Whether the key that is in the slot may be overwritten, and so is lost: a person has said so.
    pub replaces: bool,
}

impl SlotOptions {
    /// The attributes of the policies that differ from the card's default.
    pub(super) fn policies(self) -> Vec<Attribute> {
        let given = [self.pin_policy, self.touch_policy].into_iter().flatten();
        let attribute = |SlotPolicy { attribute, value }| {
            Attribute::VendorDefined((AttributeType::VendorDefined(attribute), vec![value]))
        };
        given.filter(|policy| policy.value != 0).map(attribute).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::state_with_label;

    #[test]
    fn a_slot_has_the_id_of_the_libraries() {
        for (name, id) in [("9a", 1), ("9c", 2), ("9d", 3), ("9e", 4), ("82", 5), ("95", 24)] {
            let slot = PivSlot::named(name).unwrap();
            assert_eq!(slot.id().as_bytes(), [id], "{name}");
            assert_eq!(PivSlot::of_id(&slot.id()), Some(slot));
            assert_eq!(slot.name(), name);
        }
        for name in ["", "9", "9b", "f9", "81", "96", "09a", "+9"] {
            assert_eq!(PivSlot::named(name), None, "{name}");
        }
        for id in [&[0][..], &[25], &[0, 1], &[]] {
            assert_eq!(PivSlot::of_id(&ObjectId::from_bytes(id.to_vec())), None);
        }
    }

    #[test]
    fn a_yubikey_is_known_by_its_maker_and_its_model() {
        let of = |manufacturer: &str, model: &str| {
            let mut state = state_with_label("one");
            state.manufacturer = manufacturer.to_owned();
            state.model = model.to_owned();
            (state.is_yubikey(), state.is_piv_of_opensc())
        };
        assert_eq!(of("Yubico (www.yubico.com)", "YubiKey YK5"), (true, false));
        assert_eq!(of("Yubico (www.yubico.com)", "YubiHSM"), (false, false));
        assert_eq!(of("piv_II", "PKCS#15 emulated"), (false, true));
        assert_eq!(of("SoftHSM project", "SoftHSM v2"), (false, false));
    }

    #[test]
    fn the_cards_own_policy_is_not_asked_for() {
        let options = SlotOptions {
            pin_policy: SlotPolicy::of_pin("default"),
            touch_policy: SlotPolicy::of_touch("cached"),
            replaces: false,
        };
        let kind = AttributeType::VendorDefined(0xd955_4201);
        assert_eq!(options.policies(), [Attribute::VendorDefined((kind, vec![3]))]);
        assert!(SlotOptions::default().policies().is_empty());
    }
}
