//! The module that is asked: the one place that calls it.

use std::ffi::{CString, c_void};
use std::io::{Read as _, Write as _};
use std::ptr;

use cryptoki_sys::*;
use libloading::Library;

use crate::codes::Refused;

pub(crate) type Answer<T> = Result<T, Refused>;

/// Which token of which library.
#[derive(Default)]
pub(crate) struct Target {
    pub(crate) library: String,
    /// For pReserved of C_Initialize.
    pub(crate) init_args: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) serial: Option<String>,
}

/// A loaded library, which is never unloaded.
pub(crate) struct Module {
    library: &'static Library,
    functions: &'static CK_FUNCTION_LIST,
    target: Target,
}

/// Parameters of CKM_RSA_PKCS_PSS.
#[derive(Clone, Copy)]
pub(crate) struct Pss {
    pub(crate) hash: CK_MECHANISM_TYPE,
    pub(crate) mask: CK_ULONG,
    /// In bytes.
    pub(crate) salt: CK_ULONG,
}

/// A mechanism with its parameters.
#[derive(Clone, Copy)]
pub(crate) enum Mechanism {
    RsaPkcs,
    Pss(Pss),
    RsaKeyPair,
    EcKeyPair,
}

/// An attribute and its value, as the standard lays it out.
pub(crate) type Attribute = (CK_ATTRIBUTE_TYPE, Vec<u8>);

pub(crate) fn flag(attribute: CK_ATTRIBUTE_TYPE, value: bool) -> Attribute {
    (attribute, vec![value.into()])
}

pub(crate) fn number(attribute: CK_ATTRIBUTE_TYPE, value: CK_ULONG) -> Attribute {
    (attribute, value.to_ne_bytes().to_vec())
}

/// A library's interfaces.
pub(crate) struct Interfaces {
    /// Their names, each with the version that its functions begin with.
    pub(crate) known: Vec<(String, CK_VERSION)>,
    /// As the standard demands, the count that was the array's length is now theirs.
    pub(crate) is_counted: bool,
}

/// What became of a child process.
pub(crate) enum Child {
    /// What it had to say.
    Said(String),
    /// The signal that ended it.
    Killed(i32),
}

/// Ends this process by SIGALRM after so many seconds.
pub(crate) fn end_after(seconds: u32) {
    // SAFETY: no handler is there, so the default action ends the process.
    unsafe { libc::alarm(seconds) };
}

fn checked(function: &'static str, code: CK_RV) -> Answer<()> {
    if code == CKR_OK { Ok(()) } else { Err(Refused { function, code }) }
}

macro_rules! call {
    ($module:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let function = $module.functions.$name.ok_or(Refused {
            function: stringify!($name),
            code: CKR_FUNCTION_NOT_SUPPORTED,
        })?;
        // SAFETY: numbers and null are valid wherever they are passed; each pointer is to what outlives the call, with
        // the length that is passed beside it.
        checked(stringify!($name), unsafe { function($($argument),*) })
    }};
}

impl Module {
    pub(crate) fn load(target: Target) -> Answer<Self> {
        // SAFETY: the test that names the library vouches for its initialisers.
        let library = unsafe { Library::new(&target.library) };
        let library = library.unwrap_or_else(|error| panic!("{error}"));
        let library: &Library = Box::leak(Box::new(library));
        // SAFETY: the standard fixes this function's type.
        let entry = unsafe { library.get::<CK_C_GetFunctionList>(b"C_GetFunctionList\0") };
        let entry = entry.ok().and_then(|entry| *entry).expect("C_GetFunctionList");
        let mut list: CK_FUNCTION_LIST_PTR = ptr::null_mut();
        // SAFETY: the pointer is writable for the call's duration.
        checked("C_GetFunctionList", unsafe { entry(&raw mut list) })?;
        // SAFETY: the standard has the list live as long as the library, which is leaked.
        let functions = unsafe { list.as_ref() }.expect("a function list");
        Ok(Self { library, functions, target })
    }

    /// The options that name this module's token.
    pub(crate) fn options(&self) -> Vec<String> {
        let Target { library, init_args, label, serial } = &self.target;
        let mut options = vec![format!("--module={library}")];
        options.extend(init_args.iter().map(|text| format!("--init-args={text}")));
        options.extend(label.iter().map(|label| format!("--token-label={label}")));
        options.extend(serial.iter().map(|serial| format!("--token-serial={serial}")));
        options
    }

    pub(crate) fn initialize(&self) -> Answer<()> {
        let reserved = self.target.init_args.as_deref().map(|text| CString::new(text).unwrap());
        let reserved = reserved.map_or(ptr::null_mut(), |text| text.into_raw().cast::<c_void>());
        let mut arguments = CK_C_INITIALIZE_ARGS {
            flags: CKF_OS_LOCKING_OK,
            pReserved: reserved,
            ..CK_C_INITIALIZE_ARGS::default()
        };
        call!(self, C_Initialize((&raw mut arguments).cast()))
    }

    pub(crate) fn finalize(&self) -> Answer<()> {
        call!(self, C_Finalize(ptr::null_mut()))
    }

    pub(crate) fn info(&self) -> Answer<CK_INFO> {
        let mut info = CK_INFO::default();
        call!(self, C_GetInfo(&raw mut info))?;
        Ok(info)
    }

    /// What C_GetInterfaceList says where there is room for more than it has; `None` without that function.
    pub(crate) fn interfaces(&self) -> Answer<Option<Interfaces>> {
        // SAFETY: the standard fixes this function's type.
        let entry = unsafe { self.library.get::<CK_C_GetInterfaceList>(b"C_GetInterfaceList\0") };
        let Some(function) = entry.ok().and_then(|entry| *entry) else { return Ok(None) };
        let mut interfaces = [CK_INTERFACE::default(); 16];
        let mut count = 16;
        // SAFETY: `interfaces` has the room that `count` tells.
        let code = unsafe { function(interfaces.as_mut_ptr(), &raw mut count) };
        checked("C_GetInterfaceList", code)?;
        let filled = interfaces.into_iter().take_while(|it| !it.pInterfaceName.is_null());
        let known = filled.map(|interface| {
            // SAFETY: the name is text that ends with a zero.
            let name = unsafe { std::ffi::CStr::from_ptr(interface.pInterfaceName.cast()) };
            // SAFETY: every interface's functions begin with their version.
            let version = unsafe { *interface.pFunctionList.cast::<CK_VERSION>() };
            (name.to_string_lossy().into_owned(), version)
        });
        let known: Vec<_> = known.collect();
        Ok(Some(Interfaces { is_counted: known.len() == count as usize, known }))
    }

    /// The slot of the token that is asked about, and what C_GetTokenInfo says of it.
    pub(crate) fn slot(&self) -> Answer<(CK_SLOT_ID, CK_TOKEN_INFO)> {
        let mut slots: [CK_SLOT_ID; 64] = [0; 64];
        let mut count = 64;
        call!(self, C_GetSlotList(CK_TRUE, slots.as_mut_ptr(), &raw mut count))?;
        for slot in slots.into_iter().take(count as usize) {
            let mut info = CK_TOKEN_INFO::default();
            if call!(self, C_GetTokenInfo(slot, &raw mut info)).is_err() {
                continue;
            }
            let is = |wanted: &Option<String>, given: &[u8]| {
                wanted.as_ref().is_none_or(|text| text.as_bytes() == given.trim_ascii_end())
            };
            if is(&self.target.label, &info.label) && is(&self.target.serial, &info.serialNumber) {
                return Ok((slot, info));
            }
        }
        Err(Refused { function: "no such token", code: CKR_TOKEN_NOT_PRESENT })
    }

    pub(crate) fn open(&self) -> Answer<Session<'_>> {
        let (slot, _) = self.slot()?;
        let mut handle = 0;
        let kind = CKF_SERIAL_SESSION | CKF_RW_SESSION;
        call!(self, C_OpenSession(slot, kind, ptr::null_mut(), None, &raw mut handle))?;
        Ok(Session { module: self, handle })
    }
}

/// An open session, which the process's end closes.
#[derive(Clone, Copy)]
pub(crate) struct Session<'m> {
    module: &'m Module,
    handle: CK_SESSION_HANDLE,
}

impl Session<'_> {
    /// C_Login of the user; `None` is a null pointer.
    pub(crate) fn login(self, pin: Option<&str>) -> Answer<()> {
        let mut pin = pin.map(|text| text.as_bytes().to_vec());
        let length = pin.as_ref().map_or(0, Vec::len) as CK_ULONG;
        let pin = pin.as_mut().map_or(ptr::null_mut(), |bytes| bytes.as_mut_ptr());
        call!(self.module, C_Login(self.handle, CKU_USER, pin, length))
    }

    /// The objects that have these attributes, 64 at most.
    pub(crate) fn find(self, attributes: &[Attribute]) -> Answer<Vec<CK_OBJECT_HANDLE>> {
        let mut template = as_template(attributes);
        let length = template.len() as CK_ULONG;
        call!(self.module, C_FindObjectsInit(self.handle, template.as_mut_ptr(), length))?;
        let mut found = [0; 64];
        let mut count = 0;
        let outcome =
            call!(self.module, C_FindObjects(self.handle, found.as_mut_ptr(), 64, &raw mut count));
        call!(self.module, C_FindObjectsFinal(self.handle))?;
        outcome.map(|()| found[..count as usize].to_vec())
    }

    /// An attribute of 256 bytes at most.
    pub(crate) fn attribute(
        self,
        object: CK_OBJECT_HANDLE,
        attribute: CK_ATTRIBUTE_TYPE,
    ) -> Answer<Vec<u8>> {
        let mut room = [0_u8; 256];
        let mut asked =
            CK_ATTRIBUTE { type_: attribute, pValue: room.as_mut_ptr().cast(), ulValueLen: 256 };
        call!(self.module, C_GetAttributeValue(self.handle, object, &raw mut asked, 1))?;
        Ok(room[..asked.ulValueLen as usize].to_vec())
    }

    /// The public and the private key of a new pair.
    pub(crate) fn generate(
        self,
        mechanism: Mechanism,
        public: &[Attribute],
        private: &[Attribute],
    ) -> Answer<[CK_OBJECT_HANDLE; 2]> {
        let mut made = [0; 2];
        let [public_key, private_key] = &mut made;
        let [mut public, mut private] = [public, private].map(as_template);
        let lengths = [public.len() as CK_ULONG, private.len() as CK_ULONG];
        mechanism.with(|mechanism| {
            call!(
                self.module,
                C_GenerateKeyPair(
                    self.handle,
                    mechanism,
                    public.as_mut_ptr(),
                    lengths[0],
                    private.as_mut_ptr(),
                    lengths[1],
                    public_key,
                    private_key,
                )
            )
        })?;
        Ok(made)
    }

    pub(crate) fn sign_init(self, mechanism: Mechanism, key: CK_OBJECT_HANDLE) -> Answer<()> {
        mechanism.with(|mechanism| call!(self.module, C_SignInit(self.handle, mechanism, key)))
    }

    /// C_Sign, with room for any signature.
    pub(crate) fn sign(self, input: &[u8]) -> Answer<()> {
        let (mut input, mut room) = (input.to_vec(), [0_u8; 1024]);
        let mut length = 1024;
        call!(
            self.module,
            C_Sign(
                self.handle,
                input.as_mut_ptr(),
                input.len() as CK_ULONG,
                room.as_mut_ptr(),
                &raw mut length,
            )
        )
    }
}

impl Mechanism {
    fn with<T>(self, call: impl FnOnce(CK_MECHANISM_PTR) -> T) -> T {
        let mut parameters = match self {
            Self::Pss(Pss { hash, mask, salt }) => {
                Some(CK_RSA_PKCS_PSS_PARAMS { hashAlg: hash, mgf: mask, sLen: salt })
            }
            _ => None,
        };
        let mut mechanism = CK_MECHANISM {
            mechanism: match self {
                Self::RsaPkcs => CKM_RSA_PKCS,
                Self::Pss(_) => CKM_RSA_PKCS_PSS,
                Self::RsaKeyPair => CKM_RSA_PKCS_KEY_PAIR_GEN,
                Self::EcKeyPair => CKM_EC_KEY_PAIR_GEN,
            },
            pParameter: ptr::null_mut(),
            ulParameterLen: 0,
        };
        if let Some(parameters) = &mut parameters {
            mechanism.pParameter = (&raw mut *parameters).cast();
            mechanism.ulParameterLen = size_of::<CK_RSA_PKCS_PSS_PARAMS>() as CK_ULONG;
        }
        call(&raw mut mechanism)
    }
}

/// Only for a call that the attributes outlive, and that reads them.
fn as_template(attributes: &[Attribute]) -> Vec<CK_ATTRIBUTE> {
    let attributes = attributes.iter().map(|(attribute, value)| CK_ATTRIBUTE {
        type_: *attribute,
        pValue: value.as_ptr().cast_mut().cast(),
        ulValueLen: value.len() as CK_ULONG,
    });
    attributes.collect()
}

/// What a forked child has to say.
pub(crate) fn in_child(say: impl FnOnce() -> String) -> Child {
    let (mut said, mut saying) = std::io::pipe().expect("a pipe");
    // SAFETY: this process has no other thread that could hold a lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // It has inherited no alarm.
        end_after(20);
        let _ = saying.write_all(say().as_bytes());
        // SAFETY: ends the process at once, without the module's exit handlers.
        unsafe { libc::_exit(0) };
    }
    drop(saying);
    let mut text = String::new();
    let _ = said.read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: `status` is writable for the call's duration.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        Child::Killed(libc::WTERMSIG(status))
    } else {
        Child::Said(text)
    }
}
