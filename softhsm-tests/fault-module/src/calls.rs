//! The functions that stand between the caller and the real library: thin, one shape for all.
//! Each lets its planned faults happen, changes the arguments, passes the call on, spoils the answer and records it.
//! Functions that are not listed here go to the real library directly.

use std::sync::OnceLock;

use cryptoki_sys::{
    CK_ATTRIBUTE_PTR, CK_BBOOL, CK_BYTE_PTR, CK_FLAGS, CK_FUNCTION_LIST, CK_INFO_PTR,
    CK_MECHANISM_INFO_PTR, CK_MECHANISM_PTR, CK_MECHANISM_TYPE, CK_MECHANISM_TYPE_PTR, CK_NOTIFY,
    CK_OBJECT_HANDLE, CK_OBJECT_HANDLE_PTR, CK_RV, CK_SESSION_HANDLE, CK_SESSION_HANDLE_PTR,
    CK_SESSION_INFO_PTR, CK_SLOT_ID, CK_SLOT_ID_PTR, CK_SLOT_INFO_PTR, CK_TOKEN_INFO_PTR, CK_ULONG,
    CK_ULONG_PTR, CK_USER_TYPE, CK_UTF8CHAR_PTR, CK_VOID_PTR, CKR_FUNCTION_NOT_SUPPORTED, CKR_OK,
};

use crate::{faults, lists, log, real, spoil};

macro_rules! calls {
    ($(
        $function:ident($($argument:ident: $kind:ty),*)
        $(changed by $change:path { $($changed:expr),* })?
        $(spoilt by $spoil:path { $($spoilt:expr),* })?;
    )*) => {
        /// The real library's list with the functions of this file in place of its own.
        pub(crate) fn function_list() -> &'static CK_FUNCTION_LIST {
            static LIST: OnceLock<CK_FUNCTION_LIST> = OnceLock::new();
            LIST.get_or_init(|| CK_FUNCTION_LIST {
                C_GetFunctionList: Some(lists::C_GetFunctionList),
                $($function: if faults::lacks(stringify!($function)) {
                    None
                } else {
                    Some($function)
                },)*
                ..*real::functions()
            })
        }

        $(/// # Safety
        /// As the standard says of the function of this name.
        #[allow(non_snake_case, reason = "the standard's name")]
        #[allow(unused_mut, reason = "few are changed")]
        unsafe extern "C" fn $function($(mut $argument: $kind),*) -> CK_RV {
            let outcome = faults::before(stringify!($function)).and_then(|actions| {
                let real = real::functions().$function.ok_or(CKR_FUNCTION_NOT_SUPPORTED)?;
                $($change(&actions, $($changed),*)?;)?
                // SAFETY: the caller's own arguments, for which the caller vouches.
                let pass_on = || succeed(unsafe { real($($argument),*) });
                answer!([$($spoil { $($spoilt),* })?] actions, pass_on)?;
                faults::after(&actions)
            });
            let returned = outcome.err().unwrap_or(CKR_OK);
            log::record(stringify!($function), returned);
            returned
        })*
    };
}

macro_rules! answer {
    ([] $actions:ident, $pass_on:ident) => {
        $pass_on()
    };
    ([$spoil:path { $($spoilt:expr),* }] $actions:ident, $pass_on:ident) => {
        $spoil(&$actions, $pass_on, $($spoilt),*)
    };
}

calls! {
    C_Initialize(arguments: CK_VOID_PTR) changed by spoil::initialization { arguments.is_null() };
    C_Finalize(reserved: CK_VOID_PTR);
    C_GetInfo(info: CK_INFO_PTR) spoilt by spoil::info { info };
    C_GetSlotList(with_token: CK_BBOOL, slots: CK_SLOT_ID_PTR, count: CK_ULONG_PTR)
        spoilt by spoil::list { slots.is_null(), count };
    C_GetSlotInfo(slot: CK_SLOT_ID, info: CK_SLOT_INFO_PTR);
    C_GetTokenInfo(slot: CK_SLOT_ID, info: CK_TOKEN_INFO_PTR) spoilt by spoil::token_info { info };
    C_GetMechanismList(slot: CK_SLOT_ID, list: CK_MECHANISM_TYPE_PTR, count: CK_ULONG_PTR)
        spoilt by spoil::list { list.is_null(), count };
    C_GetMechanismInfo(slot: CK_SLOT_ID, mechanism: CK_MECHANISM_TYPE, info: CK_MECHANISM_INFO_PTR);
    C_OpenSession(slot: CK_SLOT_ID, flags: CK_FLAGS, application: CK_VOID_PTR, notify: CK_NOTIFY,
        session: CK_SESSION_HANDLE_PTR);
    C_CloseSession(session: CK_SESSION_HANDLE);
    C_CloseAllSessions(slot: CK_SLOT_ID);
    C_GetSessionInfo(session: CK_SESSION_HANDLE, info: CK_SESSION_INFO_PTR);
    C_Login(session: CK_SESSION_HANDLE, user: CK_USER_TYPE, pin: CK_UTF8CHAR_PTR, length: CK_ULONG)
        changed by spoil::pin { &mut pin, &mut length };
    C_Logout(session: CK_SESSION_HANDLE);
    C_FindObjectsInit(session: CK_SESSION_HANDLE, template: CK_ATTRIBUTE_PTR, count: CK_ULONG);
    C_FindObjects(session: CK_SESSION_HANDLE, objects: CK_OBJECT_HANDLE_PTR, most: CK_ULONG,
        count: CK_ULONG_PTR) spoilt by spoil::list { objects.is_null(), count };
    C_FindObjectsFinal(session: CK_SESSION_HANDLE);
    C_GetAttributeValue(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE,
        template: CK_ATTRIBUTE_PTR, count: CK_ULONG)
        spoilt by spoil::attributes { session, object, template, count };
    C_GenerateKeyPair(session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_PTR,
        public: CK_ATTRIBUTE_PTR, public_count: CK_ULONG,
        private: CK_ATTRIBUTE_PTR, private_count: CK_ULONG,
        public_key: CK_OBJECT_HANDLE_PTR, private_key: CK_OBJECT_HANDLE_PTR)
        spoilt by spoil::key_pair { session, public_key, private_key };
    C_CreateObject(session: CK_SESSION_HANDLE, template: CK_ATTRIBUTE_PTR, count: CK_ULONG,
        object: CK_OBJECT_HANDLE_PTR) spoilt by spoil::created { object };
    C_DestroyObject(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE);
    C_SetAttributeValue(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE,
        template: CK_ATTRIBUTE_PTR, count: CK_ULONG);
    C_SignInit(session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_PTR, key: CK_OBJECT_HANDLE)
        changed by spoil::key { session, &mut key };
    C_Sign(session: CK_SESSION_HANDLE, data: CK_BYTE_PTR, data_length: CK_ULONG,
        signature: CK_BYTE_PTR, length: CK_ULONG_PTR) spoilt by spoil::signature { signature, length };
    C_DecryptInit(session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_PTR, key: CK_OBJECT_HANDLE);
    C_Decrypt(session: CK_SESSION_HANDLE, data: CK_BYTE_PTR, data_length: CK_ULONG,
        answer: CK_BYTE_PTR, length: CK_ULONG_PTR);
    C_DeriveKey(session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_PTR, key: CK_OBJECT_HANDLE,
        template: CK_ATTRIBUTE_PTR, count: CK_ULONG, derived: CK_OBJECT_HANDLE_PTR);
    C_SignUpdate(session: CK_SESSION_HANDLE, part: CK_BYTE_PTR, length: CK_ULONG);
    C_SignFinal(session: CK_SESSION_HANDLE, signature: CK_BYTE_PTR, length: CK_ULONG_PTR);
}

fn succeed(returned: CK_RV) -> Result<(), CK_RV> {
    if returned == CKR_OK { Ok(()) } else { Err(returned) }
}
