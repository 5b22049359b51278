//! `kubeconfig`: what a kubeconfig needs for a key, printed for pasting or written where it belongs.

use super::key::choice::{key_configuration, names_key};
use super::key::context::{ContextEntries, undo};
use super::key::options::{HEADING, KeyOptions, load_kubeconfig, set};
use super::listing::{Listing, SelectedKey};
use super::session::{CommandSession, StartingSession};
use config::{Filter, Keep};
use kubeconfig::{Kubeconfig, Provider, user_excerpt};
use messages::error::{Error, PROGRAM};

/// What the last line of `--write` is for: kubectl 1.35 and later may refuse plugins, 1.38 takes no other field than
/// `command` for one that it may run.
const ALLOW_LIST: &str = "If kubectl may only run the plugins on its list (~/.kube/kuberc, credentialPluginAllowlist), add this one:";

#[derive(Debug, Default, clap::Args)]
#[command(mut_arg("context", |option| option.help("The context that will use the key")))]
#[command(mut_arg("kubeconfig", |option| option.requires("context")))]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod
  pkcs11-external-signer kubeconfig --write --context prod --keep terminal
  pkcs11-external-signer kubeconfig --undo --context prod
  pkcs11-external-signer kubeconfig              # print the user alone
  pkcs11-external-signer kubeconfig --uri 'pkcs11:serial=15873456;id=%02'

If several keys match, you are asked which one to use. Everything else in the file stays, except comments, and the old file is copied. A PIN is never written.")]
pub(super) struct KubeconfigArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Log in to the tokens, to see keys that they hide
    #[arg(long, help_heading = HEADING, hide_short_help = true)]
    login: bool,
    /// The user's name [default: the certificate's]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Change the kubeconfig, instead of printing entries for it
    #[arg(long, requires = "context")]
    write: bool,
    /// How long the key stays open: command, terminal, or a time such as 15m
    #[arg(long, value_name = "HOW LONG")]
    keep: Option<Keep>,
    /// Print a user for clients with the externalSigner provider
    #[arg(long, conflicts_with_all = ["context", "write"])]
    external_signer: bool,
    /// Give the context back the user that it had before
    #[arg(
        long,
        requires = "context",
        conflicts_with_all = ["write", "keep", "user", "login", "certificate_file", "pin_source", "Selection"]
    )]
    undo: bool,
}

pub(super) fn run(
    arguments: &KubeconfigArguments,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    let options = &arguments.key;
    options.set_call();
    if let Some(context) = options.context.as_deref().filter(|_| arguments.undo) {
        return undo(options.kubeconfig.as_deref(), context);
    }
    let (session, variables) = start.take_pin_variable(options.configuration());
    let pin_source = pin_source(options)?;
    let login = arguments.login.then_some(&variables);
    let Some(context) = &options.context else {
        let listing = options.look(login, session)?;
        let key = options.choose(&listing)?;
        return print_user(arguments, key, pin_source.as_deref(), session);
    };
    // Read only once: it may come through a pipe.
    let kubeconfig = load_kubeconfig(options.kubeconfig.as_deref())?;
    let listing = options.look(login, session)?;
    let present = key_of_context(options, &kubeconfig, context, &listing);
    let key = present.map_or_else(|| options.choose(&listing), Ok)?;
    let entries = ContextEntries {
        context,
        options: &KeyOptions { pin_source, ..options.clone() },
        user: &options.user_name(arguments.user.as_deref(), key, session)?,
        is_user_named: arguments.user.is_some(),
        key,
        keep: arguments.keep,
        usual_keep: None,
    };
    // A context that isn't there is refused before anything is written.
    kubeconfig.context(context)?;
    if arguments.write {
        entries.write(&mut session.output)?;
        session.output.hint(ALLOW_LIST, &[&format!("- command: {PROGRAM}")])
    } else {
        session.output.print_document(&entries.excerpt(&kubeconfig)?)
    }
}

/// The source of the PIN that the options or the URI among them name. Fails if they don't agree.
fn pin_source(options: &KeyOptions) -> Result<Option<String>, Error> {
    let mut map = options.selection.configuration();
    set(&mut map, "pinSource", options.pin_source.as_deref());
    Filter::from_map(&mut map)?;
    Ok(map.value("pinSource").map(str::to_owned))
}

/// Prints a user that has the key, for a kubeconfig that isn't named.
fn print_user(
    arguments: &KubeconfigArguments,
    key: SelectedKey<'_>,
    pin_source: Option<&str>,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let name = arguments.key.user_name(arguments.user.as_deref(), key, session)?;
    let certificate_file = arguments.key.certificate_file.as_deref();
    let mut configuration = key_configuration(certificate_file, key, pin_source);
    let keep = arguments.keep.map(|keep| keep.to_string());
    set(&mut configuration, "keep", keep.as_deref());
    let excerpt = user_excerpt(&name, &configuration, !arguments.external_signer)?;
    session.output.print_document(&excerpt)
}

/// The key that the user of this context has already, unless options name a key or a token.
fn key_of_context<'a>(
    options: &KeyOptions,
    kubeconfig: &Kubeconfig,
    context: &str,
    listing: &'a Listing,
) -> Option<SelectedKey<'a>> {
    if options.selection.names_a_token_or_an_object() {
        return None;
    }
    let context = kubeconfig.context(context).ok()?;
    let Ok(Provider::ExternalSigner(configuration)) = kubeconfig.provider(&context.user) else {
        return None;
    };
    listing.keys().find(|key| names_key(&mut configuration.clone(), *key))
}
