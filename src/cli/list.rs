//! `list`: the tokens, keys and certificates that could authenticate.

#![forbid(unsafe_code)]

use std::io;

use super::again::Invocation;
use super::completions::values;
use super::listing::{
    CertificateEntry, ErrorEntry, KeyEntry, KeyNote, LibraryEntry, ListQuery, Listing, TokenEntry,
};
use super::output::CommandOutput;
use super::selection::{self, Selection};
use super::style::{Palette, Style};
use super::table::{Cell, Heading, TableLine, full_width, table};
use crate::error::{Error, Failure as _};
use crate::pipeline::Library;
use crate::process::environment::SingleThreaded;
use crate::report;
use crate::token::{PinState, TokenError};

/// Show the tokens, keys and certificates that could authenticate
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer list                  # every library that is found
  pkcs11-external-signer list --login          # private objects too
  pkcs11-external-signer list --uri            # a pkcs11: URI for each key
  pkcs11-external-signer list \\
      --module /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so
  pkcs11-external-signer list --json

No PIN is asked without --login. Without --module the libraries are found: those registered with
p11-kit, and the usual places of SoftHSM, OpenSC, ykcs11, tpm2-pkcs11, opencryptoki and cackey.")]
pub(super) struct ListArguments {
    #[command(flatten)]
    selection: Selection,
    /// Log in to the tokens, to see what they hide
    #[arg(long)]
    login: bool,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, requires = "login", add = values::pin_sources())]
    pin_source: Option<String>,
    /// Only what this URI names; without a value, print a URI for each key instead of the table
    #[arg(long, value_name = "URI", num_args = 0..=1)]
    uri: Option<Option<String>>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl ListArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            selection: Some(&self.selection),
            uri: self.uri(),
            pin_source: self.pin_source.as_deref(),
            ..Invocation::default()
        }
    }

    fn uri(&self) -> Option<&str> {
        self.uri.as_ref()?.as_deref()
    }
}

/// Prints the list; the exit code.
#[cold]
pub(super) fn run(arguments: &ListArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let mut opened = None;
    let outcome = list(arguments, verbosity, alone, &mut opened);
    let code = outcome.unwrap_or_else(|error| report::error(&error));
    if let Some(library) = opened {
        library.finalize(code);
    }
    code
}

fn list(
    arguments: &ListArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<u8, Error> {
    let palette = Palette::for_standard_output();
    let columns = report::columns(&io::stdout());
    let mut output = CommandOutput::open()?;
    let uri = arguments.uri();
    let pin_source = arguments.pin_source.as_deref();
    let configuration = super::listing::configuration(&arguments.selection, uri, pin_source);
    let query = ListQuery {
        selection: &arguments.selection,
        uri,
        login: arguments.login,
        pin_source,
        variables: &super::take_variables(configuration, alone),
        verbosity,
    };
    let listing = query.run(opened).or_else(|error| match query.library() {
        Some(path) if arguments.json => Ok(Listing::new(vec![LibraryEntry {
            path_lib: path,
            error: Some(ErrorEntry::from(&error)),
            ..LibraryEntry::default()
        }])),
        _ => Err(error),
    })?;
    let missed = query.miss(&listing);
    if arguments.json {
        output.print_json(&listing)?;
    } else if let Some(None) = arguments.uri {
        output.print(&uris(&listing))?;
    } else {
        let filter = query.filter()?;
        let asked = Asked {
            token: filter.token.is_given(),
            object: filter.object.is_given(),
            login: arguments.login,
        };
        output.print(&text(&listing, asked, palette, columns))?;
    }
    match missed {
        Some(error) => Err(error),
        None => Ok(exit_code(&listing)),
    }
}

/// 0 if something was listed or there was nothing to list, or else that of the first error.
fn exit_code(listing: &Listing) -> u8 {
    if listing.tokens().any(|token| !token.keys.is_empty()) {
        return 0;
    }
    let libraries = listing.libraries.iter().map(|library| &library.error);
    let tokens = listing.tokens().map(|token| &token.error);
    let first = tokens.chain(libraries).find_map(Option::as_ref);
    first.map_or(0, |error| error.exit_code)
}

/// With 80 columns, kinds and expiries are not shortened.
const HEADINGS: [Heading<'_>; 9] = [
    ("OBJECTID", 0),
    ("LABEL", 0),
    ("KEY", 11),
    ("USER", 0),
    ("GROUPS", 0),
    ("ISSUER", 0),
    ("EXPIRES", 11),
    ("NOTES", 12),
    ("CREDENTIAL-ID", 0),
];

/// The URI of each key, one a line.
fn uris(listing: &Listing) -> String {
    let keys = listing.tokens().flat_map(|token| &token.keys);
    keys.map(|key| format!("{}\n", key.uri)).collect()
}

/// What was asked for, which decides what to say if nothing is listed.
#[derive(Clone, Copy)]
struct Asked {
    /// A certain token.
    token: bool,
    /// A certain key or certificate.
    object: bool,
    login: bool,
}

fn text(listing: &Listing, asked: Asked, palette: Palette, columns: Option<usize>) -> String {
    let mut lines = Vec::new();
    for library in &listing.libraries {
        lines.push(TableLine::across(&library.path_lib, Some(Style::Heading)));
        if let Some(error) = &library.error {
            error_lines(error, &mut lines);
        } else if library.tokens.is_empty() {
            let absence = absence(library.empty_slots.as_deref(), asked);
            match library.uninitialized_slots.first() {
                Some(slot) if !asked.token => {
                    let error = TokenError::NotInitialized {
                        slot: *slot,
                        library: library.path_lib.clone(),
                        present: Vec::new(),
                    };
                    error_lines(&ErrorEntry::from(&error.into()), &mut lines);
                }
                _ => lines.push(TableLine::across(format!("  {absence}"), None)),
            }
        }
        for token in &library.tokens {
            token_lines(token, asked, &mut lines);
        }
    }
    if let Some(nothing) = listing.emptiness().filter(|_| !asked.object) {
        let help = nothing.remedy().in_this_call();
        lines.push(TableLine::across(format!("  help: {help}"), None));
    }
    // The last column is for logs and searches, rather than for a narrow terminal.
    let has_room = columns.is_none_or(|columns| full_width(&HEADINGS, &lines) <= columns);
    let shown = HEADINGS.len() - usize::from(!has_room);
    table(HEADINGS.split_at(shown).0, &lines, palette, columns)
}

/// What to say of a library without tokens.
fn absence(empty_slots: Option<&[String]>, asked: Asked) -> String {
    match empty_slots {
        Some([]) => "no token, and no reader for one".to_owned(),
        Some(names) => format!("no token in {}", names.join(", ")),
        None if asked.token => "no such token".to_owned(),
        None => "no token".to_owned(),
    }
}

fn token_lines(token: &TokenEntry, asked: Asked, lines: &mut Vec<TableLine>) {
    let mut name = format!(
        "  slotId {}, tokenLabel \"{}\", tokenSerial \"{}\"",
        token.slot_id, token.token_label, token.token_serial
    );
    if let Some(words) = token.pin_words() {
        name = format!("{name}: {words}");
    }
    let style = match token.pin {
        Some(PinState::Locked | PinState::ToBeChanged | PinState::FinalTry) => Some(Style::Bad),
        Some(PinState::CountLow) => Some(Style::Concern),
        Some(PinState::Good) | None => None,
    };
    lines.push(TableLine::across(name, style));
    lines.extend(token.keys.iter().map(row));
    if let Some(error) = &token.error {
        error_lines(error, lines);
    } else if token.keys.is_empty() {
        let more = if token.login_required && !asked.login {
            ", as far as it shows without --login"
        } else {
            ""
        };
        let missing = match token.ca_certificates {
            _ if asked.object => "no such key".to_owned(),
            0 => "no key and no certificate".to_owned(),
            1 => "no key, and no certificate but that of a CA".to_owned(),
            several => format!("no key, and no certificates but those of {several} CAs"),
        };
        lines.push(TableLine::across(format!("  {missing}{more}"), None));
    }
}

fn row(key: &KeyEntry) -> TableLine {
    let certificate = key.certificate.as_ref();
    let user = certificate.map_or("", |it| it.user.as_deref().unwrap_or("none"));
    let groups = certificate.map_or_else(String::new, groups);
    let notes: Vec<_> = key.notes.iter().map(KeyNote::to_string).collect();
    let style = if key.notes.iter().any(KeyNote::is_grave) { Style::Bad } else { Style::Concern };
    let plain = |text: &str| Cell::new(text, None);
    TableLine::Row(vec![
        plain(key.object_id.as_deref().unwrap_or("none")),
        plain(&key.object_label),
        plain(&key.kind),
        plain(user),
        plain(&groups),
        plain(certificate.map_or("", |it| &it.issuer)),
        plain(certificate.map_or("", |it| &it.expires)),
        Cell::new(&notes.join(", "), Some(style)),
        plain(certificate.map_or("", |it| &it.credential_id)),
    ])
}

/// Separated by commas; those inside a name are escaped.
fn groups(certificate: &CertificateEntry) -> String {
    let escaped: Vec<_> =
        certificate.groups.iter().map(|group| group.replace(',', "\\,")).collect();
    escaped.join(", ")
}

fn error_lines(error: &ErrorEntry, lines: &mut Vec<TableLine>) {
    lines.push(TableLine::across(format!("  {}", error.message), Some(Style::Bad)));
    lines.push(TableLine::across(format!("  help: {}", error.help), None));
}
