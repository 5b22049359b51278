//! What there is to authenticate with: libraries, their tokens, and the keys and certificates on them. The list is made
//! here for all commands.

mod document;
mod library;
mod machine;

pub(super) use self::document::{
    CertificateEntry, ErrorEntry, KeyEntry, KeyNote, LibraryEntry, Listing, SelectedKey,
    TokenEntry, token_configuration, token_options,
};
pub(super) use self::library::list_library;
use self::machine::list_machine;
use super::key::options::{KeyOptions, Selection, needs};
use super::session::CommandSession;
use config::{Filter, ObjectSelector, PinSource, Uri};
use messages::error::{Error, Exit, Kind};
use messages::help::{Help, HelpPart, command};
use messages::report;
use pin_entry::Sources;
use system::environment::TakenVariables;

/// There are keys and certificates, but none is what was asked for.
pub(crate) const NONE_FITS: Kind = Kind::new("none fits");

impl KeyOptions {
    /// Lists the library that is named, in this process, or else every library that is found. With a `login`, private
    /// objects are seen, too. It has the variable that the PIN's source names; without a source, a person is asked.
    pub(super) fn list(
        &self,
        login: Option<&TakenVariables>,
        session: &mut CommandSession,
    ) -> Result<Listing, Error> {
        // An error in the options is reported once, and not by every process.
        let filter = self.filter()?;
        let pin = PinSource::from_map(&mut self.configuration())?;
        if matches!(pin, Some(PinSource::Configuration(_))) {
            report::warning(
                "the PIN stands on the command line, where every user of the machine can read it; \
                 leave pin-value out to be asked, or give pin-source",
            );
        }
        let needs_module = |argument| Err(needs(argument, "--module <FILE>"));
        match (self.library(), &filter.library) {
            (Some(path), Some(library)) => {
                let pins = login.map(|variables| Sources::new(pin.unwrap_or_default(), variables));
                let found = list_library(&path, library, &filter, pins, None, session)?;
                Ok(Listing::new(vec![found]))
            }
            // Several libraries may show the same token, and each would send the PIN to it.
            _ if login.is_some() && pin.is_some() => needs_module("--login with a stored PIN"),
            _ if self.selection.init_args.is_some() => needs_module("--init-args"),
            _ => {
                let option = login.map(|_| "--login".to_owned());
                let arguments: Vec<_> = self.selection.arguments().chain(option).collect();
                list_machine(&arguments, login.is_some())
            }
        }
    }

    /// The path of the library that is named, if any.
    pub(super) fn library(&self) -> Option<String> {
        let Selection { module, uri, .. } = &self.selection;
        let of_uri = || Some(Uri::parse(uri.as_ref()?).ok()?.get("module-path")?.to_owned());
        module.clone().or_else(of_uri)
    }

    /// The error that the token or the object that was asked for isn't there, if that is so.
    pub(super) fn miss(&self, listing: &Listing) -> Option<Error> {
        let Filter { token, object, .. } = self.filter().ok()?;
        let mut libraries = listing.libraries.iter();
        // A token that is busy may have the object, too.
        let is_hidden =
            |library: &LibraryEntry| library.error.as_ref().is_some_and(|error| error.is_busy);
        if libraries.clone().all(|library| library.error.is_some()) || libraries.any(is_hidden) {
            None
        } else if token.is_given() && listing.tokens().next().is_none() {
            let help = Help::from("insert the token, or correct what names it; ")
                .and(command("list"))
                .and(" shows what is there");
            Some(Error::new(Exit::Token, format!("no token with {token} was found")).help(help))
        // A token of which not everything was seen may have the object.
        } else if object.is_given() && listing.tokens().all(|(_, token)| token.is_bare()) {
            Some(none_fits(&object, &[]))
        } else {
            None
        }
    }

    pub(super) fn filter(&self) -> Result<Filter, Error> {
        Filter::from_map(&mut self.configuration())
    }
}

/// The error that no object fits the selector. `found` describes those that there are.
pub(super) fn none_fits(selector: &ObjectSelector, found: &[String]) -> Error {
    let help =
        "name one of those that are there; --login shows also what a token hides without a PIN:";
    let mut help = among(found, help);
    if found.is_empty() {
        help = help.and(selector.misspelling());
    }
    Error::new(Exit::Object, format!("no key or certificate with {selector}"))
        .help(help)
        .kind(NONE_FITS)
}

/// The help that lists what was found or, if nothing was seen that could be used, says what to do.
pub(super) fn among(found: &[String], help: &str) -> Help {
    if !found.is_empty() {
        return Help::from(help).with_candidates(found);
    }
    Help::from("insert the token that holds it, or make a key on one: ")
        .and(command("enroll").and(HelpPart::Key))
        .and("; ")
        .and(command("list").and(HelpPart::Token).and(" --login"))
        .and(" shows also what a token hides without a PIN, and ")
        .and(command("kubeconfig").and(HelpPart::Token).and(" --login"))
        .and(" writes it down")
}
