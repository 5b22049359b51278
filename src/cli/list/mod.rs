//! `list`: shows the tokens, keys and certificates with which somebody could authenticate.

mod lines;
mod overview;

use clap::builder::styling::Style;

use self::lines::Lines;
use self::overview::overview;
use super::key::options::{self, KeyOptions, Selection};
use super::listing::{KeyEntry, KeyNote, LibraryEntry, Listing, SelectedKey, TokenEntry};
use super::session::{BAD, CONCERN, CommandOutput, PLAIN, StartingSession};
use messages::error::Error;
use messages::report;

/// What `--uri` without a value stands for. Nobody types this.
const EVERY_URI: &str = "\u{1}";

const URI_HELP: &str = "Only what this URI names; without a value, print a URI for each key";

#[derive(Debug, clap::Args)]
#[command(mut_arg("uri", |option| option.num_args(0..=1).default_missing_value(EVERY_URI).help(URI_HELP).hide_short_help(false)))]
#[command(after_help = "\
Examples:
  pkcs11-external-signer list                  # every library that is found
  pkcs11-external-signer list --login          # private objects too
  pkcs11-external-signer list --uri            # a pkcs11: URI for each key
  pkcs11-external-signer list \\
      --module /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so
  pkcs11-external-signer list --json

You are asked for a PIN only with --login. Without --module, all libraries are examined that are registered with p11-kit, and SoftHSM, OpenSC, ykcs11, tpm2-pkcs11 and opencryptoki in their usual places. At a terminal, -v shows everything, as in a pipe.")]
pub(super) struct ListArguments {
    #[command(flatten)]
    selection: Selection,
    /// Log in to the tokens, to see what they hide
    #[arg(long)]
    login: bool,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:VAR
    #[arg(long, value_name = "SOURCE", value_parser = options::pin_source, requires = "login")]
    pin_source: Option<String>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ListArguments, start: StartingSession<'_>) -> Result<(), Error> {
    let mut selection = arguments.selection.clone();
    let prints_uris = selection.uri.take_if(|uri| uri == EVERY_URI).is_some();
    let pin_source = arguments.pin_source.clone();
    let options = &KeyOptions { selection, pin_source, ..KeyOptions::default() };
    options.set_call();
    let (session, variables) = start.take_pin_variable(options.configuration());
    let login = arguments.login.then_some(&variables);
    let listing = options.list(login, session);
    let listing = listing.or_else(|error| match options.library() {
        Some(path) if arguments.json => Ok(Listing::new(vec![LibraryEntry::failed(path, &error)])),
        _ => Err(error),
    })?;
    if arguments.json {
        session.output.print_json(&listing)?;
    } else if prints_uris {
        session.output.print_document(&uris(&listing))?;
    } else {
        let names_object = options.filter()?.object.is_given();
        let text = text(&listing, names_object, &session.output);
        session.output.print_painted(&text)?;
    }
    if let Some(error) = options.miss(&listing) {
        return Err(error);
    }
    // If no token could be seen as it is, the exit code is that of the first error.
    if listing.tokens().all(|(_, token)| token.error.is_some()) && listing.keys().next().is_none() {
        let libraries = listing.libraries.iter().map(|library| &library.error);
        let tokens = listing.tokens().map(|(_, token)| &token.error);
        let first = tokens.chain(libraries).find_map(Option::as_ref);
        session.exit_code = first.map_or(0, |error| error.exit_code);
    }
    Ok(())
}

/// The URIs of the keys, one in each line. Keys that no URI can name are reported.
fn uris(listing: &Listing) -> String {
    let mut uris = String::new();
    for SelectedKey { token, key, .. } in listing.keys() {
        if key.uri.is_empty() {
            let why = KeyNote::Unnameable;
            report::warning(&format!("no URI for a key of token {}, which {why}", token.name));
        } else {
            uris += &format!("{}\n", key.uri);
        }
    }
    uris
}

/// The list for people: at a terminal what matters of it, if that fits, or else all of it.
fn text(listing: &Listing, names_object: bool, output: &CommandOutput) -> String {
    let overview = if output.is_brief() { overview(listing, names_object, output) } else { None };
    overview.unwrap_or_else(|| Lines::of(listing, names_object, output))
}

/// What to do with the first token, if all tokens are empty and no certain key was asked for.
fn remedy(listing: &Listing, names_object: bool) -> Option<String> {
    let nothing = if names_object { None } else { listing.emptiness() };
    nothing.map(|error| error.remedy().to_string())
}

/// What is said of a token without keys. Nothing is said if a certain key was asked for.
fn seen(token: &TokenEntry, names_object: bool) -> &'static str {
    match token.ca_certificates {
        _ if !token.is_bare() || names_object => "",
        0 => "no visible key or certificate",
        _ => "no visible key, and no certificate but those of CAs",
    }
}

/// The style of a key's line, which is red if the key can't be used as it is.
fn key_style(key: &KeyEntry) -> Style {
    match &*key.notes {
        [] => PLAIN,
        notes if notes.iter().any(KeyNote::is_grave) => BAD,
        _ => CONCERN,
    }
}
