//! OpenSC's module where there is no card: what is missing is said, and where to look for it.

use super::environment::{Environment, Token};
use crate::fixture::*;

fn environment(surrounding: &str) -> Environment {
    let store = token_with_pair(Kind::P256);
    Environment::new("opensc", &[surrounding], &[], store)
}

/// Demands these fragments of every way to look for the token.
#[track_caller]
fn assert_explained(environment: &Environment, listed: &str, remedies: &[&str]) {
    let library = environment.variable("OPENSC_MODULE");
    let named = |name: &str, value: &str| Token {
        environment,
        variables: &["PCSCLITE_CSOCK_NAME"],
        configuration: Configuration::default().with("pathLib", library).with(name, value),
    };
    let token = named("tokenLabel", "jane");
    let request = token.certificate("1").run();
    request.fails(5, &["no token with tokenLabel \"jane\"", "OpenSC"]);
    request.fails(5, remedies);
    let module = format!("--module={library}");
    let check = ["check", &module, "--token-label=jane", "--object-id=1"];
    assert_contains(&token.command(&check).run().told(5), remedies);
    let listing = token.command(&["list", &module]).run().printed();
    assert!(listing.contains(listed), "no {listed:?} in\n{listing}");
}

#[test]
fn without_the_readers_service_it_says_so() {
    let environment = environment("no-service");
    let listed = "  no token, and no reader for one\n";
    assert_explained(&environment, listed, &["insert the token", "pcscd"]);
}

#[test]
fn an_empty_reader_is_named() {
    needs_isolation!();
    let environment = environment("empty-reader");
    assert_explained(&environment, "  no token in Empty reader 00 00", &["insert the token"]);
}
