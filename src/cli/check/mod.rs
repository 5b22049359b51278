//! `check`: whether a configured key works, step by step, and what to do where it doesn't.

mod checklist;
mod client;
mod sealed;
mod short_lived;
mod steps;

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use self::checklist::{CheckStep, Checklist};
use self::client::check_client;
use self::sealed::check_sealed;
use self::short_lived::check_short_lived;
use self::steps::check_key;
use super::connection::connect;
use super::credential_kind::ShortLived;
use super::error::needs;
use super::key_options::{KeyOptions, KeySource, SelectedContext};
use super::session::CommandSession;
use crate::cluster_api::token_request::ServiceAccount;
use crate::config::{Config, PinSource};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::kubeconfig::write_command;
use crate::library::Library;
use crate::pin_entry::Sources;
use crate::printable::quoted;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::watchdog;
use crate::tunnel::TunnelTarget;

/// Test each step up to a signature: what works, what doesn't, and what to do about it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer check                # the current context
  pkcs11-external-signer check --context prod --server
  pkcs11-external-signer check --no-login     # without a PIN
  pkcs11-external-signer check --sealed registry.cms --image a.example/b \\
      --module /usr/lib/softhsm/libsofthsm2.so --token-label node1
  pkcs11-external-signer check --token-serial 15873456 --object-id 2 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so

The exit code is the one a signature would have ended with: that of the first step that failed.")]
pub(super) struct CheckArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Connect to the context's cluster, too, and ask as whom it knows us
    #[arg(long, conflicts_with = "no_login")]
    server: bool,
    /// Check what `credential --as` needs, too; for token and certificate it asks the cluster
    #[arg(long = "as", value_name = "WHAT", conflicts_with = "no_login")]
    kind: Option<ShortLived>,
    /// The service account for --as token
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kind")]
    service_account: Option<ServiceAccount>,
    /// Stop before the PIN
    #[arg(long)]
    no_login: bool,
    /// Send a stored PIN although the token has refused one, because it is another PIN now
    #[arg(long, conflicts_with = "no_login")]
    despite_refusal: bool,
    /// Open this sealed file, as kubelet-credential-provider does
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "kubeconfig", "context"])]
    sealed: Option<PathBuf>,
    /// Say what kubelet would be told for this image
    #[arg(long, value_name = "NAME", requires = "sealed")]
    image: Option<String>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl CheckArguments {
    /// Whether the cluster is asked.
    fn asks_server(&self) -> bool {
        self.server || matches!(self.kind, Some(ShortLived::Certificate | ShortLived::Token))
    }
}

#[cold]
pub(super) fn run(
    arguments: &CheckArguments,
    alone: SingleThreaded,
    session: &mut CommandSession,
) -> Result<(), Error> {
    arguments.key.set_call();
    let CommandSession { output, palette, verbosity, library, keyring, exit_code } = session;
    let mut checklist = Checklist::new(output, *palette, arguments.json);
    check(arguments, *verbosity, alone, library, keyring, &mut checklist);
    *exit_code = checklist.exit_code();
    checklist.finish()
}

/// Makes the steps; `None` after one that ends them.
fn check(
    arguments: &CheckArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
    keyring: &Arc<Keyring>,
    checklist: &mut Checklist<'_>,
) -> Option<()> {
    if let Some(path) = &arguments.sealed {
        return check_sealed(path, arguments, alone, opened, checklist);
    }
    let source = source(arguments, verbosity, alone);
    let (mut source, variables) = checklist.keep(CheckStep::CONFIGURATION, source)?;
    let config = Config::from_map(&mut source.configuration);
    let mut config = checklist.keep(CheckStep::CONFIGURATION, config)?;
    report_source(&source, &config, checklist);
    // Before a PIN is asked for.
    if let Some(SelectedContext { kubeconfig, context }) = &source.context {
        check_client(kubeconfig, context, checklist);
    }
    let target = match arguments.asks_server() {
        true => Some(checklist.keep(CheckStep::SERVER, target(arguments, &source))?),
        false => None,
    };
    // The token is opened twice; the second time with the PIN that it has accepted the first time.
    let mut pins = Sources::new(mem::take(&mut config.pin), &variables);
    let accepted = check_key(&config, arguments, &mut pins, opened, checklist);
    if checklist.exit_code() != 0 {
        return None;
    }
    let target = target?;
    let library = opened.take()?;
    // From here on, the keyring limits the time.
    watchdog::stop();
    // The library stays open: some see no token any more after C_Finalize.
    let key = keyring.take_over(&config, library, accepted);
    let key = key.and_then(|()| keyring.add(config, &variables));
    let key = checklist.keep(CheckStep::SERVER, key)?;
    check_server(arguments, target, key, keyring, checklist);
    Some(())
}

/// The key that is checked; options go together only where the cluster is asked, too.
fn source(
    arguments: &CheckArguments,
    verbosity: u8,
    alone: SingleThreaded,
) -> Result<(KeySource, TakenVariables), Error> {
    let (options, server) = (&arguments.key, arguments.asks_server());
    if arguments.kind == Some(ShortLived::Token) && arguments.service_account.is_none() {
        return Err(needs("--as token", "--service-account"));
    }
    if options.names_a_key() && !server {
        if options.context.is_some() {
            return Err(needs("--context beside options that name a key", "--server"));
        }
        if options.kubeconfig.is_some() {
            return Err(needs("--kubeconfig beside options that name a key", "--server"));
        }
    }
    options.whole_source(!server, verbosity, alone)
}

/// Reports where the configuration of the key comes from, and what is unwise in it.
fn report_source(source: &KeySource, config: &Config, checklist: &mut Checklist<'_>) {
    let step = CheckStep::CONFIGURATION;
    match (&source.found, &source.context) {
        (Some((uri, Some(why))), _) => checklist.concern(
            step,
            format!("{why}; the only key that can be used is checked: {uri}"),
            format!("have a context use it: {}", write_command("NAME")),
        ),
        (Some((uri, None)), _) => {
            checklist.good(step, format!("from the options, completed: {uri}"));
        }
        (None, Some(SelectedContext { context, .. })) => checklist.good(
            step,
            format!(
                "context \"{}\", cluster \"{}\", user \"{}\"",
                context.name, context.cluster, context.user
            ),
        ),
        (None, None) => checklist.good(step, "from the options"),
    }
    if let PinSource::Configuration(_) = config.pin {
        let readers = match source.context {
            Some(_) => "in the configuration, where every program of yours can read it",
            None => "on the command line, where every user of the machine can read it",
        };
        checklist.concern(
            step,
            format!("the PIN stands {readers}"),
            "leave pin out to be asked, or set pinSource (--pin-source)",
        );
    }
}

/// The cluster that is asked: that of the context with the key, or where options name the key of the selected context.
fn target(arguments: &CheckArguments, source: &KeySource) -> Result<TunnelTarget, Error> {
    let named;
    let SelectedContext { kubeconfig, context } = match &source.context {
        Some(context) => context,
        None => {
            named = arguments.key.selected()?;
            &named
        }
    };
    let (name, cluster) = kubeconfig.real_cluster(&context.cluster)?;
    Ok(TunnelTarget::new(name, cluster))
}

/// Connects as `run` would, and asks the server for whom it takes us.
fn check_server(
    arguments: &CheckArguments,
    target: TunnelTarget,
    key: KeyNumber,
    keyring: &Arc<Keyring>,
    checklist: &mut Checklist<'_>,
) {
    let server = target.cluster.server.clone();
    let connection = connect(target, key, keyring);
    let Some(connection) = checklist.keep(CheckStep::SERVER, connection) else {
        return;
    };
    let Some(user) = checklist.keep(CheckStep::SERVER, connection.whoami()) else {
        return;
    };
    let groups = quoted(&user.groups);
    let text = format!("{server} knows us as user \"{}\", groups {groups}", user.name);
    checklist.good(CheckStep::SERVER, text);
    if let Some(kind) = arguments.kind {
        let account = arguments.service_account.as_ref();
        check_short_lived(kind, account, &connection, &user, checklist);
    }
}
