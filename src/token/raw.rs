//! What cryptoki 0.12 can't do: look before it leaps into a library's function list, and C_Sign
//! on its own, after C_SignInit and a context-specific login, into a buffer that is there at once.
//!
//! Made to be deleted when a cryptoki release has both. The library is opened a second time for
//! its function list; where that list leads to another instance (p11-kit's proxy makes one for
//! every caller) the session is unknown there, and [`DirectSign::open`] finds it out before
//! anything was sent to the token.

#![allow(unsafe_code, reason = "calls through PKCS#11's C function list")]

use std::mem;
use std::path::Path;
use std::ptr;

use cryptoki::context::Function;
use cryptoki::error::{Error, Rv};
use cryptoki::session::Session;
use cryptoki_sys::{
    CK_C_GetFunctionList, CK_C_GetInterface, CK_FUNCTION_LIST, CK_INTERFACE, CK_RV,
    CK_SESSION_INFO, CK_ULONG, CK_VERSION, CKR_BUFFER_TOO_SMALL, CKR_OK,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::ckr;
use super::module::Module;
use crate::error::{CallFailure, ModuleError};

/// Loads the library, for good, and makes the calls that `Pkcs11::new` is about to make: cryptoki
/// follows the pointers in their answers unseen, and unloads a library that fails one of them,
/// which some don't survive.
pub(super) fn inspect(path: &Path) -> Result<(), ModuleError> {
    let library = open(path).map_err(|error| ModuleError::Load {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let outcome = has_interface(&library).and_then(|has| match has {
        true => Ok(()),
        false => function_list(&library).map(drop),
    });
    // One reference more than are ever given back.
    mem::forget(library);
    outcome.map_err(|flaw| match flaw {
        Flaw::Missing(symbol) => ModuleError::NotAModule {
            path: path.to_owned(),
            reason: format!("it has no {symbol}"),
        },
        Flaw::Call(failure) => ModuleError::NoFunctions {
            path: path.to_owned(),
            failure,
        },
    })
}

/// Why a library's functions can't be called.
enum Flaw {
    Call(CallFailure),
    Missing(&'static str),
}

impl Flaw {
    fn of(function: Function, reason: impl Into<String>) -> Self {
        Self::Call(CallFailure {
            function: format!("C_{function:?}"),
            reason: reason.into(),
        })
    }
}

/// Longer than any signature: RSA-8192 makes 1024 bytes.
const LONGEST_SIGNATURE: usize = 4096;

fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: constructors run, in a library that the user has chosen and nobody else can change.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }
}

/// Whether C_GetInterface gives the functions of PKCS#11 3, which cryptoki takes then. A library
/// without it is asked for C_GetFunctionList, and so is one that has no such interface; cryptoki
/// gives up one that fails the call.
fn has_interface(library: &Library) -> Result<bool, Flaw> {
    let function = Function::GetInterface;
    // SAFETY: the symbol has this type in every PKCS#11 library (version 3.0, section 5.4).
    let entry = unsafe { library.get::<CK_C_GetInterface>(b"C_GetInterface\0") };
    let Some(entry) = entry.ok().and_then(|entry| *entry) else {
        return Ok(false);
    };
    let mut interface: *mut CK_INTERFACE = ptr::null_mut();
    // SAFETY: without name and version it gives the default one, to a place for one pointer.
    let code = unsafe { entry(ptr::null_mut(), ptr::null_mut(), &raw mut interface, 0) };
    succeeded(code, function)?;
    if interface.is_null() {
        return Ok(false);
    }
    if !interface.is_aligned() {
        return Err(Flaw::of(function, "CKR_OK, but a broken interface"));
    }
    // SAFETY: CKR_OK promises an interface, which lives as long as the library.
    let list = unsafe { (*interface).pFunctionList }.cast::<CK_FUNCTION_LIST>();
    if list.is_null() || !list.is_aligned() {
        let reason = "CKR_OK, but an interface without a function list";
        return Err(Flaw::of(function, reason));
    }
    // SAFETY: every version's list begins with its version.
    let version = unsafe { list.cast::<CK_VERSION>().read() };
    Ok(version.major >= 3)
}

/// What C_GetFunctionList gives.
fn function_list(library: &Library) -> Result<CK_FUNCTION_LIST, Flaw> {
    let (function, symbol) = (Function::GetFunctionList, "C_GetFunctionList");
    // SAFETY: the symbol has this type in every PKCS#11 library (section 5.4).
    let entry = unsafe { library.get::<CK_C_GetFunctionList>(symbol.as_bytes()) };
    let Some(entry) = entry.ok().and_then(|entry| *entry) else {
        return Err(Flaw::Missing(symbol));
    };
    let mut list: *mut CK_FUNCTION_LIST = ptr::null_mut();
    // SAFETY: `list` is valid for the library to write one pointer to.
    let code = unsafe { entry(&raw mut list) };
    succeeded(code, function)?;
    if list.is_null() || !list.is_aligned() {
        return Err(Flaw::of(function, "CKR_OK, but no function list"));
    }
    // SAFETY: CKR_OK promises a function list, which lives as long as the library.
    Ok(unsafe { list.read() })
}

fn succeeded(code: CK_RV, function: Function) -> Result<(), Flaw> {
    match Rv::from(code) {
        Rv::Ok => Ok(()),
        Rv::Error(error) => Err(Flaw::of(function, ckr::name(error))),
    }
}

/// The functions of the same library instance that the session lives in.
pub(super) struct DirectSign {
    functions: CK_FUNCTION_LIST,
}

impl DirectSign {
    /// `None` where the instance that holds the session can't be reached.
    pub(super) fn open(module: &Module, session: &Session) -> Option<Self> {
        let library = open(module.path()).ok()?;
        let functions = function_list(&library).ok()?;
        // The module is never unloaded, so its functions must not be either.
        mem::forget(library);

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
