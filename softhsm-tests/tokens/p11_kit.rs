//! p11-kit: its proxy in the place of a token's own library, a token of another host behind
//! `p11-kit server`, and its trust module, whose token wants no login.

use super::conformance::Held;
use super::differences::assert_documented;
use super::environment::{Environment, Offer, Token};
use crate::fixture::*;

/// p11-kit knows a token with these objects, and serves it. Among its anchors is the certificate of the P-256 key.
fn environment(objects: impl IntoIterator<Item = Object>) -> Environment {
    registered(&[], objects)
}

fn registered(
    variables: &[(&str, &str)],
    objects: impl IntoIterator<Item = Object>,
) -> Environment {
    let store = token_with(objects);
    let anchors = store.path("anchors");
    fs::create_dir(&anchors).unwrap();
    fs::copy(key(Kind::P256).certificate_der(), anchors.join("p256.der")).unwrap();
    let directory = store.directory.path().to_str().unwrap().to_owned();
    Environment::with(variables, "p11-kit", &[&directory], &["--mount"], store)
}

fn with_pair(kind: Kind) -> Environment {
    environment(Object::pair(key(kind), &[1]))
}

const PROXY: &str = "P11_KIT_PROXY";
const CLIENT: &str = "P11_KIT_CLIENT";

/// The token through this module.
fn through<'e>(module: &str, environment: &'e Environment) -> Token<'e> {
    environment.token(module, "test token", &["P11_KIT_SERVER_ADDRESS"])
}

fn assert_table_says(module: &str, library: &str, variables: &'static [&'static str]) {
    assert_documented(module, |ask| {
        let environment = with_pair(Kind::Rsa(2048));
        ask(&environment.token(library, "test token", variables));
    });
}

/// The same tokens, without p11-kit.
#[test]
fn softhsm_does_what_the_table_says() {
    needs_isolation!();
    assert_table_says("SoftHSM", "SOFTHSM2_MODULE", &["SOFTHSM2_CONF"]);
}

#[test]
fn the_proxy_does_what_the_table_says() {
    needs_isolation!();
    assert_table_says("p11-kit-proxy", PROXY, &["P11_KIT_SERVER_ADDRESS"]);
}

#[test]
fn the_client_does_what_the_table_says() {
    needs_isolation!();
    assert_table_says("p11-kit-client", CLIENT, &["P11_KIT_SERVER_ADDRESS"]);
}

#[test]
fn both_conform_but_for_ed25519_of_another_host() {
    needs_isolation!();
    let kinds = [
        ("1", Kind::Rsa(2048)),
        ("2", Kind::P256),
        ("3", Kind::P384),
        ("4", Kind::P521),
        ("5", Kind::Ed25519),
    ];
    let keys = kinds.map(|(id, kind)| Held::new(id, kind));
    let environment = environment(keys.iter().flat_map(Held::objects));
    for module in [PROXY, CLIENT] {
        let token = through(module, &environment);
        token.assert_conforms(&keys, "tokenLabel \"test token\"", |kind, _| match (kind, module) {
            (Kind::Ed25519, CLIENT) => Offer::Refused(&["Ed25519", "CKM_EDDSA"]),
            _ => Offer::Made,
        });
    }
}

#[test]
fn a_wrong_pin_is_told_and_counted_as_the_token_does() {
    needs_isolation!();
    let environment = with_pair(Kind::P256);
    for module in [PROXY, CLIENT] {
        let token = through(module, &environment);
        let sign = || token.sign("1", &Options::hash(Hash::Sha256), &sample(32));
        let wrong = sign().variable("TOKEN_PIN", WRONG_PIN).run();
        let told = ["refused the PIN", "TOKEN_PIN", "CKR_PIN_INCORRECT", "counted a wrong PIN"];
        wrong.fails(7, &told);
        // Not once more by those that come after it.
        sign().variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["refused a PIN", "was not sent"]);
        let asking = token.configuration("1").without("pinSource");
        let request = sign_request(&asking, &Options::hash(Hash::Sha256), &sample(32));
        let mut terminal = token.ask(&request).at_terminal();
        terminal.expect("counted a wrong PIN").expect_prompt();
        assert_signed(&terminal.type_line(WRONG_PIN).finish_with_pin());
        assert_signed(sign().run().silently());
    }
}

#[test]
fn a_token_that_a_command_leads_to_is_reached_through_the_proxy() {
    needs_isolation!();
    let kind = Kind::P256;
    let issued = cluster().issue(kind, ADMINISTRATOR);
    let objects = [Object::key(key(kind), &[1]), Object::issued(issued, &[1])];
    let environment = registered(&[("REMOTE", "yes")], objects);
    let token = through(PROXY, &environment);
    assert_signed(&token.sign("1", &Options::hash(Hash::Sha256), &sample(32)).run());
    token.assert_kubectl_gets("1");
}

/// Each call of the proxy's C_GetFunctionList makes an instance of its own, and a login is one instance's.
#[test]
fn a_key_that_wants_its_pin_each_time_is_signed_with() {
    needs_isolation!();
    let [always, certificate] = Object::pair(key(Kind::P256), &[1]);
    let environment = environment([always.always_authenticate(), certificate]);
    for module in [PROXY, CLIENT] {
        let sign =
            through(module, &environment).sign("1", &Options::hash(Hash::Sha256), &sample(32));
        assert_signed(sign.run().silently());
    }
}

#[test]
fn a_certificate_of_the_trust_module_wants_no_pin_and_has_no_key() {
    needs_isolation!();
    let environment = with_pair(Kind::P256);
    let token = through(PROXY, &environment);
    let configuration = Configuration::default()
        .with("pathLib", environment.variable(PROXY))
        .with("tokenLabel", "anchors")
        .with("objectLabel", "test p256");
    let certificate = token.ask(&certificate_request(&configuration)).run();
    assert_eq!(certificate.silently().certificate(), key(Kind::P256).certificate);
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    token.ask(&request).run().fails(8, &["offers no CKM_ECDSA", "use a token"]);
    let module = format!("--module={}", environment.variable(PROXY));
    let listed = token.command(&["list", &module, "--token-label=anchors"]);
    let listed = listed.run().silently().printed();
    assert_contains(&listed, &["test p256", "ECDSA P-256", "no private key"]);
    let options = ["--token-label=anchors", "--object-label=test p256"];
    let checked = token.command(&["check", &module]).arguments(&options);
    assert_contains(&checked.run().told(8), &["the token wants no login", "offers no CKM_ECDSA"]);
}

/// In Debian's package ca-certificates, from which the trust module by itself has its anchors.
#[cfg(target_os = "linux")]
const ANCHOR: [&str; 2] = ["ISRG Root X1", "/etc/ssl/certs/ISRG_Root_X1.pem"];

#[test]
#[cfg(target_os = "linux")]
fn an_anchor_of_the_machine_is_reached_through_the_trust_module_itself() {
    needs_isolation!();
    let environment = with_pair(Kind::P256);
    let [label, pem] = ANCHOR;
    let module = environment.variable(CLIENT).replace("client", "trust");
    let token = Token {
        configuration: Configuration::default()
            .with("pathLib", &module)
            .with("tokenLabel", "System Trust")
            .with("objectLabel", label),
        ..through(CLIENT, &environment)
    };
    let certificate = token.ask(&certificate_request(&token.configuration)).run();
    let der = environment.store.path("anchor.der");
    openssl(["x509", "-in", pem, "-outform", "der", "-out", der.to_str().unwrap()]);
    assert_eq!(certificate.silently().certificate(), fs::read(der).unwrap());
    let request = sign_request(&token.configuration, &Options::pss(Hash::Sha256, -1), &sample(32));
    token.ask(&request).run().fails(8, &["offers no CKM_RSA_PKCS_PSS", "use an ECDSA key"]);
    let module = format!("--module={module}");
    // None of them could authenticate.
    let listed = token.command(&["list", &module]).run();
    let listed = listed.silently().printed();
    assert_contains(
        &listed,
        &["System Trust", "no visible key, and no certificate but those of CAs"],
    );
    let options = ["--token-label=System Trust", "--object-label", label];
    let checked = token.command(&["check", &module]).arguments(&options);
    let checked = checked.run().told(8);
    assert_contains(&checked, &["the token wants no login", "offers no CKM_RSA_PKCS_PSS"]);
}

#[test]
fn a_server_that_is_not_there_is_told() {
    needs_isolation!();
    let environment = with_pair(Kind::P256);
    let token = through(CLIENT, &environment);
    for invocation in [
        token.certificate("1").variable("P11_KIT_SERVER_ADDRESS", "unix:path=/nowhere"),
        token.certificate("1").without_variable("P11_KIT_SERVER_ADDRESS"),
    ] {
        invocation.run().fails(5, &["no connection", "P11_KIT_SERVER_ADDRESS"]);
    }
}
