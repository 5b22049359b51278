//! What a fault does to a call's arguments and to its answer. Each function takes the planned actions and what
//! it needs of the arguments; one that spoils an answer passes the call on itself.

use std::{env, ptr, slice};

use cryptoki_sys::{
    CK_ATTRIBUTE, CK_ATTRIBUTE_PTR, CK_BYTE_PTR, CK_FLAGS, CK_INFO_PTR, CK_OBJECT_CLASS,
    CK_OBJECT_HANDLE, CK_OBJECT_HANDLE_PTR, CK_RV, CK_SESSION_HANDLE, CK_TOKEN_INFO_PTR, CK_ULONG,
    CK_ULONG_PTR, CK_UTF8CHAR_PTR, CKA_CLASS, CKA_LABEL, CKA_TOKEN, CKA_VALUE, CKF_CLOCK_ON_TOKEN,
    CKO_PRIVATE_KEY, CKR_ARGUMENTS_BAD, CKR_FUNCTION_NOT_SUPPORTED, CKR_KEY_HANDLE_INVALID, CKR_OK,
    CKR_PIN_INCORRECT,
};

use crate::plan::{Action, has};
use crate::real;

type Outcome = Result<(), CK_RV>;

/// Bytes that are no UTF-8 and no padding.
const GARBAGE: u8 = 0xff;

/// `refuse-arguments`.
pub(crate) fn initialization(actions: &[&Action], has_none: bool) -> Outcome {
    let refuses = actions.iter().find(|action| action.name == "refuse-arguments");
    match refuses.and_then(|action| action.number()) {
        Some(code) if !has_none => Err(code),
        _ => Ok(()),
    }
}

/// `garble`: the library's strings.
pub(crate) fn info(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    info: CK_INFO_PTR,
) -> Outcome {
    pass_on()?;
    if has(actions, "garble") {
        // SAFETY: the real library has just filled it in.
        let info = unsafe { &mut *info };
        info.manufacturerID.fill(GARBAGE);
        info.libraryDescription.fill(GARBAGE);
        info.flags = CK_FLAGS::MAX;
    }
    Ok(())
}

/// Of slots, mechanisms or objects: `count` and `refuse-query`.
pub(crate) fn list(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    is_query: bool,
    count: CK_ULONG_PTR,
) -> Outcome {
    refuse_query(actions, is_query)?;
    pass_on()?;
    resize(actions, count);
    Ok(())
}

/// `zero`: no handles. `half`: the other key is removed.
pub(crate) fn key_pair(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    session: CK_SESSION_HANDLE,
    public_key: CK_OBJECT_HANDLE_PTR,
    private_key: CK_OBJECT_HANDLE_PTR,
) -> Outcome {
    pass_on()?;
    for action in actions {
        let lost = match (action.name.as_str(), action.value.as_str()) {
            ("half", "private") => public_key,
            ("half", _) => private_key,
            _ => continue,
        };
        let destroy = real::functions().C_DestroyObject;
        let destroy = destroy.ok_or(CKR_FUNCTION_NOT_SUPPORTED)?;
        // SAFETY: the real library has just written the handle.
        let lost = unsafe { lost.read() };
        // SAFETY: session and object are numbers.
        unsafe { destroy(session, lost) };
    }
    for handle in [public_key, private_key] {
        forget(actions, handle);
    }
    Ok(())
}

/// `zero`: no handle.
pub(crate) fn created(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    object: CK_OBJECT_HANDLE_PTR,
) -> Outcome {
    pass_on()?;
    forget(actions, object);
    Ok(())
}

fn forget(actions: &[&Action], handle: CK_OBJECT_HANDLE_PTR) {
    if has(actions, "zero") {
        // SAFETY: the real library has just written it.
        unsafe { handle.write(0) };
    }
}

/// `other-key`: the first private key of the token that isn't the one asked for.
pub(crate) fn key(
    actions: &[&Action],
    session: CK_SESSION_HANDLE,
    key: &mut CK_OBJECT_HANDLE,
) -> Outcome {
    if has(actions, "other-key") {
        let keys = private_keys(session)?;
        *key = keys.into_iter().find(|other| other != key).ok_or(CKR_KEY_HANDLE_INVALID)?;
    }
    Ok(())
}

/// `set` and `clear`: flags of the token. `clock`: its time. `serial`: its number. `garble`: its strings.
pub(crate) fn token_info(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    info: CK_TOKEN_INFO_PTR,
) -> Outcome {
    pass_on()?;
    // SAFETY: the real library has just filled it in.
    let info = unsafe { &mut *info };
    for action in actions {
        match action.name.as_str() {
            "clear" => info.flags &= !action.flags().unwrap_or_default(),
            "set" => info.flags |= action.flags().unwrap_or_default(),
            "clock" => {
                info.flags |= CKF_CLOCK_ON_TOKEN;
                info.utcTime = action.field().unwrap_or_default();
            }
            "serial" => info.serialNumber = action.field().unwrap_or_default(),
            "garble" => {
                info.label.fill(GARBAGE);
                info.manufacturerID.fill(GARBAGE);
                info.model.fill(GARBAGE);
                info.serialNumber.fill(GARBAGE);
                info.utcTime.fill(GARBAGE);
            }
            _ => {}
        }
    }
    Ok(())
}

/// `pin-pad`: a login without PIN uses the PIN that a person would have entered at the reader.
pub(crate) fn pin(
    actions: &[&Action],
    pin: &mut CK_UTF8CHAR_PTR,
    length: &mut CK_ULONG,
) -> Outcome {
    if !has(actions, "pin-pad") {
        return Ok(());
    }
    if !pin.is_null() {
        // To send a PIN to a reader with a pad of its own is to have asked for it needlessly.
        return Err(CKR_PIN_INCORRECT);
    }
    let entered = env::var("FAULT_MODULE_PIN").unwrap_or_default();
    // It has to outlive the call.
    let entered = entered.into_bytes().leak();
    *length = entered.len() as CK_ULONG;
    *pin = entered.as_mut_ptr();
    Ok(())
}

/// `flip`: the last bit of a signature. `length` and `refuse-query`.
pub(crate) fn signature(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    signature: CK_BYTE_PTR,
    length: CK_ULONG_PTR,
) -> Outcome {
    refuse_query(actions, signature.is_null())?;
    pass_on()?;
    if has(actions, "flip") && !signature.is_null() {
        // SAFETY: the real library has just written the length.
        let length = unsafe { *length } as usize;
        // SAFETY: the real library has just written that many bytes.
        let bytes = unsafe { slice::from_raw_parts_mut(signature, length) };
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
    }
    resize(actions, length);
    Ok(())
}

/// `session-object`: objects whose label starts so say that they are not on the token. `garble` and
/// `zero`: values. `pad`: zeros behind one. `length` and `refuse-query`.
pub(crate) fn attributes(
    actions: &[&Action],
    pass_on: impl FnOnce() -> Outcome,
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
    template: CK_ATTRIBUTE_PTR,
    count: CK_ULONG,
) -> Outcome {
    // SAFETY: the caller's template has so many attributes.
    let asked = unsafe { slice::from_raw_parts_mut(template, count as usize) };
    refuse_query(actions, asked.iter().any(|asked| asked.pValue.is_null()))?;
    pass_on()?;
    let prefixes = actions.iter().filter(|action| action.name == "session-object");
    let mut prefixes = prefixes.map(|action| action.value.as_bytes());
    let is_sessions = prefixes.any(|prefix| label(session, object).starts_with(prefix));
    for attribute in asked {
        if has(actions, "garble") {
            overwrite(attribute, GARBAGE);
        }
        let is_token = is_sessions && attribute.type_ == CKA_TOKEN;
        if is_token || has(actions, "zero") {
            overwrite(attribute, 0);
        }
        if has(actions, "pad") && attribute.type_ == CKA_VALUE {
            attribute.ulValueLen = padded(attribute);
        }
        resize(actions, &raw mut attribute.ulValueLen);
    }
    Ok(())
}

/// The length of the value with zeros behind it, which stand in the buffer if there is one: it has room for 4096 bytes.
fn padded(attribute: &CK_ATTRIBUTE) -> CK_ULONG {
    const ZEROS: CK_ULONG = 16;
    let length = attribute.ulValueLen;
    if length == CK_ULONG::MAX || length + ZEROS > 4096 {
        return length;
    }
    if !attribute.pValue.is_null() {
        let behind = attribute.pValue.cast::<u8>().wrapping_add(length as usize);
        // SAFETY: the program asks for a certificate with room for 4096 bytes.
        unsafe { behind.write_bytes(0, ZEROS as usize) };
    }
    length + ZEROS
}

/// Puts this byte in place of each byte of a value, where there is one.
fn overwrite(attribute: &CK_ATTRIBUTE, byte: u8) {
    if !attribute.pValue.is_null() && attribute.ulValueLen != CK_ULONG::MAX {
        let length = attribute.ulValueLen as usize;
        // SAFETY: the real library has just written that many bytes.
        unsafe { attribute.pValue.cast::<u8>().write_bytes(byte, length) };
    }
}

fn refuse_query(actions: &[&Action], is_query: bool) -> Outcome {
    if is_query && has(actions, "refuse-query") {
        return Err(CKR_ARGUMENTS_BAD);
    }
    Ok(())
}

/// Tells another count or length than the true one.
fn resize(actions: &[&Action], size: CK_ULONG_PTR) {
    for action in actions {
        if ["count", "length"].contains(&action.name.as_str()) {
            // SAFETY: the real library has just written it.
            let size = unsafe { &mut *size };
            *size = action.size(*size).unwrap_or_default();
        }
    }
}

fn private_keys(session: CK_SESSION_HANDLE) -> Result<Vec<CK_OBJECT_HANDLE>, CK_RV> {
    let mut class: CK_OBJECT_CLASS = CKO_PRIVATE_KEY;
    let mut wanted = CK_ATTRIBUTE {
        type_: CKA_CLASS,
        pValue: (&raw mut class).cast(),
        ulValueLen: size_of::<CK_OBJECT_CLASS>() as CK_ULONG,
    };
    let mut keys = vec![0; 16];
    let mut count = 0;
    let (Some(begin), Some(find), Some(end)) = (
        real::functions().C_FindObjectsInit,
        real::functions().C_FindObjects,
        real::functions().C_FindObjectsFinal,
    ) else {
        return Err(CKR_FUNCTION_NOT_SUPPORTED);
    };
    // SAFETY: a template of one attribute.
    let begun = unsafe { begin(session, &raw mut wanted, 1) };
    // SAFETY: room for as many handles as are asked for.
    let found = unsafe { find(session, keys.as_mut_ptr(), 16, &raw mut count) };
    // SAFETY: a session is a number.
    unsafe { end(session) };
    keys.truncate(count as usize);
    match (begun, found) {
        (CKR_OK, CKR_OK) => Ok(keys),
        (CKR_OK, failed) | (failed, _) => Err(failed),
    }
}

fn label(session: CK_SESSION_HANDLE, object: CK_OBJECT_HANDLE) -> Vec<u8> {
    let mut text = vec![0_u8; 256];
    let mut attribute = CK_ATTRIBUTE {
        type_: CKA_LABEL,
        pValue: text.as_mut_ptr().cast(),
        ulValueLen: text.len() as CK_ULONG,
    };
    let Some(function) = real::functions().C_GetAttributeValue else {
        return Vec::new();
    };
    // SAFETY: one attribute with a buffer of the length it tells.
    if unsafe { function(session, object, ptr::from_mut(&mut attribute), 1) } != CKR_OK {
        return Vec::new();
    }
    text.truncate(attribute.ulValueLen as usize);
    text
}
