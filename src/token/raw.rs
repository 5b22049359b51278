//! The one place that calls a PKCS#11 library: its entry points and the functions of its list.
//!
//! The types are cryptoki's, but the calls are made here (docs/decisions/0002-direct-c-sign.md). Nothing that a library
//! returns is trusted: pointers are checked for null and alignment, counts and lengths against the room that the library
//! was given.

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
    CK_VOID_PTR, CKF_CLOCK_ON_TOKEN, CKF_RW_SESSION, CKF_SERIAL_SESSION, CKS_RO_PUBLIC_SESSION,
    CKS_RW_PUBLIC_SESSION,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::ckr;
use crate::watchdog::{CallLimit, LimitedCall};
use messages::error::{self, Exit};
use messages::help::{Help, command};
use system::limits;

/// The room for a signature or a decrypted message, in bytes. None is longer: ML-DSA-87 makes 4627 bytes.
const LONGEST_OUTPUT: usize = 8192;
/// The room for a signature with Ed25519, which is as long. NSS (3.110, 3.131) refuses any other.
const ED25519_SIGNATURE: usize = 64;
/// The longest attribute that is read, in bytes. No certificate, and no key that can sign here, is longer.
const LONGEST_ATTRIBUTE: usize = 64 * 1024;
/// The room for an attribute that is read without asking for its length, in bytes. Most certificates are shorter.
const ROOM: usize = 4096;
/// The most slots or mechanisms that a library may list.
const LONGEST_LIST: usize = 4096;
/// How many items a list may gain between two calls.
const MORE: usize = 256;
/// The most objects that a search may find.
const MOST_OBJECTS: usize = 4096;
/// How many objects one call of C_FindObjects asks for.
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
        Help::from("set pathLib (--module) to the path of an installed PKCS#11 library built for this machine, as ")
            .and(command("list"))
            .and(" shows them, and install the libraries it needs"),
    )
}

/// A library's function list. The library stays loaded, because some libraries crash when they are unloaded.
#[derive(Debug)]
pub(super) struct Functions(CK_FUNCTION_LIST);

impl Functions {
    /// Loads the library and copies its function list. C_GetFunctionList is called once: p11-kit's proxy makes another
    /// instance of itself at each call.
    pub(super) fn load(path: &Path) -> Result<&'static Self, error::Error> {
        let _call = LimitedCall::begin(&CallLimit { name: "loading it", limit: limits::CALL });
        // SAFETY: the library's constructors run; only root and the user can have changed the library.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = library.map_err(|error| not_loaded(path, &error))?;
        // SAFETY: the symbol has this type in every PKCS#11 library (section 5.4).
        let entry = unsafe { library.get::<CK_C_GetFunctionList>(b"C_GetFunctionList\0") };
        let entry = entry.ok().and_then(|entry| *entry);
        // The entry point and the pointers in the list lead into the library, so that it is never unloaded.
        mem::forget(library);
        let entry = entry.ok_or_else(|| not_loaded(path, &"it has no C_GetFunctionList"))?;
        let mut list: *mut CK_FUNCTION_LIST = ptr::null_mut();
        // SAFETY: `list` is valid for the library to write one pointer to.
        let given = checked(unsafe { entry(&raw mut list) }, Function::GetFunctionList);
        let list = given.map_err(|error| ckr::failure(&error)).and_then(|()| read_list(list));
        let list = list.map_err(|failure| not_loaded(path, &failure))?;
        Ok(Box::leak(Box::new(Self(list))))
    }

    /// C_Initialize, with the library's own parameters (NSS, YubiHSM) in pReserved. Without parameters, a process that calls
    /// from one thread passes no arguments at all, as most programs do. A library that refuses what it gets first, or can't
    /// lock, gets the other: [`Locking`] says what it was promised.
    pub(super) fn initialize(
        &self,
        parameters: Option<&CStr>,
        callers: Callers,
    ) -> CallResult<Locking> {
        let own = CInitializeFlags::OS_LOCKING_OK.bits();
        if let Some(parameters) = parameters {
            // Never freed: a library may keep the pointer. Only the library knows which structure it expects there. One that
            // expects no text may misread it, as in any program that the user tells to pass a text.
            let parameters = ptr::from_mut(Box::leak(Box::<CStr>::from(parameters))).cast();
            return match callers {
                Callers::OneThread => self.initialize_with(Some(0), parameters),
                Callers::SeveralThreads => self.initialize_with(Some(own), parameters),
            };
        }
        let [first, second] = match callers {
            Callers::OneThread => [None, Some(own)],
            Callers::SeveralThreads => [Some(own), None],
        };
        match self.initialize_with(first, ptr::null_mut()) {
            Err(Error::Pkcs11(RvError::ArgumentsBad | RvError::CantLock, _)) => {
                self.initialize_with(second, ptr::null_mut())
            }
            outcome => outcome,
        }
    }

    /// C_Initialize with these flags and pReserved; without flags, with no arguments.
    fn initialize_with(
        &self,
        flags: Option<CK_FLAGS>,
        reserved: CK_VOID_PTR,
    ) -> CallResult<Locking> {
        let mut arguments = flags.map(|flags| CK_C_INITIALIZE_ARGS {
            flags,
            pReserved: reserved,
            ..CK_C_INITIALIZE_ARGS::default()
        });
        let arguments =
            arguments.as_mut().map_or(ptr::null_mut(), |known| ptr::from_mut(known).cast());
        call!(self.0, C_Initialize, Initialize, arguments)?;
        let locks = flags.is_some_and(|flags| flags & CInitializeFlags::OS_LOCKING_OK.bits() != 0);
        Ok(if locks { Locking::Librarys } else { Locking::Ours })
    }

    /// C_Finalize, which ends all sessions.
    pub(super) fn finalize(&self) -> CallResult<()> {
        call!(self.0, C_Finalize, Finalize, ptr::null_mut())
    }

    /// The library's maker, name and version (C_GetInfo): [`super::Module::description`].
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

    /// C_GetTokenInfo, without the time on the token's clock. If that isn't sixteen digits, and opencryptoki's isn't,
    /// cryptoki would refuse the whole answer.
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

    /// C_OpenSession. The session ends with C_Finalize, unless it is closed before. A request doesn't close it: that would
    /// be another call into the library after the answer.
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

/// Who sees to it that calls of several threads don't disturb each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Locking {
    Librarys,
    /// The library was promised that only one call is made at a time.
    Ours,
}

/// From which threads a process calls its PKCS#11 libraries. Without CKF_OS_LOCKING_OK, a library takes no locks, which are a
/// tenth of what SoftHSM needs to read a token with thousands of objects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Callers {
    /// There is one library, called from one thread.
    OneThread,
    /// Several threads call the same library. Two libraries count as one here, since both may lead into a third, as p11-kit's
    /// proxy does.
    SeveralThreads,
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
    /// The flags that C_OpenSession was given.
    flags: CK_FLAGS,
    handle: CK_SESSION_HANDLE,
}

/// An operation with a private key, which takes two calls.
#[derive(Clone, Copy)]
pub(super) enum KeyOperation {
    Decrypt,
    Sign,
}

/// Attributes of an object, and their values.
pub(super) type AttributeValues = Vec<(AttributeType, Vec<u8>)>;

/// An object that a search has found. It is valid as long as the session is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ObjectHandle(CK_OBJECT_HANDLE);

impl Session {
    /// Whether the session still exists and, if `logged_in`, its login as well (C_GetSessionInfo): both end when the token
    /// is taken out. If the call fails for another reason, the session counts as existing.
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

    /// Whether the session's state is one in which somebody is logged in (C_GetSessionInfo).
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

    /// C_Logout if somebody is `logged_in`, and C_CloseSession. Failures are ignored.
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

    /// All objects that have the attributes of the template (C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal).
    pub(super) fn find(&self, template: &[Attribute]) -> CallResult<Vec<ObjectHandle>> {
        // A library without C_FindObjectsFinal could make no second search.
        self.functions.C_FindObjectsFinal.ok_or(Error::NullFunctionPointer)?;
        let mut wanted = attributes(template);
        let count = wanted.len() as CK_ULONG;
        call_in!(self, C_FindObjectsInit, FindObjectsInit, wanted.as_mut_ptr(), count)?;
        let found = self.found();
        // The objects were found all the same. If the search is still active, the next one will fail and say so.
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

    /// The attributes that the object has and shows, in the order in which they are asked for (C_GetAttributeValue). One
    /// call is enough if the object shows them all and each is shorter than the room for it; if not, their lengths are
    /// asked for first. An empty attribute counts as missing.
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

    /// Reads the attributes in one call; `None` unless the object shows each of them, and each is shorter than the room for
    /// it.
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
        // A length that equals the room may be one that the library has left as it was.
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
        // A missing attribute doesn't keep the lengths of the others from being told.
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

    /// C_GetAttributeValue, which writes into these buffers. With an empty buffer it tells only the attribute's length.
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

    /// C_Sign or C_Decrypt, of an operation with this mechanism. The buffer has room for any result, so that its length
    /// isn't asked for before.
    pub(super) fn end(
        &self,
        operation: KeyOperation,
        mechanism: &Mechanism<'_>,
        input: &[u8],
    ) -> CallResult<Vec<u8>> {
        let room = match mechanism {
            Mechanism::Eddsa(_) => ED25519_SIGNATURE,
            _ => LONGEST_OUTPUT,
        };
        let mut output = vec![0; room];
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

    /// C_GenerateKeyPair with these templates, in a session that can write.
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

    /// C_DestroyObject, in a session that can write, or for a session object.
    pub(super) fn destroy(&self, object: ObjectHandle) -> CallResult<()> {
        call_in!(self, C_DestroyObject, DestroyObject, object.0)
    }
}

/// Something for each of the two keys of a pair, such as its template.
pub(super) struct KeyPair<T> {
    pub(super) public: T,
    pub(super) private: T,
}

/// What a call of C_GetAttributeValue has returned besides the values.
struct Reading {
    /// Whether the object has all the attributes and shows them.
    is_whole: bool,
    /// The lengths of the values, in the order of the buffers, as the library has given them.
    lengths: Vec<CK_ULONG>,
}

impl Reading {
    /// The values that the library has written into the buffers of the call.
    fn shown_of(self, mut values: AttributeValues) -> CallResult<AttributeValues> {
        for ((_, value), length) in values.iter_mut().zip(self.lengths) {
            // The zeros in a buffer that the library hasn't filled are no value.
            let is_shown = self.is_whole && length != CK_UNAVAILABLE_INFORMATION;
            let length = if is_shown { length } else { 0 };
            value.truncate(at_most(value.len(), length, Function::GetAttributeValue)?);
        }
        values.retain(|(_, value)| !value.is_empty());
        Ok(values)
    }
}

/// Copies a function list. Its last function in version 2.40, C_WaitForSlotEvent, is left out: it is never called, and
/// lists of version 2.0 end before it.
fn read_list(list: *const CK_FUNCTION_LIST) -> Result<CK_FUNCTION_LIST, String> {
    if list.is_null() || !list.is_aligned() {
        return Err("C_GetFunctionList: CKR_OK, but no function list".to_owned());
    }
    let mut copy = CK_FUNCTION_LIST::default();
    // SAFETY: CKR_OK promises a list. The list of every version that has C_GetFunctionList begins with these functions,
    // whichever version it claims to have (scute: 1.0). Each of them may be null.
    unsafe {
        ptr::copy_nonoverlapping(
            list.cast::<u8>(),
            (&raw mut copy).cast::<u8>(),
            offset_of!(CK_FUNCTION_LIST, C_WaitForSlotEvent),
        );
    }
    Ok(copy)
}

/// Reads a list, for whose length the library is asked first: some libraries look for tokens only when asked for that.
fn list(
    function: Function,
    call: impl Fn(*mut CK_ULONG, *mut CK_ULONG) -> CallResult<()>,
) -> CallResult<Vec<CK_ULONG>> {
    let mut count = 0;
    call(ptr::null_mut(), &raw mut count)?;
    // The list may have grown since.
    let room = at_most(LONGEST_LIST - MORE, count, function)? + MORE;
    let mut items = vec![0; room];
    count = items.len() as CK_ULONG;
    call(items.as_mut_ptr(), &raw mut count)?;
    items.truncate(at_most(items.len(), count, function)?);
    Ok(items)
}

/// A template as the calls take it. It borrows the values of the attributes.
fn attributes(template: &[Attribute]) -> Vec<CK_ATTRIBUTE> {
    template.iter().map(CK_ATTRIBUTE::from).collect()
}

/// The handle of an object that was made; an error if it is CK_INVALID_HANDLE.
fn valid(object: CK_OBJECT_HANDLE, function: Function) -> CallResult<ObjectHandle> {
    match object {
        CK_INVALID_HANDLE => Err(Error::Pkcs11(ckr::NO_HANDLE, function)),
        object => Ok(ObjectHandle(object)),
    }
}

/// A count or length that the library has returned; an error if it is more than there was room for.
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
