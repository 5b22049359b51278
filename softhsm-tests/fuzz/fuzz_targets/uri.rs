//! `pkcs11:` URIs, on any text: what is read is printed as a URI that is read as the same, and a
//! PIN is neither printed nor in a message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::config::{ObjectId, Uri};

const PIN: &str = "pin-value=";
/// With digits, so that it is no name of an attribute.
const MARK: &str = "s3cr3t";

fuzz_target!(|text: &str| {
    let marked = text.replacen(PIN, &format!("{PIN}{MARK}"), 1);
    match Uri::parse(&marked) {
        Ok(uri) => {
            let has_mark = |pin: &str| pin.contains(MARK);
            if uri.pin_value.as_deref().is_some_and(|pin| has_mark(pin)) && !text.contains(MARK) {
                assert!(!uri.to_string().contains(MARK), "{uri}");
            }
            assert_read_as_printed(&uri);
        }
        Err(problem) => {
            for text in [problem.to_string(), problem.remedy().to_string()] {
                assert!(!text.contains(MARK) && text.len() < 1000, "{text}");
            }
        }
    }
    assert_read_as_printed(&any(text));
});

/// One whose values are the lines of the text.
fn any(text: &str) -> Uri {
    let mut lines = text.split('\n').map(|line| line.replace('\0', ""));
    let mut value = || lines.next().filter(|line| !line.is_empty());
    Uri {
        token: value(),
        manufacturer: value(),
        model: value(),
        serial: value(),
        slot_id: value().map(|line| line.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte))),
        id: value().map(|line| ObjectId::from_bytes(line.into_bytes())),
        object: value(),
        module_path: value(),
        pin_source: None,
        pin_value: None,
    }
}

fn assert_read_as_printed(uri: &Uri) {
    let printed = uri.to_string();
    let is_plain = printed.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(is_plain, "{printed}");
    let read = Uri::parse(&printed).unwrap_or_else(|problem| panic!("{printed}: {problem}"));
    assert_eq!(texts(&read), texts(uri));
    assert_eq!((read.slot_id, &read.id), (uri.slot_id, &uri.id));
    assert_eq!(read.to_string(), printed);
    assert!(read.pin_value.is_none());
}

/// All but the PIN.
fn texts(uri: &Uri) -> [&Option<String>; 7] {
    [
        &uri.token,
        &uri.manufacturer,
        &uri.model,
        &uri.serial,
        &uri.object,
        &uri.module_path,
        &uri.pin_source,
    ]
}
