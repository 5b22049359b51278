//! `run`: a command whose connections to clusters are made with keys in tokens.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Rlimit;

use super::again::Invocation;
use super::completions::values;
use super::library;
use super::presence::Presence;
use crate::config::Config;
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::KubeconfigError;
use crate::kubeconfig::{Context, Kubeconfig, Provider};
use crate::process::RunError;
use crate::process::command::{Inheritance, Running, Signals};
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::memory;
use crate::process::run_directory::RunDirectory;
use crate::process::watchdog;
use crate::report;
use crate::tunnel::{TunnelObserver, TunnelTarget, Tunnels};

/// Set for the command, so that a run inside a run can be told from a kubeconfig without keys.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_RUN";

/// kubectl asks so often before it gives up, each time at once. For all of them the same trouble is
/// told once; trouble that goes on is told to the next command, too.
const ATTEMPTS: u32 = 5;
/// Who asks so long after the trouble is another command.
const PAUSE: Duration = Duration::from_secs(1);
/// The same trouble is told once in this time, whoever asks.
const SAME_TROUBLE: Duration = Duration::from_secs(2);

/// How kubectl and helm are told to use another context.
const CONTEXT_OPTIONS: [&str; 2] = ["--context", "--kube-context"];

/// helm's `--kube-apiserver`, where it isn't given.
const HELM_SERVER: &str = "HELM_KUBEAPISERVER";

/// Commands of kubectl's whose `--user` names somebody to be given rights.
const OTHER_USERS: [&str; 3] = ["clusterrolebinding", "rolebinding", "subject"];

/// Run a command, such as stock kubectl, helm or k9s, with keys that stay in their tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer run -- kubectl get pods
  pkcs11-external-signer run --context prod -- k9s
  pkcs11-external-signer run -- bash   # every kubectl in it works

Every cluster that a context joins with a user who has `auth-provider: {name: externalSigner, …}` is
led through a tunnel that only this command can use and that ends with it. The exit code is the
command's.")]
pub(super) struct RunArguments {
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    kubeconfig: Option<PathBuf>,
    /// End the connections when a token goes, and make no new ones
    #[arg(long)]
    end_with_token: bool,
    /// The context to use; without it the one that the command's arguments name, or the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    context: Option<String>,
    /// Like --context, and the command gets no other context: no other is in its kubeconfig or has a port
    #[arg(long, value_name = "NAME", conflicts_with = "context", add = values::contexts())]
    only_context: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            command: "run",
            kubeconfig: self.kubeconfig.as_deref(),
            context: self
                .commands_context()
                .or_else(|| self.own_context().map(str::to_owned)),
            ..Invocation::default()
        }
    }

    /// The context that our own options name.
    fn own_context(&self) -> Option<&str> {
        self.only_context.as_deref().or(self.context.as_deref())
    }

    /// The context that the command's arguments name.
    fn commands_context(&self) -> Option<String> {
        CONTEXT_OPTIONS
            .iter()
            .find_map(|name| option(&self.command, name))
    }
}

/// Runs the command; its exit code, or that of the error that kept it from running.
#[cold]
pub(super) fn run(
    arguments: &RunArguments,
    is_verbose: bool,
    core: Rlimit,
    alone: SingleThreaded,
) -> u8 {
    let mut keyring = None;
    let code = serve(arguments, is_verbose, core, alone, &mut keyring).unwrap_or_else(|error| {
        report::error(&error);
        error.exit_code()
    });
    if let Some(keyring) = keyring {
        keyring.finish(code);
    }
    code
}

fn serve(
    arguments: &RunArguments,
    is_verbose: bool,
    core: Rlimit,
    alone: SingleThreaded,
    opened: &mut Option<Arc<Keyring>>,
) -> Result<u8, Error> {
    let preparation = |error: io::Error| RunError::Preparation {
        reason: error.to_string(),
    };
    let inheritance = Inheritance::keep(core).map_err(|error| RunError::Preparation {
        reason: format!("standard output can't be set aside: {error}"),
    })?;
    look_for(&arguments.command)?;
    warn_of_detours(&arguments.command);

    let mut locations = super::locations(arguments.kubeconfig.as_deref());
    if locations.files().is_empty() {
        locations = locations.required();
    }
    let mut kubeconfig = super::load(&locations)?;
    if let Some(name) = &arguments.only_context {
        kubeconfig.keep_only(name)?;
    }
    let selected = selected_context(arguments, &mut kubeconfig)?;
    let Served {
        destinations,
        users,
        configs,
    } = served(&kubeconfig, selected.as_ref())?;
    if destinations.is_empty() || users.is_empty() {
        return Err(nothing_to_serve(arguments, &kubeconfig));
    }
    warn_without_context(arguments, &kubeconfig);
    let names = configs.iter().filter_map(|config| config.pin.variable());
    let variables = TakenVariables::take(names, alone);
    let (keyring, keys) = Keyring::new(configs, &variables, None, library::note_wait)?;
    drop(variables);
    let keyring = Arc::clone(opened.insert(Arc::new(keyring)));
    for TunnelTarget { name, cluster } in &destinations {
        if cluster.insecure {
            report::warning(&format!(
                "cluster \"{name}\" has insecure-skip-tls-verify: whoever answers is believed to be it",
            ));
        }
    }
    let names: Vec<_> = destinations.iter().map(|it| it.name.clone()).collect();
    if let Some(selected) = selected.as_ref().filter(|it| names.contains(&it.cluster)) {
        let mut users = users.iter().zip(&keys);
        if let Some((_, key)) = users.find(|(user, _)| **user == selected.user) {
            open(&keyring, *key)?;
        }
    }
    keyring.leave_terminal();
    memory::scrub_stack::<{ memory::KUBECONFIG_DEPTH }>();

    let presence = Arc::new(Presence::new(arguments.end_with_token));
    let reporter = Reporter::new(is_verbose, Arc::clone(&presence));
    let observer: Arc<dyn TunnelObserver> = Arc::new(reporter);
    let tunnels = Tunnels::open(destinations, &keys, &keyring, &observer)?;
    // The tunnel has no key for other certificates.
    let mut with_certificate = kubeconfig.contexts();
    with_certificate.retain(|context| kubeconfig.may_show_certificate(&context.user));
    for (name, endpoint) in names.iter().zip(tunnels.endpoints()) {
        kubeconfig.redirect(name, &endpoint, |context| {
            !with_certificate.contains(context)
                || users.contains(&context.user)
                || selected.as_ref().is_some_and(|selected| {
                    selected.name == context.name && users.contains(&selected.user)
                })
        });
    }
    for (user, identity) in users.iter().zip(tunnels.identities()) {
        kubeconfig.identify(user, &identity);
    }
    let mut signals = Signals::hold().map_err(preparation)?;
    let directory = |reason| RunError::Directory { reason };
    let place = RunDirectory::create().map_err(directory)?;
    let content = kubeconfig.to_json();
    let file = place
        .write("kubeconfig", content.as_bytes())
        .map_err(directory)?;
    if let Some(signal) = signals.came_early() {
        return Err(RunError::Interrupted { signal }.into());
    }
    let mut variables = vec![
        ("KUBECONFIG", file.clone().into_os_string()),
        (MARK, std::process::id().to_string().into()),
    ];
    variables.extend(no_proxy(|name| std::env::var_os(name)));
    presence.watch(tunnels, &keyring).map_err(preparation)?;
    let running = Running::start(&arguments.command, &variables, inheritance, signals)
        .map_err(|reason| not_started(&arguments.command, reason))?;
    report::leave_screen();
    let code = running.wait();
    report::take_screen_back();
    let code = code.map_err(preparation)?;
    if fs::read(&file).is_ok_and(|left| left != content.as_bytes()) {
        report::warning(
            "the command has changed its kubeconfig, which ends with the run; \
             make lasting changes outside of it",
        );
    }
    presence.end();
    Ok(code)
}

/// The variables with which the command goes to its ports directly, also where it has a proxy: Go
/// does so by itself, but curl and Python don't. Programs look at one of the two before the other,
/// so one that isn't set gets what the other one says.
fn no_proxy(
    variable: impl Fn(&str) -> Option<OsString>,
) -> impl Iterator<Item = (&'static str, OsString)> {
    const NAMES: [&str; 2] = ["NO_PROXY", "no_proxy"];
    const HERE: &str = "127.0.0.1";
    let values = NAMES.map(|name| variable(name).filter(|value| !value.is_empty()));
    let either = values.iter().flatten().next().cloned().unwrap_or_default();
    NAMES.into_iter().zip(values).map(move |(name, value)| {
        let mut value = value.unwrap_or_else(|| either.clone());
        let text = value.to_string_lossy();
        let mut entries = text.split(',').map(str::trim);
        if !entries.any(|entry| [HERE, "*"].contains(&entry)) {
            if !value.is_empty() {
                value.push(",");
            }
            value.push(HERE);
        }
        (name, value)
    })
}

/// Refuses a command that isn't there, before anybody is asked for a PIN.
fn look_for(command: &[OsString]) -> Result<(), RunError> {
    let name = command.first().cloned().unwrap_or_default();
    let is_found = if name.as_encoded_bytes().contains(&b'/') {
        Path::new(&name).exists()
    } else {
        let path = std::env::var_os("PATH");
        // Without PATH, it is for the system to find it.
        path.is_none_or(|path| {
            std::env::split_paths(&path).any(|folder| folder.join(&name).exists())
        })
    };
    if is_found && !name.is_empty() {
        Ok(())
    } else {
        Err(RunError::CommandNotFound { name })
    }
}

/// The context that the command will use, as far as can be told, with the cluster and the user that
/// its arguments name instead. A context that was asked for becomes the current one.
fn selected_context(
    arguments: &RunArguments,
    kubeconfig: &mut Kubeconfig,
) -> Result<Option<Context>, Error> {
    if let Some(name) = arguments.own_context() {
        kubeconfig.set_current_context(name)?;
    }
    let named = arguments.commands_context();
    let name = named.as_deref().or_else(|| kubeconfig.current_context());
    let known = name.and_then(|name| kubeconfig.context(name).ok());
    let command = &arguments.command;
    let cluster = option(command, "--cluster");
    let user = option(command, "--user").filter(|_| {
        !command
            .iter()
            .any(|word| OTHER_USERS.iter().any(|other| word == other))
    });
    if known.is_none() && (cluster.is_none() || user.is_none()) {
        return Ok(None);
    }
    let known = known.unwrap_or_else(|| Context {
        name: String::new(),
        cluster: String::new(),
        user: String::new(),
    });
    Ok(Some(Context {
        name: known.name,
        cluster: cluster.unwrap_or(known.cluster),
        user: user.unwrap_or(known.user),
    }))
}

/// What is led through tunnels: the clusters, and the users with a key and their configurations.
#[derive(Default)]
struct Served {
    destinations: Vec<TunnelTarget>,
    users: Vec<String>,
    configs: Vec<Config>,
}

/// Which clusters and users there are to serve. What is wrong with one is an error where the command
/// will need it; otherwise it is left as it is, with a warning for each context that has it.
fn served(kubeconfig: &Kubeconfig, selected: Option<&Context>) -> Result<Served, Error> {
    let mut served = Served::default();
    let contexts = kubeconfig.contexts();
    let left = |reason: &dyn Display, context: &Context| {
        report::warning(&format!(
            "context \"{}\" is left as it is, and kubectl may not be able to use it: {reason}",
            context.name
        ));
    };
    for user in kubeconfig.user_names() {
        let its: Vec<_> = contexts.iter().filter(|it| it.user == user).collect();
        match config(kubeconfig, &user) {
            Ok(UserKey::Token(config)) => {
                served.users.push(user);
                served.configs.push(*config);
            }
            Ok(UserKey::Elsewhere) => {}
            Ok(UserKey::Unknown(provider)) => its.iter().for_each(|context| {
                let provider = &provider;
                left(
                    &format!("its user needs the auth provider \"{provider}\""),
                    context,
                );
            }),
            Err(error) if selected.map_or(!its.is_empty(), |it| it.user == user) => {
                return Err(error);
            }
            Err(error) => its.iter().for_each(|context| left(&error, context)),
        }
    }
    for name in kubeconfig.cluster_names() {
        let has_key = |it: &&Context| it.cluster == name && served.users.contains(&it.user);
        let is_needed = selected.as_ref().is_some_and(has_key);
        let its: Vec<_> = contexts.iter().filter(has_key).collect();
        // One that only others use stays as it is.
        if its.is_empty() && !is_needed {
            continue;
        }
        match kubeconfig.cluster(&name) {
            Ok(cluster) => served.destinations.push(TunnelTarget { name, cluster }),
            Err(error) if is_needed || selected.is_none() => return Err(error.into()),
            Err(error) => its.iter().for_each(|context| left(&error, context)),
        }
    }
    // A context can name a cluster that isn't there.
    for context in contexts.iter().filter(|it| served.users.contains(&it.user)) {
        if let Err(error) = kubeconfig.cluster(&context.cluster)
            && !kubeconfig.cluster_names().contains(&context.cluster)
        {
            if selected.is_none_or(|selected| selected.name == context.name) {
                return Err(error.into());
            }
            left(&error, context);
        }
    }
    Ok(served)
}

/// What a user shows to a server.
enum UserKey {
    Token(Box<Config>),
    /// Nothing that concerns us.
    Elsewhere,
    /// What an auth provider of this name would get.
    Unknown(String),
}

fn config(kubeconfig: &Kubeconfig, user: &str) -> Result<UserKey, Error> {
    Ok(match kubeconfig.provider(user) {
        Provider::None => UserKey::Elsewhere,
        Provider::Other(name) => UserKey::Unknown(name),
        Provider::ExternalSigner(mut map) => UserKey::Token(Box::new(Config::from_map(&mut map)?)),
    })
}

/// Opens the key that the command will need, with a prompt where it has to be.
fn open(keyring: &Keyring, key: KeyNumber) -> Result<(), Error> {
    // While the command runs, the keyring keeps the time.
    library::end_if_it_hangs(keyring.library(key));
    let key = keyring.open(key);
    watchdog::stop();
    let key = key?;
    for concern in &key.concerns {
        report::warning(&format!("the certificate of {}: {concern}", key.subject));
    }
    if !key.serves_tls_1_3() {
        report::warning(&format!(
            "the key of {} can serve TLS 1.2 only, which not every server speaks: an RSA key needs \
             RSA-PSS for TLS 1.3, and its token has none",
            key.subject
        ));
    }
    Ok(())
}

/// Tells of what makes the command go past the tunnel.
fn warn_of_detours(command: &[OsString]) {
    if option(command, "--kubeconfig").is_some() {
        report::warning(
            "the command is given a --kubeconfig of its own and goes past the tunnel; \
             give --kubeconfig to run, before the command",
        );
    }
    let name = command.first().map(Path::new).and_then(Path::file_name);
    let is_kubectl = name.is_some_and(|name| name == "kubectl" || name == "oc");
    // Other programs have other servers.
    let kubectls = ["--server", "-s"].into_iter().filter(|_| is_kubectl);
    let given = ["--kube-apiserver"]
        .into_iter()
        .chain(kubectls)
        .find(|name| option(command, name).is_some());
    let helms = || std::env::var_os(HELM_SERVER).filter(|server| !server.is_empty());
    let server = given.map(|name| format!("the command is given a {name} of its own and"));
    let server = server.or_else(|| helms().map(|_| format!("{HELM_SERVER} is set, and helm")));
    if let Some(server) = server {
        report::warning(&format!(
            "{server} goes past the tunnel; have the kubeconfig's cluster name that server"
        ));
    }
}

/// Tells of a kubeconfig with which kubectl takes no cluster of it, but one on this machine.
fn warn_without_context(arguments: &RunArguments, kubeconfig: &Kubeconfig) {
    let is_named = arguments.commands_context().is_some()
        || option(&arguments.command, "--cluster").is_some()
        || kubeconfig.current_context().is_some();
    if is_named {
        return;
    }
    report::warning(
        "no context is selected, since the kubeconfig has no current-context; name one with \
         `run --context NAME`, or set it with `kubectl config use-context NAME` outside of the run",
    );
}

/// The value of an option among the command's arguments, before a `--`.
fn option(command: &[OsString], name: &str) -> Option<String> {
    let mut arguments = command
        .iter()
        .skip(1)
        .map(|argument| argument.to_string_lossy());
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            return None;
        }
        if argument == name {
            return Some(arguments.next().unwrap_or_default().into_owned());
        }
        if let Some(value) = argument
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
        {
            return Some(value.to_owned());
        }
    }
    None
}

fn nothing_to_serve(arguments: &RunArguments, kubeconfig: &Kubeconfig) -> Error {
    let inside = std::env::var_os(MARK).is_some();
    if arguments.only_context.is_some() && !inside {
        return match kubeconfig.selected_context() {
            Ok(Context { name, user, .. }) => KubeconfigError::NotExternalSigner {
                context: name,
                user,
            },
            Err(error) => error,
        }
        .into();
    }
    let kubeconfig = match &arguments.kubeconfig {
        Some(file) => file.display().to_string(),
        None => std::env::var_os("KUBECONFIG").map_or_else(
            || "~/.kube/config".to_owned(),
            |files| Path::new(&files).display().to_string(),
        ),
    };
    KubeconfigError::NothingToServe { kubeconfig, inside }.into()
}

fn not_started(command: &[OsString], reason: io::Error) -> RunError {
    let name = command.first().cloned().unwrap_or_default();
    match reason.kind() {
        io::ErrorKind::NotFound => RunError::CommandNotFound { name },
        _ => RunError::Command { name, reason },
    }
}

/// Tells what happens in the tunnels.
struct Reporter {
    is_verbose: bool,
    presence: Arc<Presence>,
    told: Mutex<Option<Told>>,
}

/// The trouble that was told last.
struct Told {
    text: String,
    at: Instant,
    /// The last time that it was the same.
    last: Instant,
    /// How often it has been since.
    times: u32,
    /// Somebody has asked after a pause.
    is_asked: bool,
}

impl Reporter {
    fn new(is_verbose: bool, presence: Arc<Presence>) -> Self {
        Self {
            is_verbose,
            presence,
            told: Mutex::default(),
        }
    }

    fn note_question(&self, now: Instant) {
        if let Some(told) = self.told().as_mut() {
            told.is_asked |= now.saturating_duration_since(told.last) >= PAUSE;
        }
    }

    /// Whether this is to be told now.
    fn is_news(&self, text: String, now: Instant) -> bool {
        let mut told = self.told();
        if let Some(known) = told.as_mut().filter(|known| known.text == text) {
            known.last = now;
            known.times += 1;
            let is_young = now.saturating_duration_since(known.at) < SAME_TROUBLE;
            if is_young || !known.is_asked && known.times < ATTEMPTS {
                return false;
            }
        }
        *told = Some(Told {
            text,
            at: now,
            last: now,
            times: 0,
            is_asked: false,
        });
        true
    }

    fn told(&self) -> MutexGuard<'_, Option<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TunnelObserver for Reporter {
    fn connection(&self, line: &str) {
        if self.is_verbose {
            report::note(line);
        }
    }

    fn asked(&self) {
        self.presence.asked();
        self.note_question(Instant::now());
    }

    fn trouble(&self, error: &Error) {
        if self.is_news(error.to_string(), Instant::now()) {
            report::error(error);
        }
    }

    fn concern(&self, text: &str) {
        report::warning(text);
    }
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
            (
                ["x, 127.0.0.1 ,y", ""],
                ["x, 127.0.0.1 ,y", "x, 127.0.0.1 ,y"],
            ),
            (
                ["127.0.0.10", "127.0.0.1"],
                ["127.0.0.10,127.0.0.1", "127.0.0.1"],
            ),
        ] {
            let variable = |name: &str| {
                let at = usize::from(name == "no_proxy");
                Some(OsString::from(before[at]))
            };
            let set: Vec<_> = no_proxy(variable).collect();
            let expected = ["NO_PROXY", "no_proxy"].into_iter().zip(after);
            let expected: Vec<_> = expected.map(|(name, it)| (name, it.into())).collect();
            assert_eq!(set, expected);
        }
        assert_eq!(no_proxy(|_| None).count(), 2);
    }

    /// Attempts, each by when it began and ended, in seconds; whether each was told.
    fn told(attempts: &[(f32, f32, &str)]) -> Vec<bool> {
        let reporter = Reporter::new(false, Arc::new(Presence::new(false)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs_f32(seconds);
        let told = attempts.iter().map(|(began, ended, text)| {
            reporter.note_question(at(*began));
            reporter.is_news((*text).to_owned(), at(*ended))
        });
        told.collect()
    }

    #[test]
    fn trouble_is_told_once_for_all_attempts_of_a_command() {
        for duration in [0.1, 10.0] {
            let time = |number: u8| f32::from(number) * duration;
            let attempts: Vec<_> = (0..5).map(|it| (time(it), time(it + 1), "gone")).collect();
            assert_eq!(told(&attempts), [true, false, false, false, false]);
        }
    }

    #[test]
    fn trouble_that_goes_on_is_told_to_the_next_command() {
        // Started by a person; started at once by a script, where each asks once.
        assert_eq!(told(&[(0.0, 5.0, "gone"), (7.0, 12.0, "gone")]), [true; 2]);
        let script = (0_u8..7).map(|it| (f32::from(it), f32::from(it) + 1.0, "gone"));
        let script: Vec<_> = script.collect();
        let times = told(&script).into_iter().filter(|told| *told).count();
        assert_eq!(times, 2);
        // Something else is told at once, and then the first anew.
        let changing = [(0.0, 0.1, "gone"), (0.1, 0.2, "locked"), (0.2, 0.3, "gone")];
        assert_eq!(told(&changing), [true; 3]);
    }
}
