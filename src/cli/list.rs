//! `list`: the tokens, keys and certificates that could authenticate.

use clap::builder::styling::Style;

use super::key::options::{self, KeyOptions, Selection};
use super::listing::{
    CertificateEntry, ErrorEntry, KeyEntry, KeyNote, LibraryEntry, Listing, SelectedKey, TokenEntry,
};
use super::session::{BAD, CONCERN, CommandOutput, CommandSession, HEADING, PLAIN};
use config::TokenName;
use messages::error::Error;
use messages::printable::{printable, quoted};
use messages::report;

/// The value of `--uri` without one, which nobody types.
const EVERY_URI: &str = "\u{1}";

const URI_HELP: &str =
    "Only what this URI names; without a value, print a URI for each key and nothing else";

#[derive(Debug, clap::Args)]
#[command(mut_arg("uri", |option| option.num_args(0..=1).default_missing_value(EVERY_URI).help(URI_HELP)))]
#[command(after_help = "\
Examples:
  pkcs11-external-signer list                  # every library that is found
  pkcs11-external-signer list --login          # private objects too
  pkcs11-external-signer list --uri            # a pkcs11: URI for each key
  pkcs11-external-signer list \\
      --module /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so
  pkcs11-external-signer list --json

No PIN is asked without --login. Without --module the libraries are found: those registered with
p11-kit, and the usual places of SoftHSM, OpenSC, ykcs11, tpm2-pkcs11 and opencryptoki.")]
pub(super) struct ListArguments {
    #[command(flatten)]
    selection: Selection,
    /// Log in to the tokens, to see what they hide
    #[arg(long)]
    login: bool,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = options::pin_source, requires = "login")]
    pin_source: Option<String>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ListArguments, session: &mut CommandSession) -> Result<(), Error> {
    let mut selection = arguments.selection.clone();
    let prints_uris = selection.uri.take_if(|uri| uri == EVERY_URI).is_some();
    let pin_source = arguments.pin_source.clone();
    let options = &KeyOptions { selection, pin_source, ..KeyOptions::default() };
    options.set_call();
    let variables = session.take_variables(options.configuration());
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
        let text = Lines::of(&listing, names_object, &session.output);
        session.output.print_painted(&text)?;
    }
    if let Some(error) = options.miss(&listing) {
        return Err(error);
    }
    // That of the first error, if no token was seen as it is.
    if listing.tokens().all(|(_, token)| token.error.is_some()) && listing.keys().next().is_none() {
        let libraries = listing.libraries.iter().map(|library| &library.error);
        let tokens = listing.tokens().map(|(_, token)| &token.error);
        let first = tokens.chain(libraries).find_map(Option::as_ref);
        session.exit_code = first.map_or(0, |error| error.exit_code);
    }
    Ok(())
}

/// The URIs of the keys, one a line. Keys that no URI can name are reported.
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

/// The list as a person reads it: a line for each library, below it its tokens, below each its keys.
struct Lines<'a> {
    text: String,
    output: &'a CommandOutput,
    /// A certain key or certificate was asked for.
    names_object: bool,
    /// What to do with the first token, where all are empty.
    remedy: Option<String>,
}

impl<'a> Lines<'a> {
    /// The list, with the styles that the output can show.
    fn of(listing: &Listing, names_object: bool, output: &'a CommandOutput) -> String {
        let nothing = if names_object { None } else { listing.emptiness() };
        let remedy = nothing.map(|error| error.remedy().to_string());
        let mut lines = Self { text: String::new(), output, names_object, remedy };
        for library in &listing.libraries {
            lines.library(library);
        }
        lines.text
    }

    fn add(&mut self, style: Style, line: &str) {
        self.text += &format!("{}\n", self.output.paint(style, &printable(line)));
    }

    fn error(&mut self, error: &ErrorEntry) {
        self.add(BAD, &format!("  {}", error.message));
        self.add(PLAIN, &format!("  help: {}", error.help));
    }

    fn library(&mut self, library: &LibraryEntry) {
        self.add(HEADING, &library.path_lib);
        if let Some(error) = &library.error {
            self.error(error);
        } else if library.tokens.is_empty() {
            match (library.blank(), library.empty_slots.as_deref()) {
                (Some(error), _) => self.error(&ErrorEntry::from(&error)),
                (None, Some([])) => self.add(PLAIN, "  no token, and no reader for one"),
                (None, Some(names)) => {
                    self.add(PLAIN, &format!("  no token in {}", names.join(", ")));
                }
                (None, None) => self.add(PLAIN, "  no such token"),
            }
        }
        for token in &library.tokens {
            self.token(token);
        }
    }

    fn token(&mut self, token: &TokenEntry) {
        let (pin, style) = token.pin_note().unwrap_or_default();
        let seen = match token.ca_certificates {
            _ if !token.is_bare() || self.names_object => "",
            0 => "no visible key or certificate",
            _ => "no visible key, and no certificate but those of CAs",
        };
        let TokenName { slot, label, serial } = &token.name;
        let name = format!("  slotId {slot}, tokenLabel \"{label}\", tokenSerial \"{serial}\"");
        let notes: Vec<_> = [pin, seen].into_iter().filter(|note| !note.is_empty()).collect();
        self.add(style, &noted(name, &notes.join(", ")));
        for key in &token.keys {
            let style = match &*key.notes {
                [] => PLAIN,
                notes if notes.iter().any(KeyNote::is_grave) => BAD,
                _ => CONCERN,
            };
            self.add(style, &line(key));
        }
        if let Some(error) = &token.error {
            self.error(error);
        }
        if let Some(remedy) = self.remedy.take() {
            self.add(PLAIN, &format!("  help: {remedy}"));
        }
    }
}

/// The text, and the notes behind a colon.
fn noted(text: String, notes: &str) -> String {
    if notes.is_empty() { text } else { format!("{text}: {notes}") }
}

/// `objectId 2, objectLabel "SIGN", RSA-2048, user "jane", …`
fn line(key: &KeyEntry) -> String {
    let id = key.object_id.as_deref().unwrap_or("none");
    let mut parts =
        vec![format!("    objectId {id}"), format!("objectLabel \"{}\"", key.object_label)];
    if !key.kind.is_empty() {
        parts.push(key.kind.clone());
    }
    if let Some(CertificateEntry { user, groups, issuer, expires, credential_id, .. }) =
        &key.certificate
    {
        if let Some(user) = user {
            parts.push(format!("user \"{user}\""));
        }
        if !groups.is_empty() {
            parts.push(format!("groups {}", quoted(groups)));
        }
        parts.push(format!("issued by {issuer}"));
        let verb = if key.notes.contains(&KeyNote::Expired) { "expired" } else { "expires" };
        parts.push(format!("{verb} {expires}"));
        parts.push(credential_id.clone());
    }
    let notes: Vec<_> = key.notes.iter().map(KeyNote::to_string).collect();
    noted(parts.join(", "), &notes.join(", "))
}
