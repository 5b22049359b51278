//! The two functions that give the list of all others, which are the symbols that a PKCS#11 library
//! exports. C_GetInterface belongs to version 3.0; most libraries don't have it, and neither has
//! this one, unless it is built with the feature `interface`.

use cryptoki_sys::{CK_FUNCTION_LIST_PTR_PTR, CK_RV, CK_VERSION, CKR_ARGUMENTS_BAD, CKR_OK};

use crate::plan::Action;
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
        let given = if actions.contains(&&Action::Old) {
            let version = CK_VERSION { major: 1, minor: 0 };
            Box::into_raw(Box::new([version; 16])).cast()
        } else {
            (&raw const *calls::function_list()).cast_mut()
        };
        let given = spoilt(&actions, given);
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { list.write(given) };
        faults::after(&actions)
    });
    let returned = outcome.err().unwrap_or(CKR_OK);
    log::record("C_GetFunctionList", returned);
    returned
}

/// `null` and `misaligned`.
fn spoilt<T>(actions: &[&Action], pointer: *mut T) -> *mut T {
    if actions.contains(&&Action::Null) {
        std::ptr::null_mut()
    } else if actions.contains(&&Action::Misaligned) {
        pointer.wrapping_byte_add(1)
    } else {
        pointer
    }
}

#[cfg(feature = "interface")]
pub mod interface {
    //! See above.

    use std::ptr;

    use cryptoki_sys::{
        CK_FLAGS, CK_FUNCTION_LIST, CK_FUNCTION_LIST_3_0, CK_INTERFACE, CK_INTERFACE_PTR_PTR,
        CK_RV, CK_UTF8CHAR_PTR, CK_VERSION, CK_VERSION_PTR, CKR_ARGUMENTS_BAD, CKR_OK,
    };

    use super::{calls, faults, log, spoilt};
    use crate::plan::Action;

    /// The default interface, whatever is asked for: version 3.0 with the functions of 2.40 only.
    ///
    /// # Safety
    /// `interface` must be null or writable, as the standard demands of C_GetInterface.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn C_GetInterface(
        _name: CK_UTF8CHAR_PTR,
        _version: CK_VERSION_PTR,
        interface: CK_INTERFACE_PTR_PTR,
        _flags: CK_FLAGS,
    ) -> CK_RV {
        let outcome = faults::before("C_GetInterface").and_then(|actions| {
            if interface.is_null() {
                return Err(CKR_ARGUMENTS_BAD);
            }
            let given = spoilt(&actions, Box::into_raw(Box::new(make(&actions))));
            // SAFETY: not null, and the caller vouches for the rest.
            unsafe { interface.write(given) };
            faults::after(&actions)
        });
        let returned = outcome.err().unwrap_or(CKR_OK);
        log::record("C_GetInterface", returned);
        returned
    }

    /// `null-list` and `old`. What is made is never freed.
    fn make(actions: &[&Action]) -> CK_INTERFACE {
        let list = Box::leak(Box::<CK_FUNCTION_LIST_3_0>::default());
        let functions: *mut CK_FUNCTION_LIST_3_0 = list;
        // SAFETY: the newer list begins with the older one.
        unsafe {
            functions
                .cast::<CK_FUNCTION_LIST>()
                .write(*calls::function_list())
        };
        list.version = CK_VERSION { major: 3, minor: 0 };
        let list = if actions.contains(&&Action::NullList) {
            ptr::null_mut()
        } else if actions.contains(&&Action::Old) {
            ptr::from_mut(Box::leak(Box::new(VendorsList(CK_VERSION {
                major: 1,
                minor: 0,
            }))))
            .cast()
        } else {
            ptr::from_mut(list).cast()
        };
        CK_INTERFACE {
            pInterfaceName: c"PKCS 11".as_ptr().cast_mut().cast(),
            pFunctionList: list,
            flags: 0,
        }
    }

    /// What the default interface may be, too: nothing is known of it but the version at its beginning.
    #[repr(C, align(8))]
    struct VendorsList(CK_VERSION);
}
