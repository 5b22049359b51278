//! The function that gives the list of all others, which is the symbol that a PKCS#11 library exports.

use std::ptr;

use cryptoki_sys::{
    CK_FUNCTION_LIST, CK_FUNCTION_LIST_PTR_PTR, CK_RV, CK_VERSION, CKR_ARGUMENTS_BAD, CKR_OK,
};

use crate::plan::has;
use crate::{calls, faults, log};

/// The one symbol a PKCS#11 2.40 library must export.
///
/// # Safety
/// `list` must be null or writable, as the standard demands of C_GetFunctionList.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetFunctionList(list: CK_FUNCTION_LIST_PTR_PTR) -> CK_RV {
    let outcome = faults::before("C_GetFunctionList").and_then(|actions| {
        if list.is_null() {
            return Err(CKR_ARGUMENTS_BAD);
        }
        let whole: *mut CK_FUNCTION_LIST = (&raw const *calls::function_list()).cast_mut();
        let given = if has(&actions, "old") {
            let version = CK_VERSION { major: 1, minor: 0 };
            Box::into_raw(Box::new(CK_FUNCTION_LIST { version, ..*calls::function_list() }))
        } else if has(&actions, "null") {
            ptr::null_mut()
        } else if has(&actions, "misaligned") {
            whole.wrapping_byte_add(1)
        } else {
            whole
        };
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { list.write(given) };
        faults::after(&actions)
    });
    let returned = outcome.err().unwrap_or(CKR_OK);
    log::record("C_GetFunctionList", returned);
    returned
}
