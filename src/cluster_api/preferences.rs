//! What kubectl keeps on this machine: contexts, and in its kuberc the defaults of its commands.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::kubectl::{not_run, program};
use kubeconfig::Context;
use messages::error::{Error, Exit};
use system::descriptors::hand_on;

/// The commands of kubectl that change something in a cluster, get into a pod or may do so. Each is given by its full
/// path, as in kuberc, since a command's default doesn't count for those below it.
pub const WRITING: [&str; 59] = [
    "annotate",
    "apply",
    "apply edit-last-applied",
    "apply set-last-applied",
    "attach",
    "auth reconcile",
    "autoscale",
    "certificate approve",
    "certificate deny",
    "cordon",
    "cp",
    "create",
    "create clusterrole",
    "create clusterrolebinding",
    "create configmap",
    "create cronjob",
    "create deployment",
    "create ingress",
    "create job",
    "create namespace",
    "create poddisruptionbudget",
    "create priorityclass",
    "create quota",
    "create role",
    "create rolebinding",
    "create secret docker-registry",
    "create secret generic",
    "create secret tls",
    "create service clusterip",
    "create service externalname",
    "create service loadbalancer",
    "create service nodeport",
    "create serviceaccount",
    "create token",
    "debug",
    "delete",
    // `diff` asks the server what would become of the change.
    "diff",
    "drain",
    "edit",
    "exec",
    "expose",
    "label",
    "patch",
    "port-forward",
    "replace",
    "rollout pause",
    "rollout restart",
    "rollout resume",
    "rollout undo",
    "run",
    "scale",
    "set env",
    "set image",
    "set resources",
    "set selector",
    "set serviceaccount",
    "set subject",
    "taint",
    "uncordon",
];

/// The command that shows and changes kubectl's preferences, as 1.36 and later calls it, and as 1.35 does.
const COMMANDS: [&[&str]; 2] = [&["kuberc"], &["alpha", "kuberc"]];

/// What kubectl prints where there is no file yet, before it asks a question, which nobody answers here.
const NO_FILE: &[u8] = b"kuberc file not found at ";

/// The help for preferences that can't be changed.
const HELP: &str = "it needs kubectl 1.35 or later, without KUBERC=off or KUBECTL_KUBERC=false, and a kuberc that it can read";

/// kubectl's preferences (kuberc), as the kubectl in PATH shows and changes them.
pub struct Kuberc {
    command: KubercCommand,
    /// The defaults of kubectl's commands.
    defaults: Vec<CommandDefaults>,
}

/// kubectl's command for its preferences.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KubercCommand(&'static [&'static str]);

#[derive(Debug, Deserialize)]
struct Preferences {
    /// `None` where the field is null, as some versions print it.
    #[serde(default)]
    defaults: Option<Vec<CommandDefaults>>,
}

#[derive(Debug, Deserialize)]
struct CommandDefaults {
    command: String,
    /// `None` where the field is null, for a command without any default.
    #[serde(default)]
    options: Option<Vec<OptionDefault>>,
}

impl CommandDefaults {
    fn options(&self) -> &[OptionDefault] {
        self.options.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Deserialize)]
struct OptionDefault {
    name: String,
    default: String,
}

/// Adds a context of this name to the kubeconfig, with the cluster and the user of another one, and in this namespace.
pub fn add_context(
    file: Option<&Path>,
    name: &str,
    like: &Context,
    namespace: Option<&str>,
) -> Result<(), Error> {
    let mut arguments = vec![
        "config".to_owned(),
        "set-context".to_owned(),
        format!("--cluster={}", like.cluster),
        format!("--user={}", like.user),
    ];
    if let Some(namespace) = namespace {
        arguments.push(format!("--namespace={namespace}"));
    }
    if let Some(file) = file {
        arguments.push(format!("--kubeconfig={}", file.display()));
    }
    // The name could begin with a hyphen.
    arguments.extend(["--".to_owned(), name.to_owned()]);
    let purpose = format!("add the context {name:?}");
    local(&arguments, &purpose, "correct what it names, then run this command again").map(drop)
}

impl KubercCommand {
    /// Finds the command that the person's kubectl has; `None` if it has none, as before 1.35.
    pub fn find() -> Result<Option<Self>, Error> {
        for command in COMMANDS {
            let mut help = Command::new(program());
            help.args(command).args(["set", "--help"]).stdin(Stdio::null());
            let output =
                hand_on(&mut help, Vec::new()).output().map_err(|error| not_run(&error))?;
            // A kubectl without the command shows its general help, or nothing.
            if String::from_utf8_lossy(&output.stdout).contains("--overwrite") {
                return Ok(Some(Self(command)));
            }
        }
        Ok(None)
    }

    /// The command as a person types it: `kubectl kuberc`.
    pub fn typed(self) -> String {
        format!("kubectl {}", self.0.join(" "))
    }

    /// The arguments for kubectl: the command, and these others.
    fn arguments<const N: usize>(self, others: [&str; N]) -> Vec<String> {
        self.0.iter().chain(&others).map(|argument| (*argument).to_owned()).collect()
    }

    /// The arguments for kubectl that add the user to the defaults of a command; `None` if the command has the user
    /// already.
    fn change(
        self,
        command: &str,
        present: Option<&CommandDefaults>,
        user: &str,
    ) -> Option<Vec<String>> {
        let mut arguments = self.arguments(["set", "--section=defaults"]);
        arguments.push(format!("--command={command}"));
        for OptionDefault { name, default } in present.map_or(&[][..], CommandDefaults::options) {
            if name != "user" {
                arguments.push(format!("--option={name}={default}"));
            } else if default == user {
                return None;
            }
        }
        arguments.push(format!("--option=user={user}"));
        if present.is_some() {
            arguments.push("--overwrite".to_owned());
        }
        Some(arguments)
    }
}

impl Kuberc {
    /// Reads the preferences. An error if the kubectl in PATH can't show them, or shows them in another form.
    pub fn read() -> Result<Self, Error> {
        let command = KubercCommand::find()?.ok_or_else(|| {
            let text = "the kubectl in PATH has no command for its preferences (kubectl kuberc)";
            Error::new(Exit::Cluster, text).help(HELP)
        })?;
        let view = command.arguments(["view", "--output=json"]);
        let shown = local(&view, "show its preferences", HELP)?;
        let defaults = parsed(&shown).map_err(|reason| {
            let text = format!("what kubectl shows of its preferences can't be read: {reason}");
            let help = format!("correct what `{} view --output=json` shows", command.typed());
            Error::new(Exit::Cluster, text).help(help)
        })?;
        Ok(Self { command, defaults })
    }

    /// The users other than this one that kubectl takes by default for commands that change something, each once.
    pub fn others_for_writes(&self, user: &str) -> BTreeSet<&str> {
        let writing = self.defaults.iter().filter(|defaults| WRITING.contains(&&*defaults.command));
        let options = writing.flat_map(CommandDefaults::options);
        let users = options.filter(|option| option.name == "user");
        users.map(|option| &*option.default).filter(|other| *other != user).collect()
    }

    /// Has kubectl take this user of the kubeconfig by default for the commands that change something. Other defaults
    /// of these commands stay.
    pub fn use_for_writes(&self, user: &str) -> Result<(), Error> {
        for command in WRITING {
            let defaults = self.defaults.iter().find(|defaults| defaults.command == command);
            if let Some(arguments) = self.command.change(command, defaults, user) {
                local(&arguments, "change its preferences", HELP)?;
            }
        }
        Ok(())
    }
}

/// Reads the defaults of commands from what kubectl shows of its preferences.
fn parsed(shown: &[u8]) -> Result<Vec<CommandDefaults>, serde_json::Error> {
    if shown.starts_with(NO_FILE) {
        return Ok(Vec::new());
    }
    let preferences: Preferences = serde_json::from_slice(shown)?;
    Ok(preferences.defaults.unwrap_or_default())
}

/// Runs kubectl with arguments for which it asks no cluster, and returns what it prints.
fn local(arguments: &[String], purpose: &str, help: &str) -> Result<Vec<u8>, Error> {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = hand_on(&mut command, Vec::new()).output().map_err(|error| not_run(&error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = format!("kubectl could not {purpose}; it says why above");
    Err(Error::new(Exit::Cluster, text).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_defaults_of_a_command_stay() {
        let option = |name: &str, default: &str| OptionDefault {
            name: name.to_owned(),
            default: default.to_owned(),
        };
        let present = |options: &[OptionDefault]| CommandDefaults {
            command: "apply".to_owned(),
            options: Some(options.to_vec()),
        };
        let begin = ["alpha", "kuberc", "set", "--section=defaults", "--command=apply"];
        let changed = |options: &[&str]| {
            let arguments = [&begin, options].concat();
            Some(arguments.into_iter().map(str::to_owned).collect())
        };
        let change = |present: Option<&CommandDefaults>| {
            KubercCommand(COMMANDS[1]).change("apply", present, "jane")
        };
        assert_eq!(change(None), changed(&["--option=user=jane"]));
        let others = present(&[option("user", "bob"), option("server-side", "true")]);
        let expected = ["--option=server-side=true", "--option=user=jane", "--overwrite"];
        assert_eq!(change(Some(&others)), changed(&expected));
        assert_eq!(change(Some(&present(&[option("user", "jane")]))), None);
    }

    #[test]
    fn no_file_and_no_options_are_none_and_what_is_something_else_is_refused() {
        let shown = br#"{"defaults": [{"command": "apply", "options": null}, {"command": "get"}]}"#;
        let defaults = parsed(shown).unwrap();
        assert_eq!(defaults.len(), 2);
        assert!(defaults.iter().all(|defaults| defaults.options().is_empty()));
        for none in ["kuberc file not found at /home/jane/.kube/kuberc\nWould", "{}"] {
            assert!(parsed(none.as_bytes()).unwrap().is_empty(), "{none}");
        }
        for other in ["", "No alpha commands are available", r#"{"defaults": [{"command": 5}]}"#] {
            assert!(parsed(other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn a_user_that_kubectl_takes_for_writes_is_found() {
        let shown = r#"{"defaults": [
            {"command": "apply", "options": [{"name": "user", "default": "jane-writes"}]},
            {"command": "delete", "options": [{"name": "user", "default": "bob"}]},
            {"command": "get", "options": [{"name": "user", "default": "reader"}]}]}"#;
        let defaults = parsed(shown.as_bytes()).unwrap();
        let kuberc = Kuberc { command: KubercCommand(COMMANDS[0]), defaults };
        assert_eq!(kuberc.others_for_writes("bob"), BTreeSet::from(["jane-writes"]));
    }
}
