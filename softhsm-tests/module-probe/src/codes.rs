//! Return values by their names.

use std::fmt::{self, Display, Formatter};

use cryptoki_sys::*;

/// A call that didn't return CKR_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) function: &'static str,
    pub(crate) code: CK_RV,
}

impl Display for Refused {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.function, name(self.code))
    }
}

/// The name without `CKR_`; of a code that no module here was seen to return, its number.
pub(crate) fn name(code: CK_RV) -> String {
    macro_rules! names {
        ($($constant:ident),+ $(,)?) => {
            match code {
                $($constant => stringify!($constant)["CKR_".len()..].to_owned(),)+
                other => format!("{other:#x}"),
            }
        };
    }
    names!(
        CKR_OK,
        CKR_ARGUMENTS_BAD,
        CKR_ATTRIBUTE_READ_ONLY,
        CKR_ATTRIBUTE_TYPE_INVALID,
        CKR_ATTRIBUTE_VALUE_INVALID,
        CKR_BUFFER_TOO_SMALL,
        CKR_CRYPTOKI_NOT_INITIALIZED,
        CKR_DATA_INVALID,
        CKR_DATA_LEN_RANGE,
        CKR_DEVICE_ERROR,
        CKR_DEVICE_MEMORY,
        CKR_DEVICE_REMOVED,
        CKR_FUNCTION_FAILED,
        CKR_FUNCTION_NOT_SUPPORTED,
        CKR_GENERAL_ERROR,
        CKR_HOST_MEMORY,
        CKR_KEY_FUNCTION_NOT_PERMITTED,
        CKR_KEY_HANDLE_INVALID,
        CKR_KEY_SIZE_RANGE,
        CKR_KEY_TYPE_INCONSISTENT,
        CKR_MECHANISM_INVALID,
        CKR_MECHANISM_PARAM_INVALID,
        CKR_OBJECT_HANDLE_INVALID,
        CKR_OPERATION_ACTIVE,
        CKR_OPERATION_NOT_INITIALIZED,
        CKR_PIN_INCORRECT,
        CKR_PIN_INVALID,
        CKR_PIN_LEN_RANGE,
        CKR_PIN_LOCKED,
        CKR_SESSION_CLOSED,
        CKR_SESSION_HANDLE_INVALID,
        CKR_SESSION_READ_ONLY,
        CKR_SIGNATURE_LEN_RANGE,
        CKR_TEMPLATE_INCOMPLETE,
        CKR_TEMPLATE_INCONSISTENT,
        CKR_TOKEN_NOT_PRESENT,
        CKR_TOKEN_WRITE_PROTECTED,
        CKR_USER_ALREADY_LOGGED_IN,
        CKR_USER_ANOTHER_ALREADY_LOGGED_IN,
        CKR_USER_NOT_LOGGED_IN,
        CKR_USER_TYPE_INVALID,
    )
}
