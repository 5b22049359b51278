//! kubelet's own package runs the provider, before each pull of an image.

use super::{node, sealed, text};
use crate::fixture::*;
use crate::seal::PASSWORD;

/// What looks logins up as kubelet does.
fn kubelet() -> &'static Path {
    static PULL: LazyLock<PathBuf> = LazyLock::new(|| go_program("kubelet-pull"));
    &PULL
}

/// As docs/kubelet.md configures kubelet, with this file; what its log says is the outcome's standard error.
fn pulls(store: &Store, file: &Path, version: &str, pin: &str, images: &[&str]) -> Outcome {
    let directory = store.directory.path();
    let bin = directory.join("bin");
    let _ = fs::create_dir(&bin);
    let _ = symlink(PROGRAM, bin.join("pkcs11-external-signer"));
    let config = &blocks_of("docs/kubelet.md", "kubelet's configuration", "yaml")[0];
    let version = format!("credentialprovider.kubelet.k8s.io/{version}");
    let pin = format!("env:TOKEN_PIN]\n  env: [{{name: TOKEN_PIN, value: '{pin}'}}]");
    let words = [
        ["credentialprovider.kubelet.k8s.io/v1", &version],
        ["[registry.example]", "[registry.example, 'registry.example:5000', docker.io]"],
        ["/etc/kubernetes/registry.cms", text(file)],
        ["=FILE", &format!("={}", text(softhsm_library()))],
        ["label=node", &format!("label={}", store.tokens[0].label)],
        ["file:/run/credentials/kubelet.service/pkcs11-pin]", &pin],
    ];
    let config = adapted(config, &words);
    let path = directory.join("kubelet.yaml");
    fs::write(&path, config).unwrap();
    let kubelet = Invocation::new(directory).program(kubelet());
    let outcome = kubelet.arguments(&[text(&path), text(&bin)]).arguments(images).run().succeeded();
    assert!(!outcome.stderr.contains(PASSWORD), "{}", outcome.stderr);
    outcome
}

/// The users that kubelet would try, for each look-up.
fn users(outcome: &Outcome) -> Vec<Vec<String>> {
    let lines = outcome.shown();
    let users = lines.lines().map(|line| {
        let login: Value = serde_json::from_str(line).unwrap();
        let users = login["users"].as_array().unwrap();
        assert!(users.is_empty() || login["password"] == PASSWORD);
        users.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    });
    users.collect()
}

/// How often kubelet ran the provider.
fn runs(outcome: &Outcome) -> usize {
    outcome.stderr.matches("Getting image credentials from external exec plugin").count()
}

fn login(user: &str) -> Value {
    json!({"username": user, "password": PASSWORD})
}

#[test]
fn kubelet_takes_the_answers_in_each_version_of_the_api() {
    let store = node(Kind::P256);
    let config = json!({"auths": {
        "registry.example": login("all"),
        "registry.example/team": login("team"),
        "registry.example:5000": login("port"),
        "https://index.docker.io/v1/": login("hub"),
    }});
    let file = sealed(&store, "registry.cms", &config.to_string(), &[Kind::P256]);
    let images = [
        "registry.example/team/app",
        "registry.example/teamster/app",
        "registry.example:5000/team/app",
        "docker.io/library/nginx",
    ];
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let outcome = pulls(&store, &file, version, PIN, &images);
        let once = [["team"], ["all"], ["port"], ["hub"]].map(Vec::from);
        assert_eq!(users(&outcome), [once.clone(), once].concat(), "{version}");
        // The second look-up of each is answered from what kubelet has kept.
        assert_eq!(runs(&outcome), images.len(), "{}", outcome.stderr);
    }
}

#[test]
fn a_registrys_login_is_kept_for_its_other_images_and_nothing_is_not_kept() {
    let store = node(Kind::P256);
    let config = json!({"auths": {"registry.example:5000": login("port")}});
    let file = sealed(&store, "registry.cms", &config.to_string(), &[Kind::P256]);
    let outcome = pulls(&store, &file, "v1", PIN, &["registry.example/app"]);
    assert_eq!(users(&outcome), [Vec::<String>::new(), Vec::new()]);
    assert_eq!(runs(&outcome), 2, "asked again");
    let many: Vec<_> = (0..20).map(|it| format!("registry.example:5000/app-{it}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let outcome = pulls(&store, &file, "v1", PIN, &many);
    assert_eq!(users(&outcome), vec![vec!["port".to_owned()]; 40]);
    assert!(runs(&outcome) <= 20, "{}", outcome.stderr);
}

#[test]
fn kubelets_log_has_the_reason_in_one_line_and_no_login_is_kept() {
    let store = node(Kind::P256);
    let config = json!({"auths": {"registry.example:5000": login("port")}});
    let file = sealed(&store, "registry.cms", &config.to_string(), &[Kind::P256]);
    let image = ["registry.example:5000/app"];
    let outcome = pulls(&store, &file, "v1", WRONG_PIN, &image);
    assert_eq!(users(&outcome), [Vec::<String>::new(), Vec::new()]);
    assert_eq!(runs(&outcome), 2);
    assert!(outcome.stderr.contains("CKR_PIN_INCORRECT"), "{}", outcome.stderr);
    fs::write(&file, "garbage").unwrap();
    let outcome = pulls(&store, &file, "v1", PIN, &image);
    assert!(outcome.stderr.contains("is no sealed file"), "{}", outcome.stderr);
}
