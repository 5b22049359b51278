//! A real client-go program, let in by a real kube-apiserver under the name in the token's certificate.

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use crate::fixture::*;
use crate::run::trouble::{Server, server_certificate};

/// Our client with the PIN from the environment, and these arguments.
fn client(store: &Store, arguments: &[&str]) -> Outcome {
    cluster().client(store, &store.configuration_with_pin_source()).arguments(arguments).run()
}

/// As a server that isn't Go's.
#[test]
fn openssl_accepts_every_kind_of_key_and_scheme() {
    let [authority, _] = cluster().authority();
    let directory = tempfile::tempdir().unwrap();
    let own = server_certificate(directory.path());
    let page = |store: &Store, options: &[&str]| {
        let (_server, address) = Server::start(&own.each_ref().map(Path::new), &authority, options);
        let invocation = cluster().client(store, &store.configuration_with_pin_source());
        let mut config = read_json(store.path("kubeconfig"));
        config["clusters"][0]["cluster"]["server"] = address.into();
        fs::write(store.path("kubeconfig"), config.to_string()).unwrap();
        let page = invocation.arguments(&["get", "/"]).run().printed();
        let subject = page.lines().find(|line| line.trim_start().starts_with("Subject: "));
        assert!(subject.is_some_and(|line| line.ends_with("jane")), "{options:?}: {page}");
        let (_, signature) = page.split_once("Peer signature type: ").unwrap();
        signature.lines().next().unwrap().to_ascii_lowercase().replace('-', "_")
    };
    let rsa = Kind::Rsa(2048);
    for kind in [rsa, Kind::Rsa(4096), Kind::P256, Kind::P384, Kind::P521, Kind::Ed25519] {
        let store = cluster().token(kind, JANE);
        for version in ["-tls1_3", "-tls1_2"] {
            let scheme = page(&store, &[version]);
            let is_pss = scheme.starts_with("rsa_pss");
            assert_eq!(is_pss, matches!(kind, Kind::Rsa(_)), "{kind:?}, {version}: {scheme}");
        }
    }
    let store = cluster().token(rsa, JANE);
    for hash in ["SHA256", "SHA384", "SHA512"] {
        let scheme = page(&store, &["-tls1_2", "-client_sigalgs", &format!("RSA+{hash}")]);
        let known = format!("rsa_pkcs1_{}", hash.to_ascii_lowercase());
        assert!(scheme == "rsa" || scheme == known, "{hash}: {scheme}");
    }
}

#[test]
fn many_requests_at_once_each_on_a_connection_of_its_own() {
    let store = cluster().token(Kind::Rsa(2048), JANE);
    let outcome = client(&store, &["parallel", "50"]);
    assert_eq!(outcome.printed(), "50 ok, 50 signatures, 50 connections\n");
}

#[test]
fn a_thousand_requests_in_a_row_need_one_certificate_and_one_signature() {
    let store = cluster().token(Kind::P256, JANE);
    let configuration = store.faulty(store.configuration_with_pin_source());
    let outcome = cluster()
        .client(&store, &configuration)
        .arguments(&["sequence", "1000"])
        .suffering(&store, "")
        .run();
    assert_eq!(outcome.printed(), "1000 ok, 1 signatures\n");
    // One process each, as the library saw them.
    assert_eq!(store.calls("C_Initialize").len(), 2);
    assert_eq!(store.calls("C_Sign").len(), 1);
}

#[test]
fn what_a_server_would_refuse_is_explained_before() {
    for (claims, explanation) in [
        (Claims { days: -1, ..JANE }, "certificate of O=dev, CN=jane: it expired"),
        (Claims { usage: "serverAuth", ..JANE }, "does not allow TLS clients"),
    ] {
        let store = cluster().token(Kind::P256, claims);
        // The plugin answers all the same: whether to let the client in is the server's to say.
        let answer = store.certificate_with(&store.configuration()).run();
        assert!(!answer.certificate().is_empty());
        assert_eq!(answer.stderr.matches("warning: ").count(), 1, "{answer:?}");
        let outcome = client(&store, &["whoami"]);
        outcome.says(&[explanation]);
        assert!(!outcome.status.success(), "{outcome:?}");
    }
}

#[test]
fn a_renewal_that_is_due_is_said_where_a_pin_is_asked() {
    let left = time::Duration::hours(3 * 24 - 1);
    let certificate = expiring(Kind::P256, "jane", left, ClientAuth, cluster().authority());
    let (id, end) = ([1], expiry(&certificate));
    let store = token_with(Object::certified(Kind::P256, certificate, &id));
    let notice = format!("warning: the certificate of CN=jane: it expires {end}; renew it: ");
    assert_eq!(client(&store, &["whoami"]).succeeded().stderr, "");
    let request = sign_request(&store.configuration(), &Options::hash(Hash::Sha256), &sample(32));
    let outcome = store.ask(&request).without_variable("TOKEN_PIN").at_terminal().finish_with_pin();
    let renew = format!("{notice}`pkcs11-external-signer renew`");
    assert!(outcome.stderr.contains(&renew), "{outcome:?}");
    // What a run prints names the context's own options.
    let configuration = store.configuration().with("pinSource", "env:TOKEN_PIN");
    let run = || cluster().run(&store, &configuration, &["--context=test", "--", "true"]).run();
    let notice = format!("{notice}`pkcs11-external-signer renew --context=test`\n");
    let told = run().stderr;
    assert!(told.contains(&notice), "{told}");
}

#[test]
fn a_key_that_does_not_fit_the_certificate_is_explained_before_the_server_has_to() {
    let certificate = cluster().issue(Kind::OtherRsa, JANE);
    let store = token_with(Object::certified(Kind::Rsa(2048), certificate, &[1]));
    let outcome = client(&store, &["whoami"]);
    assert!(!outcome.status.success());
    outcome.says(&["does not belong to", "exit status 6"]);
}

/// The user of a client learns no more than the exit status; it says that it was the login.
#[test]
fn a_refused_pin_reaches_the_user_of_a_client() {
    let store = cluster().token(Kind::P256, JANE);
    let client = cluster().client(&store, &store.configuration_with_pin_source());
    let outcome = client.argument("whoami").variable("TOKEN_PIN", WRONG_PIN).run();
    assert!(!outcome.status.success());
    outcome.says(&["exit status 7"]);
}

#[test]
fn a_pin_is_typed_within_the_handshake() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = cluster()
        .client(&store, &store.configuration())
        .arguments(&["whoami"])
        .at_terminal()
        .finish_with_pin();
    assert_eq!(outcome.printed(), "user: jane\ngroups: dev system:authenticated\n");
}

#[test]
fn a_manifest_is_piped_while_the_pin_is_typed() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: piped}}";
    let outcome = cluster()
        .client(&store, &store.configuration())
        .arguments(&["create", "/api/v1/namespaces/default/configmaps"])
        .piped(manifest)
        .at_terminal()
        .finish_with_pin();
    assert!(outcome.printed().contains(r#""name":"piped""#), "{outcome:?}");
}

#[test]
fn the_plugin_may_be_named_from_the_directory_of_the_kubeconfig() {
    let store = cluster().token(Kind::P256, JANE);
    symlink(PROGRAM, store.path("signer")).unwrap();
    let invocation =
        cluster().client_with(&store, &store.configuration_with_pin_source(), "./signer");
    assert!(invocation.arguments(&["whoami"]).run().printed().starts_with("user: jane\n"));
}

#[test]
fn stock_kubectl_works_with_a_key_file_and_knows_no_external_signer() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome =
        cluster().administrator(&store).arguments(&["get", "namespaces", "-o", "name"]).run();
    assert!(outcome.printed().contains("namespace/default\n"));
    let configuration: Configuration = store.configuration_with_pin_source();
    let outcome = cluster().kubectl(&store, &configuration).arguments(&["get", "pods"]).run();
    assert!(!outcome.status.success());
    let message = "no Auth Provider found for name \"externalSigner\"";
    outcome.says(&[message]);
    assert!(include_str!("../docs/client-go.md").contains(message));
}
