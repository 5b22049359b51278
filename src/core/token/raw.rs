//! The one place that calls a PKCS#11 library: its entry points and the functions of its list.
//!
//! The types are cryptoki's, the calls are made here (docs/decisions/0002-direct-c-sign.md). What a
//! library answers is checked: pointers for null and alignment, counts and lengths against the room
//! that it was given.

#![allow(unsafe_code, reason = "calls through PKCS#11's C function list")]

use std::ffi::CStr;
use std::mem::{self, offset_of};
use std::path::Path;
use std::ptr;

use cryptoki::context::{CInitializeFlags, Function};
use cryptoki::error::{Error, Rv, RvError};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType};
use cryptoki::session::UserType;
use cryptoki::slot::{Slot, SlotInfo, TokenInfo};
use cryptoki_sys::{
    CK_ATTRIBUTE, CK_BBOOL, CK_BYTE, CK_C_GetFunctionList, CK_C_INITIALIZE_ARGS, CK_FUNCTION_LIST,
    CK_INFO, CK_INVALID_HANDLE, CK_MECHANISM, CK_OBJECT_HANDLE, CK_RV, CK_SESSION_HANDLE,
    CK_SESSION_INFO, CK_SLOT_INFO, CK_TOKEN_INFO, CK_ULONG, CK_UNAVAILABLE_INFORMATION, CK_VERSION,
    CKF_CLOCK_ON_TOKEN, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKR_ARGUMENTS_BAD,
    CKR_ATTRIBUTE_SENSITIVE, CKR_ATTRIBUTE_TYPE_INVALID, CKR_BUFFER_TOO_SMALL, CKR_OK,
    CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::ckr;
use super::error::{CallFailure, ModuleError};

/// More than any signature and any message decrypted with a key has: RSA-8192 makes 1024 bytes.
const LONGEST_OUTPUT: usize = 4096;
/// An attribute of more bytes is no certificate and no key of a size that we sign with.
const LONGEST_ATTRIBUTE: usize = 64 * 1024;
/// No library has more slots or more mechanisms.
const LONGEST_LIST: usize = 4096;
/// No search of ours finds more objects on a token.
const MOST_OBJECTS: usize = 4096;
/// Objects that one C_FindObjects asks for.
const BATCH: usize = 16;

/// What a PKCS#11 call returned.
pub(super) type CallResult<T> = Result<T, Error>;

/// C_SignInit or C_DecryptInit.
type BeginningCall =
    unsafe extern "C" fn(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE) -> CK_RV;
/// C_Sign or C_Decrypt.
type TransformingCall = unsafe extern "C" fn(
    CK_SESSION_HANDLE,
    *mut CK_BYTE,
    CK_ULONG,
    *mut CK_BYTE,
    *mut CK_ULONG,
) -> CK_RV;

/// A library's function list. The library stays loaded: some crash when they are unloaded.
#[derive(Debug)]
pub(super) struct Functions(CK_FUNCTION_LIST);

impl Functions {
    /// Loads the library and takes its function list, once: p11-kit's proxy makes another instance
    /// of itself for each call of an entry point.
    pub(super) fn load(path: &Path) -> Result<Self, ModuleError> {
        // SAFETY: constructors run, in a library that the user has chosen and that only root
        // and the user can change.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = library.map_err(|error| ModuleError::Load {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let list = function_list(&library);
        // The list's pointers lead into the library, which is never unloaded.
        mem::forget(library);
        let path = path.to_owned();
        match list {
            Ok(Some(list)) => Ok(Self(list)),
            Ok(None) => Err(ModuleError::NotAModule {
                path,
                reason: "it has no C_GetFunctionList".to_owned(),
            }),
            Err(failure) => Err(ModuleError::NoFunctions { path, failure }),
        }
    }

    /// C_Initialize, with the library's own parameters in pReserved: a text, as NSS, YubiHSM and
    /// p11-kit's `x-init-reserved` have it.
    pub(super) fn initialize(
        &self,
        flags: CInitializeFlags,
        parameters: Option<&CStr>,
    ) -> CallResult<()> {
        let call = present(self.0.C_Initialize)?;
        let mut arguments =
            CK_C_INITIALIZE_ARGS { flags: flags.bits(), ..CK_C_INITIALIZE_ARGS::default() };
        if let Some(parameters) = parameters {
            // Never freed: a library may keep the pointer.
            let parameters = Box::leak(Box::<CStr>::from(parameters));
            arguments.pReserved = ptr::from_mut(parameters).cast();
        }
        // SAFETY: the arguments are the standard's, without functions for mutexes. Which structure a
        // library expects in pReserved is its own affair: one that expects no text may misread it,
        // as it would in any program that the user tells to pass one.
        let code = unsafe { call((&raw mut arguments).cast()) };
        checked(code, Function::Initialize)
    }

    /// C_Finalize, which ends all sessions.
    pub(super) fn finalize(&self) -> CallResult<()> {
        let call = present(self.0.C_Finalize)?;
        // SAFETY: the reserved argument has to be null.
        let code = unsafe { call(ptr::null_mut()) };
        checked(code, Function::Finalize)
    }

    /// Who made the library, what it calls itself, and its version (C_GetInfo); `None` if it doesn't
    /// say.
    pub(super) fn description(&self) -> Option<String> {
        let mut info = CK_INFO::default();
        // SAFETY: `info` is valid to be written.
        let code = unsafe { self.0.C_GetInfo?(&raw mut info) };
        checked(code, Function::GetInfo).ok()?;
        let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end().to_owned();
        Some(format!(
            "{}, {} {}.{}",
            text(&info.manufacturerID),
            text(&info.libraryDescription),
            info.libraryVersion.major,
            info.libraryVersion.minor
        ))
    }

    /// C_GetSlotList.
    pub(super) fn slots(&self, with_token: bool) -> CallResult<Vec<Slot>> {
        let call = present(self.0.C_GetSlotList)?;
        let slots = list(Function::GetSlotList, |slots, count| {
            // SAFETY: `slots` is null or has room for `count`.
            unsafe { call(CK_BBOOL::from(with_token), slots, count) }
        })?;
        slots.into_iter().map(Slot::try_from).collect()
    }

    /// C_GetSlotInfo.
    pub(super) fn slot_info(&self, slot: Slot) -> CallResult<SlotInfo> {
        let call = present(self.0.C_GetSlotInfo)?;
        let mut info = CK_SLOT_INFO::default();
        // SAFETY: a slot is a number, `info` is valid to be written.
        let code = unsafe { call(slot.into(), &raw mut info) };
        checked(code, Function::GetSlotInfo).map(|()| SlotInfo::from(info))
    }

    /// C_GetTokenInfo, without the time on the token's clock: cryptoki fails the whole answer where
    /// that isn't sixteen digits, as opencryptoki's isn't.
    pub(super) fn token_info(&self, slot: Slot) -> CallResult<TokenInfo> {
        let call = present(self.0.C_GetTokenInfo)?;
        let mut info = CK_TOKEN_INFO::default();
        // SAFETY: a slot is a number, `info` is valid to be written.
        let code = unsafe { call(slot.into(), &raw mut info) };
        checked(code, Function::GetTokenInfo)?;
        info.flags &= !CKF_CLOCK_ON_TOKEN;
        TokenInfo::try_from(info)
    }

    /// C_GetMechanismList, without the mechanisms that cryptoki doesn't know.
    pub(super) fn mechanisms(&self, slot: Slot) -> CallResult<Vec<MechanismType>> {
        let call = present(self.0.C_GetMechanismList)?;
        let mechanisms = list(Function::GetMechanismList, |mechanisms, count| {
            // SAFETY: `mechanisms` is null or has room for `count`.
            unsafe { call(slot.into(), mechanisms, count) }
        })?;
        let known = |kind: CK_ULONG| MechanismType::try_from(kind).ok();
        Ok(mechanisms.into_iter().filter_map(known).collect())
    }

    /// C_OpenSession: it ends with C_Finalize unless it is closed. To close it
    /// after a request would be a call into the library after the answer, with no bound on its time.
    pub(super) fn open_session(
        &self,
        slot: Slot,
        access: SessionAccess,
    ) -> CallResult<Session<'_>> {
        let call = present(self.0.C_OpenSession)?;
        let flags = match access {
            SessionAccess::ReadOnly => CKF_SERIAL_SESSION,
            SessionAccess::ReadWrite => CKF_SERIAL_SESSION | CKF_RW_SESSION,
        };
        let mut handle = 0;
        // SAFETY: a slot is a number, there is no callback, `handle` is valid to be written.
        let code = unsafe { call(slot.into(), flags, ptr::null_mut(), None, &raw mut handle) };
        checked(code, Function::OpenSession).map(|()| Session { functions: &self.0, handle })
    }
}

/// Whether objects on the token can be made and removed in a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SessionAccess {
    ReadOnly,
    ReadWrite,
}

/// An open session.
pub(super) struct Session<'m> {
    functions: &'m CK_FUNCTION_LIST,
    handle: CK_SESSION_HANDLE,
}

/// An object that a search has found, for as long as the session lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ObjectHandle(CK_OBJECT_HANDLE);

impl Session<'_> {
    /// Whether it is still there, with its login if there was one (C_GetSessionInfo): both end when
    /// the token is taken out. A library that fails otherwise can't tell, and it counts as there.
    pub(super) fn lives(&self, logged_in: bool) -> bool {
        let Some(call) = self.functions.C_GetSessionInfo else {
            return true;
        };
        let mut info = CK_SESSION_INFO::default();
        // SAFETY: a session handle is a number, `info` is valid to be written.
        let code = unsafe { call(self.handle, &raw mut info) };
        let public = [CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION];
        match checked(code, Function::GetSessionInfo) {
            Ok(()) => !logged_in || !public.contains(&info.state),
            Err(error) => !matches!(
                ckr::code(&error),
                Some(
                    RvError::CryptokiNotInitialized
                        | RvError::DeviceError
                        | RvError::DeviceRemoved
                        | RvError::SessionClosed
                        | RvError::SessionHandleInvalid
                        | RvError::TokenNotPresent
                        | RvError::TokenNotRecognized
                )
            ),
        }
    }

    /// C_Login; without a PIN, the reader asks for it.
    pub(super) fn login(&self, user: UserType, pin: Option<&str>) -> CallResult<()> {
        let call = present(self.functions.C_Login)?;
        let (pin, length) = pin.map_or((ptr::null(), 0), |pin| (pin.as_ptr(), pin.len()));
        // SAFETY: the PIN is null or has this length, and is only read: the standard's prototype is not
        // const-correct.
        let code = unsafe { call(self.handle, user.into(), pin.cast_mut(), length as CK_ULONG) };
        checked(code, Function::Login)
    }

    /// C_Logout.
    pub(super) fn logout(&self) -> CallResult<()> {
        let call = present(self.functions.C_Logout)?;
        // SAFETY: a session handle is a number.
        let code = unsafe { call(self.handle) };
        checked(code, Function::Logout)
    }

    /// C_Logout if there was a login, and C_CloseSession. That either fails changes nothing.
    pub(super) fn close(self, logged_in: bool) {
        if let Some(call) = self.functions.C_Logout.filter(|_| logged_in) {
            // SAFETY: a session handle is a number.
            let _ = unsafe { call(self.handle) };
        }
        if let Some(call) = self.functions.C_CloseSession {
            // SAFETY: as above.
            let _ = unsafe { call(self.handle) };
        }
    }

    /// All objects that fit (C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal).
    pub(super) fn find(&self, template: &[Attribute]) -> CallResult<Vec<ObjectHandle>> {
        let begin = present(self.functions.C_FindObjectsInit)?;
        let end = present(self.functions.C_FindObjectsFinal)?;
        let mut wanted = attributes(template);
        // SAFETY: the attributes point into `template`, and `wanted` has this many.
        let code = unsafe { begin(self.handle, wanted.as_mut_ptr(), wanted.len() as CK_ULONG) };
        checked(code, Function::FindObjectsInit)?;
        let found = self.found();
        // SAFETY: a session handle is a number.
        let code = unsafe { end(self.handle) };
        // What was found is found. If the search is still on, the next call will say so.
        if let Err(error) = checked(code, Function::FindObjectsFinal) {
            log::info!("{}", ckr::failure(&error));
        }
        found
    }

    fn found(&self) -> CallResult<Vec<ObjectHandle>> {
        let function = Function::FindObjects;
        let call = present(self.functions.C_FindObjects)?;
        let mut found = Vec::new();
        loop {
            let mut handles: [CK_OBJECT_HANDLE; BATCH] = [0; BATCH];
            let mut count = 0;
            // SAFETY: there is room for as many handles as are asked for.
            let code = unsafe {
                call(self.handle, handles.as_mut_ptr(), BATCH as CK_ULONG, &raw mut count)
            };
            checked(code, function)?;
            let count = at_most(BATCH, count, function)?;
            if count == 0 {
                return Ok(found);
            }
            found.extend(handles.iter().take(count).copied().map(ObjectHandle));
            at_most(MOST_OBJECTS, found.len() as CK_ULONG, function)?;
        }
    }

    /// The attributes that the object has and shows, in the order they are asked for: their lengths
    /// (C_GetAttributeValue), and then their values. An empty one counts as none.
    pub(super) fn attributes(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> CallResult<Vec<(AttributeType, Vec<u8>)>> {
        let call = present(self.functions.C_GetAttributeValue)?;
        let read = |asked: &mut [CK_ATTRIBUTE]| {
            let count = asked.len() as CK_ULONG;
            // SAFETY: `asked` has this many attributes, whose values are null or have room for their
            // lengths.
            unsafe { call(self.handle, object.0, asked.as_mut_ptr(), count) }
        };
        let attribute = |kind: AttributeType, value: *mut CK_BYTE, length: usize| CK_ATTRIBUTE {
            type_: kind.into(),
            pValue: value.cast(),
            ulValueLen: length as CK_ULONG,
        };
        let mut queries: Vec<_> =
            kinds.iter().map(|kind| attribute(*kind, ptr::null_mut(), 0)).collect();
        let wants_buffers = match read(&mut queries) {
            CKR_ARGUMENTS_BAD => true,
            code => {
                // One that isn't shown leaves the others their lengths.
                are_shown(code)?;
                false
            }
        };
        let length = |query: &CK_ATTRIBUTE| match usize::try_from(query.ulValueLen) {
            _ if wants_buffers => Some(LONGEST_ATTRIBUTE),
            Ok(length) if (1..=LONGEST_ATTRIBUTE).contains(&length) => Some(length),
            _ => None,
        };
        let mut values: Vec<_> = kinds
            .iter()
            .zip(&queries)
            .filter_map(|(kind, query)| Some((*kind, vec![0_u8; length(query)?])))
            .collect();
        let mut asked: Vec<_> = values
            .iter_mut()
            .map(|(kind, value)| attribute(*kind, value.as_mut_ptr(), value.len()))
            .collect();
        // Zeros in a buffer that the library has refused to fill are no value.
        if asked.is_empty() || !are_shown(read(&mut asked))? {
            return Ok(Vec::new());
        }
        let mut shown = Vec::with_capacity(asked.len());
        for ((kind, mut value), CK_ATTRIBUTE { ulValueLen, .. }) in values.into_iter().zip(asked) {
            if ulValueLen == CK_UNAVAILABLE_INFORMATION {
                continue;
            }
            value.truncate(at_most(value.len(), ulValueLen, Function::GetAttributeValue)?);
            shown.extend((!value.is_empty()).then_some((kind, value)));
        }
        Ok(shown)
    }

    /// C_SignInit.
    pub(super) fn sign_init(&self, mechanism: &Mechanism<'_>, key: ObjectHandle) -> CallResult<()> {
        let call = present(self.functions.C_SignInit)?;
        self.begin(call, Function::SignInit, mechanism, key)
    }

    /// C_Sign of the operation that C_SignInit has begun, into a buffer that is there at once:
    /// SoftHSM ends the operation of a key that wants its PIN each time when it is asked for the
    /// length.
    pub(super) fn sign(&self, input: &[u8]) -> CallResult<Vec<u8>> {
        self.transform(present(self.functions.C_Sign)?, Function::Sign, input)
    }
}

impl Session<'_> {
    /// C_DecryptInit.
    pub(super) fn decrypt_init(
        &self,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
    ) -> CallResult<()> {
        let call = present(self.functions.C_DecryptInit)?;
        self.begin(call, Function::DecryptInit, mechanism, key)
    }

    /// C_Decrypt of the operation that C_DecryptInit has begun.
    pub(super) fn decrypt(&self, input: &[u8]) -> CallResult<Vec<u8>> {
        self.transform(present(self.functions.C_Decrypt)?, Function::Decrypt, input)
    }

    fn begin(
        &self,
        call: BeginningCall,
        function: Function,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
    ) -> CallResult<()> {
        let mut mechanism = CK_MECHANISM::from(mechanism);
        // SAFETY: the mechanism's parameters are borrowed from `mechanism`, which outlives the call.
        let code = unsafe { call(self.handle, &raw mut mechanism, key.0) };
        checked(code, function)
    }

    fn transform(
        &self,
        call: TransformingCall,
        function: Function,
        input: &[u8],
    ) -> CallResult<Vec<u8>> {
        let mut output = vec![0; LONGEST_OUTPUT];
        let mut length = output.len() as CK_ULONG;
        // SAFETY: both buffers are valid for the lengths given; the input is only read.
        let code = unsafe {
            call(
                self.handle,
                input.as_ptr().cast_mut(),
                input.len() as CK_ULONG,
                output.as_mut_ptr(),
                &raw mut length,
            )
        };
        checked(code, function)?;
        output.truncate(at_most(output.len(), length, function)?);
        Ok(output)
    }

    /// C_DeriveKey.
    pub(super) fn derive_key(
        &self,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
        template: &[Attribute],
    ) -> CallResult<ObjectHandle> {
        let function = Function::DeriveKey;
        let call = present(self.functions.C_DeriveKey)?;
        let mut mechanism = CK_MECHANISM::from(mechanism);
        let mut template = attributes(template);
        let mut object = 0;
        // SAFETY: the mechanism's parameters and the template's attributes are borrowed from what outlives the
        // call, the template has this many, and `object` is valid to be written.
        let code = unsafe {
            call(
                self.handle,
                &raw mut mechanism,
                key.0,
                template.as_mut_ptr(),
                template.len() as CK_ULONG,
                &raw mut object,
            )
        };
        checked(code, function)?;
        valid(object, function)
    }
}

/// Only in a session that can write.
impl Session<'_> {
    /// C_GenerateKeyPair: the public key and the private key.
    pub(super) fn generate_key_pair(
        &self,
        mechanism: &Mechanism<'_>,
        public: &[Attribute],
        private: &[Attribute],
    ) -> CallResult<(ObjectHandle, ObjectHandle)> {
        let function = Function::GenerateKeyPair;
        let call = present(self.functions.C_GenerateKeyPair)?;
        let mut mechanism = CK_MECHANISM::from(mechanism);
        let [mut public, mut private] = [public, private].map(attributes);
        let (mut public_key, mut private_key) = (0, 0);
        // SAFETY: the mechanism has no parameters that don't outlive the call; each template's
        // attributes point into the caller's, and it has the length that is told; both handles are
        // valid to be written.
        let code = unsafe {
            call(
                self.handle,
                &raw mut mechanism,
                public.as_mut_ptr(),
                public.len() as CK_ULONG,
                private.as_mut_ptr(),
                private.len() as CK_ULONG,
                &raw mut public_key,
                &raw mut private_key,
            )
        };
        checked(code, function)?;
        Ok((valid(public_key, function)?, valid(private_key, function)?))
    }

    /// C_CreateObject.
    pub(super) fn create(&self, template: &[Attribute]) -> CallResult<ObjectHandle> {
        let function = Function::CreateObject;
        let call = present(self.functions.C_CreateObject)?;
        let mut template = attributes(template);
        let mut object = 0;
        // SAFETY: the attributes point into the caller's template, which has this many, and `object`
        // is valid to be written.
        let code = unsafe {
            call(self.handle, template.as_mut_ptr(), template.len() as CK_ULONG, &raw mut object)
        };
        checked(code, function)?;
        valid(object, function)
    }

    /// C_DestroyObject.
    pub(super) fn destroy(&self, object: ObjectHandle) -> CallResult<()> {
        let call = present(self.functions.C_DestroyObject)?;
        // SAFETY: session and object are numbers.
        let code = unsafe { call(self.handle, object.0) };
        checked(code, Function::DestroyObject)
    }
}

/// What C_GetFunctionList gives, if the library has it.
fn function_list(library: &Library) -> Result<Option<CK_FUNCTION_LIST>, CallFailure> {
    // SAFETY: the symbol has this type in every PKCS#11 library (section 5.4).
    let entry = unsafe { library.get::<CK_C_GetFunctionList>(b"C_GetFunctionList\0") };
    let Some(entry) = entry.ok().and_then(|entry| *entry) else {
        return Ok(None);
    };
    let function = Function::GetFunctionList;
    let mut list: *mut CK_FUNCTION_LIST = ptr::null_mut();
    // SAFETY: `list` is valid for the library to write one pointer to.
    let code = unsafe { entry(&raw mut list) };
    if let Rv::Error(error) = Rv::from(code) {
        return Err(broken(function, &ckr::name(error)));
    }
    read_list(list, function).map(Some)
}

/// The failure of an entry point.
fn broken(function: Function, reason: &str) -> CallFailure {
    CallFailure { function: format!("C_{function:?}"), reason: reason.to_owned() }
}

/// Copies a function list. The last function of 2.40, C_WaitForSlotEvent, which is
/// never called, is left out: 2.0 doesn't have it.
fn read_list(
    list: *const CK_FUNCTION_LIST,
    function: Function,
) -> Result<CK_FUNCTION_LIST, CallFailure> {
    if list.is_null() || !list.is_aligned() {
        return Err(broken(function, "CKR_OK, but no function list"));
    }
    // SAFETY: CKR_OK promises a list, and each version's begins with its version.
    let CK_VERSION { major, minor } = unsafe { list.cast::<CK_VERSION>().read() };
    if major < 2 {
        let reason = format!("CKR_OK, but a function list of version {major}.{minor}");
        return Err(broken(function, &reason));
    }
    let mut copy = CK_FUNCTION_LIST::default();
    // SAFETY: the list of each version from 2.0 on begins with these functions, and null is a value
    // of each.
    unsafe {
        ptr::copy_nonoverlapping(
            list.cast::<u8>(),
            (&raw mut copy).cast::<u8>(),
            offset_of!(CK_FUNCTION_LIST, C_WaitForSlotEvent),
        );
    }
    Ok(copy)
}

/// A function of the list.
fn present<F>(function: Option<F>) -> CallResult<F> {
    function.ok_or(Error::NullFunctionPointer)
}

/// A list that is asked for its length first, and may have grown until it is asked for itself.
fn list(
    function: Function,
    mut call: impl FnMut(*mut CK_ULONG, *mut CK_ULONG) -> CK_RV,
) -> CallResult<Vec<CK_ULONG>> {
    let mut count = 0;
    match call(ptr::null_mut(), &raw mut count) {
        // It wants a buffer.
        CKR_ARGUMENTS_BAD => count = LONGEST_LIST as CK_ULONG,
        code => checked(code, function)?,
    }
    let mut code = CKR_BUFFER_TOO_SMALL;
    for _ in 0..3 {
        let mut items = vec![0; at_most(LONGEST_LIST, count, function)?];
        code = call(items.as_mut_ptr(), &raw mut count);
        if code == CKR_OK {
            items.truncate(at_most(items.len(), count, function)?);
            return Ok(items);
        }
        if code != CKR_BUFFER_TOO_SMALL {
            break;
        }
    }
    checked(code, function).map(|()| Vec::new())
}

/// A template as a call takes it; the values are the borrowed ones.
fn attributes(template: &[Attribute]) -> Vec<CK_ATTRIBUTE> {
    template.iter().map(CK_ATTRIBUTE::from).collect()
}

/// The handle of an object that was made, unless it is CK_INVALID_HANDLE.
fn valid(object: CK_OBJECT_HANDLE, function: Function) -> CallResult<ObjectHandle> {
    match object {
        CK_INVALID_HANDLE => Err(Error::Pkcs11(ckr::NO_HANDLE, function)),
        object => Ok(ObjectHandle(object)),
    }
}

/// Whether all attributes of a call are there and shown.
fn are_shown(code: CK_RV) -> CallResult<bool> {
    match code {
        CKR_ATTRIBUTE_SENSITIVE | CKR_ATTRIBUTE_TYPE_INVALID => Ok(false),
        code => checked(code, Function::GetAttributeValue).map(|()| true),
    }
}

/// A count or length from the library, unless it is more than there is room for.
fn at_most(room: usize, told: CK_ULONG, function: Function) -> CallResult<usize> {
    match usize::try_from(told) {
        Ok(told) if told <= room => Ok(told),
        _ => Err(Error::Pkcs11(ckr::BEYOND_THE_BUFFER, function)),
    }
}

fn checked(code: CK_RV, function: Function) -> CallResult<()> {
    Rv::from(code).into_result(function)
}
