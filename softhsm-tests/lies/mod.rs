//! Answers that make no sense: counts and lengths that are too large, strings without an end, pointers that lead
//! nowhere, attributes and signatures that are others'. Each is refused or does no harm.

use crate::fixture::*;

#[cfg(target_os = "linux")]
mod memory;

/// What goes wrong, and how a request for a signature ends: the exit code, and the message.
const LIES: &[(&str, i32, &str)] = &[
    // A handle that the library never gave.
    ("C_FindObjects#1:count=+1", 6, "C_GetAttributeValue: CKR_OBJECT_HANDLE_INVALID"),
    // And no end of them.
    ("C_FindObjects:count=+1", 6, "C_FindObjects: CKR_OK, but more"),
    ("C_FindObjects:count=17", 6, "C_FindObjects: CKR_OK, but more"),
    ("C_FindObjects:count=max", 6, "C_FindObjects: CKR_OK, but more"),
    ("C_FindObjects:absent", 6, "lacks a function"),
    ("C_FindObjectsFinal:absent", 6, "lacks a function"),
    ("C_GetAttributeValue#2:length=0", 6, "it is empty"),
    ("C_GetAttributeValue#2:length=max,C_GetAttributeValue#4:length=+1", 6, "CKR_OK, but more"),
    ("C_GetAttributeValue#2:length=max,C_GetAttributeValue#4:length=max", 6, "it is empty"),
    ("C_GetAttributeValue:length=+1", 0, ""),
    ("C_GetAttributeValue:length=1", 6, "its DER does not parse"),
    ("C_GetAttributeValue:length=0", 6, "it is empty"),
    ("C_GetAttributeValue:length=0x10000000000", 6, "it is empty"),
    ("C_GetAttributeValue:length=max", 6, "it is empty"),
    ("C_GetAttributeValue:garble", 6, "its DER does not parse"),
    ("C_GetAttributeValue:zero", 6, "no certificate with"),
    // The PIN was right, and the login is there.
    ("C_Login:then-return=0x100", 0, ""),
    // The library has no such attribute of the key, so the buffer's zeros aren't taken for CKK_RSA.
    ("C_GetAttributeValue#3:return=0x12,C_GetAttributeValue#5:return=0x12", 0, ""),
    ("C_GetAttributeValue#3:then-return=0x12,C_GetAttributeValue#4:then-return=0x12", 0, ""),
    // A vendor's type may be any; but it says that it wants its PIN for every signature.
    ("C_GetAttributeValue#3:garble", 7, "C_Login: CKR_OPERATION_NOT_INITIALIZED"),
    ("C_GetAttributeValue#3:zero", 6, "does not belong to"),
    ("C_GetAttributeValue:absent", 6, "lacks a function"),
    ("C_GetFunctionList:null", 4, "C_GetFunctionList: CKR_OK, but no function list"),
    ("C_GetFunctionList:misaligned", 4, "C_GetFunctionList: CKR_OK, but no function list"),
    ("C_GetMechanismList#2:count=+1", 0, ""),
    ("C_GetMechanismList:count=+1", 0, ""),
    ("C_GetMechanismList:count=max", 0, ""),
    ("C_GetMechanismList:count=0", 8, "it offers no CKM_ECDSA"),
    // A token that doesn't tell its mechanisms is tried.
    ("C_GetMechanismList:return=0x54", 0, ""),
    ("C_GetSessionInfo:absent", 0, ""),
    ("C_GetSlotList#2:count=+1", 0, ""),
    ("C_GetSlotList#2:return=0x150", 5, "C_GetSlotList: CKR_BUFFER_TOO_SMALL"),
    ("C_GetSlotList:count=+1", 0, ""),
    ("C_GetSlotList:count=0", 5, "no token with slotId"),
    ("C_GetSlotList:count=0x10000000000", 5, "C_GetSlotList: CKR_OK, but more"),
    ("C_GetSlotList:count=max", 5, "C_GetSlotList: CKR_OK, but more"),
    ("C_GetTokenInfo:garble", 0, ""),
    ("C_GetTokenInfo:garble,C_GetTokenInfo:set=CKF_CLOCK_ON_TOKEN", 0, ""),
    ("C_Sign:length=+1", 8, "65 bytes that are no ECDSA P-256 signature"),
    ("C_Sign:length=-1", 8, "63 bytes that are no ECDSA P-256 signature"),
    ("C_Sign:length=0", 8, "0 bytes that are no ECDSA P-256 signature"),
    ("C_Sign:length=8193", 8, "C_Sign: CKR_OK, but more"),
    ("C_Sign:length=max", 8, "C_Sign: CKR_OK, but more"),
    ("C_Sign:refuse-query", 0, ""),
    ("C_Sign:flip", 8, "withheld"),
    ("C_Sign:absent", 8, "lacks a function"),
    ("C_SignInit:other-key", 8, "withheld"),
];

/// What a library can do to its process, and may.
const DISTURBANCES: &[&str] = &[
    "C_Initialize:chdir",
    "C_Initialize:handlers,C_Finalize:crash=segv",
    "C_Initialize:threads=20",
    "C_Initialize:handlers,C_Initialize:threads=3,C_Finalize:hang",
    "C_Login:print,C_Sign:print=error",
    "load:chdir,load:handlers,load:threads=3,load:print=error",
];

/// Two keys, so that one can sign for the other.
fn store() -> Store {
    let [private, certificate] = Object::pair(key(Kind::P256), &[1]);
    token_with([private, certificate, Object::key(key(Kind::Authority), &[2])])
}

fn sign(store: &Store, faults: &str) -> Invocation {
    store.sign_suffering(store.configuration_with_pin_source(), faults)
}

#[track_caller]
fn assert_is(outcome: &Outcome, faults: &str, code: i32, told: &str) {
    let is_as_told = outcome.status.code() == Some(code) && outcome.stderr.contains(told);
    assert!(is_as_told, "{faults}: {code}, {told}: {outcome:?}");
    if code == 0 {
        assert_signed(outcome);
    } else {
        outcome.fails(code, &[]);
    }
}

#[test]
fn an_answer_that_makes_no_sense_is_refused_or_does_no_harm() {
    for (faults, code, told) in LIES {
        // Of its own: after a login without a clear end no stored PIN is sent.
        let store = store();
        assert_is(&sign(&store, faults).run(), faults, *code, told);
    }
}

#[test]
fn a_slot_that_can_not_be_read_may_be_why_there_is_no_token() {
    let store = store();
    let configuration = store.faulty(store.configuration()).without("slotId");
    let configuration = configuration.with("tokenLabel", "test token");
    let faults = "C_GetTokenInfo:return=0x30";
    let outcome = store.certificate_with(&configuration).suffering(&store, faults).run();
    assert_is(&outcome, faults, 5, "can't be read: C_GetTokenInfo: CKR_DEVICE_ERROR");
}

#[test]
fn what_a_library_does_to_the_process_does_not_reach_the_answer() {
    let store = store();
    for faults in DISTURBANCES {
        assert_is(&sign(&store, faults).run(), faults, 0, "");
    }
}
