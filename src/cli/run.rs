//! `run`: a command whose connections to clusters are made with keys in tokens.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::Rlimit;

use super::connection::Reporter;
use super::key::options::{KeyOptions, contexts, kubeconfig_files, load_kubeconfig};
use config::Config;
use files::directories::run_directory;
use files::replaced_file;
use keyring::{KeyNumber, Keyring};
use kubeconfig::{Context, EntryKind, Kubeconfig, Provider, other_user, write_command};
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart, set_context};
use messages::report;
use system::command::{Inheritance, Running, Signals};
use system::environment::{SingleThreaded, TakenVariables};
use system::shortage;
use tunnel::{ClientCertificate, ServerIdentity, TunnelObserver, TunnelTarget, Tunnels};

/// Set for the command, to distinguish a run inside a run from a kubeconfig without keys.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_RUN";

/// kubectl commands whose `--user` names the subject of a role binding.
const OTHER_USERS: [&str; 3] = ["clusterrolebinding", "rolebinding", "subject"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer run -- kubectl get pods
  pkcs11-external-signer run --context prod -- k9s
  pkcs11-external-signer run -- bash   # every kubectl in it works

Every cluster that a context joins with a user of this program (`exec` without --as, or `auth-provider: {name: \
externalSigner, …}`) is led through a tunnel that only this command can use and that ends with it. The \
exit code is the command's.")]
pub(super) struct RunArguments {
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to use; without it the one that the command's arguments name, or the current one
    #[arg(long, value_name = "NAME", add = contexts())]
    context: Option<String>,
    /// Like --context, and the command gets no other context: no other is in its kubeconfig or has a port
    #[arg(long, value_name = "NAME", conflicts_with = "context", add = contexts())]
    only_context: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command; its exit code, or that of the error that kept it from running.
pub(super) fn run(arguments: &RunArguments, core: Rlimit, alone: SingleThreaded) -> u8 {
    let keyring = Arc::default();
    let outcome = serve(arguments, core, alone, &keyring);
    let code = outcome.unwrap_or_else(|error| report::error(&error));
    keyring.finish(code);
    code
}

fn serve(
    arguments: &RunArguments,
    core: Rlimit,
    alone: SingleThreaded,
    keyring: &Arc<Keyring>,
) -> Result<u8, Error> {
    let command = &arguments.command;
    let named_by_command = context_of(command);
    let names_cluster = named_by_command.is_some() || option_of(command, "--cluster").is_some();
    let named = named_by_command
        .or_else(|| arguments.only_context.clone())
        .or_else(|| arguments.context.clone());
    KeyOptions::of_context(&arguments.kubeconfig, named).set_call();
    let inheritance = Inheritance::keep(core)
        .map_err(|error| shortage(format!("standard output can't be set aside: {error}")))?;
    let mut kubeconfig = load_kubeconfig(arguments.kubeconfig.as_deref())?;
    if let Some(name) = &arguments.only_context {
        kubeconfig.keep_only(name)?;
    } else if let Some(name) = &arguments.context {
        kubeconfig.set_current_context(name)?;
    }
    let selected = selected_context(command, &kubeconfig);
    if let Some(selected) = &selected {
        set_context(&selected.name);
    }
    let ServedEntries { clusters, users } = ServedEntries::of(&kubeconfig, selected.as_ref())?;
    if clusters.is_empty() || users.is_empty() {
        return Err(nothing_to_serve(arguments, &kubeconfig));
    }
    if !names_cluster && kubeconfig.current_context().is_none() {
        warn_of_no_context();
    }
    let keys = add_keys(users, alone, keyring)?;
    warn_of_insecure(&clusters);
    if let Some(selected) = &selected
        && clusters.iter().any(|(name, _)| *name == selected.cluster)
        && let Some(key) = keys.get(&selected.user)
    {
        for warning in keyring.open(*key, None)?.take_warnings() {
            report::warning(&warning);
        }
    }
    keyring.leave_terminal();
    let tunnels = start_tunnels(&mut kubeconfig, clusters, &keys, selected.as_ref(), keyring)?;
    let code = run_with(arguments, &kubeconfig, inheritance);
    drop(tunnels);
    code
}

fn warn_of_no_context() {
    let help = Help::from(format!("name one with `{PROGRAM} run --context NAME"))
        .and(HelpPart::Kubeconfig)
        .and(" -- COMMAND`, or set it with `kubectl config use-context NAME")
        .and(HelpPart::Kubeconfig)
        .and("` outside of the run");
    report::warning(&format!(
        "no context is selected, since the kubeconfig has no current-context; {}",
        help.in_this_call()
    ));
}

fn warn_of_insecure(clusters: &[(String, TunnelTarget)]) {
    for (_, target) in clusters {
        if target.cluster.insecure {
            report::warning(&format!(
                "cluster \"{}\" has insecure-skip-tls-verify: any server that answers is believed to be it",
                target.name
            ));
        }
    }
}

/// Adds the users' keys to the keyring, with the variables that their PINs come from; the number of each user's key.
fn add_keys(
    users: Vec<(String, Config)>,
    alone: SingleThreaded,
    keyring: &Keyring,
) -> Result<HashMap<String, KeyNumber>, Error> {
    let names = users.iter().filter_map(|(_, config)| config.pin.variable());
    let variables = TakenVariables::take(names, alone);
    users.into_iter().map(|(user, config)| Ok((user, keyring.add(config, &variables)?))).collect()
}

/// Serves the clusters, and has the kubeconfig lead to them: its contexts with a key, and the selected one if the command
/// gives it a user with a key.
fn start_tunnels(
    kubeconfig: &mut Kubeconfig,
    clusters: Vec<(String, TunnelTarget)>,
    keys: &HashMap<String, KeyNumber>,
    selected: Option<&Context>,
    keyring: &Arc<Keyring>,
) -> Result<Tunnels, Error> {
    let observer: Arc<dyn TunnelObserver> = Arc::new(Reporter::default());
    let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()])?;
    let tunnels = Tunnels::start(&identity, keyring.clone(), &observer)?;
    // The others have no certificate for the tunnel.
    let has_key = |context: &Context| {
        keys.contains_key(&context.user)
            || selected.is_some_and(|selected| {
                selected.name == context.name && keys.contains_key(&selected.user)
            })
    };
    for (name, target) in clusters {
        let address = tunnels.listen(target, None)?.to_string();
        kubeconfig.redirect(&name, &identity.endpoint(&address), has_key);
    }
    for (user, key) in keys {
        let ClientCertificate { certificate_pem, key_pem } = tunnels.clients.certificate(*key)?;
        kubeconfig.identify(user, &certificate_pem, &key_pem);
    }
    Ok(tunnels)
}

/// The context that the arguments of a command name, as kubectl and helm take it.
fn context_of(command: &[OsString]) -> Option<String> {
    option_of(command, "--context").or_else(|| option_of(command, "--kube-context"))
}

/// The context that the command will use, as far as its arguments show, with the cluster and the
/// user that they name instead.
fn selected_context(command: &[OsString], kubeconfig: &Kubeconfig) -> Option<Context> {
    let named = context_of(command);
    let name = named.as_deref().or_else(|| kubeconfig.current_context());
    let known = name.and_then(|name| kubeconfig.context(name).ok());
    let names_subject = command.iter().any(|word| OTHER_USERS.iter().any(|other| word == other));
    let user = if names_subject { None } else { option_of(command, "--user") };
    match (known, option_of(command, "--cluster"), user) {
        (Some(known), cluster, user) => Some(Context {
            name: known.name,
            cluster: cluster.unwrap_or(known.cluster),
            user: user.unwrap_or(known.user),
        }),
        (None, Some(cluster), Some(user)) => Some(Context { name: String::new(), cluster, user }),
        (None, ..) => None,
    }
}

/// The value of an option before a `--`.
fn option_of(command: &[OsString], name: &str) -> Option<String> {
    let arguments = command.iter().skip(1).map(|argument| argument.to_string_lossy());
    let mut arguments = arguments.take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(name) {
            Some("") => return Some(arguments.next().unwrap_or_default().into_owned()),
            Some(rest) if rest.starts_with('=') => return rest.get(1..).map(str::to_owned),
            _ => {}
        }
    }
    None
}

/// What the tunnels serve.
#[derive(Default)]
struct ServedEntries {
    /// Each with the name of its entry, which the cluster itself need not have.
    clusters: Vec<(String, TunnelTarget)>,
    /// Those with a key.
    users: Vec<(String, Config)>,
}

impl ServedEntries {
    /// The users with a key, and the clusters that a context joins with one of them.
    fn of(kubeconfig: &Kubeconfig, selected: Option<&Context>) -> Result<Self, Error> {
        let mut served = Self::default();
        let contexts = kubeconfig.contexts();
        for user in kubeconfig.names(EntryKind::User) {
            let mut of_user = contexts.iter().filter(|context| context.user == user).peekable();
            let is_needed = match selected {
                Some(selected) => selected.user == user,
                None => of_user.peek().is_some(),
            };
            let config = match kubeconfig.provider(&user) {
                Ok(Provider::None) => continue,
                Ok(Provider::Other(name)) => {
                    leave(of_user, &format!("its user needs the auth provider \"{name}\""));
                    continue;
                }
                Ok(Provider::ExternalSigner(mut map)) => Config::from_map(&mut map),
                Err(error) => Err(error),
            };
            match config {
                Ok(config) => served.users.push((user, config)),
                Err(error) if is_needed => return Err(error),
                Err(error) => leave(of_user, &error),
            }
        }
        // A context can name a cluster that doesn't exist.
        let named = contexts.iter().map(|context| context.cluster.clone());
        let names: BTreeSet<_> =
            kubeconfig.names(EntryKind::Cluster).into_iter().chain(named).collect();
        for name in names {
            let has_key = |context: &&Context| {
                context.cluster == name
                    && served.users.iter().any(|(user, _)| *user == context.user)
            };
            let with_key: Vec<_> = contexts.iter().filter(has_key).collect();
            let is_selected = selected.as_ref().is_some_and(has_key);
            // One that only other users need is not changed.
            if with_key.is_empty() && !is_selected {
                continue;
            }
            match kubeconfig.cluster(&name) {
                Ok((real_name, cluster)) => {
                    served.clusters.push((name, TunnelTarget::new(real_name, cluster)));
                }
                Err(error) if is_selected || selected.is_none() => return Err(error),
                Err(error) => leave(with_key, &error),
            }
        }
        Ok(served)
    }
}

fn leave<'a>(contexts: impl IntoIterator<Item = &'a Context>, reason: &dyn Display) {
    for context in contexts {
        report::warning(&format!(
            "context \"{}\" is left as it is, and kubectl may not be able to use it: {reason}",
            context.name
        ));
    }
}

/// Runs the command with this kubeconfig; its exit code.
fn run_with(
    arguments: &RunArguments,
    kubeconfig: &Kubeconfig,
    inheritance: Inheritance,
) -> Result<u8, Error> {
    let mut signals = Signals::hold().map_err(shortage)?;
    let failed = |reason| {
        Error::new(Exit::Cluster, format!("no place for the command's kubeconfig: {reason}")).help(
            "see that one of those directories is yours alone (mode 0700) and its disk is not full; where there is \
             none, set XDG_RUNTIME_DIR to one",
        )
    };
    let directory = run_directory().map_err(failed)?;
    let file = directory.path().join("kubeconfig");
    let content = kubeconfig.to_json();
    replaced_file::put(&file, content.as_bytes(), 0o600)
        .map_err(|error| failed(format!("{}: {error}", file.display())))?;
    if let Some(signal) = signals.came_early() {
        return Err(Error::interrupted(signal));
    }
    let variables = no_proxy(|name| std::env::var_os(name)).into_iter().chain([
        ("KUBECONFIG", file.clone().into_os_string()),
        (MARK, std::process::id().to_string().into()),
    ]);
    let running = Running::start(&arguments.command, variables, inheritance, signals)?;
    let code = running.wait().map_err(shortage)?;
    if fs::read(&file).is_ok_and(|left| left != content.as_bytes()) {
        report::warning(
            "the command has changed its kubeconfig, which ends with the run; make lasting changes outside of it",
        );
    }
    Ok(code)
}

/// The variables with which the command goes to its ports directly, also where it has a proxy: Go
/// does so by itself, but curl and Python don't. Programs look at one of the two before the other,
/// so one that isn't set gets what the other one says.
fn no_proxy(variable: impl Fn(&str) -> Option<OsString>) -> [(&'static str, OsString); 2] {
    const HERE: &str = "127.0.0.1";
    let variables = ["NO_PROXY", "no_proxy"]
        .map(|name| (name, variable(name).filter(|value| !value.is_empty())));
    let either = variables.iter().find_map(|(_, value)| value.clone());
    variables.map(|(name, value)| {
        let mut value = value.or_else(|| either.clone()).unwrap_or_default();
        let text = value.to_string_lossy();
        if !text.split(',').any(|entry| [HERE, "*"].contains(&entry.trim())) {
            value.push(if value.is_empty() { "" } else { "," });
            value.push(HERE);
        }
        (name, value)
    })
}

fn nothing_to_serve(arguments: &RunArguments, kubeconfig: &Kubeconfig) -> Error {
    let inside = std::env::var_os(MARK).is_some();
    if arguments.only_context.is_some() && !inside {
        return match kubeconfig.selected_context() {
            Ok(Context { name, user, .. }) => other_user(&user, &name),
            Err(error) => error,
        };
    }
    let files = kubeconfig_files(arguments.kubeconfig.as_deref());
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let help = if inside {
        Help::from("this shell is inside a run already: start the command as it is")
    } else {
        Help::from(
            "name the file with --kubeconfig or KUBECONFIG, or have a context of it use a key: ",
        )
        .and(write_command())
    };
    let text = format!("no context of {} has a user with a key for this program", files.join(":"));
    Error::new(Exit::Configuration, text).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_added_to_what_needs_no_proxy() {
        for (before, after) in [
            (["", ""], ["127.0.0.1", "127.0.0.1"]),
            (["a", "b"], ["a,127.0.0.1", "b,127.0.0.1"]),
            (["a, b", ""], ["a, b,127.0.0.1", "a, b,127.0.0.1"]),
            (["", ".c"], [".c,127.0.0.1", ".c,127.0.0.1"]),
            (["*", "b, *"], ["*", "b, *"]),
            (["x, 127.0.0.1 ,y", ""], ["x, 127.0.0.1 ,y", "x, 127.0.0.1 ,y"]),
            (["127.0.0.10", "127.0.0.1"], ["127.0.0.10,127.0.0.1", "127.0.0.1"]),
        ] {
            let variable = |name: &str| {
                let at = usize::from(name == "no_proxy");
                Some(OsString::from(before[at]))
            };
            let set = no_proxy(variable).to_vec();
            let expected = ["NO_PROXY", "no_proxy"].into_iter().zip(after);
            let expected: Vec<_> = expected.map(|(name, it)| (name, it.into())).collect();
            assert_eq!(set, expected);
        }
        assert!(no_proxy(|_| None).iter().all(|(_, value)| value == "127.0.0.1"));
    }
}
