//! opencryptoki's soft token: a token with a clock that isn't one, and its daemon.

use super::conformance::Held;
use super::differences::{assert_documented, library_version};
use super::environment::{Environment, Offer, Pair, Token};
use crate::fixture::*;

/// Its PINs have eight characters at most.
const SHORT_PIN: &str = "23456789";

fn environment(pairs: impl IntoIterator<Item = Pair>, more: &[(&str, &str)]) -> Environment {
    let variables = [&[("TOKEN_PIN", SHORT_PIN)], more].concat();
    Environment::holding("opencryptoki", pairs, &variables, &["--mount", "--ipc"])
}

fn token(environment: &Environment) -> Token<'_> {
    environment.token("OPENCRYPTOKI_MODULE", "opencryptoki", &["TOKEN_PIN"])
}

/// From these versions on, or earlier ones that weren't tested.
const ECDSA: [u32; 2] = [3, 23];
const ED25519: [u32; 2] = [3, 27];

fn version() -> [u32; 2] {
    library_version(&token(&environment([], &[("UNINITIALIZED", "1")])))
}

#[test]
#[ignore = "scripts/test --all"]
fn it_does_what_the_table_says() {
    assert_documented("opencryptoki", |ask| {
        ask(&token(&environment([Pair::new("01", Kind::Rsa(2048))], &[])))
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn it_conforms() {
    let kinds = [
        ("01", Kind::Rsa(2048)),
        ("02", Kind::Rsa(3072)),
        ("03", Kind::P256),
        ("04", Kind::P384),
        ("05", Kind::P521),
        ("06", Kind::Ed25519),
    ];
    let version = version();
    let kinds = match version {
        it if it < ECDSA => &kinds[..2],
        it if it < ED25519 => &kinds[..5],
        _ => &kinds[..],
    };
    let keys: Vec<_> = kinds.iter().map(|(id, kind)| Held::new(id, *kind)).collect();
    let environment = environment(kinds.iter().zip(&keys).map(|((id, _), it)| it.pair(id)), &[]);
    let token = token(&environment);
    let listed = "slotId 3, tokenLabel \"opencryptoki\"";
    token.assert_conforms(&keys, listed, |_, scheme| match scheme {
        Scheme::Pss { hash: Hash::Sha224, .. } if version < ECDSA => Offer::PaddedHere,
        _ => Offer::Made,
    });
    if version < ED25519 {
        token.assert_offers_no_ed25519();
    }
    // In its library's usual place, too.
    let found = token.command(&["list"]).run().printed();
    assert!(found.contains(listed), "no {listed} in\n{found}");
}

#[test]
#[ignore = "scripts/test --all"]
fn keys_are_made_and_certified_by_enroll() {
    let kinds =
        ["rsa-2048", "ec-p256", "ec-p384", "ed25519", "ml-dsa-44", "ml-dsa-65", "ml-dsa-87"];
    let kinds = match version() {
        it if it < ECDSA => &kinds[..1],
        it if it < ED25519 => &kinds[..3],
        _ => &kinds[..],
    };
    let environment = environment([Pair::new("09", Kind::Rsa(2048))], &[]);
    token(&environment).assert_enrolls("OPENCRYPTOKI_MODULE", "opencryptoki", kinds);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_token_that_is_not_initialised_is_told_the_same_everywhere() {
    let environment = environment([], &[("UNINITIALIZED", "1")]);
    let token = token(&environment);
    let module = format!("--module={}", environment.variable("OPENCRYPTOKI_MODULE"));
    let told = "the token in slotId 3 of ";
    let remedy = "help: initialise it, which erases what is on it: pkcs11-tool";
    let listed = token.command(&["list", &module]).run().printed();
    let checked = token.command(&["check", &module, "--slot-id=3", "--object-id=1"]).run().told(5);
    for shown in [&listed, &checked] {
        assert!(shown.contains(told) && shown.contains(remedy), "{shown}");
    }
    // A token that has a name can't be the blank one.
    token.certificate("1").run().fails(5, &["help: insert the token"]);
}
