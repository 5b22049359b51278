//! The token that a key is made on: the one that is named, the only one, or the one that a person picks.

use crate::cli::key_choice::token_configuration;
use crate::cli::key_options::KeyOptions;
use crate::cli::question::pick;
use crate::config::{Config, Filter};
use crate::error::{Error, Exit, Help};
use crate::library::Library;
use crate::printable::shell_word;
use crate::protocol::Configuration;
use crate::token::not_initialized;

/// What the options say of library, token and object, with the library or token that they don't name. A library that is
/// looked at alone stays open.
pub(super) fn choose(options: &KeyOptions, opened: &mut Option<Library>) -> Result<Config, Error> {
    let mut map = options.configuration();
    let named = Filter::from_map(&mut map.clone())?;
    if named.library.is_none() || !named.token.is_given() {
        add_found(options, &mut map, opened)?;
    }
    // That of the new one, if the token doesn't take it.
    drop(map.take("certificateFile"));
    Config::of_token(&mut map)
}

/// Adds the library and the token that are found on this machine to what the options say.
fn add_found(
    options: &KeyOptions,
    map: &mut Configuration,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    // Whatever key.
    let listing = options.of_token().look(None, opened)?;
    let tokens = listing.tokens().filter(|(_, token)| token.error.is_none());
    let tokens: Vec<_> = tokens.collect();
    let (library, token) = match tokens.as_slice() {
        [] => {
            let blank = listing.libraries.iter().find_map(|library| {
                Some((*library.uninitialized_slots.first()?, library.path_lib.clone()))
            });
            return Err(match blank {
                Some((slot, library)) => not_initialized(slot, &library, &[]),
                None => Error::new(Exit::Token, "no token was found").help(
                    "insert it, or name its library with --module; `pkcs11-external-signer list` shows what was \
                     looked at",
                ),
            });
        }
        [only] => *only,
        several => {
            let names: Vec<_> = several
                .iter()
                .map(|(library, token)| format!("{}, {}", token.name, library.path_lib))
                .collect();
            let picked = pick("Which token?", &names).and_then(|index| several.get(index));
            *picked.ok_or_else(|| {
                let options = several.iter().map(|(library, token)| {
                    let [module, label, serial] =
                        [&library.path_lib, &token.name.label, &token.name.serial]
                            .map(|text| shell_word(text));
                    format!("--module={module} --token-label={label} --token-serial={serial}")
                });
                let options: Vec<_> = options.collect();
                Error::new(Exit::Token, format!("{} tokens can be meant", several.len()))
                    .help(Help::from("name one with these options:").with_candidates(&options))
            })?
        }
    };
    *map = token_configuration(library, token).pairs().chain(map.pairs()).collect();
    Ok(())
}
