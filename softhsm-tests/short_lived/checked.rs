//! `check --as`: what the cluster still needs.

use super::plugin::Holder;
use super::with_key;
use crate::fixture::*;

fn check(holder: &Holder, arguments: &[&str]) -> Outcome {
    holder.program(&[&["check"], arguments].concat()).run()
}

#[test]
fn what_is_missing_is_told_and_where_the_role_is() {
    let holder = Holder::new(Kind::P256, Claims { subject: "/CN=heidi", ..JANE });
    let arguments = ["--as=token", "--service-account=default/heidi"];
    let role = "help: have an administrator apply the role in docs/short-lived.md";
    let told = check(&holder, &arguments).told(9);
    let expected = "may not ask for tokens of the service account default/heidi";
    assert!(told.contains(expected) && told.contains(role), "{told}");
    // As long as the right is missing, the API server tells nobody which accounts there are.
    let create = |arguments: &[&str]| {
        holder.administrator().argument("create").arguments(arguments).run().printed();
    };
    let rule = ["--verb=create", "--resource=serviceaccounts/token", "--resource-name=heidi"];
    create(&[&["role", "heidi-tokens"], &rule[..]].concat());
    create(&["rolebinding", "heidi-tokens", "--role=heidi-tokens", "--user=heidi"]);
    let right = ["create", "serviceaccounts/heidi", "--subresource=token", "--as=heidi"];
    holder.cluster.wait_for_right(&right);
    let told = check(&holder, &arguments).told(9);
    assert!(told.contains("there is no service account default/heidi"), "{told}");
    create(&["serviceaccount", "heidi"]);
    let told = check(&holder, &arguments).told(0);
    assert!(told.contains("may ask for tokens of the service account default/heidi"), "{told}");

    let told = check(&holder, &["--as=certificate"]).told(9);
    let expected = "may not create and get CertificateSigningRequests";
    assert!(told.contains(expected) && told.contains(role), "{told}");
    let rule = ["--verb=create,get", "--resource=certificatesigningrequests"];
    create(&[&["clusterrole", "heidi-requester"], &rule[..]].concat());
    let binding = ["--clusterrole=heidi-requester", "--user=heidi"];
    create(&[&["clusterrolebinding", "heidi-requester"], &binding[..]].concat());
    holder.cluster.wait_for_right(&["get", "certificatesigningrequests", "--as=heidi"]);
    let told = check(&holder, &["--as=certificate"]).told(0);
    assert!(told.contains("user \"heidi\" may request a certificate"), "{told}");
    assert!(told.contains("somebody else has to approve each request"), "{told}");
}

#[test]
fn what_no_role_helps_against_is_told() {
    let administrator = Holder::new(Kind::P256, ADMINISTRATOR);
    let told = check(&administrator, &["--as=certificate"]).told(9);
    assert!(told.contains("group system:masters, for which no certificate"), "{told}");
    assert!(check(&administrator, &["--as=token"]).told(2).contains("--service-account"));
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
        assert_eq!(told.contains("AuthenticationConfiguration"), code == 0, "{told}");
    }
}
