//! `check --as`: what the cluster still needs, with what an administrator applies.

use super::plugin::Holder;
use super::with_key;
use crate::fixture::cluster::{ADMINISTRATOR, Claims, JANE};
use crate::fixture::keys::Kind;
use crate::fixture::program::Outcome;
use crate::fixture::softhsm::token_with_pair;

fn check(holder: &Holder, arguments: &[&str]) -> Outcome {
    holder.program(&[&["check"], arguments].concat()).run()
}

/// The YAML that the help has, as an administrator pastes it.
fn applied(holder: &Holder, outcome: &Outcome) {
    let printed = String::from_utf8(outcome.stdout.clone()).unwrap();
    let (_, yaml) = printed.split_once("have an administrator apply:\n").unwrap();
    let indent = yaml.len() - yaml.trim_start_matches(' ').len();
    let lines = yaml.lines().map_while(|line| line.get(indent..));
    let yaml: String = lines.map(|line| format!("{line}\n")).collect();
    holder.administrator().arguments(&["apply", "-f", "-"]).piped(yaml).run().printed();
}

#[test]
fn the_role_that_is_missing_is_told_and_enough() {
    let holder = Holder::new(Kind::P256, Claims { subject: "/CN=heidi", ..JANE });
    let arguments = ["--as=token", "--service-account=default/heidi"];
    let refused = check(&holder, &arguments);
    let told = refused.told(9);
    assert!(told.contains("may not ask for tokens of the service account default/heidi"), "{told}");
    applied(&holder, &refused);
    // As long as the right is missing, the API server tells nobody which accounts there are.
    let missing = check(&holder, &arguments);
    let told = missing.told(9);
    assert!(told.contains("there is no service account default/heidi"), "{told}");
    applied(&holder, &missing);
    let told = check(&holder, &arguments).told(0);
    assert!(told.contains("may ask for tokens of the service account default/heidi"), "{told}");
    let token = ["credential", "--output=raw", "--as=token", "--service-account=default/heidi"];
    holder.program(&token).run().printed();

    let refused = check(&holder, &["--as=certificate"]);
    let told = refused.told(9);
    assert!(told.contains("may not create and get CertificateSigningRequests"), "{told}");
    applied(&holder, &refused);
    let told = check(&holder, &["--as=certificate"]).told(0);
    assert!(told.contains("user \"heidi\" may request a certificate"), "{told}");
    assert!(told.contains("somebody else has to approve each request"), "{told}");
}

#[test]
fn what_no_role_helps_against_is_told() {
    let administrator = Holder::new(Kind::P256, ADMINISTRATOR);
    let told = check(&administrator, &["--as=certificate"]).told(9);
    assert!(told.contains("group system:masters, for which no certificate"), "{told}");
    let unnamed = check(&administrator, &["--as=token"]);
    assert!(unnamed.told(2).contains("--service-account"));
}

#[test]
fn the_algorithm_of_tokens_is_told_before_the_pin() {
    for (kind, code, said) in [
        (Kind::P384, 0, "tokens are signed with ES384"),
        (Kind::Rsa(2048), 0, "tokens are signed with RS256"),
        (Kind::Ed25519, 6, "takes no token that a key Ed25519 has signed"),
    ] {
        let store = token_with_pair(kind);
        let told = with_key(&store, "1", &["check", "--as=jwt"]).run().told(code);
        assert!(told.contains(said), "{told}");
        assert_eq!(told.contains(" jwks` prints"), code == 0, "{told}");
    }
}
