//! The token that a key is made on: the one that is named, the only one, or the one that a person picks.

use crate::cli::key_options::KeyOptions;
use crate::cli::kubeconfig::{Search, set_token};
use crate::cli::question::pick;
use crate::config::{Filter, PinSource, TokenSelector};
use crate::enrollment::EnrollmentError;
use crate::error::Error;
use crate::kubeconfig::ProviderConfig;
use crate::library::{self, LockReports};
use crate::pipeline::Library;
use crate::printable::shell_word;
use crate::process::environment::TakenVariables;
use crate::process::lock;
use crate::protocol::Configuration;
use crate::token::{TokenError, TokenState};

/// What the options say of library, token and object, with the library that they don't name.
pub(super) struct TokenChoice {
    pub(super) filter: Filter,
    pub(super) pin: PinSource,
}

impl TokenChoice {
    /// # Errors
    /// A malformed option; no token or several in the libraries of this machine, if none is named.
    pub(super) fn of(options: &KeyOptions, verbosity: u8) -> Result<Self, Error> {
        let mut map = options.own_source().configuration;
        let filter = Filter::from_map(&mut map.clone())?;
        let filter = match filter.library {
            Some(_) => filter,
            None => found(options, &mut map, verbosity)?,
        };
        let pin = PinSource::from_map(&mut map)?.unwrap_or(PinSource::Prompt);
        Ok(Self { filter, pin })
    }

    /// Opens the library, and says which of its tokens is meant.
    ///
    /// # Errors
    /// Those of the library; no token; several, and no terminal or no choice.
    pub(super) fn open(&self, opened: &mut Option<Library>) -> Result<TokenSelector, Error> {
        let Filter { library, init_args, token, .. } = &self.filter;
        let Some(trusted) = library else {
            return Err(Error::internal("a place without a library"));
        };
        let reports = &mut LockReports;
        let library = library::open(trusted, init_args.as_ref(), lock::LIMIT, reports)?;
        let slots = opened.insert(library).module.occupied_slots()?;
        let states = slots.iter().filter_map(|slot| slot.token.as_ref().ok());
        let fits = |state: &&TokenState| state.initialized && state.fits(token);
        let states: Vec<_> = states.filter(fits).collect();
        let chosen = match states.as_slice() {
            [] if token.is_given() => return Ok(token.clone()),
            [] => {
                let blank = slots.iter().find(|slot| slot.is_uninitialized());
                let path = || trusted.path().display().to_string();
                return Err(nothing(blank.map(|slot| (slot.slot, path()))));
            }
            [only] => only,
            several => {
                let names: Vec<_> = several.iter().map(|it| it.name.to_string()).collect();
                let options = several.iter();
                let options = options.map(|it| in_options(&it.name.label, &it.name.serial));
                let options: Vec<_> = options.collect();
                let picked = pick("Which token?", &names).and_then(|place| several.get(place));
                picked.ok_or(EnrollmentError::SeveralTokens { found: options })?
            }
        };
        Ok(TokenSelector { slot: Some(chosen.name.slot), ..token.clone() })
    }
}

/// The library and the token that are found on this machine, added to what the options say.
fn found(options: &KeyOptions, map: &mut Configuration, verbosity: u8) -> Result<Filter, Error> {
    let search = Search {
        selection: &options.selection,
        uri: options.uri.as_deref(),
        wanted: Default::default(),
        has_certificate: false,
        login: false,
        pin_source: None,
        variables: &TakenVariables::default(),
        verbosity,
    };
    let listing = search.look(&mut None)?;
    let tokens = listing.libraries.iter().flat_map(|library| {
        let tokens = library.tokens.iter().map(move |token| (library, token));
        tokens.filter(|(_, token)| token.error.is_none())
    });
    let tokens: Vec<_> = tokens.collect();
    let (library, token) = match tokens.as_slice() {
        [] => {
            let blank = listing.libraries.iter().find_map(|library| {
                let slot = library.uninitialized_slots.first()?;
                Some((*slot, library.path_lib.clone()))
            });
            return Err(nothing(blank));
        }
        [only] => *only,
        several => {
            let name = |(library, token): &(&crate::cli::listing::LibraryEntry, _)| {
                let token: &&crate::cli::listing::TokenEntry = token;
                format!("{}, {}", token.name(), library.path_lib)
            };
            let names: Vec<_> = several.iter().map(name).collect();
            let place = pick("Which token?", &names);
            let picked = place.and_then(|place| several.get(place).copied());
            picked.ok_or_else(|| {
                let options = several.iter().map(|(library, token)| {
                    let module = shell_word(&library.path_lib);
                    let token = in_options(&token.token_label, &token.token_serial);
                    format!("--module={module} {token}")
                });
                EnrollmentError::SeveralTokens { found: options.collect() }
            })?
        }
    };
    let mut config = ProviderConfig::default();
    set_token(&mut config, library, token);
    for (key, value) in config.pairs() {
        if !map.has(key) {
            map.set(key, value);
        }
    }
    Ok(Filter::from_map(&mut map.clone())?)
}

fn in_options(label: &str, serial: &str) -> String {
    format!("--token-label={} --token-serial={}", shell_word(label), shell_word(serial))
}

/// Why there is no token to use; `blank` is a slot whose token is not initialised, and its library.
fn nothing(blank: Option<(u64, String)>) -> Error {
    match blank {
        Some((slot, library)) => {
            TokenError::NotInitialized { slot, library, present: Vec::new() }.into()
        }
        None => EnrollmentError::NoToken.into(),
    }
}
