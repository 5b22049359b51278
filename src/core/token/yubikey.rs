//! A YubiKey's PIV side through Yubico's own library, ykcs11.

#![forbid(unsafe_code)]

use super::slot::TokenState;

/// Whether it is one. Yubico's HSM has the same maker and another model; OpenSC calls a YubiKey a card
/// like any other.
pub(super) fn is_yubikey(token: &TokenState) -> bool {
    token.manufacturer.starts_with("Yubico") && token.model.starts_with("YubiKey")
}
