//! The library behind this one, named in `FAULT_MODULE_REAL`. It is never unloaded.

use std::sync::OnceLock;
use std::{env, process, ptr};

use cryptoki_sys::{
    CK_FUNCTION_LIST, CK_FUNCTION_LIST_PTR, CK_FUNCTION_LIST_PTR_PTR, CK_RV, CK_SLOT_ID, CK_TRUE,
    CKR_OK,
};
use libloading::Library;

type GetFunctionList = unsafe extern "C" fn(CK_FUNCTION_LIST_PTR_PTR) -> CK_RV;

/// Its functions; without it there is nothing to do, and the process ends.
pub(crate) fn functions() -> &'static CK_FUNCTION_LIST {
    static FUNCTIONS: OnceLock<&CK_FUNCTION_LIST> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        load().unwrap_or_else(|reason| {
            eprintln!("FAULT_MODULE_REAL: {reason}");
            process::abort()
        })
    })
}

/// C_CloseAllSessions for every slot with a token, unseen by the record.
pub(crate) fn close_all_sessions() {
    let (Some(list), Some(close)) = (functions().C_GetSlotList, functions().C_CloseAllSessions)
    else {
        return;
    };
    let mut slots: [CK_SLOT_ID; 16] = [0; 16];
    let mut count = 16;
    // SAFETY: `slots` has the room that `count` tells.
    let returned = unsafe { list(CK_TRUE, slots.as_mut_ptr(), &raw mut count) };
    if returned == CKR_OK {
        for slot in slots.into_iter().take(count as usize) {
            // SAFETY: a slot is a number.
            unsafe { close(slot) };
        }
    }
}

fn load() -> Result<&'static CK_FUNCTION_LIST, String> {
    let path = env::var_os("FAULT_MODULE_REAL").ok_or("not set")?;
    // SAFETY: the test that names the library vouches for its initialisers.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    let library = Box::leak(Box::new(library));
    // SAFETY: the standard fixes this function's type.
    let symbol = unsafe { library.get::<GetFunctionList>(b"C_GetFunctionList\0") };
    let function = symbol.map_err(|error| error.to_string())?;
    let mut list: CK_FUNCTION_LIST_PTR = ptr::null_mut();
    // SAFETY: the pointer is writable for the call's duration.
    let returned = unsafe { function(&raw mut list) };
    if returned != CKR_OK {
        return Err(format!("C_GetFunctionList returned {returned:#x}"));
    }
    // SAFETY: the standard has the list live as long as the library, which is leaked.
    unsafe { list.as_ref() }.ok_or_else(|| "C_GetFunctionList gave no list".to_owned())
}
