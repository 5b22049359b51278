//! PKCS#11's return values: the names that people search for, and the few values that change what is done.

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki_sys::CK_RV;

use messages::error::{Error, Exit};

/// Stands for CKR_OK with an impossible count or length. No library returns this code: those with the highest bit are the
/// vendors', which cryptoki doesn't call unknown.
pub(super) const BEYOND_THE_BUFFER: RvError = RvError::UnknownErrorCode(CK_RV::MAX);

/// Stands for CKR_OK with an invalid handle.
pub(super) const NO_HANDLE: RvError = RvError::UnknownErrorCode(CK_RV::MAX - 1);

/// The failed call and its return value's name, such as `C_Sign: CKR_DEVICE_ERROR`, or what was wrong if no call failed.
pub(super) fn failure(error: &CryptokiError) -> String {
    match error {
        CryptokiError::Pkcs11(code, function) => format!("C_{function:?}: {}", name(*code)),
        CryptokiError::NullFunctionPointer => {
            "the library lacks a function it must have".to_owned()
        }
        other => format!("the library's answer can't be read ({other})"),
    }
}

pub(super) fn code(error: &CryptokiError) -> Option<RvError> {
    match error {
        CryptokiError::Pkcs11(code, _) => Some(*code),
        _ => None,
    }
}

pub(super) fn is_one_of(error: &CryptokiError, codes: &[RvError]) -> bool {
    code(error).is_some_and(|code| codes.contains(&code))
}

/// Whether the error says that the token is no longer in its slot.
pub(super) fn is_removed(error: &CryptokiError) -> bool {
    use RvError::{DeviceRemoved, SlotIdInvalid, TokenNotPresent, TokenNotRecognized};
    is_one_of(error, &[DeviceRemoved, SlotIdInvalid, TokenNotPresent, TokenNotRecognized])
}

/// Whether the error says that the token was taken out, or that the session has ended with it. ykcs11 returns
/// CKR_DEVICE_ERROR then.
pub(super) fn is_gone(error: &CryptokiError) -> bool {
    use RvError::{DeviceError, SessionClosed, SessionHandleInvalid};
    is_removed(error) || is_one_of(error, &[DeviceError, SessionClosed, SessionHandleInvalid])
}

/// The help for a call on an open token that has failed.
pub(super) const TAKE_OUT: &str =
    "check that the token is still inserted, take it out and put it back, then try again";

/// The error for a call that was to find the token, or to open a session to it, and has failed.
pub(super) fn not_opened(doing: &str, error: &CryptokiError) -> Error {
    Error::new(Exit::Token, format!("{doing} failed: {}", failure(error))).help(
        "check that no other program holds the token, take it out and put it back, then try again",
    )
}

/// The constant's name in the standard (PKCS#11, section 5.1), from the crate's name for it.
pub(super) fn name(code: RvError) -> String {
    match code {
        RvError::VendorDefined(code) => format!("CKR_VENDOR_DEFINED (0x{code:08x})"),
        BEYOND_THE_BUFFER => "CKR_OK, but more than there is room for".to_owned(),
        NO_HANDLE => "CKR_OK, but no object".to_owned(),
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
