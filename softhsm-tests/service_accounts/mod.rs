//! The signer of service account tokens: asked by a real API server, and by the client that is generated from the API's
//! proto file, which verifies each signature.

mod api_server;
mod faults;
mod rotation;
mod socket;

use crate::fixture::*;

/// A signer that runs, with a store of SoftHSM.
pub(crate) struct Signer {
    store: Store,
    running: Option<Running>,
    socket: PathBuf,
}

/// The client in Go.
fn client() -> &'static Path {
    static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| go_program("signer-client"));
    &CLIENT
}

/// The options that name the socket and the token; the PIN is in the variable TOKEN_PIN.
fn options(store: &Store) -> Vec<String> {
    let socket = store.path("run/api.sock");
    let state = store.path("keys.json");
    vec![
        "service-account-signer".to_owned(),
        format!("--socket={}", socket.display()),
        format!("--state={}", state.display()),
        format!("--token-label={}", store.tokens[0].label),
        "--pin-source=env:TOKEN_PIN".to_owned(),
    ]
}

impl Signer {
    /// A signer with these options behind those of the token.
    fn start(store: Store, more: &[&str]) -> Self {
        let invocation = Self::invocation(&store, softhsm_option(), more);
        Self::begin(store, invocation)
    }

    /// The same with faults in the library.
    fn suffering(store: Store, more: &[&str], faults: &str) -> Self {
        let module = store.faulty_module();
        let invocation = Self::invocation(&store, &module, more).suffering(&store, faults);
        Self::begin(store, invocation)
    }

    fn invocation(store: &Store, module: &str, more: &[&str]) -> Invocation {
        let options = options(store);
        let options: Vec<_> = options.iter().map(String::as_str).chain([module]).collect();
        store.with_pin(&options).arguments(more)
    }

    fn begin(store: Store, invocation: Invocation) -> Self {
        let mut running = invocation.start(None);
        running.wait_for_error("serves API servers at");
        let socket = store.path("run/api.sock");
        Self { store, running: Some(running), socket }
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().unwrap()
    }

    fn pid(&mut self) -> Pid {
        self.running().pid()
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// What the client prints, asked with these words; the socket follows the first one.
    fn ask(&self, words: &[&str]) -> Outcome {
        let socket = self.socket.to_str().unwrap();
        let (first, rest) = words.split_first().unwrap();
        let client = Invocation::new(self.store.directory.path()).program(client());
        client.arguments(&[first, socket]).arguments(rest).run()
    }

    /// A token with these claims, whose signature was verified.
    fn token(&self, claims: &str) -> SignedToken {
        SignedToken::parse(self.ask(&["sign", claims]).succeeded().shown().trim())
    }

    /// `status --json`.
    fn status(&self) -> Value {
        let socket = format!("--socket={}", self.socket.display());
        self.store.command(&["service-account-signer", "status", &socket, "--json"]).run().json()
    }

    /// `status` as a person reads it.
    fn told(&self) -> String {
        let socket = format!("--socket={}", self.socket.display());
        self.store.command(&["service-account-signer", "status", &socket]).run().printed()
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || Some(self.status()).filter(&condition))
    }

    /// Ends it by a signal, as systemd does.
    fn end(&mut self) -> Outcome {
        self.signal(Signal::TERM);
        self.running.take().unwrap().finish()
    }
}

/// Demands that a signer that is started like this makes tokens with this algorithm that verify, eight at once.
#[track_caller]
pub(crate) fn assert_signs(store: &Store, invocation: Invocation, socket: &Path, algorithm: &str) {
    let mut running = invocation.start(None);
    running.wait_for_error("serves API servers at");
    let asked = |words: &[&str]| {
        let client = Invocation::new(store.directory.path()).program(client());
        client.argument(words[0]).argument(socket.to_str().unwrap()).arguments(&words[1..]).run()
    };
    let token = SignedToken::parse(asked(&["sign", "{}"]).printed().trim());
    assert_eq!(token.header["alg"], algorithm);
    assert!(asked(&["load", "8", "100"]).printed().starts_with("100 ok, 0 failed"));
    kill_process(running.pid(), Signal::TERM).unwrap();
    assert_eq!(running.finish().status.code(), Some(0));
}

impl Drop for Signer {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            let _ = kill_process(running.pid(), Signal::KILL);
        }
    }
}

/// The parts of a token, decoded.
struct SignedToken {
    header: Value,
    claims: Value,
    text: String,
}

impl SignedToken {
    fn parse(text: &str) -> Self {
        let part = |part: &str| {
            let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
            serde_json::from_slice(&bytes).unwrap()
        };
        let parts: Vec<_> = text.split('.').collect();
        assert_eq!(parts.len(), 3, "{text}");
        Self { header: part(parts[0]), claims: part(parts[1]), text: text.to_owned() }
    }

    fn key(&self) -> &str {
        self.header["kid"].as_str().unwrap()
    }
}

/// The id that an API server gives a key in this PEM file; `kind` is `-pubin` for a public one.
fn key_id(kind: &str, pem: &Path) -> String {
    let script = "openssl pkey $1 -in \"$2\" -pubout -outform DER | openssl dgst -sha256 -binary | \
                  basenc --base64url --wrap=0 | tr -d =";
    printed(Command::new("sh").args(["-c", script, "sh", kind]).arg(pem))
}

/// A token with these keys without certificates, each with its public key, under the ids 1, 2 and so on.
fn token_of_keys(kinds: &[Kind]) -> Store {
    let objects = kinds.iter().zip(1..).flat_map(|(kind, id)| {
        [Object::key(key(*kind), &[id]), Object::public_key(key(*kind), &[id])]
    });
    token_with(objects)
}

/// An API server whose tokens this signer signs. It ends with the value.
struct SignedCluster(Cluster);

impl SignedCluster {
    fn of(signer: &Signer) -> Self {
        let cluster = Cluster::with_signer(&signer.socket);
        cluster.administrate(&["create", "serviceaccount", "web"], "");
        Self(cluster)
    }

    /// A token of the account web, as `kubectl create token` makes it.
    fn token(&self, options: &[&str]) -> SignedToken {
        let command = [&["create", "token", "web"], options].concat();
        SignedToken::parse(self.0.administrate(&command, "").trim())
    }

    /// `kubectl auth whoami` with this token.
    fn who_is(&self, store: &Store, token: &SignedToken) -> Outcome {
        let authority = self.0.directory().join("ca.pem");
        Invocation::new(store.directory.path())
            .program(kubectl())
            .arguments(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
            .arguments(&["--server", self.0.server(), "--token", &token.text])
            .arguments(&["--kubeconfig=/dev/null", "--certificate-authority"])
            .arguments(&[authority.to_str().unwrap()])
            .run()
    }

    /// The ids of the keys that the API server shows to others.
    fn shown_keys(&self) -> Vec<String> {
        let keys = self.0.administrate(&["get", "--raw", "/openid/v1/jwks"], "");
        let keys: Value = serde_json::from_str(&keys).unwrap();
        let keys = keys["keys"].as_array().unwrap().iter();
        keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for SignedCluster {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.0.end();
        }
    }
}
