//! Every call that the program makes, failing with every return value of the standard, at its
//! first, second and last time: thousands of processes, none of which may crash, hang, say
//! less than which call failed and how, or send a PIN twice.
//!
//! Calls that two tasks make alike fail in one of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::ecdsa::{Signature, VerifyingKey};

use self::codes::Code;
use self::connection::{Heard, Server};
use crate::enroll::enroll_through;
use crate::fixture::*;

pub(crate) mod codes;
mod connection;

/// No return value makes the program wait until somebody's limit. Without it takes less than a hundredth.
const BOUND: Duration = Duration::from_secs(60);

/// What the calls of an enrollment that don't write fail with.
const IN_PASSING: [&str; 4] = [
    "CKR_ATTRIBUTE_TYPE_INVALID",
    "CKR_DEVICE_REMOVED",
    "CKR_GENERAL_ERROR",
    "CKR_SESSION_HANDLE_INVALID",
];

/// Where not the failed call is told, but what comes of it: the call, what it returned, and what is told instead.
const CONSEQUENCES: &[(&str, &str, &str)] = &[
    // Objects without an attribute are all of them ordinary; a certificate without a value isn't.
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_SENSITIVE", "it is empty"),
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_TYPE_INVALID", "it is empty"),
    // A key without a public key or a label, and a certificate that isn't read back.
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_TYPE_INVALID", "no private key with the public key"),
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_TYPE_INVALID", "not for \"\", as the key is labelled"),
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_TYPE_INVALID", "has not kept the certificate"),
    ("C_GetAttributeValue", "CKR_ATTRIBUTE_TYPE_INVALID", "shows no public key"),
    // The slot is empty then, as reported by the search for the token.
    ("C_GetTokenInfo", "CKR_TOKEN_NOT_PRESENT", "no token with"),
    // It was not initialised, and there was no login: the library has lied.
    ("C_Initialize", "CKR_CRYPTOKI_ALREADY_INITIALIZED", "CKR_CRYPTOKI_NOT_INITIALIZED"),
    ("C_Login", "CKR_USER_ALREADY_LOGGED_IN", "no private key"),
    ("C_Login", "CKR_USER_ALREADY_LOGGED_IN", "C_Sign: CKR_USER_NOT_LOGGED_IN"),
    // In words.
    ("C_Login", "CKR_PIN_EXPIRED", "must be changed"),
    ("C_Login", "CKR_PIN_LOCKED", "is locked"),
    // The PIN is given for the signature then, which SoftHSM doesn't expect of this key.
    ("C_SignInit", "CKR_USER_NOT_LOGGED_IN", "C_Login: CKR_OPERATION_NOT_INITIALIZED"),
    ("C_Sign", "CKR_USER_NOT_LOGGED_IN", "C_Login: CKR_OPERATION_NOT_INITIALIZED"),
];

/// What the program is asked for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Task {
    Certificate,
    /// Of `enroll`, onto a token with the key.
    CertificateWritten,
    /// Of a token that is known by its label.
    CertificateByLabel,
    /// Of `enroll`, in place of another one of the key.
    CertificateReplaced,
    /// A certificate of a token that isn't there: that is what has to be told.
    MissingToken,
    /// By `enroll`, on a bare token.
    NewKey,
    /// With a command that makes one connection.
    Run,
    Signature,
    /// With a key that wants its PIN for every signature.
    SignatureWithPin,
}

const TASKS: [Task; 9] = [
    Task::Certificate,
    Task::CertificateByLabel,
    Task::CertificateReplaced,
    Task::CertificateWritten,
    Task::MissingToken,
    Task::NewKey,
    Task::Run,
    Task::Signature,
    Task::SignatureWithPin,
];

/// A label that no token has, and what is reported.
const MISSING: (&str, &str) = ("missing", "no token with tokenLabel \"missing\"");

impl Task {
    /// The exit code, when nothing goes wrong.
    fn exit_code(self) -> i32 {
        match self {
            Self::MissingToken => 5,
            _ => 0,
        }
    }
}

/// One call that fails.
struct Case {
    task: Task,
    function: String,
    visit: usize,
    code: Code,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, function, visit, code } = self;
        write!(f, "{task:?}, {function}#{visit}: {}", code.name)
    }
}

/// The tokens of one thread.
struct Bench {
    plain: Store,
    /// Its key wants its PIN for every signature.
    strict: Store,
    /// Those that a task changes, with what they were made with.
    bare: Pristine,
    keyed: Pristine,
    certified: Pristine,
}

/// A token that is put back to how it was made.
struct Pristine {
    store: Store,
}

impl Pristine {
    fn new(store: Store) -> Self {
        let pristine = Self { store };
        copy(&pristine.tokens(), &pristine.kept());
        pristine
    }

    fn put_back(&self) {
        fs::remove_dir_all(self.tokens()).unwrap();
        copy(&self.kept(), &self.tokens());
    }

    fn tokens(&self) -> PathBuf {
        self.store.path("tokens")
    }

    fn kept(&self) -> PathBuf {
        self.store.path("kept")
    }
}

/// A directory with those below it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

impl Bench {
    fn new(server: &Server) -> Self {
        let [private, certificate] = Object::pair(key(Kind::P256), &[1]);
        let strict = [private.clone().always_authenticate(), certificate.clone()];
        let keyed = [
            private.clone().labelled("test p256"),
            Object::public_key(key(Kind::P256), &[1]).labelled("test p256"),
        ];
        let old = issued(Kind::P256, "/CN=test p256", 30, "clientAuth");
        let certified = keyed.clone().into_iter().chain([Object::issued(old, &[1])]);
        let bench = Self {
            plain: token_with([private, certificate]),
            strict: token_with(strict),
            bare: Pristine::new(token_with([])),
            certified: Pristine::new(token_with(certified)),
            keyed: Pristine::new(token_with(keyed)),
        };
        bench.write_kubeconfig(server);
        bench
    }

    fn store(&self, task: Task) -> &Store {
        match task {
            Task::SignatureWithPin => &self.strict,
            Task::NewKey => &self.bare.store,
            Task::CertificateReplaced => &self.certified.store,
            Task::CertificateWritten => &self.keyed.store,
            _ => &self.plain,
        }
    }

    fn configuration(&self, task: Task) -> Configuration {
        let store = self.store(task);
        let configuration = store.configuration_with_pin_source();
        match task {
            Task::CertificateByLabel => store
                .faulty(configuration)
                .without("slotId")
                .with("tokenLabel", &store.tokens[0].label),
            Task::MissingToken => {
                store.faulty(configuration).without("slotId").with("tokenLabel", MISSING.0)
            }
            _ => store.faulty(configuration),
        }
    }

    fn write_kubeconfig(&self, server: &Server) {
        let cluster = json!({
            "server": format!("https://{}", server.address),
            "certificate-authority-data": server.authority,
        });
        let user = provider(self.configuration(Task::Run));
        fs::write(self.plain.path("kubeconfig"), kubeconfig("test", &cluster, &user).to_string())
            .unwrap();
    }

    /// Does the task while this goes wrong.
    fn perform(&self, task: Task, faults: &str) -> Performance {
        let store = self.store(task);
        let directory = store.directory.path();
        // Neither calls nor refusals of another case count.
        for left in ["calls", "runtime", "state", "data"].map(|name| directory.join(name)) {
            let _ = fs::remove_file(&left);
            let _ = fs::remove_dir_all(&left);
        }
        let configuration = self.configuration(task);
        let (outcome, heard) = match task {
            Task::Certificate | Task::CertificateByLabel | Task::MissingToken => {
                (store.certificate_with(&configuration).suffering(store, faults).run(), None)
            }
            Task::Signature | Task::SignatureWithPin => {
                let options = Options::hash(Hash::Sha256);
                let request = sign_request(&configuration, &options, &sample(32));
                (store.ask(&request).suffering(store, faults).run(), None)
            }
            Task::NewKey => {
                (self.enroll(&self.bare, &["--user=jane", "--csr=-"], faults).run(), None)
            }
            Task::CertificateReplaced => {
                let options = [&certificate_option(), "--replace"];
                let mut terminal = self.enroll(&self.certified, &options, faults).at_terminal();
                terminal.expect("Type yes").type_line("yes");
                (terminal.finish().0, None)
            }
            Task::CertificateWritten => {
                (self.enroll(&self.keyed, &[&certificate_option()], faults).run(), None)
            }
            Task::Run => self.run(faults),
        };
        Performance {
            outcome,
            heard,
            calls: fs::read_to_string(directory.join("calls")).unwrap_or_default(),
        }
    }

    fn enroll(&self, pristine: &Pristine, arguments: &[&str], faults: &str) -> Invocation {
        pristine.put_back();
        let store = &pristine.store;
        let module = store.faulty_module();
        enroll_through(store, &module, arguments).suffering(store, faults)
    }

    /// The command shows its kubeconfig and waits for its input's end; the connection is made here.
    fn run(&self, faults: &str) -> (Outcome, Option<Heard>) {
        let (input, end) = io::pipe().unwrap();
        let mut running = Invocation::new(self.plain.directory.path())
            .variable("KUBECONFIG", self.plain.directory.path().join("kubeconfig"))
            .variable("TOKEN_PIN", PIN)
            .arguments(&["run", "--", "sh", "-c"])
            .argument("cat \"$KUBECONFIG\"; echo; read -r end || :")
            .input_file(File::from(OwnedFd::from(input)))
            .suffering(&self.plain, faults)
            .start(None);
        let kubeconfig = running.line_or_end();
        let heard = kubeconfig.ok().map(|kubeconfig| connection::connect(&kubeconfig));
        drop(end);
        (running.finish(), heard)
    }
}

fn certificate_option() -> String {
    let certificate = key(Kind::P256).certificate_pem();
    format!("--certificate={}", certificate.display())
}

/// What came of a task.
struct Performance {
    outcome: Outcome,
    /// By the command of a run; `None` where none was started.
    heard: Option<Heard>,
    /// Every call: `C_Sign 0x0`.
    calls: String,
}

impl Performance {
    /// What is wrong with it.
    fn judge(&self, case: &Case) -> Result<(), String> {
        let outcome = &self.outcome;
        let told = &outcome.stderr;
        let ensure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
        ensure(outcome.status.signal().is_none(), "a signal")?;
        ensure(!["panic", "internal error"].iter().any(|it| told.contains(it)), "a bug")?;
        ensure(outcome.took < BOUND, "too slow")?;
        self.judge_logins(case)?;
        let code = outcome.status.code().unwrap_or_default();
        let is_started = self.heard.is_some();
        if code == 0 {
            return match (case.task, &self.heard) {
                (Task::Run, Some(Heard::Greeting)) => {
                    ensure(!told.contains("error:"), "an idle error")
                }
                (Task::Run, _) => self.judge_message(case),
                _ => self.judge_answer(case.task),
            };
        }
        ensure(!is_started, "a run that lost its command's exit code")?;
        ensure((2..=9).contains(&code), "an undocumented exit code")?;
        let output = String::from_utf8_lossy(&outcome.stdout);
        ensure(has_steps_alone(&output), "something on standard output but steps that are done")?;
        if case.task == Task::MissingToken {
            // What it asks of the slots and the library only adds to that.
            ensure(code == case.task.exit_code(), "another exit code")?;
            return ensure(self.is_one_error() && told.contains(MISSING.1), "another error");
        }
        self.judge_message(case)
    }

    /// One document, with what was asked for.
    fn judge_answer(&self, task: Task) -> Result<(), String> {
        let text = String::from_utf8_lossy(&self.outcome.stdout);
        let end = match task {
            Task::NewKey => Some("-----END CERTIFICATE REQUEST-----\n"),
            Task::CertificateReplaced | Task::CertificateWritten => Some("\n"),
            _ => None,
        };
        if let Some(end) = end {
            return match text.ends_with(end) {
                true => Ok(()),
                false => Err(format!("a wrong answer: {text}")),
            };
        }
        let document = text.strip_suffix('\n').filter(|it| !it.contains('\n'));
        let Some(Ok(answer)) = document.map(serde_json::from_str::<Value>) else {
            return Err(format!("no document: {text}"));
        };
        let certificate = &key(Kind::P256).certificate;
        let is_right = match (task, answer["kind"].as_str()) {
            (Task::Certificate | Task::CertificateByLabel, Some("CertificateResponse")) => {
                self.outcome.certificate() == *certificate
            }
            (Task::Signature | Task::SignatureWithPin, Some("SignResponse")) => {
                let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
                let point = &parsed.public_key().subject_public_key.data;
                let signature = Signature::from_der(&self.outcome.signature());
                VerifyingKey::from_sec1_bytes(point)
                    .unwrap()
                    .verify_prehash(&sample(32), &signature.map_err(|error| error.to_string())?)
                    .is_ok()
            }
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("a wrong answer: {text}")) }
    }

    /// One error, with its help, that names the call and what it returned.
    fn judge_message(&self, case: &Case) -> Result<(), String> {
        let told = match &self.heard {
            Some(Heard::Answer(told)) => told,
            _ => &self.outcome.stderr,
        };
        if !self.is_one_error() {
            return Err("not one error with one help".to_owned());
        }
        let is_consequence = CONSEQUENCES.iter().any(|(function, code, text)| {
            *function == case.function && *code == case.code.name && told.contains(text)
        });
        // The search that was to be ended is on, and the next call says so.
        let is_search =
            case.function == "C_FindObjectsFinal" && told.contains("CKR_OPERATION_ACTIVE");
        let call = format!("{}: {}", case.function, case.code.name);
        if is_consequence || is_search || told.contains(&call) {
            Ok(())
        } else {
            Err("another call, or none".to_owned())
        }
    }

    /// On standard error, or in what the command of a run was told.
    fn is_one_error(&self) -> bool {
        let count = usize::from(!matches!(self.heard, Some(Heard::Answer(_))));
        ["error: ", "help: "].iter().all(|word| self.outcome.stderr.matches(word).count() == count)
    }

    /// One C_Login, and none after a refusal. The PIN that the token has accepted may be sent again:
    /// for a key that wants it each time, and after a reopening.
    fn judge_logins(&self, case: &Case) -> Result<(), String> {
        let logins: Vec<&str> =
            self.calls.lines().filter_map(|call| call.strip_prefix("C_Login ")).collect();
        let mut most = 1;
        most += usize::from(matches!(case.task, Task::Run));
        most += usize::from(
            case.task == Task::SignatureWithPin || case.code.name == "CKR_USER_NOT_LOGGED_IN",
        );
        if logins.len() > most {
            return Err(format!("{} logins", logins.len()));
        }
        // CKR_PIN_INCORRECT to CKR_PIN_LOCKED.
        let refusals = ["0xa0", "0xa1", "0xa2", "0xa3", "0xa4"];
        let mut followed = logins.iter().rev().skip(1);
        match followed.find(|login| refusals.contains(login)) {
            None => Ok(()),
            Some(refused) => Err(format!("a login after {refused}")),
        }
    }
}

/// Which calls the task makes when nothing goes wrong, and how often each.
fn calls(bench: &Bench, task: Task) -> BTreeMap<String, usize> {
    let performance = bench.perform(task, "");
    let outcome = &performance.outcome;
    assert!(outcome.status.code() == Some(task.exit_code()), "{task:?}: {outcome:?}");
    assert!(matches!(performance.heard, None | Some(Heard::Greeting)), "{outcome:?}");
    let mut calls = BTreeMap::new();
    for call in performance.calls.lines() {
        let (function, _) = call.split_once(' ').unwrap();
        *calls.entry(function.to_owned()).or_default() += 1;
    }
    calls
}

/// The codes that a call is tried with: those that make a difference each time, all others the
/// first, the second and the last time.
fn codes_of(task: Task, function: &str, visit: usize, count: usize) -> Vec<Code> {
    let is_edge = visit <= 2 || visit == count;
    let tried = |code: &Code| is_edge || codes::TOLD_APART.contains(code);
    let all = codes::ALL.iter().copied();
    // The rest is that of Task::Certificate, Task::CertificateByLabel or Task::CertificateWritten.
    let is_other_way = match task {
        Task::CertificateByLabel => function == "C_GetTokenInfo",
        Task::CertificateReplaced => function == "C_DestroyObject",
        Task::MissingToken => ["C_GetInfo", "C_GetSlotInfo"].contains(&function),
        _ => true,
    };
    if !is_other_way {
        return Vec::new();
    }
    let is_enrollment = matches!(task, Task::NewKey | Task::CertificateWritten);
    if is_enrollment && !["C_CreateObject", "C_GenerateKeyPair"].contains(&function) {
        // The other calls are those of a request; many more of them.
        return all.filter(|code| IN_PASSING.contains(&code.name)).collect();
    }
    all.filter(tried).collect()
}

fn cases(bench: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    for task in TASKS {
        for (function, count) in calls(bench, task) {
            for visit in 1..=count {
                for code in codes_of(task, &function, visit, count) {
                    cases.push(Case { task, function: function.clone(), visit, code });
                }
            }
        }
    }
    cases
}

#[test]
fn whatever_a_call_returns_the_answer_is_right_or_the_call_is_named() {
    let began = Instant::now();
    let server = Server::start(&key(Kind::P256).certificate);
    let cases = cases(&Bench::new(&server));
    let is_tried = |function: &str| cases.iter().any(|case| case.function == function);
    for function in ["C_CreateObject", "C_DestroyObject", "C_GenerateKeyPair"] {
        assert!(is_tried(function), "{function} is not called");
    }
    // What is on a token is never changed.
    assert!(!is_tried("C_SetAttributeValue"));
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(2, |count| count.get() + 1);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let bench = Bench::new(&server);
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Case { function, visit, code: Code { value, .. }, .. } = case;
                    let mut fault = format!("{function}#{visit}:return={value}");
                    // The first says only that the length has to be asked for.
                    if function == "C_GetAttributeValue" {
                        fault += &format!(",{function}#{}:return={value}", visit + 1);
                    }
                    let performance = bench.perform(case.task, &fault);
                    if let Err(what) = performance.judge(case) {
                        let outcome = performance.outcome;
                        let text = format!(
                            "{case}: {what}: {}, {}, {:?}",
                            outcome.status,
                            outcome.stderr.trim_end(),
                            performance.heard,
                        );
                        failed.lock().unwrap().push(text);
                    }
                }
            });
        }
    });
    let mut count = BTreeMap::<Task, usize>::new();
    for case in &cases {
        *count.entry(case.task).or_default() += 1;
    }
    // Past the test runner, which keeps a passing test's words to itself.
    let summary = format!(
        "matrix: {} failing calls in {} s: {count:?}\n",
        cases.len(),
        began.elapsed().as_secs(),
    );
    io::stderr().write_all(summary.as_bytes()).unwrap();
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), cases.len(), failed.join("\n"));
}
