//! The configuration: what is wrong with it, by the name of its key.

use crate::fixture::keys::Kind;
use crate::fixture::request::Configuration;
use crate::fixture::softhsm::{PIN, Store, token_with_pair};

fn ask_with(store: &Store, configuration: Configuration) -> crate::fixture::program::Outcome {
    store.certificate_with(&configuration).run()
}

#[test]
fn a_malformed_value_is_refused() {
    let store = token_with_pair(Kind::P256);
    ask_with(&store, Configuration::default()).fails(3, &["pathLib is missing"]);
    for (name, value) in [
        ("slotId", "-1"),
        ("slotId", "0xg"),
        ("slotId", "99999999999999999999"),
        ("objectId", ""),
        ("objectId", "1:2"),
        ("objectId", "0x123"),
        ("pinSource", "env:"),
        ("pinSource", "file:relative"),
        // It isn't shown.
        ("pinSource", PIN),
        ("pathLib", ""),
    ] {
        ask_with(&store, store.configuration().with(name, value)).fails(3, &[name]);
    }
}

#[test]
fn every_form_of_slot_id_and_object_id_is_understood() {
    let store = token_with_pair(Kind::P256);
    let slot = store.tokens[0].slot;
    for (name, value) in [
        ("slotId", format!("{slot}")),
        ("slotId", format!("0x{slot:x}")),
        ("objectId", "1".to_owned()),
        ("objectId", "0x01".to_owned()),
    ] {
        ask_with(&store, store.configuration().with(name, &value)).certificate();
    }
}
