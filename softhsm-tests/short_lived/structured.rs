//! `credential --as jwt` and a real API server that has the configuration of docs/short-lived.md, and the files from a
//! static HTTPS server.

use std::io::{BufRead as _, BufReader};
use std::sync::{MutexGuard, PoisonError};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::DecodePrivateKey as _;
use tempfile::TempDir;
use time::OffsetDateTime;

use super::plugin::Holder;
use super::{parts, with_key};
use crate::fixture::*;
use crate::run::trouble::server_certificate;

const JANE: &str = "https://keys.example/jane";
const JOHN: &str = "https://keys.example/john";

/// In seconds.
const YEAR: i64 = 365 * 24 * 60 * 60;

/// `openssl s_server` with the files of a directory.
struct Files {
    server: Child,
    url: String,
}

impl Files {
    fn serve(directory: &Path, workshop: &Path) -> Self {
        let [certificate, private] = server_certificate(workshop);
        let mut server = tool("openssl", "openssl")
            .args(["s_server", "-WWW", "-accept", "127.0.0.1:0", "-cert", &certificate])
            .args(["-key", &private])
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("ACCEPT ").map(|it| it.rsplit_once(':').unwrap().1.to_owned())
        });
        // Its lines must go somewhere.
        thread::spawn(move || lines.for_each(drop));
        let url = format!("https://127.0.0.1:{}", port.unwrap());
        Self { server, url }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The API server takes the tokens of these issuers and no others as long as this lives, which is one test at a time.
pub(crate) struct Trusted {
    _files: Files,
    _place: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Trusted {
    /// Each issuer with its key; `jwks` is the command with the options that name a key.
    pub(crate) fn new<K>(
        issuers: impl IntoIterator<Item = (&'static str, K)>,
        jwks: impl Fn(K) -> Invocation,
    ) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = tempfile::tempdir().unwrap();
        let served = place.path().join("served");
        fs::create_dir(&served).unwrap();
        let files = Files::serve(&served, place.path());
        let issuers = issuers.into_iter();
        configure(issuers.map(|(issuer, key)| entry(jwks(key), issuer, &served, &files)));
        Self { _files: files, _place: place, _alone: alone }
    }

    /// Waits until the API server has read the configuration and the keys.
    pub(crate) fn wait(&self, token: &str) {
        wait_until("the token is taken", || bearer(token).status.success());
    }
}

/// The block of the page that begins so, for another issuer.
fn documented(begins: &str, issuer: &str) -> String {
    let page = at_root("docs/short-lived.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once(&format!("```{begins}")).unwrap();
    block.split_once("```").unwrap().0.replace(JANE, issuer)
}

/// The documented entry, with the files that it leads to in `directory/NAME`.
fn entry(jwks: Invocation, issuer: &str, directory: &Path, files: &Files) -> String {
    let (_, name) = issuer.rsplit_once('/').unwrap();
    let served_at = format!("{}/{name}", files.url);
    let directory = directory.join(name);
    fs::create_dir_all(directory.join(".well-known")).unwrap();
    fs::write(directory.join("jwks.json"), jwks.run().printed()).unwrap();
    let keys = |text: String| {
        text.replace(&format!("{issuer}/jwks.json"), &format!("{served_at}/jwks.json"))
    };
    let discovery = keys(documented("json\n", issuer));
    fs::write(directory.join(".well-known/openid-configuration"), discovery).unwrap();
    let authority = fs::read_to_string(&cluster().authority()[0]).unwrap();
    let configuration = documented("yaml\napiVersion: apiserver.config.k8s.io", issuer)
        .replace(
            "# discoveryURL: https://files.example/jane",
            &format!("discoveryURL: {served_at}"),
        )
        .replace(
            "# certificateAuthority:",
            &format!("certificateAuthority: {} #", json!(authority)),
        )
        .replace("[kubernetes]", "[test]")
        .replace("'jane'", &format!("'hw:{name}'"));
    configuration.split_once("jwt:\n").unwrap().1.to_owned()
}

/// Has the API server take the tokens of these entries alone.
fn configure(entries: impl Iterator<Item = String>) {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n{}",
        entries.collect::<String>()
    );
    let [authority, _] = cluster().authority();
    let path = authority.with_file_name("authentication.yaml");
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// As whom the API server takes the bearer of a token.
fn bearer(token: &str) -> Outcome {
    let home = tempfile::tempdir().unwrap();
    Invocation::new(home.path())
        .program(kubectl())
        .arguments(&[
            &format!("--server={}", cluster().entry()["server"].as_str().unwrap()),
            &format!("--certificate-authority={}", cluster().authority()[0].display()),
            &format!("--token={token}"),
        ])
        .arguments(&["auth", "whoami", "-o", "json"])
        .run()
}

/// The same token without one of its claims and with these at its end, signed by this key.
fn forged(token: &str, kind: Kind, without: &str, more: &[(&str, i64)]) -> String {
    let (header, mut claims, ..) = parts(token);
    claims.as_object_mut().unwrap().remove(without);
    let mut claims = claims.to_string();
    for (name, time) in more {
        claims.insert_str(claims.len() - 1, &format!(",\"{name}\":{time}"));
    }
    let encoded = |text: String| URL_SAFE_NO_PAD.encode(text);
    let text = format!("{}.{}", encoded(header.to_string()), encoded(claims));
    let secret = SigningKey::from_pkcs8_der(&key(kind).pkcs8).unwrap();
    let signature: Signature = secret.sign(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
}

#[test]
fn the_api_server_takes_what_the_hardware_signs_and_nothing_else() {
    let jane = Holder::with(token_with_pair(Kind::P256));
    let john = Holder::with(token_with_pair(Kind::Rsa(2048)));
    let trusted = Trusted::new([(JANE, &jane), (JOHN, &john)], |holder| {
        with_key(&holder.store, "1", &["jwks"])
    });
    let raw = |holder: &Holder, more: &[&str]| {
        let options = ["credential", "--as=jwt", "--output=raw"];
        let audience: &[&str] = match more.iter().any(|it| it.starts_with("--audience")) {
            true => &[],
            false => &["--audience=test"],
        };
        let outcome = holder.program(&[&options, more, audience].concat()).run();
        outcome.silently().printed().trim().to_owned()
    };

    let good = raw(&jane, &["--issuer", JANE, "--duration=9m"]);
    trusted.wait(&good);

    let user = |outcome: &Outcome| outcome.json()["status"]["userInfo"].clone();
    let told = user(&bearer(&good));
    assert_eq!(told["username"], "hw:jane");
    assert_eq!(told["groups"], json!(["dev", "system:authenticated"]));
    let (_, claims, ..) = parts(&good);
    let id = format!("JTI={}", claims["jti"].as_str().unwrap());
    assert_eq!(told["extra"]["authentication.kubernetes.io/credential-id"], json!([id]));

    // kubectl runs the plugin: a PIN and a signature each.
    for (holder, issuer, name) in [(&jane, JANE, "hw:jane"), (&john, JOHN, "hw:john")] {
        let before = holder.store.calls("C_Sign").len();
        let plugin = ["--as=jwt", "--issuer", issuer, "--audience=test"];
        let outcome = holder.kubectl(&plugin).arguments(&["auth", "whoami", "-o", "json"]).run();
        assert_eq!(user(&outcome)["username"], name);
        assert_eq!(holder.store.calls("C_Sign").len(), before + 1);
    }

    // What isn't jane's, or not now.
    let short = raw(&jane, &["--issuer", JANE, "--duration=5s"]);
    let now = claims["iat"].as_i64().unwrap();
    for (what, token) in [
        ("another's key", raw(&john, &["--issuer", JANE])),
        ("another's key with the id of hers", forged(&good, Kind::Authority, "", &[])),
        ("another issuer", raw(&jane, &["--issuer", "https://keys.example/joan"])),
        ("her key as john's", raw(&jane, &["--issuer", JOHN])),
        ("another audience", raw(&jane, &["--issuer", JANE, "--audience=other"])),
        ("a longer life than the rule's", raw(&jane, &["--issuer", JANE, "--duration=11m"])),
        ("not before", forged(&good, Kind::P256, "nbf", &[("nbf", now + 3600)])),
        (
            "issued in a year",
            forged(&good, Kind::P256, "nbf", &[("iat", now + YEAR), ("exp", now + YEAR + 540)]),
        ),
        ("an end that the rule doesn't see", forged(&good, Kind::P256, "", &[("Exp", now + YEAR)])),
        (
            "a beginning that the rule doesn't see",
            forged(
                &good,
                Kind::P256,
                "",
                &[("exp", now + YEAR), ("nbf", now + YEAR), ("nBF", now)],
            ),
        ),
        ("a changed claim", {
            let (_, signature) = good.rsplit_once('.').unwrap();
            let changed = forged(&good, Kind::P256, "jti", &[]);
            format!("{}.{signature}", changed.rsplit_once('.').unwrap().0)
        }),
    ] {
        let outcome = bearer(&token);
        assert!(outcome.stderr.contains("Unauthorized"), "{what}: {outcome:?}");
    }
    let end = parts(&short).1["exp"].as_i64().unwrap();
    wait_until("its end", || OffsetDateTime::now_utc().unix_timestamp() > end);
    let outcome = bearer(&short);
    assert!(outcome.stderr.contains("Unauthorized"), "expired: {outcome:?}");
    // The control: what forged makes with her key is taken.
    assert_eq!(user(&bearer(&forged(&good, Kind::P256, "", &[])))["username"], "hw:jane");
}
