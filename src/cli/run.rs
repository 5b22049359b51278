//! `run`: a command whose connections to clusters are made with keys in tokens.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Rlimit;

use super::again::Invocation;
use super::turn;
use crate::config::Config;
use crate::error::{Error, RunError};
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{Cluster, Context, Kubeconfig, Provider};
use crate::process::command::{Inheritance, Running, Signals};
use crate::process::memory;
use crate::process::run_directory::RunDirectory;
use crate::process::watchdog;
use crate::report;
use crate::tunnel::{Destination, Observer, Tunnels};

/// Set for the command, so that a run inside a run can be told from a kubeconfig without keys.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_RUN";

/// The same trouble is told once in this time, since kubectl asks five times before it gives up. It
/// counts from what was told, so that trouble that goes on is told to the next command, too.
const SAME_TROUBLE: Duration = Duration::from_secs(2);

/// How kubectl and helm are told to use another context.
const CONTEXT_OPTIONS: [&str; 2] = ["--context", "--kube-context"];

/// Run a command, such as stock kubectl, helm or k9s, with keys that stay in their tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer run -- kubectl get pods
  pkcs11-external-signer run --context prod -- k9s
  pkcs11-external-signer run -- bash   # every kubectl in it works

Every context whose user has `auth-provider: {name: externalSigner, …}` is led through a tunnel
that only this command can use and that ends with it. The exit code is the command's.")]
pub(super) struct Arguments {
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to use; without it the one that the command's arguments name, or the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            command: "run",
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.commands_context().or_else(|| self.context.clone()),
            ..Invocation::default()
        }
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
pub(super) fn run(arguments: &Arguments, is_verbose: bool, core: Rlimit) -> u8 {
    let mut keyring = None;
    let code = serve(arguments, is_verbose, core, &mut keyring).unwrap_or_else(|error| {
        report::error(&error);
        error.exit_code()
    });
    if let Some(keyring) = keyring {
        keyring.finish(code);
    }
    code
}

fn serve(
    arguments: &Arguments,
    is_verbose: bool,
    core: Rlimit,
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

    let mut kubeconfig = super::load_kubeconfig(arguments.kubeconfig.as_deref())?;
    let selected = selected_context(arguments, &mut kubeconfig)?;
    let Served {
        pairs,
        clusters,
        configs,
    } = served(&kubeconfig, selected.as_ref())?;
    if pairs.is_empty() {
        return Err(nothing_to_serve(arguments));
    }
    let (keyring, numbers) = Keyring::new(configs, turn::tell)?;
    let keyring = Arc::clone(opened.insert(Arc::new(keyring)));
    let mut destinations = Vec::with_capacity(pairs.len());
    for (pair, cluster) in pairs.iter().zip(clusters) {
        if cluster.insecure {
            report::warning(&format!(
                "cluster \"{}\" has insecure-skip-tls-verify: whoever answers is believed to be it",
                pair.cluster
            ));
        }
        let key = numbers.get(pair.key).copied().ok_or_else(no_key)?;
        if selected
            .as_ref()
            .is_some_and(|selected| pair.serves(selected))
        {
            open(&keyring, key)?;
        }
        destinations.push(Destination {
            name: pair.cluster.clone(),
            cluster,
            key,
        });
    }
    keyring.leave_terminal();
    memory::wash::<{ memory::KUBECONFIG }>();

    let observer: Arc<dyn Observer> = Arc::new(Reporter::new(is_verbose));
    let tunnels = Tunnels::open(destinations, &keyring, &observer)?;
    for (pair, detour) in pairs.iter().zip(tunnels.detours()) {
        kubeconfig.redirect(&pair.cluster, &pair.user, &detour);
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
    let variables = [
        ("KUBECONFIG", file.clone().into_os_string()),
        (MARK, std::process::id().to_string().into()),
    ];
    let running = Running::start(&arguments.command, &variables, inheritance, signals)
        .map_err(|reason| not_started(&arguments.command, reason))?;
    let ending = running.wait().map_err(preparation)?;
    if fs::read(&file).is_ok_and(|left| left != content.as_bytes()) {
        report::warning(
            "the command has changed its kubeconfig, which ends with the run; \
             make lasting changes outside of it",
        );
    }
    drop(tunnels);
    Ok(ending.exit_code())
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

/// The context that the command will use, as far as can be told. One that was asked for becomes
/// the current one.
fn selected_context(
    arguments: &Arguments,
    kubeconfig: &mut Kubeconfig,
) -> Result<Option<Context>, Error> {
    if let Some(name) = &arguments.context {
        kubeconfig.set_current_context(name)?;
    }
    let named = arguments.commands_context();
    let name = named.as_deref().or_else(|| kubeconfig.current_context());
    Ok(kubeconfig
        .contexts()
        .into_iter()
        .find(|context| Some(context.name.as_str()) == name))
}

/// A cluster and a user that some context brings together.
struct Pair {
    cluster: String,
    user: String,
    /// Which of the configurations is the user's.
    key: usize,
}

impl Pair {
    fn serves(&self, context: &Context) -> bool {
        self.cluster == context.cluster && self.user == context.user
    }
}

/// What is led through tunnels: the pairs, the cluster of each, and the configurations of the keys.
#[derive(Default)]
struct Served {
    pairs: Vec<Pair>,
    clusters: Vec<Cluster>,
    configs: Vec<Config>,
}

/// Goes through the contexts. What is wrong with one is an error where the command will need it;
/// another one is left as it is, with a warning.
fn served(kubeconfig: &Kubeconfig, selected: Option<&Context>) -> Result<Served, Error> {
    let mut served = Served::default();
    let mut keys: HashMap<String, Option<usize>> = HashMap::new();
    for context in kubeconfig.contexts() {
        if served.pairs.iter().any(|pair| pair.serves(&context)) {
            continue;
        }
        let is_needed = selected.is_none_or(|selected| *selected == context);
        let left = |reason: &dyn Display| {
            report::warning(&format!(
                "context \"{}\" is left as it is, and kubectl may not be able to use it: {reason}",
                context.name
            ));
        };
        let key = match keys.get(&context.user) {
            Some(known) => *known,
            None => {
                let key = match config(kubeconfig, &context.user) {
                    Ok(UserKey::Token(config)) => {
                        served.configs.push(*config);
                        Some(served.configs.len() - 1)
                    }
                    Ok(UserKey::Elsewhere) => None,
                    Ok(UserKey::Unknown(provider)) => {
                        left(&format!("its user needs the auth provider \"{provider}\""));
                        None
                    }
                    Err(error) if is_needed => return Err(error),
                    Err(error) => {
                        left(&error);
                        None
                    }
                };
                keys.insert(context.user.clone(), key);
                key
            }
        };
        let Some(key) = key else { continue };
        match kubeconfig.cluster(&context.cluster) {
            Ok(cluster) => {
                served.clusters.push(cluster);
                served.pairs.push(Pair {
                    cluster: context.cluster,
                    user: context.user,
                    key,
                });
            }
            Err(error) if is_needed => return Err(error.into()),
            Err(error) => left(&error),
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
    turn::bound(keyring.library(key));
    let key = keyring.open(key);
    watchdog::stop();
    let key = key?;
    for concern in &key.concerns {
        report::warning(&format!("the certificate of {}: {concern}", key.subject));
    }
    Ok(())
}

/// Tells of arguments with which the command goes past the tunnel.
fn warn_of_detours(command: &[OsString]) {
    if option(command, "--kubeconfig").is_some() {
        report::warning(
            "the command is given a --kubeconfig of its own and goes past the tunnel; \
             give --kubeconfig to run, before the command",
        );
    }
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

fn nothing_to_serve(arguments: &Arguments) -> Error {
    let kubeconfig = match &arguments.kubeconfig {
        Some(file) => file.display().to_string(),
        None => std::env::var_os("KUBECONFIG").map_or_else(
            || "~/.kube/config".to_owned(),
            |files| Path::new(&files).display().to_string(),
        ),
    };
    RunError::NothingToServe {
        kubeconfig,
        inside: std::env::var_os(MARK).is_some(),
    }
    .into()
}

fn not_started(command: &[OsString], reason: io::Error) -> RunError {
    let name = command.first().cloned().unwrap_or_default();
    match reason.kind() {
        io::ErrorKind::NotFound => RunError::CommandNotFound { name },
        _ => RunError::Command { name, reason },
    }
}

fn no_key() -> Error {
    Error::Internal("a user without a key".to_owned())
}

/// Tells what happens in the tunnels.
struct Reporter {
    is_verbose: bool,
    /// What was told last, and when.
    told: Mutex<Option<(String, Instant)>>,
}

impl Reporter {
    fn new(is_verbose: bool) -> Self {
        Self {
            is_verbose,
            told: Mutex::default(),
        }
    }

    /// Whether this is to be told now.
    fn is_news(&self, text: String, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = told
            .as_ref()
            .is_some_and(|(known, at)| *known == text && now - *at < SAME_TROUBLE);
        if !is_told {
            *told = Some((text, now));
        }
        !is_told
    }
}

impl Observer for Reporter {
    fn connection(&self, line: &str) {
        if self.is_verbose {
            report::note(line);
        }
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
    fn trouble_that_goes_on_is_told_again_after_its_time() {
        let reporter = Reporter::new(false);
        let start = Instant::now();
        let is_told = |text: &str, milliseconds| {
            reporter.is_news(text.to_owned(), start + Duration::from_millis(milliseconds))
        };
        // The attempts of one command, those of the next one, and those of a third.
        assert!(is_told("gone", 0));
        assert!(!is_told("gone", 100));
        assert!(!is_told("gone", 1500));
        assert!(is_told("gone", 2900));
        assert!(is_told("locked", 3000));
        assert!(is_told("gone", 3100));
    }
}
