//! `kubeconfig`: what a kubeconfig needs for a key, printed for pasting or written where it belongs.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::ValueHint;

use super::again::Invocation;
use super::completions;
use super::context_key::{ContextEntries, undo};
use super::key_choice::{Search, key_configuration, set, tried, user_name};
use super::listing::{ListLogin, ListQuery};
use super::selection::{self, HEADING, Selection};
use super::session::CommandSession;
use crate::config::{Filter, Keep, PinSource};
use crate::error::Error;
use crate::kubeconfig::user_excerpt;
use crate::process::environment::SingleThreaded;

/// Have a context of the kubeconfig use a key, or print what that takes
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod
  pkcs11-external-signer kubeconfig --write --context prod --keep terminal
  pkcs11-external-signer kubeconfig --undo --context prod
  pkcs11-external-signer kubeconfig              # print the user alone
  pkcs11-external-signer kubeconfig --uri 'pkcs11:serial=15873456;id=%02'

With several keys, the terminal asks which one. The file keeps what else it says, but no comments, and a
copy of it is made. A PIN is never written.")]
pub(super) struct KubeconfigArguments {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// Log in to the tokens, to see what they hide
    #[arg(long, help_heading = HEADING)]
    login: bool,
    /// The user's name; without it the certificate's
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Write down a certificate file, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, value_hint = ValueHint::FilePath)]
    certificate_file: Option<String>,
    /// Write down where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME; that of
    /// --login comes from there, too
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source)]
    pin_source: Option<String>,
    /// Write it into the kubeconfig
    #[arg(long, requires = "context")]
    write: bool,
    /// The context that is to use it, by stock kubectl
    #[arg(long, value_name = "NAME", add = completions::contexts())]
    context: Option<String>,
    /// How long one PIN serves: command, terminal, or a time such as 15m
    #[arg(long, value_name = "HOW LONG")]
    keep: Option<Keep>,
    /// Print a user for clients with the externalSigner provider, in place of stock ones
    #[arg(long, conflicts_with_all = ["context", "write"])]
    external_signer: bool,
    /// Give the context back what it had before
    #[arg(
        long,
        requires = "context",
        conflicts_with_all = ["write", "keep", "user", "uri", "login", "certificate_file", "pin_source", "Selection"]
    )]
    undo: bool,
    /// The kubeconfig to write; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
}

/// Prints or writes.
#[cold]
pub(super) fn run(
    arguments: &KubeconfigArguments,
    alone: SingleThreaded,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let kubeconfig = arguments.kubeconfig.as_deref();
    Invocation {
        selection: Some(&arguments.selection),
        uri: arguments.uri.as_deref(),
        certificate_file: arguments.certificate_file.as_deref(),
        kubeconfig,
        ..Invocation::default()
    }
    .set_call();
    let CommandSession { output, library: opened, verbosity, .. } = session;
    if let Some(context) = arguments.context.as_deref().filter(|_| arguments.undo) {
        return undo(kubeconfig, context);
    }
    // Read as one, since options and URI have to agree.
    let mut map = arguments.selection.configuration([
        ("uri", arguments.uri.as_deref()),
        ("pinSource", arguments.pin_source.as_deref()),
    ]);
    let variables = super::take_variables(map.clone(), alone);
    let wanted = Filter::from_map(&mut map)?.object;
    let pin_source = map.value("pinSource");
    if let Some(source) = pin_source {
        PinSource::parse(source)?;
    }
    let certificate_file = arguments.certificate_file.as_deref();
    let query = ListQuery {
        selection: &arguments.selection,
        uri: arguments.uri.as_deref(),
        login: arguments.login.then_some(ListLogin { pin_source, variables: &variables }),
        verbosity: *verbosity,
    };
    let search = Search { query, wanted, has_certificate: certificate_file.is_some() };
    let listing = search.look(opened)?;
    let (library, token, key) = search.choose(&listing)?;
    let key = (library, token, &tried(certificate_file, (library, token, key), opened)?);
    let user = user_name(arguments.user.as_deref(), key.2)?;
    let Some(context) = &arguments.context else {
        let mut configuration = key_configuration(certificate_file, key, pin_source);
        let keep = arguments.keep.map(|keep| keep.to_string());
        set(&mut configuration, "keep", keep.as_deref());
        let excerpt = user_excerpt(user, &configuration, !arguments.external_signer)?;
        return output.print(&excerpt);
    };
    let is_user_named = arguments.user.is_some();
    let keep = arguments.keep;
    let entries = ContextEntries {
        context,
        kubeconfig,
        user,
        is_user_named,
        key,
        certificate_file,
        pin_source,
        keep,
    };
    match arguments.write {
        true => entries.write(),
        false => output.print(&entries.excerpt()?),
    }
}
