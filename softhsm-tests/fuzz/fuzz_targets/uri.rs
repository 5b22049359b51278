//! `pkcs11:` URIs, on any text: what is read is printed as a URI that is read as the same, and a
//! PIN is neither printed nor in a message.

#![no_main]

use config::{ObjectId, Uri};
use libfuzzer_sys::fuzz_target;

const PIN: &str = "pin-value=";
/// All but the PIN.
const ATTRIBUTES: [&str; 9] = [
    "token",
    "manufacturer",
    "model",
    "serial",
    "slot-id",
    "id",
    "object",
    "module-path",
    "pin-source",
];
/// With digits, so that it is no name of an attribute.
const MARK: &str = "s3cr3t";

fuzz_target!(|text: &str| {
    let marked = text.replacen(PIN, &format!("{PIN}{MARK}"), 1);
    match Uri::parse(&marked) {
        Ok(uri) => {
            let has_mark = |pin: &str| pin.contains(MARK);
            if uri.get("pin-value").is_some_and(has_mark) && !text.contains(MARK) {
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
    let number = |line: String| line.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
    Uri::of([
        ("token", value()),
        ("manufacturer", value()),
        ("model", value()),
        ("serial", value()),
        ("slot-id", value().map(|line| number(line).to_string())),
        ("id", value().map(|line| ObjectId::from_bytes(line.into_bytes()).to_string())),
        ("object", value()),
        ("module-path", value()),
    ])
}

fn assert_read_as_printed(uri: &Uri) {
    let printed = uri.to_string();
    let is_plain = printed.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(is_plain, "{printed}");
    let read = Uri::parse(&printed).unwrap_or_else(|problem| panic!("{printed}: {problem}"));
    for attribute in ATTRIBUTES {
        assert_eq!(read.get(attribute), uri.get(attribute), "{attribute}");
    }
    assert_eq!(read.to_string(), printed);
    assert!(read.get("pin-value").is_none());
}
