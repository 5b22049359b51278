//! Properties of every configuration, however odd.

use proptest::prelude::*;

use super::{Config, ObjectId, PinSource};
use messages::printable::printable;
use protocol::Configuration;

/// No other text has this in it.
const MARK: &str = "s3cr3t";

const KEYS: [&str; 10] = [
    "pathLib",
    "initArgs",
    "slotId",
    "tokenLabel",
    "tokenSerial",
    "objectId",
    "objectLabel",
    "certificateFile",
    "pinSource",
    "pathExec",
];

/// A value that is right for some key, nearly right, or anything.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[0-9]{1,21}",
        "0[xX][0-9a-fA-F]{0,20}",
        "[0-9a-f:]{1,12}",
        "(prompt|stdin|file:|file:/pin|env:|env:PIN|env:A=B)",
        "/[a-z./]{0,12}",
        ".{0,40}",
    ]
}

/// A PIN with the mark in it: a fair one, or one that has to be refused.
fn pin() -> impl Strategy<Value = String> {
    let fair = "[!-~]{0,20}".prop_map(|rest| format!("{MARK}{rest}"));
    let odd = "[\\x00-\\x1f]{1,4}".prop_map(|rest| format!("{rest}{MARK}"));
    let long = (250_usize..400).prop_map(|length| MARK.repeat(length / MARK.len()));
    prop_oneof![fair, odd, long]
}

fn known_keys() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::collection::vec((prop::sample::select(&KEYS[..]), value()), 0..10)
}

fn configuration(pairs: &[(&str, String)]) -> Configuration {
    pairs.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

proptest! {
    #[test]
    fn a_pin_is_in_no_message(mut pairs in known_keys(), pin in pin()) {
        pairs.push(("pin", pin));
        if let Err(error) = Config::from_map(&mut configuration(&pairs)) {
            let shown = format!("{error}\n{error:?}");
            prop_assert!(!shown.contains(MARK));
        }
    }

    #[test]
    fn a_pin_in_the_wrong_key_is_in_no_message(
        key in prop::sample::select(&["pin", "pinSource"][..]),
        before in "(|env:|env:A=|env:=|ENV:|pin:)",
        pin in pin(),
    ) {
        let pairs = [(key, format!("{before}{pin}"))];
        let error = Config::from_map(&mut configuration(&pairs)).err().unwrap();
        let shown = format!("{error}\n{error:?}");
        prop_assert!(!shown.contains(MARK));
    }

    #[test]
    fn a_message_is_one_readable_line(pairs in known_keys()) {
        if let Err(error) = Config::from_map(&mut configuration(&pairs)) {
            for text in [&error.to_string(), &error.remedy().text] {
                let text = printable(text);
                prop_assert!(!text.contains(char::is_control), "{text:?}");
                prop_assert!(text.len() < 700 && !text.ends_with('.'), "{text}");
            }
        }
    }

    #[test]
    fn an_object_id_reads_back_as_it_is_shown(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        let id = ObjectId::from_bytes(bytes);
        prop_assert_eq!(ObjectId::parse(&id.to_string()).unwrap(), id);
    }

    #[test]
    fn colons_and_prefix_say_the_same(bytes in prop::collection::vec(any::<u8>(), 2..40)) {
        let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        prop_assert_eq!(
            ObjectId::parse(&pairs.join(":")).unwrap(),
            ObjectId::parse(&format!("0x{}", pairs.concat())).unwrap()
        );
    }

    #[test]
    fn a_slot_reads_back_as_it_is_shown(number in any::<u64>()) {
        let text = number.to_string();
        let pairs = [("pathLib", "/no/such.so"), ("slotId", text.as_str()), ("objectId", "1")];
        let config = Config::from_map(&mut pairs.into_iter().collect()).ok().unwrap();
        prop_assert_eq!(config.token.slot, Some(number));
        prop_assert_eq!(config.token.to_string(), format!("slotId {number}"));
    }

    #[test]
    fn a_pin_goes_before_its_source(
        source in "(prompt|stdin|file:/pin|env:PIN)",
        pin in "[!-~]{1,255}",
    ) {
        let pairs = [
            ("pathLib", "/no/such.so"),
            ("slotId", "1"),
            ("objectId", "1"),
            ("pinSource", source.as_str()),
            ("pin", pin.as_str()),
        ];
        let config = Config::from_map(&mut pairs.into_iter().collect()).ok().unwrap();
        prop_assert!(matches!(config.pin, PinSource::Configuration(same) if same.expose() == pin));
    }
}
