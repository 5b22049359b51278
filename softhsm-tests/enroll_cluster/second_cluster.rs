//! One person, one token, and more than one cluster; and another token for a context that has a key already.

use super::{jane, of_store};
use crate::fixture::*;

fn credential_ids(keys: &[Value]) -> Vec<&str> {
    keys.iter().map(|it| it["certificate"]["credentialId"].as_str().unwrap_or_default()).collect()
}

/// Jane's key with this certificate.
fn certified(kind: Kind, certificate: Vec<u8>) -> [Object; 3] {
    let [private, certificate] = Object::certified(kind, certificate, &[1]);
    [private, Object::public_key(key(kind), &[1]), certificate].map(|it| it.labelled("jane"))
}

/// The key's certificate is of another cluster's authority, and lets nobody in here.
#[test]
fn a_second_cluster_issues_a_certificate_of_its_own_for_the_same_key() {
    let of_other_cluster = issued(Kind::P521, "/O=dev/CN=jane", 365, "clientAuth");
    let store = Store::new([blueprint("prod", certified(Kind::P521, of_other_cluster))]);
    let newcomer = jane(&store);
    let before = newcomer.keys();
    assert_eq!(before.len(), 1, "{before:?}");
    let kubeconfig = newcomer.person.directory().join("kubeconfig");
    let written = fs::read_to_string(&kubeconfig).unwrap();

    let name = newcomer.ask(&[]);
    assert_eq!(fs::read_to_string(&kubeconfig).unwrap(), written);
    cluster().administrate(&["certificate", "approve", &name], "");
    let outcome = newcomer.enroll(&[]).run();
    outcome.says(&[
        "another certificate is asked for: with the key's own one, ",
        "the server does not take the certificate for a user",
        "the key has another certificate already",
    ]);
    let known = " knows us as user \"jane\", groups dev, system:authenticated";
    outcome.printed();
    assert!(outcome.step("cluster").ends_with(known), "{outcome:?}");

    // The first cluster's certificate is where it was, and the new one where the context's user says.
    let after = newcomer.keys();
    assert_eq!(credential_ids(&after), credential_ids(&before));
    let written = fs::read_to_string(&kubeconfig).unwrap();
    assert!(written.contains("--certificate-file="), "{written}");
    let known = newcomer.whoami();
    let [of_other_cluster] = credential_ids(&before)[..] else { panic!("{before:?}") };
    assert!(known.starts_with("jane ") && !known.contains(of_other_cluster), "{known}");
    newcomer.stop();
    // Once more there is nothing left to do.
    let again = newcomer.enroll(&[]).run().succeeded();
    assert_eq!(again.step("context"), "\"prod\" uses a key on a token already");
}

/// The same user, by a certificate of the cluster's that names a group of before.
#[test]
fn a_certificate_for_other_groups_is_none_for_these() {
    let claims = Claims { subject: "/O=former/CN=jane", ..JANE };
    let certificate = cluster().issue(Kind::Ed25519, claims);
    let store = Store::new([blueprint("prod", certified(Kind::Ed25519, certificate))]);
    let newcomer = jane(&store);
    let before = newcomer.whoami();
    let name = newcomer.ask(&[]);
    assert_eq!(newcomer.whoami(), before);
    cluster().administrate(&["delete", "csr", &name], "");
}

/// What is named is heeded, though the context has a key, and one of the same CKA_ID.
#[test]
fn a_context_moves_to_the_token_that_is_named() {
    let certificate = cluster().issue(Kind::Rsa(2048), JANE);
    let objects = certified(Kind::Rsa(2048), certificate);
    let store = Store::new([blueprint("prod", objects), blueprint("next", [])]);
    let newcomer = jane(&store);
    let written = newcomer.person.command("kubeconfig").arguments(&newcomer.options());
    newcomer
        .enter(written)
        .arguments(&["--write", "--context=prod", "--object-id=1", "--keep=15m"])
        .argument("--pin-source=env:TOKEN_PIN")
        .run()
        .succeeded();
    // One PIN serves kubectl, which asks for the new certificate, too.
    let before = newcomer.whoami();
    for named in [&[][..], &["--object-id=1"]] {
        let same = newcomer.enroll(named).run().succeeded();
        assert_eq!(same.step("context"), "\"prod\" uses a key on a token already");
    }

    let (_, enter) = of_store(&store);
    let next = |arguments: &[&str]| {
        enter(newcomer.person.command("enroll"))
            .arguments(&[softhsm_option(), "--token-label=next", "--pin-source=env:TOKEN_PIN"])
            .arguments(&["--context=prod", "--duration=1h", "--key=ec-p384"])
            .arguments(arguments)
            .run()
    };
    let asked = next(&["--wait=1s"]);
    asked.fails(9, &["was not approved within 1 seconds"]);
    assert_eq!(newcomer.whoami(), before);
    let (_, name) = asked.stderr.split_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    cluster().administrate(&["certificate", "approve", name], "");
    let printed = next(&[]).printed();
    assert!(printed.contains("on token \"next\""), "{printed}");
    newcomer.stop();
    let after = newcomer.whoami();
    assert!(after.starts_with("jane ") && after != before, "{after}");
    newcomer.stop();
}
