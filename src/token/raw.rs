//! The one call that cryptoki 0.12 can't make: C_Sign on its own, after C_SignInit and a
//! context-specific login, into a buffer that is there at once.
//!
//! Made to be deleted when a cryptoki release has it. The library is opened a second time for
//! its function list; where that list leads to another instance (p11-kit's proxy makes one for
//! every caller) the session is unknown there, and [`DirectSign::open`] finds it out before
//! anything was sent to the token.

#![allow(unsafe_code, reason = "calls through PKCS#11's C function list")]

use cryptoki::context::Function;
use cryptoki::error::{Error, Rv};
use cryptoki::session::Session;
use cryptoki_sys::{
    CK_C_GetFunctionList, CK_FUNCTION_LIST, CK_RV, CK_SESSION_INFO, CK_ULONG, CKR_BUFFER_TOO_SMALL,
    CKR_OK,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::module::Module;

/// Longer than any signature: RSA-8192 makes 1024 bytes.
const LONGEST_SIGNATURE: usize = 4096;

/// The functions of the same library instance that the session lives in.
pub(super) struct DirectSign {
    functions: CK_FUNCTION_LIST,
}

impl DirectSign {
    /// `None` where the instance that holds the session can't be reached.
    pub(super) fn open(module: &Module, session: &Session) -> Option<Self> {
        // SAFETY: the library is loaded and initialised already, so no constructor runs.
        let library = unsafe { Library::open(Some(module.path()), RTLD_LAZY | RTLD_LOCAL) }.ok()?;
        // SAFETY: the symbol has this type in every PKCS#11 library (section 5.4).
        let entry = unsafe { library.get::<CK_C_GetFunctionList>(b"C_GetFunctionList\0") }.ok()?;
        let entry = (*entry)?;
        let mut list: *mut CK_FUNCTION_LIST = std::ptr::null_mut();
        // SAFETY: `list` is valid for the library to write one pointer to.
        let code = unsafe { entry(&raw mut list) };
        if code != CKR_OK || list.is_null() {
            return None;
        }
        // SAFETY: CKR_OK promises a pointer to a function list, which lives as long as the library.
        let functions = unsafe { list.read() };
        // The module is never unloaded, so its functions must not be either.
        std::mem::forget(library);

        let mut info = CK_SESSION_INFO::default();
        let inspect = functions.C_GetSessionInfo?;
        // SAFETY: a session handle is a number, `info` is valid to be written.
        let code = unsafe { inspect(session.handle(), &raw mut info) };
        (code == CKR_OK).then_some(Self { functions })
    }

    /// C_Sign of the operation that is active in the session, with no length query before it.
    pub(super) fn sign(&self, session: &Session, input: &[u8]) -> Result<Vec<u8>, Error> {
        let sign = self.functions.C_Sign.ok_or(Error::NullFunctionPointer)?;
        let mut signature = vec![0; LONGEST_SIGNATURE];
        let mut length = signature.len() as CK_ULONG;
        // SAFETY: both buffers are valid for the lengths given, and the standard's prototype is
        // not const-correct: the input is only read.
        let code = unsafe {
            sign(
                session.handle(),
                input.as_ptr().cast_mut(),
                input.len() as CK_ULONG,
                signature.as_mut_ptr(),
                &raw mut length,
            )
        };
        checked(code)?;
        let length = usize::try_from(length).map_err(Error::TryFromInt)?;
        if length > signature.len() {
            return checked(CKR_BUFFER_TOO_SMALL).map(|()| Vec::new());
        }
        signature.truncate(length);
        Ok(signature)
    }
}

fn checked(code: CK_RV) -> Result<(), Error> {
    Rv::from(code).into_result(Function::Sign)
}
