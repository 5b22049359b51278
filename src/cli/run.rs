//! `run`: a command whose connections to clusters are made with keys in tokens.

use std::collections::{BTreeSet, HashMap, HashSet};
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
use kubeconfig::{
    Context, EntryKind, Kubeconfig, NamedCluster, Provider, other_user, write_command,
};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command, set_context};
use messages::report;
use system::command::{Inheritance, Running, Signals};
use system::environment::{SingleThreaded, TakenVariables};
use system::shortage;
use tunnel::{ClientCertificate, ServerIdentity, TunnelObserver, TunnelTarget, Tunnels};

/// A variable that is set for the command, to distinguish a run inside a run from a kubeconfig without keys.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_RUN";

/// kubectl commands whose `--user` names the subject of a role binding.
const OTHER_USERS: [&str; 3] = ["clusterrolebinding", "rolebinding", "subject"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer run -- kubectl get pods
  pkcs11-external-signer run --context prod -- k9s
  pkcs11-external-signer run -- bash   # every kubectl in it works

The command gets a kubeconfig of its own, in which each context with a key in a token uses a tunnel. Only this command can use the tunnel, which ends with it. The exit code is the command's.")]
pub(super) struct RunArguments {
    /// The kubeconfig [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context [default: the one that the command names, or the current one]
    #[arg(long, value_name = "NAME", add = contexts())]
    context: Option<String>,
    /// The only context that the command gets
    #[arg(long, value_name = "NAME", conflicts_with = "context", add = contexts())]
    only_context: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command, and returns its exit code, or that of the error that kept it from running.
pub(super) fn run(arguments: &RunArguments, core: Rlimit, alone: SingleThreaded) -> u8 {
    let keyring = Arc::default();
    let outcome = serve(arguments, core, alone, &keyring);
    let code = outcome.unwrap_or_else(|error| report::error(&error));
    keyring.finish(code);
    code
}

impl RunArguments {
    /// Loads the kubeconfig, with the context that the options name as its current or its only one.
    fn load(&self) -> Result<Kubeconfig, Error> {
        let mut kubeconfig = load_kubeconfig(self.kubeconfig.as_deref())?;
        if let Some(name) = &self.only_context {
            kubeconfig.keep_only(name)?;
        } else if let Some(name) = &self.context {
            kubeconfig.set_current_context(name)?;
        }
        Ok(kubeconfig)
    }
}

/// Serves what the kubeconfig has for this program, runs the command, and returns its exit code.
fn serve(
    arguments: &RunArguments,
    core: Rlimit,
    alone: SingleThreaded,
    keyring: &Arc<Keyring>,
) -> Result<u8, Error> {
    let choice = CommandChoice::of(&arguments.command);
    let named = choice.context.as_ref().or(arguments.only_context.as_ref());
    let named = named.or(arguments.context.as_ref());
    KeyOptions::of_context(&arguments.kubeconfig, named.cloned()).set_call();
    let inheritance = Inheritance::keep(core)
        .map_err(|error| shortage(format!("standard output can't be set aside: {error}")))?;
    let mut kubeconfig = arguments.load()?;
    let selected = choice.selected(&kubeconfig);
    if let Some(selected) = &selected {
        set_context(&selected.name);
    }
    let ServedEntries { clusters, users } = ServedEntries::of(&kubeconfig, selected.as_ref())?;
    if clusters.is_empty() || users.is_empty() {
        return Err(nothing_to_serve(arguments, &kubeconfig));
    }
    if !choice.names_cluster() && kubeconfig.current_context().is_none() {
        warn_of_no_context();
    }
    let keys = add_keys(users, alone, keyring)?;
    warn_of_insecure(&clusters);
    if let Some(selected) = &selected {
        open_selected(selected, &clusters, &keys, keyring)?;
    }
    keyring.leave_terminal();
    let tunnels = start_tunnels(&mut kubeconfig, clusters, &keys, selected.as_ref(), keyring)?;
    let code = run_with(arguments, &kubeconfig, inheritance);
    drop(tunnels);
    code
}

/// Opens the key of the selected context, if its cluster is served, so that a person is asked for the PIN now and not
/// later.
fn open_selected(
    selected: &Context,
    clusters: &[ServedCluster],
    keys: &HashMap<String, KeyNumber>,
    keyring: &Keyring,
) -> Result<(), Error> {
    let is_served = clusters.iter().any(|cluster| cluster.entry == selected.cluster);
    if is_served && let Some(key) = keys.get(&selected.user) {
        for warning in keyring.open(*key, None)?.take_warnings() {
            report::warning(&warning);
        }
    }
    Ok(())
}

fn warn_of_no_context() {
    let help = Help::from("name one with ")
        .and(command("run --context NAME").and(HelpPart::Kubeconfig).and(" -- COMMAND"))
        .and(", or set it with `kubectl config use-context NAME")
        .and(HelpPart::Kubeconfig)
        .and("` outside of the run");
    report::warning(&format!(
        "no context is selected, since the kubeconfig has no current-context; {}",
        help.in_this_call()
    ));
}

fn warn_of_insecure(clusters: &[ServedCluster]) {
    for ServedCluster { target, .. } in clusters {
        if target.cluster.insecure {
            report::warning(&format!(
                "cluster \"{}\" has insecure-skip-tls-verify: any server that answers is believed to be it",
                target.name
            ));
        }
    }
}

/// Adds the users' keys to the keyring, with the variables that their PINs come from. Returns the number of each user's
/// key.
fn add_keys(
    users: Vec<ServedUser>,
    alone: SingleThreaded,
    keyring: &Keyring,
) -> Result<HashMap<String, KeyNumber>, Error> {
    let names = users.iter().filter_map(|user| user.config.pin.variable());
    let variables = TakenVariables::take(names, alone);
    let mut keys = HashMap::new();
    for ServedUser { name, config } in users {
        keys.insert(name, keyring.add(config, &variables)?);
    }
    Ok(keys)
}

/// Serves the clusters, and has the kubeconfig lead to them. That concerns the contexts with a key, and the selected
/// one if the command gives it a user with a key.
fn start_tunnels(
    kubeconfig: &mut Kubeconfig,
    clusters: Vec<ServedCluster>,
    keys: &HashMap<String, KeyNumber>,
    selected: Option<&Context>,
    keyring: &Arc<Keyring>,
) -> Result<Tunnels, Error> {
    let observer: Arc<dyn TunnelObserver> = Arc::new(Reporter::default());
    let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()])?;
    let tunnels = Tunnels::start(&identity, keyring.clone(), &observer)?;
    // Such contexts have no certificate for the tunnel.
    let has_no_key = |context: &Context| {
        let is_given_key = selected.is_some_and(|selected| {
            selected.name == context.name && keys.contains_key(&selected.user)
        });
        !is_given_key && !keys.contains_key(&context.user)
    };
    let mut without_key = kubeconfig.contexts();
    without_key.retain(has_no_key);
    let without_key = contexts_by(&without_key, |context| &context.cluster);
    for ServedCluster { entry, target } in clusters {
        let address = tunnels.listen(target, None)?.to_string();
        let others = without_key.get(&*entry).map_or(&[][..], Vec::as_slice);
        kubeconfig.redirect(&entry, &identity.endpoint(&address), others);
    }
    for (user, key) in keys {
        let ClientCertificate { certificate_pem, key_pem } = tunnels.clients.certificate(*key)?;
        kubeconfig.identify(user, &certificate_pem, &key_pem);
    }
    Ok(tunnels)
}

/// What the command's own arguments choose from the kubeconfig, as kubectl and helm take them.
struct CommandChoice {
    context: Option<String>,
    /// The cluster that is used in place of the context's.
    cluster: Option<String>,
    /// The user that is used in place of the context's.
    user: Option<String>,
}

impl CommandChoice {
    fn of(command: &[OsString]) -> Self {
        let names_subject =
            command.iter().any(|word| OTHER_USERS.iter().any(|other| word == other));
        Self {
            context: option_of(command, "--context")
                .or_else(|| option_of(command, "--kube-context")),
            cluster: option_of(command, "--cluster"),
            user: if names_subject { None } else { option_of(command, "--user") },
        }
    }

    /// Whether the command finds its cluster without a current context.
    fn names_cluster(&self) -> bool {
        self.context.is_some() || self.cluster.is_some()
    }

    /// The context that the command will use, as far as its arguments show. It has the cluster and the user that they
    /// name.
    fn selected(&self, kubeconfig: &Kubeconfig) -> Option<Context> {
        let name = self.context.as_deref().or_else(|| kubeconfig.current_context());
        let known = name.and_then(|name| kubeconfig.context(name).ok());
        // Only kubectl's `--user` names an entry; with other commands it means something else.
        let is_entry = |name: &String| kubeconfig.has(EntryKind::User, name);
        match (known, self.cluster.clone(), self.user.clone().filter(is_entry)) {
            (Some(known), cluster, user) => Some(Context {
                name: known.name,
                cluster: cluster.unwrap_or(known.cluster),
                user: user.unwrap_or(known.user),
            }),
            (None, Some(cluster), Some(user)) => {
                Some(Context { name: String::new(), cluster, user })
            }
            (None, ..) => None,
        }
    }
}

/// The value of this option, if it stands before a `--`.
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

/// What the tunnels serve: the users with a key, and the clusters that a context joins with one of them.
struct ServedEntries {
    clusters: Vec<ServedCluster>,
    users: Vec<ServedUser>,
}

/// A cluster that a tunnel serves.
struct ServedCluster {
    /// The name of the cluster's entry, which the cluster itself need not have.
    entry: String,
    target: TunnelTarget,
}

/// A user with a key.
struct ServedUser {
    name: String,
    config: Config,
}

impl ServedEntries {
    /// Finds what the kubeconfig has for this program. An entry that can't be served is an error if the selected
    /// context needs it or, without a selected one, if any context does. Otherwise its contexts are left as they are,
    /// with a warning.
    fn of(kubeconfig: &Kubeconfig, selected: Option<&Context>) -> Result<Self, Error> {
        let contexts = kubeconfig.contexts();
        let users = served_users(kubeconfig, &contexts, selected)?;
        let clusters = served_clusters(kubeconfig, &contexts, &users, selected)?;
        Ok(Self { clusters, users })
    }
}

/// Finds the users with a key.
fn served_users(
    kubeconfig: &Kubeconfig,
    contexts: &[Context],
    selected: Option<&Context>,
) -> Result<Vec<ServedUser>, Error> {
    let mut contexts_of = contexts_by(contexts, |context| &context.user);
    let mut users = Vec::new();
    for name in kubeconfig.names(EntryKind::User) {
        let of_user = contexts_of.remove(&*name).unwrap_or_default();
        let is_needed = match selected {
            Some(selected) => selected.user == name,
            None => !of_user.is_empty(),
        };
        let config = match kubeconfig.provider(&name) {
            Ok(Provider::None) => continue,
            Ok(Provider::Other(provider)) => {
                leave(of_user, &format!("its user needs the auth provider \"{provider}\""));
                continue;
            }
            Ok(Provider::ExternalSigner(mut configuration)) => Config::from_map(&mut configuration),
            Err(error) => Err(error),
        };
        match config {
            Ok(config) => users.push(ServedUser { name, config }),
            Err(error) if is_needed => return Err(error),
            Err(error) => leave(of_user, &error),
        }
    }
    Ok(users)
}

/// Groups the contexts by one of their entries: their users or their clusters.
fn contexts_by(
    contexts: &[Context],
    name: impl Fn(&Context) -> &String,
) -> HashMap<&str, Vec<&Context>> {
    let mut groups = HashMap::<_, Vec<_>>::new();
    for context in contexts {
        groups.entry(name(context).as_str()).or_default().push(context);
    }
    groups
}

/// Finds the clusters that a context, or the selected one, joins with one of these users. A cluster that only other
/// users need isn't changed.
fn served_clusters(
    kubeconfig: &Kubeconfig,
    contexts: &[Context],
    users: &[ServedUser],
    selected: Option<&Context>,
) -> Result<Vec<ServedCluster>, Error> {
    // A context may name a cluster that doesn't exist.
    let named = contexts.iter().map(|context| context.cluster.clone());
    let names: BTreeSet<_> =
        kubeconfig.names(EntryKind::Cluster).into_iter().chain(named).collect();
    let users: HashSet<_> = users.iter().map(|user| &*user.name).collect();
    let has_key = |context: &&Context| users.contains(&*context.user);
    let mut contexts_of = contexts_by(contexts, |context| &context.cluster);
    let mut clusters = Vec::new();
    for entry in names {
        let with_key = contexts_of.remove(&*entry).unwrap_or_default();
        let with_key: Vec<_> = with_key.into_iter().filter(has_key).collect();
        let is_selected = selected
            .as_ref()
            .is_some_and(|selected| selected.cluster == entry && has_key(selected));
        if with_key.is_empty() && !is_selected {
            continue;
        }
        match kubeconfig.cluster(&entry) {
            Ok(NamedCluster { name, cluster }) => {
                let target = TunnelTarget::new(name, cluster);
                clusters.push(ServedCluster { entry, target });
            }
            Err(error) if is_selected || selected.is_none() => return Err(error),
            Err(error) => leave(with_key, &error),
        }
    }
    Ok(clusters)
}

/// Warns that these contexts are left as they are, for this reason.
fn leave<'a>(contexts: impl IntoIterator<Item = &'a Context>, reason: &dyn Display) {
    for context in contexts {
        report::warning(&format!(
            "context \"{}\" is left as it is, and kubectl may not be able to use it: {reason}",
            context.name
        ));
    }
}

/// Runs the command with this kubeconfig, and returns its exit code.
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

/// The variables that make the command connect to its local ports directly, even if it uses a proxy. Go does so by
/// itself, but curl and Python don't. Some programs read the one variable first and some the other, so a variable that
/// isn't set gets the value of the other.
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
            let expected: Vec<_> = expected.map(|(name, value)| (name, value.into())).collect();
            assert_eq!(set, expected);
        }
        assert!(no_proxy(|_| None).iter().all(|(_, value)| value == "127.0.0.1"));
    }
}
