//! The one place that calls a PKCS#11 library: its entry points and the functions of its list.
//!
//! The types are cryptoki's, the calls are made here (docs/decisions/0002-direct-c-sign.md). What a library answers is
//! checked: pointers for null and alignment, counts and lengths against the room that it was given.

#![allow(unsafe_code, reason = "calls through PKCS#11's C function list")]

use std::ffi::CStr;
use std::fmt::Display;
use std::mem::{self, offset_of};
use std::path::Path;
use std::ptr;

use cryptoki::context::{CInitializeFlags, Function};
use cryptoki::error::{Error, Rv, RvError};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType};
use cryptoki::session::UserType;
use cryptoki::slot::{SlotInfo, TokenInfo};
use cryptoki_sys::{
    CK_ATTRIBUTE, CK_BBOOL, CK_C_GetFunctionList, CK_C_INITIALIZE_ARGS, CK_FLAGS, CK_FUNCTION_LIST,
    CK_INFO, CK_INVALID_HANDLE, CK_OBJECT_HANDLE, CK_RV, CK_SESSION_HANDLE, CK_SESSION_INFO,
    CK_SLOT_ID, CK_SLOT_INFO, CK_TOKEN_INFO, CK_ULONG, CK_UNAVAILABLE_INFORMATION, CK_VERSION,
    CKF_CLOCK_ON_TOKEN, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKS_RO_PUBLIC_SESSION,
    CKS_RW_PUBLIC_SESSION,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::ckr;
use crate::watchdog::{CallLimit, LimitedCall};
use messages::error::{self, Exit};
use system::limits;
use system::memory;

/// More than any signature and any message decrypted with a key has: RSA-8192 makes 1024 bytes.
const LONGEST_OUTPUT: usize = 4096;
/// An attribute of more bytes is no certificate and no key of a size that we sign with.
const LONGEST_ATTRIBUTE: usize = 64 * 1024;
/// The room for an attribute that is read at once, in bytes: more than most certificates have.
const ROOM: usize = 4096;
/// No library has more slots or more mechanisms.
const LONGEST_LIST: usize = 4096;
/// By how many items a list may grow between two calls.
const MORE: usize = 256;
/// No search of ours finds more objects on a token.
const MOST_OBJECTS: usize = 4096;
/// Objects that one C_FindObjects asks for.
const BATCH: usize = 16;

pub(super) type CallResult<T> = Result<T, Error>;

/// Calls a function of the list, if the library has it. The [watchdog](crate::watchdog) limits the time.
macro_rules! call {
    ($list:expr, $name:ident, $function:ident, $($argument:expr),+ $(,)?) => {
        match $list.$name {
            None => Err(Error::NullFunctionPointer),
            Some(function) => {
                const CALL: CallLimit =
                    CallLimit { name: stringify!($name), limit: limit(Function::$function) };
                let _call = LimitedCall::begin(&CALL);
                // SAFETY: the function has the type that the standard gives it. Numbers and null are valid wherever
                // they are passed; each pointer is to what outlives the call, with the length that is passed beside
                // it, and is only read where the standard says so, though its prototypes are not const-correct.
                checked(unsafe { function($($argument),+) }, Function::$function)
            }
        }
    };
}

/// Calls a function of the list in a session, whose handle is the first argument.
macro_rules! call_in {
    ($session:expr, $name:ident, $function:ident $(, $argument:expr)* $(,)?) => {
        call!($session.functions, $name, $function, $session.handle $(, $argument)*)
    };
}

pub(super) fn not_loaded(path: &Path, reason: &dyn Display) -> error::Error {
    let text = format!("PKCS#11 library {} does not load: {reason}", path.display());
    error::Error::new(Exit::Library, text).help(
        "set pathLib (--module) to an installed PKCS#11 library built for this machine, such as libsofthsm2.so, \
         opensc-pkcs11.so or libykcs11.so, and install the libraries it needs",
    )
}

/// A library's function list. The library stays loaded: some crash when they are unloaded.
#[derive(Debug)]
pub(super) struct Functions(CK_FUNCTION_LIST);

impl Functions {
    /// Takes the function list once: p11-kit's proxy makes another instance of itself each time.
    pub(super) fn load(path: &Path) -> Result<&'static Self, error::Error> {
        let _call = LimitedCall::begin(&CallLimit { name: "loading it", limit: limits::CALL });
        // SAFETY: constructors run, of a library that only root and the user can change.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = library.map_err(|error| not_loaded(path, &error))?;
        // SAFETY: the symbol has this type in every PKCS#11 library (section 5.4).
        let entry = unsafe { library.get::<CK_C_GetFunctionList>(b"C_GetFunctionList\0") };
        let entry = entry.ok().and_then(|entry| *entry);
        // It and the list's pointers lead into the library, which is never unloaded.
        mem::forget(library);
        let entry = entry.ok_or_else(|| not_loaded(path, &"it has no C_GetFunctionList"))?;
        let mut list: *mut CK_FUNCTION_LIST = ptr::null_mut();
        // SAFETY: `list` is valid for the library to write one pointer to.
        let given = checked(unsafe { entry(&raw mut list) }, Function::GetFunctionList);
        let list = given.map_err(|error| ckr::failure(&error)).and_then(|()| read_list(list));
        let list = list.map_err(|failure| not_loaded(path, &failure))?;
        memory::fill_heap();
        Ok(Box::leak(Box::new(Self(list))))
    }

    /// C_Initialize, with the library's own parameters (NSS, YubiHSM) in pReserved. Without any, a library that refuses
    /// the arguments, or to lock, gets none: what it is promised then, one call at a time, holds here in any case.
    pub(super) fn initialize(&self, parameters: Option<&CStr>) -> CallResult<()> {
        let mut arguments = CK_C_INITIALIZE_ARGS {
            flags: CInitializeFlags::OS_LOCKING_OK.bits(),
            ..CK_C_INITIALIZE_ARGS::default()
        };
        if let Some(parameters) = parameters {
            // Never freed: a library may keep the pointer.
            let parameters = Box::leak(Box::<CStr>::from(parameters));
            arguments.pReserved = ptr::from_mut(parameters).cast();
        }
        // Which structure a library expects in pReserved is its own affair: one that expects no text may misread it,
        // as it would in any program that the user tells to pass one.
        match call!(self.0, C_Initialize, Initialize, (&raw mut arguments).cast()) {
            Err(Error::Pkcs11(RvError::ArgumentsBad | RvError::CantLock, _))
                if parameters.is_none() =>
            {
                call!(self.0, C_Initialize, Initialize, ptr::null_mut())
            }
            outcome => outcome,
        }
    }

    /// C_Finalize, which ends all sessions.
    pub(super) fn finalize(&self) -> CallResult<()> {
        call!(self.0, C_Finalize, Finalize, ptr::null_mut())
    }

    /// See [`super::Module::description`].
    pub(super) fn description(&self) -> Option<String> {
        let mut info = CK_INFO::default();
        call!(self.0, C_GetInfo, GetInfo, &raw mut info).ok()?;
        let [maker, name] = [info.manufacturerID, info.libraryDescription]
            .map(|field| String::from_utf8_lossy(&field).trim_end().to_owned());
        let CK_VERSION { major, minor } = info.libraryVersion;
        Some(format!("{maker}, {name} {major}.{minor}"))
    }

    pub(super) fn slots(&self, with_token: bool) -> CallResult<Vec<CK_SLOT_ID>> {
        let with_token = CK_BBOOL::from(with_token);
        list(Function::GetSlotList, |slots, count| {
            call!(self.0, C_GetSlotList, GetSlotList, with_token, slots, count)
        })
    }

    pub(super) fn slot_info(&self, slot: CK_SLOT_ID) -> CallResult<SlotInfo> {
        let mut info = CK_SLOT_INFO::default();
        call!(self.0, C_GetSlotInfo, GetSlotInfo, slot, &raw mut info)?;
        Ok(SlotInfo::from(info))
    }

    /// C_GetTokenInfo, without the time on the token's clock: cryptoki fails the whole answer where
    /// that isn't sixteen digits, as opencryptoki's isn't.
    pub(super) fn token_info(&self, slot: CK_SLOT_ID) -> CallResult<TokenInfo> {
        let mut info = CK_TOKEN_INFO::default();
        call!(self.0, C_GetTokenInfo, GetTokenInfo, slot, &raw mut info)?;
        info.flags &= !CKF_CLOCK_ON_TOKEN;
        TokenInfo::try_from(info)
    }

    /// C_GetMechanismList, without the mechanisms that cryptoki doesn't know.
    pub(super) fn mechanisms(&self, slot: CK_SLOT_ID) -> CallResult<Vec<MechanismType>> {
        let mechanisms = list(Function::GetMechanismList, |mechanisms, count| {
            call!(self.0, C_GetMechanismList, GetMechanismList, slot, mechanisms, count)
        })?;
        let known = |kind: CK_ULONG| MechanismType::try_from(kind).ok();
        Ok(mechanisms.into_iter().filter_map(known).collect())
    }

    /// C_OpenSession: it ends with C_Finalize unless it is closed. To close it
    /// after a request would be a call into the library after the answer, with no bound on its time.
    pub(super) fn open_session(
        &'static self,
        slot: CK_SLOT_ID,
        access: SessionAccess,
    ) -> CallResult<Session> {
        let flags = match access {
            SessionAccess::ReadOnly => CKF_SERIAL_SESSION,
            SessionAccess::ReadWrite => CKF_SERIAL_SESSION | CKF_RW_SESSION,
        };
        let mut handle = 0;
        let none = ptr::null_mut();
        call!(self.0, C_OpenSession, OpenSession, slot, flags, none, None, &raw mut handle)?;
        Ok(Session { functions: &self.0, slot, flags, handle })
    }
}

/// Whether objects on the token can be made and removed in a session.
#[derive(Clone, Copy, Debug, Default)]
pub enum SessionAccess {
    #[default]
    ReadOnly,
    ReadWrite,
}

/// An open session. After C_Finalize, its calls fail with CKR_CRYPTOKI_NOT_INITIALIZED.
pub(super) struct Session {
    functions: &'static CK_FUNCTION_LIST,
    slot: CK_SLOT_ID,
    /// Those of C_OpenSession.
    flags: CK_FLAGS,
    handle: CK_SESSION_HANDLE,
}

/// What a private key is applied in, by two calls.
#[derive(Clone, Copy)]
pub(super) enum KeyOperation {
    Decrypt,
    Sign,
}

/// Attributes of an object, with their values.
pub(super) type AttributeValues = Vec<(AttributeType, Vec<u8>)>;

/// An object that a search has found, for as long as the session lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ObjectHandle(CK_OBJECT_HANDLE);

impl Session {
    /// Whether it is still there, with its login if there was one (C_GetSessionInfo): both end when
    /// the token is taken out. A library that fails otherwise can't tell, and it counts as there.
    pub(super) fn is_valid(&self, logged_in: bool) -> bool {
        match self.shows_login() {
            Ok(shows_login) => shows_login || !logged_in,
            Err(Error::Pkcs11(
                RvError::CryptokiNotInitialized | RvError::TokenNotRecognized,
                _,
            )) => false,
            Err(error) => !ckr::is_gone(&error),
        }
    }

    /// Whether its state is that of a login (C_GetSessionInfo).
    pub(super) fn shows_login(&self) -> CallResult<bool> {
        let mut info = CK_SESSION_INFO::default();
        call_in!(self, C_GetSessionInfo, GetSessionInfo, &raw mut info)?;
        Ok(![CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION].contains(&info.state))
    }

    /// C_Login; without a PIN, the reader asks for it.
    pub(super) fn login(&self, user: UserType, pin: Option<&str>) -> CallResult<()> {
        let (pin, length) = pin.map_or((ptr::null(), 0), |pin| (pin.as_ptr(), pin.len()));
        let (pin, length) = (pin.cast_mut(), length as CK_ULONG);
        call_in!(self, C_Login, Login, user.into(), pin, length)
    }

    pub(super) fn logout(&self) -> CallResult<()> {
        call_in!(self, C_Logout, Logout)
    }

    /// C_Logout if there was a login, and C_CloseSession. That either fails changes nothing.
    pub(super) fn close(&self, logged_in: bool) {
        if logged_in {
            let _ = self.logout();
        }
        let _: CallResult<()> = call_in!(self, C_CloseSession, CloseSession);
    }

    /// Puts another session in the place of this one (C_OpenSession, then C_CloseSession, so that the token keeps its
    /// login): an operation that is active ends with its session.
    pub(super) fn renew(&mut self) -> CallResult<()> {
        let mut handle = 0;
        let none = ptr::null_mut();
        let opened = &raw mut handle;
        call!(
            self.functions,
            C_OpenSession,
            OpenSession,
            self.slot,
            self.flags,
            none,
            None,
            opened
        )?;
        let _: CallResult<()> = call_in!(self, C_CloseSession, CloseSession);
        self.handle = handle;
        Ok(())
    }

    /// All objects that fit (C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal).
    pub(super) fn find(&self, template: &[Attribute]) -> CallResult<Vec<ObjectHandle>> {
        // Without it, no other search could follow.
        self.functions.C_FindObjectsFinal.ok_or(Error::NullFunctionPointer)?;
        let mut wanted = attributes(template);
        let count = wanted.len() as CK_ULONG;
        call_in!(self, C_FindObjectsInit, FindObjectsInit, wanted.as_mut_ptr(), count)?;
        let found = self.found();
        // What was found is found. If the search is still on, the next call will say so.
        if let Err(error) = call_in!(self, C_FindObjectsFinal, FindObjectsFinal) {
            log::info!("{}", ckr::failure(&error));
        }
        found
    }

    fn found(&self) -> CallResult<Vec<ObjectHandle>> {
        let function = Function::FindObjects;
        let mut found = Vec::new();
        loop {
            let mut handles: [CK_OBJECT_HANDLE; BATCH] = [0; BATCH];
            let room = handles.len() as CK_ULONG;
            let into = handles.as_mut_ptr();
            let mut count = 0;
            call_in!(self, C_FindObjects, FindObjects, into, room, &raw mut count)?;
            let count = at_most(BATCH, count, function)?;
            if count == 0 {
                return Ok(found);
            }
            found.extend(handles.iter().take(count).copied().map(ObjectHandle));
            at_most(MOST_OBJECTS, found.len() as CK_ULONG, function)?;
        }
    }

    /// The attributes that the object has and shows, in the order they are asked for (C_GetAttributeValue): in one
    /// call if all are, and shorter than the room for them, else their lengths first. An empty one counts as none.
    pub(super) fn attributes(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> CallResult<AttributeValues> {
        match self.read_at_once(object, kinds)? {
            Some(values) => Ok(values),
            None => self.read_by_length(object, kinds),
        }
    }

    /// Reads the attributes in one call; `None` unless each is shown and shorter than the room for it.
    fn read_at_once(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> CallResult<Option<AttributeValues>> {
        let mut values: Vec<_> = kinds.iter().map(|kind| (*kind, vec![0_u8; ROOM])).collect();
        let reading = match self.read_into(object, &mut values) {
            Err(Error::Pkcs11(RvError::BufferTooSmall, _)) => return Ok(None),
            outcome => outcome?,
        };
        // A length that is the room's may be as it was.
        let fits = |length: &CK_ULONG| *length < ROOM as CK_ULONG;
        if !reading.is_whole || !reading.lengths.iter().all(fits) {
            return Ok(None);
        }
        reading.shown_of(values).map(Some)
    }

    /// Asks for the attributes' lengths first, and then for the values of those that have one.
    fn read_by_length(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> CallResult<AttributeValues> {
        let mut values: Vec<_> = kinds.iter().map(|kind| (*kind, Vec::new())).collect();
        // One that isn't there leaves the others their lengths.
        let lengths = self.read_into(object, &mut values)?.lengths;
        for ((_, value), length) in values.iter_mut().zip(lengths) {
            let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_ATTRIBUTE);
            value.resize(length.unwrap_or_default(), 0_u8);
        }
        values.retain(|(_, value)| !value.is_empty());
        if values.is_empty() {
            return Ok(values);
        }
        self.read_into(object, &mut values)?.shown_of(values)
    }

    /// C_GetAttributeValue into these buffers; an empty one asks for its attribute's length alone.
    fn read_into(
        &self,
        object: ObjectHandle,
        values: &mut [(AttributeType, Vec<u8>)],
    ) -> CallResult<Reading> {
        let attribute = |(kind, value): &mut (AttributeType, Vec<u8>)| CK_ATTRIBUTE {
            type_: (*kind).into(),
            pValue: if value.is_empty() { ptr::null_mut() } else { value.as_mut_ptr().cast() },
            ulValueLen: value.len() as CK_ULONG,
        };
        let mut template: Vec<_> = values.iter_mut().map(attribute).collect();
        let count = template.len() as CK_ULONG;
        let into = template.as_mut_ptr();
        let outcome = call_in!(self, C_GetAttributeValue, GetAttributeValue, object.0, into, count);
        let is_whole = match outcome {
            Ok(()) => true,
            Err(Error::Pkcs11(RvError::AttributeSensitive | RvError::AttributeTypeInvalid, _)) => {
                false
            }
            Err(error) => return Err(error),
        };
        let lengths = template.iter().map(|attribute| attribute.ulValueLen).collect();
        Ok(Reading { is_whole, lengths })
    }

    pub(super) fn begin(
        &self,
        operation: KeyOperation,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
    ) -> CallResult<()> {
        let mechanism = &mut mechanism.into();
        match operation {
            KeyOperation::Sign => call_in!(self, C_SignInit, SignInit, mechanism, key.0),
            KeyOperation::Decrypt => call_in!(self, C_DecryptInit, DecryptInit, mechanism, key.0),
        }
    }

    /// C_Sign or C_Decrypt, into a buffer that has room for all of it: without a query for the length.
    pub(super) fn end(&self, operation: KeyOperation, input: &[u8]) -> CallResult<Vec<u8>> {
        let mut output = vec![0; LONGEST_OUTPUT];
        let mut length = output.len() as CK_ULONG;
        let from = input.as_ptr().cast_mut();
        let count = input.len() as CK_ULONG;
        let into = output.as_mut_ptr();
        let room = &raw mut length;
        let function = match operation {
            KeyOperation::Sign => {
                call_in!(self, C_Sign, Sign, from, count, into, room).map(|()| Function::Sign)?
            }
            KeyOperation::Decrypt => call_in!(self, C_Decrypt, Decrypt, from, count, into, room)
                .map(|()| Function::Decrypt)?,
        };
        output.truncate(at_most(output.len(), length, function)?);
        Ok(output)
    }

    pub(super) fn derive_key(
        &self,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
        template: &[Attribute],
    ) -> CallResult<ObjectHandle> {
        let mechanism = &mut mechanism.into();
        let mut template = attributes(template);
        let count = template.len() as CK_ULONG;
        let template = template.as_mut_ptr();
        let mut made = CK_INVALID_HANDLE;
        let object = &raw mut made;
        call_in!(self, C_DeriveKey, DeriveKey, mechanism, key.0, template, count, object)?;
        valid(made, Function::DeriveKey)
    }

    /// C_GenerateKeyPair by these templates, in a session that can write.
    pub(super) fn generate_key_pair(
        &self,
        mechanism: &Mechanism<'_>,
        templates: &KeyPair<Vec<Attribute>>,
    ) -> CallResult<KeyPair<ObjectHandle>> {
        let mut public = attributes(&templates.public);
        let mut private = attributes(&templates.private);
        let mut public_key = CK_INVALID_HANDLE;
        let mut private_key = CK_INVALID_HANDLE;
        call_in!(
            self,
            C_GenerateKeyPair,
            GenerateKeyPair,
            &mut mechanism.into(),
            public.as_mut_ptr(),
            public.len() as CK_ULONG,
            private.as_mut_ptr(),
            private.len() as CK_ULONG,
            &raw mut public_key,
            &raw mut private_key
        )?;
        let function = Function::GenerateKeyPair;
        Ok(KeyPair { public: valid(public_key, function)?, private: valid(private_key, function)? })
    }

    /// C_CreateObject, in a session that can write.
    pub(super) fn create(&self, template: &[Attribute]) -> CallResult<ObjectHandle> {
        let mut template = attributes(template);
        let count = template.len() as CK_ULONG;
        let template = template.as_mut_ptr();
        let mut made = CK_INVALID_HANDLE;
        call_in!(self, C_CreateObject, CreateObject, template, count, &raw mut made)?;
        valid(made, Function::CreateObject)
    }

    /// C_DestroyObject, in a session that can write, or of an object of the session.
    pub(super) fn destroy(&self, object: ObjectHandle) -> CallResult<()> {
        call_in!(self, C_DestroyObject, DestroyObject, object.0)
    }
}

/// What belongs to the two keys of a pair, such as their templates.
pub(super) struct KeyPair<T> {
    pub(super) public: T,
    pub(super) private: T,
}

/// What a call of C_GetAttributeValue has said of the buffers that it was given.
struct Reading {
    /// Whether the object has all the attributes and shows them.
    is_whole: bool,
    /// Of the values, in the buffers' order, as the library says them.
    lengths: Vec<CK_ULONG>,
}

impl Reading {
    /// The values that the library has written into the buffers of the call.
    fn shown_of(self, mut values: AttributeValues) -> CallResult<AttributeValues> {
        for ((_, value), length) in values.iter_mut().zip(self.lengths) {
            // Zeros in a buffer that the library has refused to fill are no value.
            let is_shown = self.is_whole && length != CK_UNAVAILABLE_INFORMATION;
            let length = if is_shown { length } else { 0 };
            value.truncate(at_most(value.len(), length, Function::GetAttributeValue)?);
        }
        values.retain(|(_, value)| !value.is_empty());
        Ok(values)
    }
}

/// Copies a function list. The last function of 2.40, C_WaitForSlotEvent, which is
/// never called, is left out: 2.0 doesn't have it.
fn read_list(list: *const CK_FUNCTION_LIST) -> Result<CK_FUNCTION_LIST, String> {
    if list.is_null() || !list.is_aligned() {
        return Err("C_GetFunctionList: CKR_OK, but no function list".to_owned());
    }
    let mut copy = CK_FUNCTION_LIST::default();
    // SAFETY: CKR_OK promises a list. That of each version with C_GetFunctionList begins with these functions, whatever
    // version it says it has (scute: 1.0), and each of them may be null.
    unsafe {
        ptr::copy_nonoverlapping(
            list.cast::<u8>(),
            (&raw mut copy).cast::<u8>(),
            offset_of!(CK_FUNCTION_LIST, C_WaitForSlotEvent),
        );
    }
    Ok(copy)
}

/// A list that is asked for its length first: some libraries look for tokens only then.
fn list(
    function: Function,
    call: impl Fn(*mut CK_ULONG, *mut CK_ULONG) -> CallResult<()>,
) -> CallResult<Vec<CK_ULONG>> {
    let mut count = 0;
    call(ptr::null_mut(), &raw mut count)?;
    // It may have grown until then.
    let room = at_most(LONGEST_LIST - MORE, count, function)? + MORE;
    let mut items = vec![0; room];
    count = items.len() as CK_ULONG;
    call(items.as_mut_ptr(), &raw mut count)?;
    items.truncate(at_most(items.len(), count, function)?);
    Ok(items)
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

/// A count or length from the library, unless it is more than there is room for.
fn at_most(room: usize, length: CK_ULONG, function: Function) -> CallResult<usize> {
    match usize::try_from(length) {
        Ok(length) if length <= room => Ok(length),
        _ => Err(Error::Pkcs11(ckr::BEYOND_THE_BUFFER, function)),
    }
}

const fn limit(function: Function) -> limits::Limit {
    match function {
        Function::GenerateKeyPair => limits::GENERATION,
        _ => limits::CALL,
    }
}

fn checked(code: CK_RV, function: Function) -> CallResult<()> {
    Rv::from(code).into_result(function)
}
