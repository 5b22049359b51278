//! The step `client`: the local address that clients with the credential plugin use.

use kubeconfig::local_address;
use tunnel::ServerIdentity;

use super::{fails, told};
use crate::fixture::*;
use crate::short_lived::plugin::user;

/// A user with a context of the plugin's form.
struct PluginContext {
    store: Store,
    config: Value,
    port: u16,
}

impl PluginContext {
    /// What `kubeconfig --write` would make for a token.
    fn new() -> Self {
        let store = token_with_pair(Kind::P256);
        let real = json!({"server": "https://127.0.0.1:1", "certificate-authority-data": "Zm9v"});
        let address = local_address();
        let port = free_port();
        let mut extension = real.clone();
        extension["plugin"] = "pkcs11-external-signer".into();
        extension["name"] = "real".into();
        let config = json!({
            "clusters": [
                {"name": "real", "cluster": real},
                {"name": "real+token", "cluster": {
                    "server": format!("https://{address}:{port}"),
                    "extensions": [{
                        "name": "client.authentication.k8s.io/exec",
                        "extension": extension,
                    }],
                }},
            ],
            "users": [{"name": "jane", "user": user("client.authentication.k8s.io/v1", &[
                "credential",
                softhsm_option(),
                "--token-label=test token",
                "--object-id=1",
                "--pin-source=env:TOKEN_PIN",
            ])}],
            "contexts": [{"name": "prod", "context": {"cluster": "real+token", "user": "jane"}}],
            "current-context": "prod",
        });
        let mut context = Self { store, config, port };
        let identity = context.make_identity();
        let endpoint = identity.endpoint("");
        let entry = context.entry();
        entry["tls-server-name"] = endpoint.server_name.into();
        entry["certificate-authority-data"] = STANDARD.encode(endpoint.authority_pem).into();
        context
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.path(name)
    }

    /// Puts another tunnel.pem in place.
    fn make_identity(&self) -> ServerIdentity {
        let identity = ServerIdentity::generate(&[local_address().into()]).unwrap();
        fs::create_dir_all(self.path("data")).unwrap();
        write_file(self.path("data/tunnel.pem"), identity.to_pem(), 0o600);
        identity
    }

    /// The cluster at the local address.
    fn entry(&mut self) -> &mut Value {
        &mut self.config["clusters"][1]["cluster"]
    }

    fn program(&self, arguments: &[&str]) -> Invocation {
        let kubeconfig = self.path("kubeconfig");
        fs::write(&kubeconfig, self.config.to_string()).unwrap();
        self.store.command(arguments).variable("KUBECONFIG", kubeconfig).variable("TOKEN_PIN", PIN)
    }

    fn check(&self) -> Outcome {
        self.program(&["check", "--no-login"]).run()
    }

    /// Checks it while the tunnel process serves it, after this script.
    fn check_served(&self, script: &str) -> Outcome {
        let script = format!(
            "\"$SIGNER\" credential >credential.json || exit 99
             {script}
             \"$SIGNER\" check --no-login; code=$?
             \"$SIGNER\" stop; exit $code"
        );
        let script = format!("cd '{}'\n{script}", self.path("").display());
        self.program(&[]).within("bash", &script).run()
    }
}

/// The lines of the step, without its name.
fn of_client(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains(" client "));
    lines.map(|line| line.replace(" client         ", " ")).collect()
}

/// Demands a concern, with this remedy.
#[track_caller]
fn is_concerned(outcome: &Outcome, what: &str, remedy: &str) {
    let text = told(outcome, 0);
    let mut lines = text.lines();
    let concern = lines.find(|line| line.starts_with("! client ") && line.contains(what));
    assert!(concern.is_some(), "no {what:?} in\n{text}");
    assert!(lines.next().unwrap_or_default().contains(remedy), "no {remedy:?} in\n{text}");
}

#[test]
fn where_a_client_connects_is_told_before_the_key() {
    needs_isolation!();
    let context = PluginContext::new();
    let text = told(&context.check(), 0);
    let place = format!("{}:{}", local_address(), context.port);
    assert_eq!(
        of_client(&text),
        [format!(
            "✔ cluster \"real+token\" leads through {place} to cluster \"real\" (https://127.0.0.1:1), \
             and is this user's"
        )]
    );
    assert!(text.find(" client ") < text.find(" library "), "{text}");
    let document = context.program(&["check", "--no-login", "--json"]).run().document();
    let steps = document["steps"].as_array().unwrap();
    assert_eq!(steps[0]["step"], "configuration");
    assert_eq!((&steps[1]["step"], &steps[1]["status"]), (&"client".into(), &"good".into()));
    // A context of another form has no such step.
    let store = token_with_pair(Kind::P256);
    let other = store.with_kubeconfig(&store.configuration());
    assert_eq!(of_client(&told(&other.arguments(&["check", "--no-login"]).run(), 0)), [""; 0]);
}

/// What of the kubeconfig is another, and what `check` says of it.
const KEEPS_FROM: &str = r#"
extensions           | null        | exec is missing
extension/plugin     | "other"     | or another program's
extension/server     | null        | has no server
server               | "https://10.0.0.1:6443" | https://10.0.0.1:6443 is no address of this user's tunnel
server               | "https://127.0.0.1:PORT" | is no address of this user's tunnel
certificate-authority-data | "Zm9v"| was written on another machine or for another user
tls-server-name      | "other.run.invalid" | was written on another machine or for another user
"#;

/// The same of what keeps some clients from it.
const NOT_EVERYWHERE: &str = r#"
real                 | {"server": "https://127.0.0.1:2", "certificate-authority-data": "Zm9v"} | cluster "real" has changed since it was copied: server
real                 | {"server": "https://127.0.0.1:1", "certificate-authority-data": "YmFy", "proxy-url": "http://127.0.0.1:3"} | copied: certificate-authority, proxy-url
real                 | {"server": "https://127.0.0.1:1", "certificate-authority": "/nowhere"} | certificate-authority /nowhere of cluster "real" can't be read
"#;

/// What comes of each row's change, with what is to be said and the remedy.
fn each_changed(rows: &str, judge: impl Fn(&Outcome, &str, &str)) {
    for row in rows.lines().skip(1) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [place, value, what] = cells[..] else { panic!("{row}") };
        let place = match place.split_once('/') {
            Some((_, field)) => format!("/clusters/1/cluster/extensions/0/extension/{field}"),
            None if place == "real" => "/clusters/0/cluster".to_owned(),
            None => format!("/clusters/1/cluster/{place}"),
        };
        let mut changed = PluginContext::new();
        let value = value.replace("PORT", &changed.port.to_string());
        *changed.config.pointer_mut(&place).unwrap() = serde_json::from_str(&value).unwrap();
        judge(&changed.check(), what, "kubeconfig --write --context prod`");
    }
}

#[test]
fn what_keeps_clients_from_the_cluster_is_told() {
    needs_isolation!();
    let is_kept = |outcome: &Outcome, what: &str, remedy: &str| {
        fails(outcome, 3, what, remedy);
        let text = String::from_utf8_lossy(&outcome.stdout);
        assert!(text.contains("\n✔ TLS"), "the key was not tried:\n{text}");
    };
    each_changed(KEEPS_FROM, is_kept);
    let context = PluginContext::new();
    fs::remove_file(context.path("data/tunnel.pem")).unwrap();
    is_kept(&context.check(), "tunnel.pem", "kubeconfig --write --context prod`");
    context.make_identity();
    let what = "was written on another machine or for another user";
    is_kept(&context.check(), what, "kubeconfig --write --context prod`");
}

#[test]
fn an_address_that_another_program_has_is_told() {
    needs_isolation!();
    let context = PluginContext::new();
    let _other = TcpListener::bind((local_address(), context.port)).unwrap();
    let place = format!("{}:{}", local_address(), context.port);
    fails(
        &context.check(),
        9,
        &format!("cluster \"real\": another program listens on {place}"),
        "end that program",
    );
}

#[test]
fn what_does_not_work_everywhere_is_told() {
    needs_isolation!();
    each_changed(NOT_EVERYWHERE, is_concerned);
    // The copy is all that is needed.
    let mut context = PluginContext::new();
    context.config["clusters"].as_array_mut().unwrap().remove(0);
    assert!(!told(&context.check(), 0).contains("\n!"));
}

/// By client-go's rules: a path is that of the kubeconfig's folder, a name is looked up in PATH.
#[test]
fn a_plugin_that_clients_can_not_start_is_told() {
    needs_isolation!();
    let mut context = PluginContext::new();
    let bin = context.path("bin");
    fs::create_dir(&bin).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let mut with_command = |command: &str| {
        context.config["users"][0]["user"]["exec"]["command"] = command.into();
        context.program(&["check", "--no-login"]).variable("PATH", &path).run()
    };
    let fails = |outcome: &Outcome, reason: &str| {
        let what = format!("clients can't start the plugin of user \"jane\": {reason}");
        fails(outcome, 3, &what, "kubeconfig --write --context prod`");
    };
    let gone = "/nowhere/pkcs11-external-signer";
    fails(&with_command(gone), &format!("{gone}: No such file or directory"));
    fails(&with_command("pkcs11-external-signer"), "pkcs11-external-signer: it is not in PATH");
    write_file(bin.join("signer"), "#!/bin/sh\n", 0o644);
    fails(
        &with_command("bin/signer"),
        &format!("{}: Permission denied", bin.join("signer").display()),
    );
    fails(&with_command("signer"), "signer: it is not in PATH");
    // Under whichever name, as long as it gets the key's arguments.
    set_mode(bin.join("signer"), 0o755);
    for command in ["bin/signer", "./bin/signer", "signer", bin.join("signer").to_str().unwrap()] {
        let text = told(&with_command(command), 0);
        assert_eq!(of_client(&text).len(), 1, "{command}: {text}");
    }
}

#[test]
fn an_address_that_the_tunnel_process_serves_is_fine() {
    needs_isolation!();
    let context = PluginContext::new();
    let text = told(&context.check_served(""), 0);
    assert_eq!(of_client(&text).len(), 1, "{text}");
}
