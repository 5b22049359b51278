//! Other languages' settings, and a label that isn't in English: nothing else is said, and the token is found.

use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::assert_signed;
use crate::fixture::request::{Configuration, Hash, Options, sample, sign_request};
use crate::fixture::softhsm::{Object, PIN, Store, blueprint, softhsm_option};

const LABEL: &str = "Schlüssel ığİ 鍵";

#[test]
fn no_locale_changes_what_is_said_or_which_token_is_found() {
    let store = Store::new([blueprint(LABEL, Object::pair(key(Kind::P256), &[1]))]);
    let configuration = store.configuration().without("slotId").with("tokenLabel", LABEL);
    let options = Options::hash(Hash::Sha256);
    let sign = |it: &Configuration| store.ask(&sign_request(it, &options, &sample(32)));
    let module = softhsm_option();
    let told = |name: &str, value: &str| {
        let list = store.command(&["list", module]);
        let listed = list.variable(name, value).run().printed();
        assert!(listed.contains(LABEL), "{listed}");
        let other = sign(&configuration.clone().with("tokenLabel", "SCHLÜSSEL IĞI 鍵"));
        let missing = other.variable(name, value).run();
        missing.fails(5, &[LABEL]);
        let mut terminal = sign(&configuration).variable(name, value).at_terminal();
        terminal.expect(LABEL).expect(": ").type_line(PIN);
        let (outcome, screen) = terminal.finish();
        assert_signed(&outcome);
        (listed, missing.stderr, screen)
    };
    let plain = told("LANG", "C");
    for (name, value) in [
        ("LANG", "de_DE.UTF-8"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "ja_JP.eucJP"),
        ("LC_ALL", "none"),
    ] {
        assert_eq!(told(name, value), plain, "{name}={value}");
    }
}
