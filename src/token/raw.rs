//! What cryptoki 0.12 can't do: call a library without believing its counts, lengths and pointers,
//! and C_Sign on its own, after C_SignInit and a context-specific login, into a buffer that is
//! there at once.
//!
//! Made to be deleted when a cryptoki release has it. The library is opened a second time for its
//! function list; where that list leads to another instance (p11-kit's proxy makes one for every
//! caller) the session is unknown there, [`Session::new`] finds it out, and the calls are cryptoki's.

#![allow(unsafe_code, reason = "calls through PKCS#11's C function list")]

use std::ffi::CStr;
use std::mem;
use std::ops::Deref;
use std::path::Path;
use std::ptr::{self, NonNull};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Function, Info};
use cryptoki::error::{Error, Rv};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeInfo, AttributeType, ObjectHandle};
use cryptoki::slot::{Slot, SlotInfo, TokenInfo};
use cryptoki_sys::{
    CK_ATTRIBUTE, CK_BBOOL, CK_C_GetFunctionList, CK_C_GetInterface, CK_FUNCTION_LIST, CK_INFO,
    CK_INTERFACE, CK_OBJECT_HANDLE, CK_RV, CK_SESSION_HANDLE, CK_SESSION_INFO, CK_SLOT_INFO,
    CK_STATE, CK_TOKEN_INFO, CK_ULONG, CK_UNAVAILABLE_INFORMATION, CK_VERSION, CKF_CLOCK_ON_TOKEN,
    CKR_ARGUMENTS_BAD, CKR_ATTRIBUTE_SENSITIVE, CKR_ATTRIBUTE_TYPE_INVALID, CKR_BUFFER_TOO_SMALL,
    CKR_OK, CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use super::ckr;
use super::error::{CallFailure, ModuleError};
use super::module::Module;

/// Longer than any signature: RSA-8192 makes 1024 bytes.
const LONGEST_SIGNATURE: usize = 4096;
/// An attribute longer than this is no certificate and no key of any size we sign with.
const LONGEST_ATTRIBUTE: usize = 64 * 1024;
/// More slots, or more mechanisms, no library has.
const LONGEST_LIST: usize = 4096;
/// More objects no search of ours finds on a token.
const MOST_OBJECTS: usize = 4096;
/// Objects that are asked for at once.
const BATCH: usize = 16;

type Result<T> = std::result::Result<T, Error>;

/// Loads the library, for good, and makes the calls that `Pkcs11::new` is about to make: cryptoki
/// follows the pointers in their answers unseen, and unloads a library that fails one of them,
/// which some don't survive.
pub(super) fn inspect(path: &Path) -> std::result::Result<Functions, ModuleError> {
    let library = open(path).map_err(|error| ModuleError::Load {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let list = match interface(&library) {
        Ok(None) => function_list(&library),
        Ok(Some(list)) => Ok(list),
        Err(flaw) => Err(flaw),
    };
    // One reference more than are ever given back.
    mem::forget(library);
    list.map(Functions).map_err(|flaw| match flaw {
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

/// The arguments of C_Initialize, with the library's own parameters in pReserved: a text, as NSS, YubiHSM
/// and p11-kit's `x-init-reserved` have it.
pub(super) fn with_parameters(flags: CInitializeFlags, parameters: &CStr) -> CInitializeArgs {
    let parameters = Box::leak(Box::<CStr>::from(parameters));
    // SAFETY: the text is never freed, whatever a library keeps of it. What kind of structure a library
    // expects here is its own: one that expects no text may misread it, as it would in any program
    // that the user tells to give it one.
    unsafe { CInitializeArgs::new_with_reserved(flags, NonNull::from(parameters).cast()) }
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

fn open(path: &Path) -> std::result::Result<Library, libloading::Error> {
    // SAFETY: constructors run, in a library that the user has chosen and nobody else can change.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }
}

/// What C_GetInterface gives, if it is of PKCS#11 3, which cryptoki takes then. A library without
/// it is asked for C_GetFunctionList, and so is one that has no such interface; cryptoki gives up
/// one that fails the call.
fn interface(library: &Library) -> std::result::Result<Option<CK_FUNCTION_LIST>, Flaw> {
    let function = Function::GetInterface;
    // SAFETY: the symbol has this type in every PKCS#11 library (version 3.0, section 5.4).
    let entry = unsafe { library.get::<CK_C_GetInterface>(b"C_GetInterface\0") };
    let Some(entry) = entry.ok().and_then(|entry| *entry) else {
        return Ok(None);
    };
    let mut interface: *mut CK_INTERFACE = ptr::null_mut();
    // SAFETY: without name and version it gives the default one, to a place for one pointer.
    let code = unsafe { entry(ptr::null_mut(), ptr::null_mut(), &raw mut interface, 0) };
    succeeded(code, function)?;
    if interface.is_null() {
        return Ok(None);
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
    if version.major < 3 {
        return Ok(None);
    }
    // SAFETY: a later version's list begins as that of 2.40, and lives as long as the library.
    Ok(Some(unsafe { list.read() }))
}

/// What C_GetFunctionList gives.
fn function_list(library: &Library) -> std::result::Result<CK_FUNCTION_LIST, Flaw> {
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

fn succeeded(code: CK_RV, function: Function) -> std::result::Result<(), Flaw> {
    match Rv::from(code) {
        Rv::Ok => Ok(()),
        Rv::Error(error) => Err(Flaw::of(function, ckr::name(error))),
    }
}

/// A library's functions, in an instance that may not be the one that cryptoki has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions(CK_FUNCTION_LIST);

impl Functions {
    /// C_GetSlotList.
    pub(super) fn slots(&self, with_token: bool) -> Result<Vec<Slot>> {
        let call = self.0.C_GetSlotList.ok_or(Error::NullFunctionPointer)?;
        let slots = list(Function::GetSlotList, |slots, count| {
            // SAFETY: `slots` is null or has room for `count`.
            unsafe { call(CK_BBOOL::from(with_token), slots, count) }
        })?;
        slots.into_iter().map(Slot::try_from).collect()
    }

    /// C_GetInfo. Its flags, which the standard reserves, are left out: cryptoki refuses any.
    pub(super) fn info(&self) -> Result<Info> {
        let call = self.0.C_GetInfo.ok_or(Error::NullFunctionPointer)?;
        let mut info = CK_INFO::default();
        // SAFETY: `info` is valid to be written.
        let code = unsafe { call(&raw mut info) };
        checked(code, Function::GetInfo)?;
        info.flags = 0;
        Info::try_from(info)
    }

    /// C_GetSlotInfo.
    pub(super) fn slot_info(&self, slot: Slot) -> Result<SlotInfo> {
        let call = self.0.C_GetSlotInfo.ok_or(Error::NullFunctionPointer)?;
        let mut info = CK_SLOT_INFO::default();
        // SAFETY: a slot is a number, `info` is valid to be written.
        let code = unsafe { call(slot.into(), &raw mut info) };
        checked(code, Function::GetSlotInfo).map(|()| SlotInfo::from(info))
    }

    /// C_GetTokenInfo, without the time on the token's clock: cryptoki fails the whole answer where
    /// that isn't sixteen digits, as opencryptoki's isn't.
    pub(super) fn token_info(&self, slot: Slot) -> Result<TokenInfo> {
        let call = self.0.C_GetTokenInfo.ok_or(Error::NullFunctionPointer)?;
        let mut info = CK_TOKEN_INFO::default();
        // SAFETY: a slot is a number, `info` is valid to be written.
        let code = unsafe { call(slot.into(), &raw mut info) };
        checked(code, Function::GetTokenInfo)?;
        info.flags &= !CKF_CLOCK_ON_TOKEN;
        TokenInfo::try_from(info)
    }

    /// C_GetMechanismList, without the mechanisms that cryptoki doesn't know.
    fn mechanisms(&self, slot: Slot) -> Result<Vec<MechanismType>> {
        let call = self
            .0
            .C_GetMechanismList
            .ok_or(Error::NullFunctionPointer)?;
        let mechanisms = list(Function::GetMechanismList, |mechanisms, count| {
            // SAFETY: `mechanisms` is null or has room for `count`.
            unsafe { call(slot.into(), mechanisms, count) }
        })?;
        let known = |kind: CK_ULONG| MechanismType::try_from(kind).ok();
        Ok(mechanisms.into_iter().filter_map(known).collect())
    }

    /// C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal.
    fn find(
        &self,
        session: CK_SESSION_HANDLE,
        template: &[Attribute],
    ) -> Result<Vec<ObjectHandle>> {
        let begin = self.0.C_FindObjectsInit.ok_or(Error::NullFunctionPointer)?;
        let end = self
            .0
            .C_FindObjectsFinal
            .ok_or(Error::NullFunctionPointer)?;
        let mut wanted: Vec<CK_ATTRIBUTE> = template.iter().map(CK_ATTRIBUTE::from).collect();
        // SAFETY: the attributes point into `template`, and are as many as is said.
        let code = unsafe { begin(session, wanted.as_mut_ptr(), wanted.len() as CK_ULONG) };
        checked(code, Function::FindObjectsInit)?;
        let found = self.found(session);
        // SAFETY: a session handle is a number.
        let code = unsafe { end(session) };
        // What was found is found. If the search is still on, the next call will say so.
        if let Err(error) = checked(code, Function::FindObjectsFinal) {
            log::info!("{}", ckr::failure(&error));
        }
        found
    }

    fn found(&self, session: CK_SESSION_HANDLE) -> Result<Vec<ObjectHandle>> {
        let call = self.0.C_FindObjects.ok_or(Error::NullFunctionPointer)?;
        let function = Function::FindObjects;
        let mut found = Vec::new();
        loop {
            let mut handles: [CK_OBJECT_HANDLE; BATCH] = [0; BATCH];
            let mut count = 0;
            // SAFETY: there is room for as many handles as are asked for.
            let code = unsafe {
                call(
                    session,
                    handles.as_mut_ptr(),
                    BATCH as CK_ULONG,
                    &raw mut count,
                )
            };
            checked(code, function)?;
            let count = at_most(BATCH, count, function)?;
            found.extend(handles.iter().take(count).map(|handle| {
                // SAFETY: one that the library has just given.
                unsafe { ObjectHandle::new_from_raw(*handle) }
            }));
            if count < BATCH {
                return Ok(found);
            }
            at_most(MOST_OBJECTS, found.len() as CK_ULONG, function)?;
        }
    }

    /// C_GetAttributeValue for the lengths, and again for the values; without what the object doesn't
    /// have or doesn't show.
    fn attributes(
        &self,
        session: CK_SESSION_HANDLE,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> Result<Vec<Attribute>> {
        let call = self
            .0
            .C_GetAttributeValue
            .ok_or(Error::NullFunctionPointer)?;
        let read = |asked: &mut [CK_ATTRIBUTE]| {
            let count = asked.len() as CK_ULONG;
            // SAFETY: so many attributes, whose values are null or have room for their lengths.
            unsafe { call(session, object.handle(), asked.as_mut_ptr(), count) }
        };
        let attribute = |kind: AttributeType, value: *mut u8, length: usize| CK_ATTRIBUTE {
            type_: kind.into(),
            pValue: value.cast(),
            ulValueLen: length as CK_ULONG,
        };
        let queries = kinds
            .iter()
            .map(|kind| attribute(*kind, ptr::null_mut(), 0));
        let mut queries: Vec<_> = queries.collect();
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
        if asked.is_empty() || !are_shown(read(&mut asked))? {
            return Ok(Vec::new());
        }
        let mut shown = Vec::with_capacity(asked.len());
        for ((kind, mut value), told) in values.into_iter().zip(asked) {
            if told.ulValueLen == CK_UNAVAILABLE_INFORMATION {
                continue;
            }
            let length = at_most(value.len(), told.ulValueLen, Function::GetAttributeValue)?;
            // What is no value of its kind is none.
            let told = Attribute::try_from(attribute(kind, value.as_mut_ptr(), length));
            shown.extend(told.ok().filter(|_| length > 0));
        }
        Ok(shown)
    }

    /// C_Sign of the operation that is active in the session, with no length query before it.
    fn sign(&self, session: CK_SESSION_HANDLE, input: &[u8]) -> Result<Vec<u8>> {
        let sign = self.0.C_Sign.ok_or(Error::NullFunctionPointer)?;
        let mut signature = vec![0; LONGEST_SIGNATURE];
        let mut length = signature.len() as CK_ULONG;
        // SAFETY: both buffers are valid for the lengths given, and the standard's prototype is
        // not const-correct: the input is only read.
        let code = unsafe {
            sign(
                session,
                input.as_ptr().cast_mut(),
                input.len() as CK_ULONG,
                signature.as_mut_ptr(),
                &raw mut length,
            )
        };
        checked(code, Function::Sign)?;
        signature.truncate(at_most(signature.len(), length, Function::Sign)?);
        Ok(signature)
    }

    /// The state of a session (C_GetSessionInfo), if it is this instance's.
    fn state(&self, session: CK_SESSION_HANDLE) -> Result<CK_STATE> {
        let inspect = self.0.C_GetSessionInfo.ok_or(Error::NullFunctionPointer)?;
        let mut info = CK_SESSION_INFO::default();
        // SAFETY: a session handle is a number, `info` is valid to be written.
        let code = unsafe { inspect(session, &raw mut info) };
        checked(code, Function::GetSessionInfo).map(|()| info.state)
    }
}

/// A session of cryptoki's, and a way past cryptoki to it.
pub(super) struct Session {
    session: cryptoki::session::Session,
    /// Not there where the instance that holds the session can't be reached.
    direct: std::result::Result<Functions, CallFailure>,
}

impl Session {
    pub(super) fn new(module: &Module, session: cryptoki::session::Session) -> Self {
        let functions = module.functions();
        let direct = match functions.state(session.handle()) {
            Ok(_) => Ok(*functions),
            Err(error) => Err(ckr::failure(&error)),
        };
        Self { session, direct }
    }

    /// Whether it is still there, with its login if there was one: both end when the token is taken
    /// out, but not in every library. One that couldn't be asked before isn't asked now.
    pub(super) fn lives(&self, logged_in: bool) -> bool {
        let Ok(direct) = &self.direct else {
            return true;
        };
        let public = [CKS_RO_PUBLIC_SESSION, CKS_RW_PUBLIC_SESSION];
        direct
            .state(self.handle())
            .is_ok_and(|state| !logged_in || !public.contains(&state))
    }

    /// All objects that fit (C_FindObjects).
    pub(super) fn find(&self, template: &[Attribute]) -> Result<Vec<ObjectHandle>> {
        match &self.direct {
            Ok(direct) => direct.find(self.handle(), template),
            Err(_) => self.find_objects(template),
        }
    }

    /// The attributes that the object has and shows.
    pub(super) fn attributes(
        &self,
        object: ObjectHandle,
        kinds: &[AttributeType],
    ) -> Result<Vec<Attribute>> {
        if let Ok(direct) = &self.direct {
            return direct.attributes(self.handle(), object, kinds);
        }
        let mut shown = Vec::with_capacity(kinds.len());
        for (kind, info) in kinds.iter().zip(self.get_attribute_info(object, kinds)?) {
            match info {
                AttributeInfo::Available(length) if (1..=LONGEST_ATTRIBUTE).contains(&length) => {}
                _ => continue,
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the module has just said that it has it"
            )]
            match self.get_attributes(object, &[*kind]) {
                Ok(values) => shown.extend(values),
                Err(error @ Error::Pkcs11(..)) => return Err(error),
                // What is no value of its kind is none.
                Err(_) => {}
            }
        }
        Ok(shown)
    }

    /// What the token in this session's slot offers (C_GetMechanismList).
    pub(super) fn mechanisms(&self, module: &Module, slot: Slot) -> Result<Vec<MechanismType>> {
        match &self.direct {
            Ok(direct) => direct.mechanisms(slot),
            Err(_) => module.context().get_mechanism_list(slot),
        }
    }

    /// C_SignInit, C_Sign.
    pub(super) fn sign_at_once(
        &self,
        mechanism: &Mechanism<'_>,
        key: ObjectHandle,
        input: &[u8],
    ) -> Result<Vec<u8>> {
        let Ok(direct) = &self.direct else {
            return self.sign(mechanism, key, input);
        };
        self.sign_init(mechanism, key)?;
        direct.sign(self.handle(), input)
    }

    /// What C_Sign alone can be called with, or why it can't be called alone.
    pub(super) fn direct(&self) -> std::result::Result<DirectSign, &CallFailure> {
        self.direct.as_ref().map(|functions| DirectSign(*functions))
    }
}

impl Deref for Session {
    type Target = cryptoki::session::Session;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

/// The way to C_Sign on its own.
pub(super) struct DirectSign(Functions);

impl DirectSign {
    /// C_Sign of the operation that is active in the session.
    pub(super) fn sign(&self, session: &Session, input: &[u8]) -> Result<Vec<u8>> {
        self.0.sign(session.handle(), input)
    }
}

/// A list that is asked for its length first, and may have grown until it is asked for itself.
fn list(
    function: Function,
    mut call: impl FnMut(*mut CK_ULONG, *mut CK_ULONG) -> CK_RV,
) -> Result<Vec<CK_ULONG>> {
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

/// Whether all attributes of a call are there and shown.
fn are_shown(code: CK_RV) -> Result<bool> {
    match code {
        CKR_ATTRIBUTE_SENSITIVE | CKR_ATTRIBUTE_TYPE_INVALID => Ok(false),
        code => checked(code, Function::GetAttributeValue).map(|()| true),
    }
}

/// A count or length that the library tells, unless it is more than there is room for.
fn at_most(room: usize, told: CK_ULONG, function: Function) -> Result<usize> {
    match usize::try_from(told) {
        Ok(told) if told <= room => Ok(told),
        _ => Err(Error::Pkcs11(ckr::BEYOND_THE_BUFFER, function)),
    }
}

fn checked(code: CK_RV, function: Function) -> Result<()> {
    Rv::from(code).into_result(function)
}
