//! `credential`: the usual clients with no prefix, the key in the token.

use crate::fixture::*;

mod addresses;
mod check;
mod clients;
mod counts;
mod endings;
mod helps;
mod k9s;
pub(crate) mod kills;
mod kubectl;
mod locked_down;
mod nests;
mod outdated;
mod pins;
mod refused;
mod renewed;
mod repeated;
mod requests;
mod strangers;
mod token_processes;
mod told;
mod upgrade;

/// A user whose kubeconfig was made by `kubeconfig --write`.
pub(crate) struct PlainUser {
    store: Store,
    /// Root where there is none.
    number: Option<u32>,
    /// The program.
    signer: PathBuf,
}

/// A process that sees this user's runtime directory.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// With its arguments.
    command: String,
    is_ours: bool,
}

/// Whether the process has asked for a connection.
fn has_socket(process: Pid) -> bool {
    open_files(process).iter().any(|it| it.to_string_lossy().starts_with("socket:"))
}

impl PlainUser {
    /// An administrator whose PIN comes from a variable.
    pub(crate) fn new(options: &[&str]) -> Self {
        Self::prompted(&[&["--pin-source=env:TOKEN_PIN"], options].concat())
    }

    /// One who enters the PIN.
    fn prompted(options: &[&str]) -> Self {
        Self::of(cluster().token(Kind::P256, ADMINISTRATOR), options)
    }

    fn of(store: Store, options: &[&str]) -> Self {
        Self::at(store, &cluster().entry(), options)
    }

    /// The same with another cluster.
    fn at(store: Store, entry: &Value, options: &[&str]) -> Self {
        let user = Self { store, number: None, signer: PROGRAM.into() };
        user.written(entry, options)
    }

    /// With the kubeconfig that `kubeconfig --write` makes.
    fn written(self, entry: &Value, options: &[&str]) -> Self {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": entry}],
            "contexts": [{"name": self.context(), "context": {"cluster": "test"}}],
            "current-context": self.context(),
        });
        fs::write(self.kubeconfig(), config.to_string()).unwrap();
        let module = self.store.faulty_module();
        if let Some(number) = self.number {
            hand_over(self.store.directory.path(), number);
        }
        let write = ["kubeconfig", "--write", "--context", &self.context(), &module];
        self.program(&write).arguments(options).run().succeeded();
        // The port follows from the server, which all tests share.
        let address = self.address();
        let (host, _) = address.split_once(':').unwrap();
        let own = format!("{host}:{}", free_port());
        let text = fs::read_to_string(self.kubeconfig()).unwrap();
        fs::write(self.kubeconfig(), text.replace(&address, &own)).unwrap();
        // What it asked the token is not counted.
        let _ = fs::remove_file(self.path("calls"));
        self
    }

    /// One whom root's rights don't help, with a copy of the program.
    pub(crate) fn unprivileged(number: u32, options: &[&str]) -> Self {
        let store = cluster().token(Kind::P256, ADMINISTRATOR);
        let copy = copy_of_program(store.directory.path());
        let user = Self { store, number: Some(number), signer: copy };
        let mut entry = cluster().entry();
        let authority = entry["certificate-authority"].take();
        let authority = fs::read(authority.as_str().unwrap()).unwrap();
        entry["certificate-authority-data"] = STANDARD.encode(authority).into();
        entry.as_object_mut().unwrap().remove("certificate-authority");
        user.written(&entry, options)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.path(name)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    /// No other test has it: what is made of the name stays apart, too.
    fn context(&self) -> String {
        let directory = self.store.directory.path().file_name().unwrap();
        format!("plain-{}", directory.to_str().unwrap().trim_start_matches('.').to_lowercase())
    }

    /// This program for this user; kubectl and helm are in PATH.
    fn client(&self, program: &Path) -> Invocation {
        let folder = kubectl().parent().unwrap().display();
        self.store
            .command(&[])
            .program(program)
            .variable("KUBECONFIG", self.kubeconfig())
            .variable("PATH", format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
            .variable("TOKEN_PIN", PIN)
            .variable("SIGNER", PROGRAM)
            .suffering(&self.store, "")
    }

    fn kubectl(&self, arguments: &[&str]) -> Invocation {
        self.client(kubectl()).arguments(arguments)
    }

    /// A shell, in whose PATH are kubectl and helm.
    pub(crate) fn shell(&self, script: &str) -> Invocation {
        self.client(Path::new("/bin/bash")).arguments(&["-c", script])
    }

    fn program(&self, arguments: &[&str]) -> Invocation {
        self.as_user(self.client(&self.signer).arguments(arguments))
    }

    /// The plugin as a client runs it, which ends after it.
    pub(crate) fn plugin(&self, request: &str) -> Invocation {
        self.plugin_within("\"$@\"; exit $?", request)
    }

    /// The plugin, which is `"$@"` in this script.
    fn plugin_within(&self, script: &str, request: &str) -> Invocation {
        let exec = &self.current()["users"][0]["user"]["exec"];
        let words = |list: &Value| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        let arguments = words(&exec["args"]);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let plugin = self
            .client(Path::new("/bin/bash"))
            .arguments(&["-c", script, "bash", exec["command"].as_str().unwrap()])
            .arguments(&arguments)
            .variable("KUBERNETES_EXEC_INFO", request);
        self.as_user(plugin)
    }

    fn as_user(&self, invocation: Invocation) -> Invocation {
        let Some(number) = self.number else {
            return invocation;
        };
        // A home is that of the user database.
        let home = self.store.directory.path().display();
        let script = format!(
            "(echo '#jim:x:{number}:{number}::/nowhere:/bin/sh'
              echo jane:x:{number}:{number}::{home}:/bin/sh; cat /etc/passwd) >{home}/passwd
             mount --bind {home}/passwd /etc/passwd
             exec setpriv --reuid={number} --regid={number} --clear-groups \"$@\""
        );
        invocation.through("bash", &["-c", &script, "bash"])
    }

    /// The request that kubectl makes of the kubeconfig.
    pub(crate) fn request(&self) -> Value {
        let current = self.current();
        let entry = &current["clusters"][0]["cluster"];
        let mut cluster = json!({"server": entry["server"]});
        for name in ["certificate-authority-data", "tls-server-name"] {
            if !entry[name].is_null() {
                cluster[name] = entry[name].clone();
            }
        }
        cluster["config"] = entry["extensions"][0]["extension"].clone();
        json!({
            "kind": "ExecCredential",
            "apiVersion": current["users"][0]["user"]["exec"]["apiVersion"],
            "spec": {"cluster": cluster, "interactive": false},
        })
    }

    /// The kubeconfig's current context, and what it names.
    fn current(&self) -> Value {
        self.kubectl(&["config", "view", "--minify", "--raw", "-o", "json"]).run().json()
    }

    /// Changes the kubeconfig to its current context, with another value in the user's plugin.
    fn set_plugin(&self, member: &str, value: impl Into<Value>) {
        let mut config = self.current();
        config["users"][0]["user"]["exec"][member] = value.into();
        fs::write(self.kubeconfig(), config.to_string()).unwrap();
    }

    /// Where clients dial.
    pub(crate) fn address(&self) -> String {
        let current = self.current();
        let server = current["clusters"][0]["cluster"]["server"].as_str().unwrap();
        server.strip_prefix("https://").unwrap().to_owned()
    }

    /// What runs for this user.
    fn processes(&self) -> Vec<Process> {
        // From the root of its file system, which /tmp may be.
        let directory = self.store.directory.path().file_name().unwrap();
        let runtime = format!("/{}/runtime ", directory.to_str().unwrap());
        let numbers = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
        // One that has ended meanwhile, or whose end nobody has asked for yet, has nothing to be read.
        let process = |number: i32| {
            let place = PathBuf::from(format!("/proc/{number}"));
            if !fs::read_to_string(place.join("mountinfo")).ok()?.contains(&runtime) {
                return None;
            }
            let command = fs::read(place.join("cmdline")).ok()?;
            let program = fs::read_link(place.join("exe")).ok()?;
            Some(Process {
                pid: Pid::from_raw(number)?,
                command: String::from_utf8_lossy(&command).replace('\0', " "),
                is_ours: program == self.signer
                    || program == self.signer.with_file_name("pkcs11-external-signer-commands"),
            })
        };
        numbers.filter_map(process).collect()
    }

    /// The tunnel process.
    pub(crate) fn tunnel(&self) -> Option<Process> {
        let mut processes = self.processes();
        processes.retain(|it| it.is_ours && it.command.contains(" tunnel-process"));
        assert!(processes.len() <= 1, "{processes:#?}");
        processes.pop()
    }

    /// The token processes.
    pub(crate) fn token_processes(&self) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(|it| it.is_ours && it.command.contains(" token-process"));
        processes
    }

    /// What is there in the runtime directory, apart from the files that are only locked.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = below(&self.path("runtime"));
        files.retain(|path| !path.is_dir() && path.extension().is_none_or(|it| it != "lock"));
        files
    }

    /// What `status` knows, or null.
    fn status(&self) -> Value {
        self.program(&["status", "--json"]).run().json()
    }

    /// Waits until no key is in use but by this client.
    #[track_caller]
    fn wait_for_callers(&self, expected: &[Pid]) {
        wait_until("the end of all other clients is noticed", || {
            let status = self.status();
            let callers = status.pointer("/keys/0/callers").and_then(Value::as_array);
            let numbers = callers.into_iter().flatten().map(|it| it["pid"].as_i64().unwrap());
            numbers.eq(expected.iter().map(|it| i64::from(it.as_raw_nonzero().get())))
        });
    }

    /// Waits until nothing is there any more.
    #[track_caller]
    fn expect_nothing_left(&self) {
        wait_until("nothing is left", || self.has_nothing_left());
    }

    fn has_nothing_left(&self) -> bool {
        self.processes().is_empty() && self.files().is_empty()
    }

    /// How often the token was logged in to, and asked for a signature.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let [logins, signatures] = ["C_Login", "C_Sign"].map(|name| self.store.calls(name).len());
        (logins, signatures)
    }
}

impl Drop for PlainUser {
    /// A test that has failed leaves no tunnel to the next ones.
    fn drop(&mut self) {
        for process in self.processes() {
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

/// The shortest command that needs the cluster.
pub(crate) const ASK: &str = "kubectl get namespace default -o name";
pub(crate) const ANSWER: &str = "namespace/default\n";

/// Puts a script in the plugin's place, which is `$SIGNER "$@"` there.
fn wrap_plugin(user: &PlainUser, text: &str) {
    let script = user.path("plugin");
    write_file(&script, format!("#!/bin/sh\n{text}\n"), 0o755);
    user.set_plugin("command", script.to_str().unwrap());
}

/// Has the runs of the plugin counted; how often it has run.
fn count_plugins(user: &PlainUser) -> impl Fn() -> usize {
    let record = user.path("runs");
    wrap_plugin(user, &format!("echo run >>'{}'; exec \"$SIGNER\" \"$@\"", record.display()));
    move || fs::read_to_string(&record).unwrap_or_default().lines().count()
}

/// kubectl's own form of a plugin's failure with this code, and what the plugin said.
#[track_caller]
fn assert_told_through_kubectl(outcome: &Outcome, code: u8, said: &[&str]) {
    assert!(!outcome.status.success(), "{outcome:?}");
    outcome.says(&[&format!("failed with exit code {code}")]);
    outcome.says(said);
}
