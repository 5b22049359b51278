//! `check`: whether a configured key works, step by step, and what to do where it doesn't.

#![forbid(unsafe_code)]

mod checklist;
mod client;
mod error;
mod steps;

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::checklist::{CheckStep, Checklist, quoted};
use self::client::check_client;
use self::steps::check_key;
use super::again::Invocation;
use super::completions::values;
use super::error::ArgumentNeeds;
use super::kubeconfig::{Search, provider_config, set_token};
use super::output::CommandOutput;
use super::selection::{self, HEADING, Selection};
use super::style::Palette;
use crate::config::{Config, Filter, PinSource};
use crate::error::{Error, OwnCommand, Piece, Setting, remedy};
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::{Context, Kubeconfig, KubeconfigError, Provider, ProviderConfig};
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::printable::excerpt;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::watchdog;
use crate::protocol::Configuration;
use crate::report;
use crate::token::ObjectError;
use crate::tunnel::{self, Recognition, TunnelObserver, TunnelTarget};

/// Test each step up to a signature: what works, what doesn't, and what to do about it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer check                # the current context
  pkcs11-external-signer check --context prod --server
  pkcs11-external-signer check --no-login     # without a PIN
  pkcs11-external-signer check --token-serial 15873456 --object-id 2 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so

The exit code is the one a signature would have ended with: that of the first step that failed.")]
pub(super) struct CheckArguments {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// The certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, add = values::files())]
    certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, help_heading = HEADING, add = values::pin_sources())]
    pin_source: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    kubeconfig: Option<PathBuf>,
    /// The context; without it the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    context: Option<String>,
    /// Connect to the context's cluster, too, and ask as whom it knows us
    #[arg(long, conflicts_with = "no_login")]
    server: bool,
    /// Stop before the PIN
    #[arg(long)]
    no_login: bool,
    /// Send a stored PIN although the token has refused one, because it is another PIN now
    #[arg(long, conflicts_with = "no_login")]
    despite_refusal: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl CheckArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            command: "check",
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            pin_source: self.pin_source.as_deref(),
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.context.clone(),
        }
    }

    /// Rather than have the kubeconfig name it.
    fn names_a_key(&self) -> bool {
        !self.selection.is_empty() || self.uri.is_some()
    }
}

/// Reports each step; the exit code.
#[cold]
pub(super) fn run(arguments: &CheckArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let palette = Palette::for_standard_output();
    let columns = report::columns(&io::stdout());
    let output = match CommandOutput::open() {
        Ok(output) => output,
        Err(error) => return report::error(&error.into()),
    };
    let mut checklist = Checklist::new(output, palette, columns, arguments.json);
    let mut library = None;
    let keyring = check(arguments, verbosity, alone, &mut library, &mut checklist);
    let code = checklist.finish();
    // The findings are printed: a library that hangs or crashes at its end changes nothing.
    if let Some(library) = library {
        library.finalize(code);
    }
    if let Some(keyring) = keyring {
        keyring.finish(code);
    }
    code
}

/// Makes the steps. What is open at the end is in `opened` or, if the server was asked, the keyring
/// that is returned.
fn check(
    arguments: &CheckArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
    checklist: &mut Checklist,
) -> Option<Arc<Keyring>> {
    let mut source = checklist.keep(CheckStep::Configuration, Source::of(arguments))?;
    let variables = super::take_variables(source.configuration(arguments), alone);
    let config = configuration(arguments, verbosity, &mut source, checklist);
    let mut config = checklist.keep(CheckStep::Configuration, config)?;
    // Before a PIN is asked for.
    let local = source
        .own_context()
        .and_then(|context| check_client(&source.kubeconfig, context, checklist));
    let target = match arguments.server {
        true => Some(checklist.keep(CheckStep::Server, source.target())?),
        false => None,
    };
    // The token is opened twice; the second time with the PIN that it has accepted the first time.
    let mut pins = Sources::new(mem::replace(&mut config.pin, PinSource::Prompt), &variables);
    let accepted = check_key(&config, arguments, &mut pins, opened, checklist);
    if checklist.exit_code() != 0 {
        return None;
    }
    // From here on, the keyring limits the time.
    let target = target?;
    watchdog::stop();
    // The library stays open: some see no token any more after C_Finalize.
    let keyring = Arc::new(Keyring::default());
    let key = keyring.add_open(config, opened.take()?, accepted);
    let key = checklist.keep(CheckStep::Server, key)?;
    check_server(target, key, &keyring, local, checklist);
    Some(keyring)
}

/// Reads the configuration of the key, and reports where it comes from and what is unwise in it.
fn configuration(
    arguments: &CheckArguments,
    verbosity: u8,
    source: &mut Source,
    checklist: &mut Checklist,
) -> Result<Config, Error> {
    let mut map = source.configuration(arguments);
    let found = match source.is_kubeconfigs {
        true => Ok(None),
        false => complete(&mut map, arguments, verbosity),
    };
    let (found, no_key) = match (found, source.no_key.take()) {
        // If there isn't one key to be found, the error is that nothing names one; if there are
        // several, it lists them.
        (Err(error), Some(why))
            if !matches!(error.downcast_ref(), Some(ObjectError::Choice { .. })) =>
        {
            return Err(why);
        }
        (found, no_key) => (found?, no_key),
    };
    let config = Config::from_map(&mut map)?;
    let step = CheckStep::Configuration;
    match (&source.context, found, no_key) {
        (_, Some(uri), Some(why)) => checklist.concern(
            step,
            format!("{why}; the only key that can be used is checked: {uri}"),
            remedy!(
                "have a context use it: `",
                OwnCommand::WriteKubeconfig,
                " --context NAME`"
            ),
        ),
        (_, Some(uri), None) => {
            checklist.good(step, format!("from the options, completed: {uri}"));
        }
        (Some(context), ..) if source.is_kubeconfigs => checklist.good(
            step,
            format!(
                "context \"{}\", cluster \"{}\", user \"{}\"",
                context.name, context.cluster, context.user
            ),
        ),
        _ => checklist.good(step, "from the options"),
    }
    if let Some(program) = map.value("pathExec")
        && !Path::new(program).is_file()
    {
        checklist.concern(
            step,
            format!("pathExec {} is no program that is there", excerpt(program)),
            remedy!(
                "clients with the provider need it: ",
                Piece::Program,
                " kubeconfig prints the right one; `run` does without"
            ),
        );
    }
    if let PinSource::Configuration(_) = config.pin {
        checklist.concern(
            step,
            match source.is_kubeconfigs {
                true => {
                    "the PIN stands in the configuration, where every program of yours can read it"
                }
                false => {
                    "the PIN stands on the command line, where every user of the machine can read \
                     it"
                }
            },
            remedy!("leave pin out to be asked, or set ", Setting("pinSource")),
        );
    }
    Ok(config)
}

/// Where the configuration comes from.
#[derive(Default)]
struct Source {
    kubeconfig: Kubeconfig,
    context: Option<Context>,
    /// The key's configuration is the context's.
    is_kubeconfigs: bool,
    /// Why it isn't, if no option names a key.
    no_key: Option<Error>,
}

impl Source {
    fn of(arguments: &CheckArguments) -> Result<Self, Error> {
        let names_a_key = arguments.names_a_key();
        let (context, file) = (arguments.context.is_some(), arguments.kubeconfig.is_some());
        if names_a_key && !arguments.server {
            let argument = match (context, file) {
                (true, _) => "--context beside options that name a key",
                (_, true) => "--kubeconfig beside options that name a key",
                _ => return Ok(Self::default()),
            };
            let other = "--server";
            return Err(ArgumentNeeds { argument, other }.into());
        }
        let is_optional = !arguments.server && !context && !file;
        let source = Self::of_kubeconfig(arguments, !names_a_key);
        source.or_else(|error| match error.downcast_ref() {
            Some(
                KubeconfigError::Missing { .. }
                | KubeconfigError::NoCurrentContext { .. }
                | KubeconfigError::NotExternalSigner { .. },
            ) if is_optional => Ok(Self {
                no_key: Some(error),
                ..Self::default()
            }),
            _ => Err(error),
        })
    }

    fn of_kubeconfig(arguments: &CheckArguments, is_kubeconfigs: bool) -> Result<Self, Error> {
        let locations = super::locations(arguments.kubeconfig.as_deref());
        let mut kubeconfig = super::load(&locations.required())?;
        if let Some(name) = &arguments.context {
            kubeconfig.set_current_context(name)?;
        }
        let context = kubeconfig.selected_context()?;
        if is_kubeconfigs
            && !matches!(
                kubeconfig.provider(&context.user)?,
                Provider::ExternalSigner(_)
            )
        {
            return Err(KubeconfigError::NotExternalSigner {
                context: context.name,
                user: context.user,
            }
            .into());
        }
        Ok(Self {
            kubeconfig,
            context: Some(context),
            is_kubeconfigs,
            no_key: None,
        })
    }

    fn configuration(&self, arguments: &CheckArguments) -> Configuration {
        let mut map = match &self.context {
            Some(context) if self.is_kubeconfigs => match self.kubeconfig.provider(&context.user) {
                Ok(Provider::ExternalSigner(map)) => map,
                _ => Configuration::default(),
            },
            _ => arguments
                .selection
                .configuration([("uri", arguments.uri.as_deref())]),
        };
        if let Some(path) = &arguments.certificate_file {
            map.set("certificateFile", path);
        }
        if let Some(source) = &arguments.pin_source {
            PinSource::override_in(&mut map, source);
        }
        map
    }

    /// The context, if the key is its user's.
    fn own_context(&self) -> Option<&Context> {
        self.context.as_ref().filter(|_| self.is_kubeconfigs)
    }

    /// The context's cluster.
    fn target(&self) -> Result<TunnelTarget, KubeconfigError> {
        let name = self.context.as_ref().map_or("", |it| it.cluster.as_str());
        Ok(TunnelTarget {
            name: name.to_owned(),
            cluster: self.kubeconfig.cluster(name)?,
            heeds_environment: true,
        })
    }
}

/// Adds what the options don't say of library, token and key, if there is only one or a person picks
/// one. Returns the URI of the key, or `None` if nothing was missing.
fn complete(
    map: &mut Configuration,
    arguments: &CheckArguments,
    verbosity: u8,
) -> Result<Option<String>, Error> {
    let uri = arguments.uri.as_deref();
    let said = Filter::from_map(&mut arguments.selection.configuration([("uri", uri)]))?;
    let is_whole = said.library.is_some() && said.token.is_given() && said.object.is_given();
    if is_whole {
        return Ok(None);
    }
    let search = Search {
        selection: &arguments.selection,
        uri,
        wanted: said.object,
        has_certificate: arguments.certificate_file.is_some(),
        login: false,
        pin_source: None,
        variables: &TakenVariables::default(),
        verbosity,
    };
    let mut opened = None;
    let listing = search.look(&mut opened);
    if let Some(library) = opened {
        let _step = watchdog::step("closing the library (C_Finalize)");
        library.close();
    }
    let listing = listing?;
    // If there is only one key, the check says what is wrong with it.
    let mut keys = listing.keys();
    let only_key = keys.next().filter(|_| keys.next().is_none());
    let chosen = search
        .choose(&listing)
        .or_else(|error| match error.downcast_ref() {
            Some(ObjectError::NoUsable { .. }) => only_key.ok_or(error),
            _ => Err(error),
        });
    let (config, uri) = match (chosen, listing.only_token()) {
        (Ok(place @ (_, _, key)), _) => (provider_config(None, place, None), key.uri.clone()),
        // The token may hide the key.
        (Err(error), Some((library, token)))
            if matches!(error.downcast_ref(), Some(ObjectError::NoneFits { .. })) =>
        {
            let mut config = ProviderConfig::default();
            set_token(&mut config, library, token);
            (config, format!("token {}", token.name()))
        }
        (Err(error), _) => return Err(error),
    };
    for (key, value) in config.pairs() {
        if key != "pathExec" && !map.has(key) {
            map.set(key, value);
        }
    }
    Ok(Some(uri))
}

/// Connects as `run` would, and asks the server for whom it takes us. `local` is the address by which
/// clients with the plugin reach it.
fn check_server(
    target: TunnelTarget,
    key: KeyNumber,
    keyring: &Arc<Keyring>,
    local: Option<SocketAddr>,
    checklist: &mut Checklist,
) {
    let server = target.cluster.server.clone();
    let connections = Arc::new(Connections::default());
    let observer: Arc<dyn TunnelObserver> = Arc::clone(&connections) as _;
    let recognition = tunnel::whoami(target, key, keyring, &observer);
    for line in mem::take(&mut *connections.lines()) {
        checklist.good(CheckStep::Server, line);
    }
    match recognition {
        Err(error) => checklist.bad(CheckStep::Server, &error),
        Ok(Recognition::User { name, groups }) => {
            let groups = quoted(&groups);
            let way = local.map_or_else(String::new, |address| {
                format!(" (asked directly, and not by {address})")
            });
            let text = format!("{server} knows us as user \"{name}\", groups {groups}{way}");
            checklist.good(CheckStep::Server, text);
        }
        Ok(Recognition::NotTold) => checklist.concern(
            CheckStep::Server,
            format!("{server} was reached, but is too old to tell as whom it knows us"),
            "try `run -- kubectl get namespaces`",
        ),
    }
}

/// Collects the lines about connections.
#[derive(Default)]
struct Connections(Mutex<Vec<String>>);

impl Connections {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TunnelObserver for Connections {
    fn connection(&self, line: &str) {
        self.lines().push(line.to_owned());
    }

    fn trouble(&self, _: &Error) {}

    fn concern(&self, _: &str) {}

    fn waiting(&self, text: &str) {
        report::warning(text);
    }
}
