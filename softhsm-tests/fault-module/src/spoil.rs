//! What a fault does to an answer. Each function takes the planned actions, the way to the real
//! library and the call's arguments.

use std::{env, ptr, slice};

use cryptoki_sys::{
    CK_ATTRIBUTE, CK_ATTRIBUTE_PTR, CK_BYTE_PTR, CK_OBJECT_HANDLE, CK_RV, CK_SESSION_HANDLE,
    CK_SLOT_ID, CK_TOKEN_INFO_PTR, CK_ULONG, CK_ULONG_PTR, CK_USER_TYPE, CK_UTF8CHAR_PTR,
    CKA_LABEL, CKA_TOKEN, CKR_OK, CKR_PIN_INCORRECT,
};

use crate::plan::Action;
use crate::real;

type Outcome = Result<(), CK_RV>;

/// `set` and `clear`: flags of the token.
pub(crate) fn token_info(
    actions: &[&Action],
    pass_on: impl Fn(CK_SLOT_ID, CK_TOKEN_INFO_PTR) -> Outcome,
    slot: CK_SLOT_ID,
    info: CK_TOKEN_INFO_PTR,
) -> Outcome {
    pass_on(slot, info)?;
    // SAFETY: the real library has just filled it in.
    let info = unsafe { &mut *info };
    for action in actions {
        match action {
            Action::ClearFlags(flags) => info.flags &= !flags,
            Action::SetFlags(flags) => info.flags |= flags,
            _ => {}
        }
    }
    Ok(())
}

/// `pin-pad`: a login without PIN uses the PIN that a person would have entered at the reader.
pub(crate) fn login(
    actions: &[&Action],
    pass_on: impl Fn(CK_SESSION_HANDLE, CK_USER_TYPE, CK_UTF8CHAR_PTR, CK_ULONG) -> Outcome,
    session: CK_SESSION_HANDLE,
    user: CK_USER_TYPE,
    pin: CK_UTF8CHAR_PTR,
    length: CK_ULONG,
) -> Outcome {
    if !actions.contains(&&Action::PinPad) {
        return pass_on(session, user, pin, length);
    }
    if !pin.is_null() {
        // Whoever sends a PIN to a reader with a pad of its own has asked for it needlessly.
        return Err(CKR_PIN_INCORRECT);
    }
    let mut entered = env::var("FAULT_MODULE_PIN")
        .unwrap_or_default()
        .into_bytes();
    pass_on(
        session,
        user,
        entered.as_mut_ptr(),
        entered.len() as CK_ULONG,
    )
}

/// `flip`: the last bit of a signature.
pub(crate) fn signature(
    actions: &[&Action],
    pass_on: impl Fn(CK_SESSION_HANDLE, CK_BYTE_PTR, CK_ULONG, CK_BYTE_PTR, CK_ULONG_PTR) -> Outcome,
    session: CK_SESSION_HANDLE,
    data: CK_BYTE_PTR,
    data_length: CK_ULONG,
    signature: CK_BYTE_PTR,
    length: CK_ULONG_PTR,
) -> Outcome {
    pass_on(session, data, data_length, signature, length)?;
    if actions.contains(&&Action::Flip) && !signature.is_null() {
        // SAFETY: the real library has just written the length.
        let length = unsafe { *length } as usize;
        // SAFETY: the real library has just written that many bytes.
        let bytes = unsafe { slice::from_raw_parts_mut(signature, length) };
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
    }
    Ok(())
}

/// `session-object`: objects whose label starts so say that they are not on the token.
pub(crate) fn attributes(
    actions: &[&Action],
    pass_on: impl Fn(CK_SESSION_HANDLE, CK_OBJECT_HANDLE, CK_ATTRIBUTE_PTR, CK_ULONG) -> Outcome,
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
    template: CK_ATTRIBUTE_PTR,
    count: CK_ULONG,
) -> Outcome {
    pass_on(session, object, template, count)?;
    let prefixes = actions.iter().filter_map(|action| match action {
        Action::SessionObject(prefix) => Some(prefix.as_bytes()),
        _ => None,
    });
    for prefix in prefixes {
        if !label(session, object).starts_with(prefix) {
            continue;
        }
        // SAFETY: the caller's template, which the real library has just filled in.
        let template = unsafe { slice::from_raw_parts_mut(template, count as usize) };
        for attribute in template {
            if attribute.type_ == CKA_TOKEN && !attribute.pValue.is_null() {
                // SAFETY: a CK_BBOOL that the real library has just written.
                unsafe { attribute.pValue.cast::<u8>().write(0) };
            }
        }
    }
    Ok(())
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
