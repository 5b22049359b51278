//! What kubectl keeps on this machine: contexts, and in its kuberc the defaults of its commands.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::kubectl::{not_run, program};
use kubeconfig::Context;
use messages::error::{Error, Exit};
use system::descriptors::hand_on;

/// The commands of kubectl that change something in a cluster, get into a pod or may do so, as kuberc names them: each
/// by its full path, since a command's default doesn't count for those below it.
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
    // It asks the server for what would become of it.
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

#[derive(Debug, Default, Deserialize)]
struct Preferences {
    /// Some versions print null.
    #[serde(default)]
    defaults: Option<Vec<CommandDefaults>>,
}

#[derive(Debug, Deserialize)]
struct CommandDefaults {
    command: String,
    #[serde(default)]
    options: Vec<OptionDefault>,
}

#[derive(Clone, Debug, Deserialize)]
struct OptionDefault {
    name: String,
    default: String,
}

/// Gives the kubeconfig a context of this name with the cluster and the user of another one.
pub fn add_context(file: Option<&Path>, name: &str, like: &Context) -> Result<(), Error> {
    let mut arguments = vec![
        "config".to_owned(),
        "set-context".to_owned(),
        format!("--cluster={}", like.cluster),
        format!("--user={}", like.user),
    ];
    if let Some(file) = file {
        arguments.push(format!("--kubeconfig={}", file.display()));
    }
    // It could begin with a hyphen.
    arguments.extend(["--".to_owned(), name.to_owned()]);
    let purpose = format!("add the context {name:?}");
    local(&arguments, &purpose, "correct what it names, then run this command again").map(drop)
}

/// Has kubectl take this user of the kubeconfig by itself for the commands that change something. Other defaults of
/// theirs stay.
pub fn use_for_writes(user: &str) -> Result<(), Error> {
    const HELP: &str = "it needs kubectl 1.34 or later, and a kuberc that it can read";
    let view = ["kuberc", "view", "--output=json"].map(str::to_owned);
    let shown = local(&view, "show its preferences", HELP)?;
    // Where there is no file yet, kubectl asks whether it is to make one.
    let preferences: Preferences = serde_json::from_slice(&shown).unwrap_or_default();
    let present = preferences.defaults.unwrap_or_default();
    for command in WRITING {
        let defaults = present.iter().find(|defaults| defaults.command == command);
        if let Some(arguments) = change(command, defaults, user) {
            local(&arguments, "change its preferences", HELP)?;
        }
    }
    Ok(())
}

/// kubectl's arguments that add the user to the defaults of a command; `None` if they have it.
fn change(command: &str, present: Option<&CommandDefaults>, user: &str) -> Option<Vec<String>> {
    let mut arguments = ["kuberc", "set", "--section=defaults"].map(str::to_owned).to_vec();
    arguments.push(format!("--command={command}"));
    for OptionDefault { name, default } in present.iter().flat_map(|present| &present.options) {
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

/// What kubectl prints that asks no cluster.
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
            options: options.to_vec(),
        };
        let begin = ["kuberc", "set", "--section=defaults", "--command=apply"];
        let changed = |options: &[&str]| {
            Some([&begin, options].concat().iter().map(|it| (*it).to_owned()).collect())
        };
        assert_eq!(change("apply", None, "jane"), changed(&["--option=user=jane"]));
        let others = present(&[option("user", "bob"), option("server-side", "true")]);
        let expected = ["--option=server-side=true", "--option=user=jane", "--overwrite"];
        assert_eq!(change("apply", Some(&others), "jane"), changed(&expected));
        assert_eq!(change("apply", Some(&present(&[option("user", "jane")])), "jane"), None);
    }
}
