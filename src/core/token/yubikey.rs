//! A YubiKey's PIV side through Yubico's own library, ykcs11.

#![forbid(unsafe_code)]

use super::slot::TokenState;

/// CKA_ID of slot F9, whose key attests the others and authenticates no user.
pub(super) const ATTESTATION_KEY: [u8; 1] = [25];

/// Whether it is one. Yubico's HSM has the same maker and another model; OpenSC calls a YubiKey a card
/// like any other.
pub(super) fn is_yubikey(token: &TokenState) -> bool {
    token.manufacturer.starts_with("Yubico") && token.model.starts_with("YubiKey")
}
