//! The questions. An answer is a cell of the table in docs/tokens.md.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use cryptoki_sys::*;

use crate::codes::{Refused, name};
use crate::module::{Answer, Child, Mechanism, Module, Pss, Session, flag, in_child, number};

const WRONG_PIN: &str = "wrong-1";
/// More wrong PINs than any of the tests' tokens takes before it locks.
const TRIES: usize = 12;
const DIGEST: [u8; 32] = [7; 32];
/// DER of the object identifier of P-256.
const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

pub(crate) fn ask(module: &Module, question: &str) -> Answer<String> {
    if question == "interfaces" {
        return interfaces(module);
    }
    module.initialize()?;
    match question {
        "version" => version(module),
        "null PIN" => pin(module, None),
        "empty PIN" => pin(module, Some("")),
        "login again" => login_again(module),
        "salt" => pss(module, Pss { salt: 223, ..FITTING }, &DIGEST),
        "digest" => pss(module, FITTING, &DIGEST[..20]),
        "mask" => pss(module, Pss { mask: CKG_MGF1_SHA1, ..FITTING }, &DIGEST),
        "point" => point(module),
        "allowed mechanisms" => allowed_mechanisms(module),
        "end date" => end_date(module),
        "second process" => second_process(module),
        "make" => logged_in(module).and_then(make_key).map(|_| "made".to_owned()),
        "fork" => fork(module),
        other => panic!("no such question: {other}"),
    }
}

/// With an RSA-2048 key, a salt has 222 bytes at most.
const FITTING: Pss = Pss { hash: CKM_SHA256, mask: CKG_MGF1_SHA256, salt: 32 };

fn right_pin() -> String {
    env::var("TOKEN_PIN").expect("TOKEN_PIN")
}

fn logged_in(module: &Module) -> Answer<Session<'_>> {
    let session = module.open()?;
    session.login(Some(&right_pin()))?;
    Ok(session)
}

fn interfaces(module: &Module) -> Answer<String> {
    let Some(interfaces) = module.interfaces()? else { return Ok("absent".to_owned()) };
    let told = interfaces.known.iter().map(|(name, version)| {
        let number = format!("{}.{}", version.major, version.minor);
        if name == "PKCS 11" { number } else { format!("{name} {number}") }
    });
    let told = told.collect::<Vec<_>>().join(", ");
    Ok(if interfaces.is_counted { told } else { format!("{told}; the count isn't set") })
}

fn version(module: &Module) -> Answer<String> {
    let info = module.info()?;
    let [cryptoki, library] = [info.cryptokiVersion, info.libraryVersion]
        .map(|version| format!("{}.{}", version.major, version.minor));
    Ok(format!("{cryptoki}, library {library}"))
}

/// What C_Login answers to this PIN, and whether that is a try: the token's flags change, or it locks.
fn pin(module: &Module, pin: Option<&str>) -> Answer<String> {
    const COUNTED: CK_FLAGS = CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED;
    let session = module.open()?;
    let mut answer = None;
    let mut is_flagged = false;
    for tries in 1..=TRIES {
        let code = session.login(pin).map_or_else(|refused| refused.code, |()| CKR_OK);
        let first = *answer.get_or_insert(code);
        let (_, info) = module.slot()?;
        is_flagged |= info.flags & COUNTED != 0;
        if code == CKR_PIN_LOCKED || info.flags & CKF_USER_PIN_LOCKED != 0 {
            // A token that answers the try itself with the lock, or only the next one.
            let spent = if code == CKR_PIN_LOCKED && first != code && info.flags & COUNTED == 0 {
                tries - 1
            } else {
                tries
            };
            return Ok(format!("{}, {spent} lock", name(first)));
        }
    }
    let after = match session.login(Some(&right_pin())) {
        Err(Refused { code: CKR_PIN_LOCKED, .. }) => "counted",
        _ if is_flagged => "counted",
        _ => "not counted",
    };
    Ok(format!("{}, {after}", name(answer.unwrap_or(CKR_OK))))
}

fn login_again(module: &Module) -> Answer<String> {
    let session = logged_in(module)?;
    let again = session.login(Some(WRONG_PIN));
    Ok(again.map_or_else(|refused| name(refused.code), |()| "OK".to_owned()))
}

/// The label of the keys that are made here.
const OWN_LABEL: &[u8] = b"module-probe";

/// An RSA key that isn't of this program's making: those may be restricted.
fn rsa_key(session: Session<'_>) -> Answer<CK_OBJECT_HANDLE> {
    let wanted = [number(CKA_CLASS, CKO_PRIVATE_KEY), number(CKA_KEY_TYPE, CKK_RSA)];
    let is_own = |key| session.attribute(key, CKA_LABEL).is_ok_and(|label| label == OWN_LABEL);
    let found = session.find(&wanted)?.into_iter().find(|key| !is_own(*key));
    found.ok_or(Refused { function: "no RSA key", code: CKR_OBJECT_HANDLE_INVALID })
}

/// What becomes of an operation with such parameters; and of the next one's C_SignInit, if that isn't OK.
fn pss(module: &Module, parameters: Pss, digest: &[u8]) -> Answer<String> {
    let session = logged_in(module)?;
    let key = rsa_key(session)?;
    let operation = session.sign_init(Mechanism::Pss(parameters), key);
    let outcome = told(operation.and_then(|()| session.sign(digest)));
    Ok(match session.sign_init(Mechanism::Pss(FITTING), key) {
        Ok(()) => outcome,
        Err(refused) => format!("{outcome}, then {refused}"),
    })
}

fn told(outcome: Answer<()>) -> String {
    outcome.map_or_else(|refused| refused.to_string(), |()| "OK".to_owned())
}

/// The form of CKA_EC_POINT of a P-256 key.
fn point(module: &Module) -> Answer<String> {
    let session = logged_in(module)?;
    let keys = |class| session.find(&[number(CKA_CLASS, class), number(CKA_KEY_TYPE, CKK_EC)]);
    let mut public = keys(CKO_PUBLIC_KEY)?;
    if public.is_empty() {
        let parameters = (CKA_EC_PARAMS, P256.to_vec());
        let on_token = flag(CKA_TOKEN, true);
        let private = [on_token.clone(), flag(CKA_PRIVATE, true), flag(CKA_SIGN, true)];
        let public_template = [on_token, flag(CKA_VERIFY, true), parameters];
        match session.generate(Mechanism::EcKeyPair, &public_template, &private) {
            Ok([key, _]) => public.push(key),
            Err(refused) => return Ok(format!("makes no such key ({})", name(refused.code))),
        }
    }
    let point = session.attribute(public[0], CKA_EC_POINT)?;
    let form = match point.as_slice() {
        [0x04, length, 0x04, coordinates @ ..] if usize::from(*length) == coordinates.len() + 1 => {
            "OCTET STRING".to_owned()
        }
        [0x04, coordinates @ ..] if matches!(coordinates.len(), 64 | 96 | 132) => "raw".to_owned(),
        other => format!("{} other bytes", other.len()),
    };
    let private = keys(CKO_PRIVATE_KEY)?;
    let has_it = private.first().is_some_and(|key| {
        session.attribute(*key, CKA_EC_POINT).is_ok_and(|value| !value.is_empty())
    });
    Ok(if has_it { format!("{form}, of private keys, too") } else { form })
}

/// An RSA key of the token's making, with this attribute of its private half.
fn made_with(
    session: Session<'_>,
    more: Option<(CK_ATTRIBUTE_TYPE, Vec<u8>)>,
) -> Answer<CK_OBJECT_HANDLE> {
    let public = [
        flag(CKA_TOKEN, true),
        flag(CKA_VERIFY, true),
        number(CKA_MODULUS_BITS, 2048),
        (CKA_PUBLIC_EXPONENT, vec![1, 0, 1]),
    ];
    let mut private = vec![
        flag(CKA_TOKEN, true),
        flag(CKA_PRIVATE, true),
        flag(CKA_SIGN, true),
        (CKA_LABEL, OWN_LABEL.to_vec()),
    ];
    private.extend(more);
    let [_, private] = session.generate(Mechanism::RsaKeyPair, &public, &private)?;
    Ok(private)
}

fn make_key(session: Session<'_>) -> Answer<CK_OBJECT_HANDLE> {
    made_with(session, None)
}

/// Whether a key with this attribute, which forbids it, makes a signature.
fn enforced(session: Session<'_>, attribute: CK_ATTRIBUTE_TYPE, value: Vec<u8>) -> Answer<String> {
    let key = match made_with(session, Some((attribute, value))) {
        Ok(key) => key,
        // A token that makes no key at all says nothing of the attribute.
        Err(_) if make_key(session).is_err() => return Ok("makes no key".to_owned()),
        Err(refused) => return Ok(format!("can't be set ({})", name(refused.code))),
    };
    let signed = session.sign_init(Mechanism::RsaPkcs, key).and_then(|()| session.sign(&DIGEST));
    Ok(signed
        .map_or_else(|refused| format!("enforced ({refused})"), |()| "not enforced".to_owned()))
}

fn allowed_mechanisms(module: &Module) -> Answer<String> {
    let only = CKM_SHA256_RSA_PKCS.to_ne_bytes().to_vec();
    enforced(logged_in(module)?, CKA_ALLOWED_MECHANISMS, only)
}

fn end_date(module: &Module) -> Answer<String> {
    enforced(logged_in(module)?, CKA_END_DATE, b"20010101".to_vec())
}

/// Whether a key that another process makes appears in a session that is open.
fn second_process(module: &Module) -> Answer<String> {
    let count = |session: Session<'_>| {
        session.find(&[number(CKA_CLASS, CKO_PRIVATE_KEY)]).map(|found| found.len())
    };
    let session = logged_in(module)?;
    let before = count(session)?;
    let program = env::current_exe().expect("this program");
    let other = Command::new(program).args(module.options()).arg("make").output();
    let other = other.expect("this program runs");
    if other.stdout != b"made\n" {
        return Ok(match other.status.signal() {
            Some(signal) => format!("makes no key (signal {signal})"),
            None => "makes no key".to_owned(),
        });
    }
    if count(session)? > before {
        return Ok("appears".to_owned());
    }
    module.finalize()?;
    module.initialize()?;
    let is_there = count(logged_in(module)?)? > before;
    Ok(if is_there { "after C_Initialize" } else { "never" }.to_owned())
}

/// What a forked child gets with the session that its parent has, and what the parent gets then.
fn fork(module: &Module) -> Answer<String> {
    let session = logged_in(module)?;
    let key = rsa_key(session)?;
    let sign = || {
        told(session.sign_init(Mechanism::Pss(FITTING), key).and_then(|()| session.sign(&DIGEST)))
    };
    let child = match in_child(sign) {
        Child::Said(text) => text,
        Child::Killed(libc::SIGALRM) => "hangs".to_owned(),
        Child::Killed(signal) => format!("crashes (signal {signal})"),
    };
    Ok(match sign().as_str() {
        "OK" => child,
        refused => format!("{child}, then the parent's {refused}"),
    })
}
