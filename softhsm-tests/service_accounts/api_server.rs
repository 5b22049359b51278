//! A real API server whose tokens the signer signs.

use super::*;

/// Ours is the issuer's own audience.
const OWN: &str = "--audience=https://test-cluster.invalid";

#[test]
fn a_service_account_is_let_in_with_a_token_that_the_hsm_has_signed() {
    let signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1"]);
    let cluster = SignedCluster::of(&signer);
    let token = cluster.token(&[OWN]);
    let name = "system:serviceaccount:default:web";
    assert_eq!(cluster.who_is(&signer.store, &token).printed(), name);
    assert_eq!(token.claims["sub"], name);
    // A projected token for somebody else is none for the API server.
    let projected = cluster.token(&["--audience=vault"]);
    assert_eq!(projected.claims["aud"], json!(["vault"]));
    cluster.who_is(&signer.store, &projected).failed().says(&["Unauthorized"]);
    // Whoever gets it verifies it by these.
    assert_eq!(cluster.shown_keys(), [token.key()]);
    let discovery =
        cluster.0.administrate(&["get", "--raw", "/.well-known/openid-configuration"], "");
    let discovery: Value = serde_json::from_str(&discovery).unwrap();
    assert_eq!(discovery["id_token_signing_alg_values_supported"], json!(["ES256"]));
    // The API server is started again, as far as the signer sees it.
    drop(cluster);
    let cluster = SignedCluster::of(&signer);
    let token = cluster.token(&[OWN]);
    assert_eq!(cluster.who_is(&signer.store, &token).printed(), name);
}

/// As docs/service-accounts.md moves a cluster: tokens of the key in the file stay valid, since the key keeps its id.
#[test]
fn the_key_of_a_file_is_verified_by_its_id_and_a_hidden_one_is_not_shown() {
    let former = cluster();
    former.administrate(&["create", "serviceaccount", "formerly"], "");
    let token =
        SignedToken::parse(former.administrate(&["create", "token", "formerly"], "").trim());
    let store = token_of_keys(&[Kind::P256, Kind::P384]);
    let public = store.path("sa.pub");
    let private = former.directory().join("kube-apiserver.key");
    let [private, public_text] = [&private, &public].map(|path| path.to_str().unwrap());
    openssl(["pkey", "-in", private, "-pubout", "-out", public_text]);
    let former = format!("--key=file:{public_text}");
    let signer = Signer::start(store, &["--key=1", &former, "--key=2 hidden", "--refresh=1s"]);
    assert_eq!(key_id("-pubin", &public), token.key());
    let keys = signer.ask(&["keys"]).json();
    let keys = keys["keys"].as_array().unwrap();
    let [own, old, hidden] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!((&old["id"], &old["hidden"]), (&json!(token.key()), &json!(false)));
    assert_eq!(hidden["hidden"], true);
    let cluster = SignedCluster::of(&signer);
    let shown = cluster.shown_keys();
    assert_eq!(shown.len(), 2);
    assert!([own, old].iter().all(|key| shown.contains(&key["id"].as_str().unwrap().to_owned())));
    assert_contains(&signer.told(), &["hidden) verifies tokens of others", "next: nothing; leave"]);
}

#[test]
fn a_thousand_requests_at_once_are_all_answered() {
    let signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1"]);
    let cluster = SignedCluster::of(&signer);
    let directory = cluster.0.directory().to_str().unwrap();
    let load = Invocation::new(signer.store.directory.path())
        .program(client())
        .arguments(&["api", directory, cluster.0.server(), "1000", "1000"])
        .run();
    assert!(load.printed().starts_with("1000 ok, 0 failed"), "{load:?}");
    let status = signer.status();
    let counts = &status["counts"];
    assert!(counts["signatures"].as_object().unwrap().values().all(|count| *count == 1000));
    assert_eq!(counts["failures"], json!({}));
    assert_eq!((&counts["openRequests"], &counts["tokenProcessStarts"]), (&json!(0), &json!(1)));
}
