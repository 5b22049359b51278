//! The token that a key is made on: the one that is named, the only one, or the one that a person picks.

use crate::cli::key_options::KeyOptions;
use crate::cli::kubeconfig::{Search, set_token};
use crate::cli::question::pick;
use crate::config::{Filter, PinSource, TokenSelector};
use crate::error::{Error, Exit, Help};
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
    pub(super) fn of(options: &KeyOptions, verbosity: u8) -> Result<Self, Error> {
        let mut map = options.own_source().configuration;
        let mut filter = Filter::from_map(&mut map.clone())?;
        if filter.library.is_none() {
            add_found(options, &mut map, verbosity)?;
            filter = Filter::from_map(&mut map.clone())?;
        }
        let pin = PinSource::from_map(&mut map)?.unwrap_or(PinSource::Prompt);
        Ok(Self { filter, pin })
    }

    /// Opens the library, and says which of its tokens is meant.
    pub(super) fn open(&self, opened: &mut Option<Library>) -> Result<TokenSelector, Error> {
        let Filter { library, init_args, token, .. } = &self.filter;
        let trusted = library.as_ref().ok_or_else(|| Error::internal("no library was found"))?;
        let reports = &mut LockReports;
        let library = library::open(trusted, init_args.as_ref(), lock::LIMIT, reports)?;
        let slots = opened.insert(library).module.occupied_slots()?;
        let states = slots.iter().filter_map(|slot| slot.token.as_ref().ok());
        let fits = |state: &&TokenState| state.initialized && state.fits(token);
        let names = states.filter(fits).map(|state| &state.name);
        let names: Vec<_> = names.collect();
        if names.is_empty() && token.is_given() {
            return Ok(token.clone());
        }
        let blank = slots.iter().find(|slot| slot.is_uninitialized());
        let blank = blank.map(|slot| (slot.slot, trusted.path().display().to_string()));
        let name = chosen(
            &names,
            |name| (name.to_string(), in_options(&name.label, &name.serial)),
            blank,
        )?;
        Ok(TokenSelector { slot: Some(name.slot), ..token.clone() })
    }
}

/// Adds the library and the token that are found on this machine to what the options say.
fn add_found(options: &KeyOptions, map: &mut Configuration, verbosity: u8) -> Result<(), Error> {
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
    let blank = listing.libraries.iter().find_map(|library| {
        Some((*library.uninitialized_slots.first()?, library.path_lib.clone()))
    });
    let (library, token) = chosen(
        &tokens,
        |(library, token)| {
            let module = shell_word(&library.path_lib);
            let options = in_options(&token.token_label, &token.token_serial);
            let name = format!("{}, {}", token.name(), library.path_lib);
            (name, format!("--module={module} {options}"))
        },
        blank,
    )?;
    let mut config = ProviderConfig::default();
    set_token(&mut config, library, token);
    for (key, value) in config.pairs() {
        if !map.has(key) {
            map.set(key, value);
        }
    }
    Ok(())
}

/// The only one, or the one that a person picks. `describe` gives a name, and options that name it; `blank` is a slot
/// whose token is not initialised, and its library.
fn chosen<T: Clone>(
    tokens: &[T],
    describe: impl Fn(&T) -> (String, String),
    blank: Option<(u64, String)>,
) -> Result<T, Error> {
    match tokens {
        [] => Err(match blank {
            Some((slot, library)) => {
                TokenError::NotInitialized { slot, library, present: Vec::new() }.into()
            }
            None => Error::new(Exit::Token, "no token was found").help(
                "insert it, or name its library with --module; `pkcs11-external-signer list` shows what was looked at",
            ),
        }),
        [only] => Ok(only.clone()),
        several => {
            let (names, options): (Vec<_>, Vec<_>) = several.iter().map(describe).unzip();
            let picked = pick("Which token?", &names).and_then(|place| several.get(place));
            picked.cloned().ok_or_else(|| {
                Error::new(Exit::Token, format!("{} tokens can be meant", several.len())).help(
                    Help::from("name one with these options:").with_candidates(&options),
                )
            })
        }
    }
}

fn in_options(label: &str, serial: &str) -> String {
    format!("--token-label={} --token-serial={}", shell_word(label), shell_word(serial))
}
