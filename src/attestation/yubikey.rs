//! What a YubiKey says of a key in its attestation certificate.
//!
//! The extensions are Yubico's: <https://developers.yubico.com/PIV/Introduction/PIV_attestation.html>. All but the serial
//! number are bare bytes in them, not DER.

use std::fmt::{self, Display};

use const_oid::ObjectIdentifier;
use der::Decode as _;

use crypto::certificate::PublicKey;

use crate::certificate::Certificate;
use crate::{ClaimRefusal, Refusal};

const FIRMWARE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.3");
const SERIAL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.7");
const POLICIES: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.8");
const FORM_FACTOR: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.9");
const FIPS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.10");
const CSPN: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.41482.3.11");

/// What messages call the attestation certificate.
pub(crate) const ATTESTATION: &str = "the attestation certificate";

/// The beginning of an attestation's subject. The slot follows, and nothing else.
const SUBJECT: &str = "CN=YubiKey PIV Attestation ";

/// What a YubiKey says of one of its keys. It is shown as `YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch
/// never`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct YubiKeyClaims {
    pub serial_number: SerialNumber,
    pub firmware: Firmware,
    pub slot: Slot,
    pub pin_policy: PinPolicy,
    pub touch_policy: TouchPolicy,
    /// The device's shape; `None` for a YubiKey 4, which doesn't say it.
    pub form_factor: Option<FormFactor>,
    pub is_fips_certified: bool,
    pub is_cspn_certified: bool,
}

/// Groups with this prefix are for keys that are proven to be in hardware.
pub const HARDWARE_GROUPS: &str = "hw:";

impl YubiKeyClaims {
    /// The groups that the proof opens: `hw:attested`, and `hw:yubikey:15873456` for this device alone.
    pub fn groups(&self) -> [String; 2] {
        let serial = self.serial_number.0;
        [format!("{HARDWARE_GROUPS}attested"), format!("{HARDWARE_GROUPS}yubikey:{serial}")]
    }

    /// Reads the claims of an attestation certificate, whoever has made it up. They are what a person is told before it
    /// is sent.
    pub fn unproven(attestation: &[u8]) -> Result<Self, Refusal> {
        Self::of(&Certificate::from_der(attestation, ATTESTATION)?)
    }

    /// Whether the certificate has the name that YubiKeys give their attestations.
    pub(crate) fn are_in(certificate: &Certificate) -> bool {
        certificate.subject().starts_with(SUBJECT)
    }

    /// Reads the claims of an attestation that this device's certificate has signed.
    pub(crate) fn proven(attestation: &Certificate, device: &Certificate) -> Result<Self, Refusal> {
        let claims = Self::of(attestation)?;
        // The factory has written this certificate. A device whose key was found out could claim any firmware in the
        // attestation.
        if let Some(value) = device.extension(FIRMWARE) {
            let firmware = Firmware::from_extension(value)?;
            if firmware != claims.firmware {
                let (attestation, device) = (claims.firmware.to_string(), firmware.to_string());
                return Err(ClaimRefusal::OtherFirmware { attestation, device }.into());
            }
        }
        Ok(Self {
            is_fips_certified: claims.is_fips_certified || device.extension(FIPS).is_some(),
            is_cspn_certified: claims.is_cspn_certified || device.extension(CSPN).is_some(),
            ..claims
        })
    }

    fn of(attestation: &Certificate) -> Result<Self, Refusal> {
        let certificate = || attestation.name();
        let slot = attestation.subject().strip_prefix(SUBJECT);
        let slot =
            slot.ok_or_else(|| ClaimRefusal::NoPivAttestation { certificate: certificate() })?;
        let claim = |id, name| attestation.extension(id).ok_or(ClaimRefusal::MissingClaim(name));
        let policies = claim(POLICIES, "PIN and touch policy")?;
        let [pin_policy, touch_policy] = bytes(policies, "PIN and touch policy")?;
        let form_factor = attestation.extension(FORM_FACTOR);
        Ok(Self {
            slot: Slot::from_name(slot)
                .ok_or_else(|| ClaimRefusal::UnknownSlot { certificate: certificate() })?,
            serial_number: SerialNumber::from_extension(claim(SERIAL_NUMBER, "serial number")?)?,
            firmware: Firmware::from_extension(claim(FIRMWARE, "firmware")?)?,
            pin_policy: PinPolicy::from_number(pin_policy)?,
            touch_policy: TouchPolicy::from_number(touch_policy)?,
            form_factor: form_factor.map(FormFactor::from_extension).transpose()?,
            is_fips_certified: attestation.extension(FIPS).is_some(),
            is_cspn_certified: attestation.extension(CSPN).is_some(),
        })
    }
}

impl Display for YubiKeyClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { serial_number, firmware, slot, pin_policy, touch_policy, .. } = self;
        write!(f, "YubiKey {serial_number}, firmware {firmware}, slot {slot}, ")?;
        write!(f, "{pin_policy}, {touch_policy}")
    }
}

/// The value, if it has the right number of bytes.
fn bytes<const N: usize>(value: &[u8], claim: &'static str) -> Result<[u8; N], Refusal> {
    let length = value.len();
    value.try_into().map_err(|_| ClaimRefusal::ClaimLength { claim, length, expected: N }.into())
}

/// A YubiKey's serial number, as it is printed on the device.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SerialNumber(pub u32);

impl SerialNumber {
    /// Reads the number, which is an INTEGER in DER.
    fn from_extension(value: &[u8]) -> Result<Self, Refusal> {
        u32::from_der(value).map(Self).map_err(|_| ClaimRefusal::SerialNumber.into())
    }
}

impl Display for SerialNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The version of a YubiKey's firmware, which nobody can change. Later ones are greater.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Firmware {
    pub major: u8,
    pub minor: u8,
    pub patch: u8,
}

impl Firmware {
    /// The first version whose RSA keys are good.
    const WITHOUT_ROCA: Self = Self { major: 4, minor: 3, patch: 5 };
    /// The first version whose ECDSA keys are good.
    const WITHOUT_EUCLEAK: Self = Self { major: 5, minor: 7, patch: 0 };

    fn from_extension(value: &[u8]) -> Result<Self, Refusal> {
        let [major, minor, patch] = bytes(value, "firmware")?;
        Ok(Self { major, minor, patch })
    }

    /// Parses three numbers with points between them, as a version is shown; `None` for anything else.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let numbers: Result<Vec<u8>, _> = text.split('.').map(str::parse).collect();
        let [major, minor, patch] = numbers.ok()?.try_into().ok()?;
        let firmware = Self { major, minor, patch };
        // The numbers have no signs, and no zeros in front.
        (firmware.to_string() == text).then_some(firmware)
    }

    /// Why keys of this kind are weak if this firmware made them.
    pub fn advisory(self, key: &PublicKey) -> Option<Advisory> {
        match key {
            PublicKey::Rsa { .. } if self < Self::WITHOUT_ROCA => Some(Advisory::Roca),
            PublicKey::Ecdsa { .. } if self < Self::WITHOUT_EUCLEAK => Some(Advisory::Eucleak),
            _ => None,
        }
    }
}

impl Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A weakness of keys that Yubico has published.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Advisory {
    /// <https://www.yubico.com/support/security-advisories/ysa-2017-01/>
    Roca,
    /// <https://www.yubico.com/support/security-advisories/ysa-2024-03/>
    Eucleak,
}

impl Display for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roca => {
                "RSA keys made by firmware before 4.3.5 can be computed from their public keys \
                 (ROCA, YSA-2017-01)"
            }
            Self::Eucleak => {
                "ECDSA keys of firmware before 5.7 can be read out by who has the YubiKey for some \
                 time, and a laboratory (EUCLEAK, YSA-2024-03)"
            }
        })
    }
}

/// The slot of a key, shown as `9a`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Slot(u8);

impl Slot {
    /// Parses two hexadecimal digits in lower case; `None` for what isn't the slot of a user's key, such as f9.
    pub fn from_name(name: &str) -> Option<Self> {
        let number = u8::from_str_radix(name, 16).ok()?;
        let slot = Self(number);
        let is_for_users = matches!(number, 0x82..=0x95 | 0x9a | 0x9c | 0x9d | 0x9e);
        (is_for_users && slot.to_string() == name).then_some(slot)
    }
}

impl Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

/// When a key wants a PIN. The last two policies are those of a YubiKey Bio, which takes a fingerprint instead.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PinPolicy {
    Never,
    Once,
    Always,
    MatchOnce,
    MatchAlways,
}

impl PinPolicy {
    fn from_number(number: u8) -> Result<Self, Refusal> {
        match number {
            1 => Ok(Self::Never),
            2 => Ok(Self::Once),
            3 => Ok(Self::Always),
            4 => Ok(Self::MatchOnce),
            5 => Ok(Self::MatchAlways),
            _ => Err(ClaimRefusal::UnknownPinPolicy(number).into()),
        }
    }
}

impl Display for PinPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "PIN never",
            Self::Once => "PIN once",
            Self::Always => "PIN always",
            Self::MatchOnce => "fingerprint or PIN once",
            Self::MatchAlways => "fingerprint or PIN always",
        })
    }
}

/// When a key wants to be touched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TouchPolicy {
    Never,
    Always,
    /// A touch holds for 15 seconds.
    Cached,
}

impl TouchPolicy {
    fn from_number(number: u8) -> Result<Self, Refusal> {
        match number {
            1 => Ok(Self::Never),
            2 => Ok(Self::Always),
            3 => Ok(Self::Cached),
            _ => Err(ClaimRefusal::UnknownTouchPolicy(number).into()),
        }
    }
}

impl Display for TouchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "touch never",
            Self::Always => "touch always",
            Self::Cached => "touch cached",
        })
    }
}

/// The device's shape. A number that isn't known yet is shown as a number: nothing depends on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FormFactor(u8);

impl FormFactor {
    /// The bits for the shape. The two bits above say whether the device is of the FIPS or of the Security Key series.
    const SHAPE: u8 = 0x3f;

    fn from_extension(value: &[u8]) -> Result<Self, Refusal> {
        let [number] = bytes(value, "form factor")?;
        Ok(Self(number & Self::SHAPE))
    }
}

impl Display for FormFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "USB-A keychain",
            2 => "USB-A nano",
            3 => "USB-C keychain",
            4 => "USB-C nano",
            5 => "USB-C and Lightning",
            6 => "Bio, USB-A",
            7 => "Bio, USB-C",
            other => return write!(f, "form factor {other}"),
        })
    }
}
