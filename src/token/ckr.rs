//! PKCS#11's return values by the names people search for, and the few that change what we do.

#![forbid(unsafe_code)]

use cryptoki::error::{Error, RvError};

use crate::error::CallFailure;

/// The failed call and its `CKR_…` name; where it was no call that failed, what was wrong.
pub(super) fn failure(error: &Error) -> CallFailure {
    match error {
        Error::Pkcs11(code, function) => CallFailure {
            function: format!("C_{function:?}"),
            reason: name(*code),
        },
        Error::NullFunctionPointer => answer("the library lacks a function it must have"),
        Error::InvalidValue | Error::NotSupported => answer("the library's answer makes no sense"),
        other => answer(&format!("the library's answer can't be read ({other})")),
    }
}

/// A failure of the library that is no return value.
pub(super) fn answer(reason: &str) -> CallFailure {
    CallFailure {
        function: String::new(),
        reason: reason.to_owned(),
    }
}

/// The return value behind an error, where there is one.
pub(super) fn code(error: &Error) -> Option<RvError> {
    match error {
        Error::Pkcs11(code, _) => Some(*code),
        _ => None,
    }
}

/// The token is no longer in its slot.
pub(super) fn is_removed(error: &Error) -> bool {
    matches!(
        code(error),
        Some(
            RvError::DeviceRemoved
                | RvError::TokenNotPresent
                | RvError::TokenNotRecognized
                | RvError::SlotIdInvalid
        )
    )
}

/// The constant's name in the standard (PKCS#11, section 5.1), from the crate's name for it.
pub(super) fn name(code: RvError) -> String {
    match code {
        RvError::VendorDefined(code) => format!("CKR_VENDOR_DEFINED (0x{code:08x})"),
        RvError::UnknownErrorCode(code) => format!("unknown return value 0x{code:08x}"),
        known => {
            let mut name = String::from("CKR");
            for character in format!("{known:?}").chars() {
                if character.is_ascii_uppercase() {
                    name.push('_');
                }
                name.push(character.to_ascii_uppercase());
            }
            name
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_the_standard() {
        for (code, expected) in [
            (RvError::PinIncorrect, "CKR_PIN_INCORRECT"),
            (RvError::PinLocked, "CKR_PIN_LOCKED"),
            (RvError::GeneralError, "CKR_GENERAL_ERROR"),
            (RvError::DeviceRemoved, "CKR_DEVICE_REMOVED"),
            (RvError::UserNotLoggedIn, "CKR_USER_NOT_LOGGED_IN"),
            (
                RvError::MechanismParamInvalid,
                "CKR_MECHANISM_PARAM_INVALID",
            ),
            (RvError::SlotIdInvalid, "CKR_SLOT_ID_INVALID"),
            (
                RvError::VendorDefined(0x8000_0001),
                "CKR_VENDOR_DEFINED (0x80000001)",
            ),
            (
                RvError::UnknownErrorCode(0x77),
                "unknown return value 0x00000077",
            ),
        ] {
            assert_eq!(name(code), expected);
        }
    }

    #[test]
    fn a_failure_names_the_call() {
        let error = Error::Pkcs11(RvError::DeviceError, cryptoki::context::Function::Sign);
        assert_eq!(failure(&error).to_string(), "C_Sign: CKR_DEVICE_ERROR");
    }
}
