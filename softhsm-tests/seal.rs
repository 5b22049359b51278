//! `seal`: files that openssl opens with the nodes' keys, and what is refused. Opening them with a token is tested in
//! `kubelet`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::fixture::keys::{Kind, key};
use crate::fixture::openssl::openssl;
use crate::fixture::program::{Invocation, assert_contains};
use crate::fixture::tool::tool;

pub(crate) const PASSWORD: &str = "not-to-be-seen-42";

/// As docker writes it: `nodes:not-to-be-seen-42`.
pub(crate) const CONFIG: &str =
    r#"{"auths":{"registry.example:5000":{"auth":"bm9kZXM6bm90LXRvLWJlLXNlZW4tNDI="}}}"#;

const KINDS: [Kind; 4] = [Kind::Rsa(2048), Kind::P256, Kind::P384, Kind::P521];

fn seal(directory: &Path, kinds: &[Kind]) -> Invocation {
    let mut invocation = Invocation::new(directory).arguments(&["seal"]);
    for kind in kinds {
        let certificate = key(*kind).certificate_pem();
        invocation = invocation.arguments(&["--recipient", certificate.to_str().unwrap()]);
    }
    invocation
}

/// What openssl opens with this key; `None` if it can't.
fn opened(file: &Path, kind: Kind) -> Option<String> {
    let key = key(kind);
    let output = tool("openssl", "openssl")
        .args(["cms", "-decrypt", "-binary", "-inform", "PEM", "-in"])
        .arg(file)
        .arg("-inkey")
        .arg(key.private_pem())
        .arg("-recip")
        .arg(key.certificate_pem())
        .output()
        .unwrap();
    let content = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(content)
}

fn written(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn openssl_opens_it_with_each_nodes_key_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let config = written(directory.path(), "config.json", CONFIG);
    let out = written(directory.path(), "registry.cms", "before");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o644)).unwrap();
    let sealed = seal(directory.path(), &KINDS).arguments(&["--out", &out, &config]);
    assert_eq!(sealed.run().printed(), "");
    let mode = fs::metadata(&out).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("Registry: registry.example:5000\nSHA-256: "), "{text}");
    for kind in KINDS {
        assert_eq!(opened(out.as_ref(), kind).as_deref(), Some(CONFIG), "{kind:?}");
    }
    assert_eq!(opened(out.as_ref(), Kind::OtherRsa), None);
}

#[test]
fn the_password_comes_from_standard_input_or_a_prompt_that_does_not_show_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("registry.cms");
    let sealed = || {
        seal(directory.path(), &[Kind::P256]).arguments(&[
            "--registry",
            "registry.example:5000",
            "--username",
            "nodes",
            "--out",
            out.to_str().unwrap(),
        ])
    };
    let piped = sealed().piped(format!("{PASSWORD}\n")).run();
    assert_eq!(piped.printed(), "");
    assert_eq!(opened(&out, Kind::P256).as_deref(), Some(CONFIG));
    fs::remove_file(&out).unwrap();

    let certificate = key(Kind::P256).certificate_pem();
    let script = format!(
        "\"$SIGNER\" seal --recipient {} --registry registry.example:5000 --username nodes --out {} </dev/tty",
        certificate.display(),
        out.display()
    );
    let typed = Invocation::new(directory.path()).within("/bin/sh", &script);
    let mut terminal = typed.at_terminal();
    terminal.expect("Password of nodes for registry.example:5000: ").type_line(PASSWORD);
    let (outcome, screen) = terminal.finish();
    assert!(outcome.status.success(), "{}", outcome.stderr);
    assert!(!screen.contains(PASSWORD), "{screen}");
    assert_eq!(opened(&out, Kind::P256).as_deref(), Some(CONFIG));

    let nothing = sealed().piped("").run();
    nothing.fails(3, &["no password was given for registry.example:5000"]);
    let several = sealed().piped("one\ntwo\n").run();
    several.fails(3, &["the password on standard input is not one line of text"]);
    assert!(!several.stderr.contains("two"));
}

#[test]
fn what_cannot_be_sealed_is_refused_and_the_old_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let out = written(directory.path(), "registry.cms", "before");
    let secret = PASSWORD;
    let cases = [
        ("garbage", secret.to_owned(), "it is not the JSON of a config.json"),
        (
            "helper",
            r#"{"auths":{"a.example":{}},"credsStore":"pass"}"#.to_owned(),
            "names the credential helper \"pass\"",
        ),
        (
            "token",
            format!(r#"{{"auths":{{"a.example":{{"identitytoken":"{secret}"}}}}}}"#),
            "identitytoken instead of a password",
        ),
        (
            "twice",
            format!(
                r#"{{"auths":{{"a.example":{{"username":"u","password":"{secret}"}},
                    "https://A.example/v1/":{{"username":"u","password":"{secret}"}}}}}}"#
            ),
            "there are two entries for a.example",
        ),
    ];
    for (name, content, expected) in cases {
        let config = written(directory.path(), name, &content);
        let outcome =
            seal(directory.path(), &[Kind::P256]).arguments(&["--out", &out, &config]).run();
        outcome.fails(3, &[expected, name]);
        assert!(!outcome.stderr.contains(secret), "{}", outcome.stderr);
    }
    let config = written(directory.path(), "config.json", CONFIG);
    let signs_only =
        seal(directory.path(), &[Kind::Ed25519]).arguments(&["--out", &out, &config]).run();
    signs_only.fails(
        3,
        &["nothing can be sealed to O=system:masters, CN=test ed25519: Ed25519 only signs"],
    );
    let twice = seal(directory.path(), &[Kind::P256, Kind::P256])
        .arguments(&["--out", &out, &config])
        .run();
    twice.fails(3, &["its key is named twice"]);
    let no_certificate = seal(directory.path(), &[])
        .arguments(&["--recipient", &config, "--out", &out, &config])
        .run();
    no_certificate.fails(3, &["no usable X.509 certificate"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "before");
    let nowhere = directory.path().join("none/registry.cms");
    let outcome = seal(directory.path(), &[Kind::P256])
        .arguments(&["--out", nowhere.to_str().unwrap(), &config])
        .run();
    outcome.fails(9, &["none/registry.cms can't be written"]);
}

#[test]
fn a_list_shows_what_a_file_is_for_and_who_opens_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = written(directory.path(), "config.json", CONFIG);
    let out = directory.path().join("registry.cms");
    let out = out.to_str().unwrap();
    let sealed = seal(directory.path(), &[Kind::P256, Kind::Rsa(2048)]);
    sealed.arguments(&["--out", out, &config]).run().printed();
    let listed = |more: &[&str]| {
        let list = Invocation::new(directory.path()).arguments(&["seal", "--list", out]);
        list.arguments(more).run().printed()
    };
    let text = listed(&[]);
    assert_contains(&text, &["registry.example:5000\n", "RSA-OAEP (SHA-256)\n", "ECDH on P-256\n"]);
    let document: Value = serde_json::from_str(&listed(&["--json"])).unwrap();
    assert_eq!(document["registries"][0], "registry.example:5000");
    assert_eq!(document["recipients"].as_array().unwrap().len(), 2);
}

/// Makes a file with openssl.
pub(crate) fn sealed_by_openssl(out: &Path, config: &str, options: &[&str]) {
    let mut arguments = vec!["cms", "-encrypt", "-binary", "-outform", "PEM", "-in", config];
    arguments.extend(["-out", out.to_str().unwrap()]);
    arguments.extend(options);
    openssl(arguments);
}

#[test]
fn files_that_show_no_change_or_have_old_padding_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let config = written(directory.path(), "config.json", CONFIG);
    let out = directory.path().join("registry.cms");
    let rsa = key(Kind::Rsa(2048)).certificate_pem();
    let rsa = rsa.to_str().unwrap();
    let oaep = ["-recip", rsa, "-keyopt", "rsa_padding_mode:oaep"];
    let list = || {
        let out = out.to_str().unwrap();
        Invocation::new(directory.path()).arguments(&["seal", "--list", out]).run()
    };
    for (options, expected) in [
        (
            [&["-aes-256-cbc"][..], &oaep].concat(),
            "AES-256-CBC, which does not show whether it was changed",
        ),
        ([&["-aes-128-gcm"][..], &oaep].concat(), "the cipher AES-128-GCM"),
        (vec!["-aes-256-gcm", "-recip", rsa], "RSA encryption without OAEP"),
        ([&["-aes-256-gcm", "-stream"][..], &oaep].concat(), "without -stream"),
    ] {
        sealed_by_openssl(&out, &config, &options);
        list().fails(3, &[expected]);
    }
    sealed_by_openssl(&out, &config, &[&["-aes-256-gcm"][..], &oaep].concat());
    assert!(list().printed().contains("RSA-OAEP (SHA-1)"));
}
