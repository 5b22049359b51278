//! What a script of `scripts/tokens` sets up, held open for a test: the program runs with its
//! variables and in its namespaces, from a directory like every other test's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ChildStdin;

use rustix::event::{PollFd, PollFlags, poll};

use crate::enroll::{issue_with_chain, subject_of};
use crate::enroll_cluster::Newcomer;
use crate::fixture::*;
use crate::service_accounts::assert_signs;
use crate::short_lived::parts;
use crate::short_lived::plugin;
use crate::short_lived::structured::Trusted;

/// Printed when everything is set up: the holder's process number and its environment. The holder
/// stays until its standard input ends.
const HOLD: &str = "echo $$; env -0; printf '\\0'; exec cat >/dev/null";

/// A key and its certificate, for a script to put on the token that it makes.
#[derive(Clone)]
pub(crate) struct Pair {
    /// CKA_ID in hex, as the tools take it.
    id: &'static str,
    kind: Kind,
    certificate: Vec<u8>,
    always_authenticate: bool,
}

impl Pair {
    pub(crate) fn new(id: &'static str, kind: Kind) -> Self {
        Self { id, kind, certificate: key(kind).certificate.clone(), always_authenticate: false }
    }

    /// With every right in the tests' cluster.
    pub(crate) fn administrator(id: &'static str, kind: Kind) -> Self {
        Self::certified(id, kind, cluster().issue(kind, ADMINISTRATOR))
    }

    pub(crate) fn certified(id: &'static str, kind: Kind, certificate: Vec<u8>) -> Self {
        Self { certificate, ..Self::new(id, kind) }
    }

    pub(crate) fn always_authenticate(self) -> Self {
        Self { always_authenticate: true, ..self }
    }
}

/// A directory for a script that makes its token of what stands in `objects`.
fn directory_with(pairs: impl IntoIterator<Item = Pair>) -> Store {
    let directory = tempfile::tempdir().unwrap();
    let objects = directory.path().join("objects");
    fs::create_dir(&objects).unwrap();
    for pair in pairs {
        let at = |ending| objects.join(format!("{}.{ending}", pair.id));
        fs::copy(key(pair.kind).private_pem(), at("key")).unwrap();
        fs::write(at("crt"), &pair.certificate).unwrap();
        if pair.always_authenticate {
            fs::write(at("always"), "").unwrap();
        }
    }
    Store { directory, tokens: Vec::new() }
}

/// A running script; what it started ends with the value.
pub(crate) struct Environment {
    /// The directory that the script was given; it holds SoftHSM's tokens if it holds any.
    pub(crate) store: Store,
    holder: Child,
    /// Taken to let the holder go.
    held: Option<ChildStdin>,
    entered: Vec<String>,
    variables: Vec<(OsString, OsString)>,
}

/// What a signature is asked for where any will do.
pub(crate) fn ecdsa() -> Options {
    Options::hash(Hash::Sha256)
}

impl Environment {
    /// A script that makes a token of these pairs, with variables and namespaces as [`Environment::with`].
    pub(crate) fn holding(
        script: &str,
        pairs: impl IntoIterator<Item = Pair>,
        variables: &[(&str, &str)],
        namespaces: &[&str],
    ) -> Self {
        let store = directory_with(pairs);
        let directory = store.directory.path().to_str().unwrap().to_owned();
        Self::with(variables, script, &[&directory], namespaces, store)
    }

    /// The token of this label, by the library that a variable of the script's names.
    pub(crate) fn token(
        &self,
        library: &str,
        label: &str,
        variables: &'static [&'static str],
    ) -> Token<'_> {
        let configuration = Configuration::default()
            .with("pathLib", self.variable(library))
            .with("tokenLabel", label);
        Token { environment: self, variables, configuration }
    }

    /// Runs `scripts/tokens/NAME ARGUMENTS…` around a holder. `namespaces` are nsenter's options
    /// for what the script makes as root.
    pub(crate) fn new(script: &str, arguments: &[&str], namespaces: &[&str], store: Store) -> Self {
        Self::with(&[], script, arguments, namespaces, store)
    }

    /// The same with variables for the script.
    pub(crate) fn with(
        variables: &[(&str, &str)],
        script: &str,
        arguments: &[&str],
        namespaces: &[&str],
        store: Store,
    ) -> Self {
        let script = at_root("scripts/tokens").join(script);
        let mut holder = Command::new(&script)
            .args(arguments)
            .args(["--", "sh", "-c", HOLD])
            .env("TOKEN_PIN", PIN)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held = holder.stdin.take();
        let output = holder.stdout.as_mut().unwrap();
        let (mut told, mut some) = (Vec::new(), [0; 4096]);
        // It may have something to build.
        let deadline = Instant::now() + 6 * PATIENCE;
        while !told.ends_with(b"\0\0") {
            let left = deadline.saturating_duration_since(Instant::now()).try_into().unwrap();
            let mut waiting = [PollFd::new(output, PollFlags::IN)];
            let is_there = poll(&mut waiting, Some(&left)).unwrap() > 0;
            let length = if is_there { output.read(&mut some).unwrap() } else { 0 };
            if length == 0 {
                let _ = holder.kill();
                panic!("{} did not get as far", script.display());
            }
            told.extend(&some[..length]);
        }
        let end = told.iter().position(|byte| *byte == b'\n').unwrap();
        let pid = std::str::from_utf8(&told[..end]).unwrap();
        let mut entered = Vec::new();
        if rustix::process::geteuid().is_root() && !namespaces.is_empty() {
            entered.extend(["--target", pid].map(str::to_owned));
            entered.extend(namespaces.iter().map(|option| (*option).to_owned()));
        }
        let variables = told[end + 1..]
            .split(|byte| *byte == 0)
            .filter_map(|line| {
                let equals = line.iter().position(|byte| *byte == b'=')?;
                let [name, value] = [&line[..equals], &line[equals + 1..]];
                Some((OsStr::from_bytes(name).into(), OsStr::from_bytes(value).into()))
            })
            .collect();
        Self { store, holder, held, entered, variables }
    }

    /// A variable that the script sets.
    pub(crate) fn variable(&self, name: &str) -> &str {
        let variable = self.variables.iter().find(|(known, _)| known == name);
        let (_, value) = variable.unwrap_or_else(|| panic!("the script sets no {name}"));
        value.to_str().unwrap()
    }

    /// The same program with these variables of the script's and in its namespaces.
    pub(crate) fn enter(&self, invocation: Invocation, variables: &[&str]) -> Invocation {
        let invocation = variables
            .iter()
            .fold(invocation, |invocation, name| invocation.variable(name, self.variable(name)));
        if self.entered.is_empty() {
            invocation
        } else {
            invocation.through("nsenter", &self.entered)
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        drop(self.held.take());
        wait_for("the script's end", || self.holder.try_wait().unwrap());
    }
}

/// A token in an environment, as a kubeconfig names it.
pub(crate) struct Token<'e> {
    pub(crate) environment: &'e Environment,
    /// Those of the script's that the module needs.
    pub(crate) variables: &'static [&'static str],
    /// Without objectId and PIN.
    pub(crate) configuration: Configuration,
}

impl Token<'_> {
    /// With an objectId, and with `pinSource` naming a variable that holds the PIN.
    pub(crate) fn configuration(&self, id: &str) -> Configuration {
        self.configuration.clone().with("objectId", id).with("pinSource", "env:TOKEN_PIN")
    }

    pub(crate) fn ask(&self, request: &Value) -> Invocation {
        self.environment.enter(self.environment.store.ask(request), self.variables)
    }

    pub(crate) fn certificate(&self, id: &str) -> Invocation {
        self.ask(&certificate_request(&self.configuration(id)))
    }

    pub(crate) fn sign(&self, id: &str, options: &Options, digest: &[u8]) -> Invocation {
        self.ask(&sign_request(&self.configuration(id), options, digest))
    }

    /// `list` or `check` with these options; they find the library and the token by themselves.
    pub(crate) fn command(&self, arguments: &[&str]) -> Invocation {
        self.environment.enter(self.environment.store.with_pin(arguments), self.variables)
    }

    /// `run -- kubectl get`, which must get what it asks for with the key under this objectId.
    #[track_caller]
    pub(crate) fn assert_kubectl_gets(&self, id: &str) {
        let command = ["--", "kubectl", "get", "namespace", "default", "-o", "name"];
        let store = &self.environment.store;
        let invocation = cluster().run(store, &self.configuration(id), &command);
        let outcome = self.environment.enter(invocation, self.variables).run();
        assert_eq!(outcome.printed(), "namespace/default\n");
    }

    /// `jwks` for the key under this objectId.
    pub(crate) fn jwks(&self, id: &str) -> Invocation {
        self.named(id, "jwks")
    }

    /// This command of the program, with the key under this objectId named by a context.
    fn named(&self, id: &str, command: &str) -> Invocation {
        let store = &self.environment.store;
        let invocation = cluster().command(store, &self.configuration(id), command);
        self.environment.enter(invocation, self.variables)
    }

    /// Demands that stock kubectl is who the issuer is, by a token that the key under this objectId signs with this
    /// algorithm.
    #[track_caller]
    pub(crate) fn assert_signs_tokens(
        &self,
        trusted: &Trusted,
        id: &str,
        issuer: &str,
        algorithm: &str,
    ) {
        let jwt = ["--as=jwt", "--issuer", issuer, "--audience=test"];
        let raw = self.named(id, "credential").arguments(&jwt);
        let token = raw.argument("--output=raw").run().printed();
        assert_eq!(parts(token.trim()).0["alg"], algorithm);
        trusted.wait(token.trim());
        let (_, name) = issuer.rsplit_once('/').unwrap();
        assert_eq!(self.whoami(id, &jwt), format!("hw:{name}"));
    }

    /// Demands that stock kubectl is a service account, by a token that is asked for with the key under this objectId.
    #[track_caller]
    pub(crate) fn assert_gets_an_accounts_token(&self, id: &str) {
        let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: tokens}";
        cluster().administrate(&["apply", "-f", "-"], account);
        let plugin = ["--as=token", "--service-account=default/tokens"];
        assert_eq!(self.whoami(id, &plugin), "system:serviceaccount:default:tokens");
    }

    /// Whom the cluster takes stock kubectl for, with `credential` as its plugin.
    #[track_caller]
    fn whoami(&self, id: &str, plugin: &[&str]) -> String {
        let store = &self.environment.store;
        let invocation = cluster().kubectl(store, &self.configuration(id));
        let [named, config] = ["kubeconfig", "plugin"].map(|name| store.path(name));
        let own = ["credential", &format!("--kubeconfig={}", named.display()), "--context=test"];
        let user = plugin::user("client.authentication.k8s.io/v1", &[&own, plugin].concat());
        fs::write(&config, kubeconfig("test", &cluster().entry(), &user).to_string()).unwrap();
        let invocation = invocation
            .variable("KUBECONFIG", config)
            .arguments(&["auth", "whoami", "-o"])
            .argument("jsonpath={.status.userInfo.username}");
        self.environment.enter(invocation, self.variables).run().silently().printed()
    }

    /// Demands that so many requests that are made at once are all answered.
    #[track_caller]
    pub(crate) fn assert_all_answer(&self, id: &str, kind: Kind, count: usize) {
        self.assert_all_answer_with(id, key(kind), count);
    }

    /// The same with a key that was made on the token.
    #[track_caller]
    pub(crate) fn assert_all_answer_with(&self, id: &str, key: &Key, count: usize) {
        let (options, scheme) = one_scheme(key.kind);
        let running: Vec<_> =
            (0..count).map(|_| self.sign(id, &options, &sample(32)).start(None)).collect();
        for run in running {
            assert_verifies(key, scheme, &sample(32), &run.finish().signature());
        }
    }

    /// Demands that an API server's tokens are signed with the key under this objectId.
    #[track_caller]
    pub(crate) fn assert_signs_for_api_servers(&self, id: &str, algorithm: &str) {
        let store = &self.environment.store;
        let socket = store.path("run/api.sock");
        let [at, state] =
            [&socket, &store.path("keys.json")].map(|path| path.display().to_string());
        let command = self.command(&["service-account-signer", "--socket", &at, "--state", &state]);
        let token = self.configuration.options();
        let command = token.iter().fold(command, |command, option| command.argument(option));
        let command = command.arguments(&["--pin-source=env:TOKEN_PIN", "--key", id]);
        assert_signs(store, command, &socket, algorithm);
    }

    /// Demands what `offers` says of every scheme that TLS has for a key of this kind: a signature
    /// that openssl accepts, and who padded it, or the refusal.
    #[track_caller]
    pub(crate) fn assert_signs(&self, id: &str, kind: Kind, offers: impl Fn(Scheme) -> Offer) {
        self.assert_signs_with(id, key(kind), offers);
    }

    /// The same with a key that was made on the token.
    #[track_caller]
    pub(crate) fn assert_signs_with(&self, id: &str, key: &Key, offers: impl Fn(Scheme) -> Offer) {
        for (options, scheme, length) in schemes(key.kind) {
            let outcome = self
                .sign(id, &options, &sample(length))
                .variable("PKCS11_EXTERNAL_SIGNER_LOG", "debug")
                .run();
            let padding = match offers(scheme) {
                Offer::Made => "Tokens",
                Offer::PaddedHere => "Ours",
                Offer::Refused(fragments) => {
                    outcome.fails(8, fragments);
                    continue;
                }
            };
            assert_verifies(key, scheme, &sample(length), &outcome.signature());
            // The last way that was tried.
            let (_, tried) = outcome.stderr.rsplit_once("padding: ").unwrap();
            let told = &outcome.stderr;
            assert!(tried.starts_with(padding), "{scheme:?}, not {padding}:\n{told}");
        }
    }

    /// Demands that a certificate for an Ed25519 key, which this token can't hold, is refused a
    /// signature for want of the mechanism.
    #[track_caller]
    pub(crate) fn assert_offers_no_ed25519(&self) {
        let certificate = key(Kind::Ed25519).certificate_pem();
        let configuration = self
            .configuration("0x77")
            // Nor is anybody asked for a PIN.
            .without("pinSource")
            .with("certificateFile", certificate.to_str().unwrap());
        let request = sign_request(&configuration, &Options::not_hashed(), &sample(130));
        self.ask(&request).run().fails(8, &["offers no CKM_EDDSA"]);
    }
}

/// What a token does when it is asked for a signature under a scheme.
pub(crate) enum Offer {
    /// By the token's own mechanism for it.
    Made,
    /// By the token's bare RSA, around a block that was padded here.
    PaddedHere,
    /// Exit code 8, with these fragments.
    Refused(&'static [&'static str]),
}

/// A scheme of TLS 1.3 for such a key, on a digest of 32 bytes.
pub(crate) fn one_scheme(kind: Kind) -> (Options, Scheme) {
    let hash = Hash::Sha256;
    match kind {
        Kind::Rsa(_) => (Options::pss(hash, -1), Scheme::Pss { hash, salt: 32 }),
        _ => (Options::hash(hash), Scheme::Ecdsa),
    }
}

/// Every scheme that a client can ask for with such a key, and the length of what is signed.
fn schemes(kind: Kind) -> Vec<(Options, Scheme, usize)> {
    let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    match kind {
        Kind::Ed25519 => vec![(Options::not_hashed(), Scheme::Ed25519, 130)],
        Kind::Rsa(_) | Kind::OtherRsa => {
            let pss = Hash::OF_PSS.map(|hash| {
                (Options::pss(hash, -1), Scheme::Pss { hash, salt: hash.length() }, hash.length())
            });
            let other_salt = Scheme::Pss { hash: Hash::Sha256, salt: 20 };
            let pkcs1 = [Hash::Md5Sha1, Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512]
                .map(|hash| (Options::hash(hash), Scheme::Pkcs1(hash), hash.length()));
            let mut schemes = Vec::from(pss);
            schemes.push((Options::pss(Hash::Sha256, 20), other_salt, 32));
            schemes.extend(pkcs1);
            schemes
        }
        _ => hashes.map(|hash| (Options::hash(hash), Scheme::Ecdsa, hash.length())).into(),
    }
}

impl Token<'_> {
    /// A key of each kind, its request, the certificate that openssl issues, and a signature.
    pub(crate) fn assert_enrolls(&self, library: &str, label: &str, kinds: &[&str]) {
        let options = [
            format!("--module={}", self.environment.variable(library)),
            format!("--token-label={label}"),
            "--pin-source=env:TOKEN_PIN".to_owned(),
        ];
        let options = options.each_ref().map(String::as_str);
        let run = |command: &str, more: &[&str]| {
            self.command(&[&[command], &options[..], more].concat()).run().printed()
        };
        for kind in kinds {
            let directory = self.environment.store.directory.path();
            let csr = directory.join(format!("{kind}.csr"));
            let csr = csr.to_str().unwrap();
            let user = format!("--user={kind}");
            let made = run("enroll", &[&user, "--key", kind, "--csr", csr]);
            assert!(made.contains(", made on token "), "{made}");
            assert_eq!(subject_of(csr), format!("subject=CN = {kind}"));
            let again = run("enroll", &[&user, "--csr", csr]);
            assert!(!again.contains(", made on token "), "{again}");
            let fingerprint = made.lines().find(|line| line.contains(" SHA-256 ")).unwrap();
            assert!(again.contains(fingerprint), "{again}");
            let installed = run("enroll", &["--certificate", &issue_with_chain(csr)]);
            let intermediate = "of the CA CN=intermediate, on the token, too";
            assert_eq!(step_of(&installed, "certificate"), intermediate);
            let id = made.split("objectId ").nth(1).and_then(|it| it.split(',').next()).unwrap();
            let checked = run("check", &["--object-id", id]);
            assert!(checked.contains("signed and verified"), "{checked}");
        }
    }

    /// Jane, whose key is to be on the only token of this library.
    pub(crate) fn newcomer(&self, library: &str) -> Newcomer<'_> {
        let module = format!("--module={}", self.environment.variable(library));
        Newcomer::jane(vec![module], |invocation| {
            self.environment.enter(invocation.variable("TOKEN_PIN", PIN), self.variables)
        })
    }
}
