//! `seal`: files that openssl opens with the nodes' keys, and what is refused. Opening them with a token is tested in
//! `kubelet`.

use crate::fixture::*;

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
    // It is filled up with spaces.
    output.status.success().then(|| content.trim_end().to_owned())
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
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("-----BEGIN CMS-----\n"), "{text}");
    for kind in KINDS {
        assert_eq!(opened(out.as_ref(), kind).as_deref(), Some(CONFIG), "{kind:?}");
    }
    assert_eq!(opened(out.as_ref(), Kind::OtherRsa), None);
}

/// docker's helpers have written it without padding, and with line ends in it.
#[test]
fn base64_is_read_as_kubelet_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let (_, rest) = CONFIG.split_once("bm9kZXM6").unwrap();
    let password = rest.strip_suffix("\"}}}").unwrap();
    let with =
        |auth: String| json!({"auths": {"registry.example:5000": {"auth": auth}}}).to_string();
    let name = |number: usize, extension: &str| format!("{number}.{extension}");
    let out = |number: usize| directory.path().join(name(number, "cms"));
    for (number, auth, expected) in [
        (0, "dTpwYXNzMTIzNA".to_owned(), with("dTpwYXNzMTIzNA==".to_owned())),
        (1, format!("bm9k\r\nZXM6\n{password}\n"), CONFIG.to_owned()),
        // Bits behind the last byte.
        (2, "dTpwYXNzMTIzNB==".to_owned(), with("dTpwYXNzMTIzNA==".to_owned())),
    ] {
        let config = written(directory.path(), &name(number, "json"), &with(auth));
        let sealed = seal(directory.path(), &[Kind::P256]);
        sealed.arguments(&["--out", out(number).to_str().unwrap(), &config]).run().succeeded();
        assert_eq!(opened(&out(number), Kind::P256), Some(expected));
    }
    for (number, auth, said) in [
        (3, "dTpw YXNz", "has an auth that is not base64"),
        (4, "dQ==", "has an auth that is not USER:PASSWORD in base64"),
        (5, "dTr/", "has an auth that is not UTF-8"),
    ] {
        let config = written(directory.path(), &name(number, "json"), &with(auth.to_owned()));
        let sealed = seal(directory.path(), &[Kind::P256]);
        let sealed = sealed.arguments(&["--out", out(number).to_str().unwrap(), &config]);
        sealed.run().fails(3, &["the entry for \"registry.example:5000\" ", said]);
    }
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
    assert_eq!(sealed().piped(format!("{PASSWORD}\n")).run().printed(), "");
    assert_eq!(opened(&out, Kind::P256).as_deref(), Some(CONFIG));
    fs::remove_file(&out).unwrap();

    let certificate = key(Kind::P256).certificate_pem();
    let script = format!(
        "\"$SIGNER\" seal --recipient '{}' --registry registry.example:5000 --username nodes --out '{}' </dev/tty",
        certificate.display(),
        out.display()
    );
    let mut terminal = Invocation::new(directory.path()).within("/bin/sh", &script).at_terminal();
    terminal.expect("Password of nodes for registry.example:5000: ").type_line(PASSWORD);
    let (outcome, screen) = terminal.finish();
    assert!(outcome.status.success(), "{}", outcome.stderr);
    assert!(!screen.contains(PASSWORD), "{screen}");
    assert_eq!(opened(&out, Kind::P256).as_deref(), Some(CONFIG));

    sealed().piped("").run().fails(3, &["no password was given for registry.example:5000"]);
    let several = sealed().piped("one\ntwo\n").run();
    several.fails(3, &["not one line"]);
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
            "a credential helper has the passwords",
        ),
        (
            "token",
            format!(r#"{{"auths":{{"a.example":{{"identitytoken":"{secret}"}}}}}}"#),
            "has no user name and password",
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
    let told = ["nothing can be sealed to O=system:masters, CN=test ed25519: its key is Ed25519"];
    signs_only.fails(3, &told);
    let twice = seal(directory.path(), &[Kind::P256, Kind::P256])
        .arguments(&["--out", &out, &config])
        .run();
    twice.fails(3, &["its key is named twice"]);
    let no_certificate = seal(directory.path(), &[])
        .arguments(&["--recipient", &config, "--out", &out, &config])
        .run();
    no_certificate.fails(3, &["not a usable X.509 certificate"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "before");
    let nowhere = directory.path().join("none/registry.cms");
    let outcome = seal(directory.path(), &[Kind::P256])
        .arguments(&["--out", nowhere.to_str().unwrap(), &config])
        .run();
    outcome.fails(9, &["none/registry.cms can't be written"]);
}

/// Makes a file with openssl.
pub(crate) fn sealed_by_openssl(out: &Path, config: &str, options: &[&str]) {
    let mut arguments = vec!["cms", "-encrypt", "-binary", "-outform", "PEM", "-in", config];
    arguments.extend(["-out", out.to_str().unwrap()]);
    arguments.extend(options);
    openssl(arguments);
}
