//! The token on which a key is enrolled: which one is meant.

use super::plan::TokenPlan;
use crate::cli::listing::{LibraryEntry, Listing, TokenEntry, token_configuration, token_options};
use crate::cli::question::pick;
use crate::cli::session::CommandSession;
use crate::enrollment::fingerprint;
use config::Config;
use crypto::certificate::PublicKey;
use keyring::library::LibraryLock;
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use protocol::Configuration;
use token::{SessionAccess, Token};

/// Opens the token of this configuration, with a session in which it can be changed.
pub(super) fn open_token(
    config: &Config,
    session: &mut CommandSession,
) -> Result<(LibraryLock, Token), Error> {
    let library = session.open(config)?;
    let found = library.module.find_token(&config.token)?;
    let token = Token::with_session(&library.module, found, SessionAccess::ReadWrite)?;
    Ok((library.lock.clone(), token))
}

/// Chooses the token if an option is for YubiKeys, and checks that it is one. This comes before the cluster is asked,
/// which may be done with a key that wants its PIN. The library is closed again.
pub(super) fn chosen_yubikey(
    plan: &TokenPlan,
    session: &mut CommandSession,
) -> Result<Option<Config>, Error> {
    if plan.of_yubikeys.is_none() {
        return Ok(None);
    }
    let config = choose(plan, None, session)?;
    let (_, token) = open_token(&config, session)?;
    let checked = check_yubikey(plan, &token);
    token.close();
    session.close_library();
    checked.map(|()| Some(config))
}

/// Fails if an option is for YubiKeys and the token isn't one.
pub(super) fn check_yubikey(plan: &TokenPlan, token: &Token) -> Result<(), Error> {
    match plan.of_yubikeys {
        Some(option) if !token.state().is_yubikey() => Err(is_no_yubikey(option, token)),
        _ => Ok(()),
    }
}

fn is_no_yubikey(option: &str, token: &Token) -> Error {
    let token = token.name();
    let text = format!("{option} is for YubiKeys behind ykcs11, and token {token} is none");
    Error::new(Exit::Object, text)
        .help("leave it out, or name Yubico's library (libykcs11.so) with --module")
}

/// The configuration that the options give, with the library or the token that they don't name. If only one library is
/// looked at, it stays open.
pub(super) fn choose(
    plan: &TokenPlan,
    key: Option<&PublicKey>,
    session: &mut CommandSession,
) -> Result<Config, Error> {
    let options = &plan.options;
    let (named, mut map) = (options.filter()?, options.configuration());
    if named.library.is_none() || !named.token.is_given() {
        // The token may have any key.
        let listing = options.of_token().look(None, session)?;
        let found = found_token(&listing, key, plan.of_yubikeys)?;
        map = found.pairs().chain(map.pairs()).collect();
    }
    // The option names the file for the new certificate, if the token doesn't take that.
    drop(map.take("certificateFile"));
    Config::of_token(&mut map)
}

/// The token that is found on this machine, shows this key, or is picked, with its library. `of_yubikeys` is an option that
/// was given and is for YubiKeys.
fn found_token(
    listing: &Listing,
    key: Option<&PublicKey>,
    of_yubikeys: Option<&str>,
) -> Result<Configuration, Error> {
    let readable: Vec<_> = listing.tokens().filter(|(_, token)| can_be_meant(token)).collect();
    let fingerprint = key.map(fingerprint).transpose()?;
    let mut showing_key = readable.clone();
    showing_key.retain(|(_, token)| {
        fingerprint.is_some() && token.keys.iter().any(|shown| shown.fingerprint == fingerprint)
    });
    let tokens = if !showing_key.is_empty() {
        showing_key
    } else if let Some(busy) = listing.busy() {
        // The token that couldn't be read may be the one that is meant.
        return Err(busy);
    } else {
        readable
    };
    let (library, token) = match tokens.as_slice() {
        [] => return Err(of_yubikeys.map_or_else(|| no_token(listing), no_yubikey)),
        [only] => *only,
        several => pick_token(several)?,
    };
    Ok(token_configuration(library, token))
}

/// Whether a key can be enrolled on the token: it was read, and takes a key or has one.
fn can_be_meant(token: &TokenEntry) -> bool {
    token.error.is_none() && !(token.write_protected && token.is_bare())
}

/// The error that there is no token, or none that is initialised.
fn no_token(listing: &Listing) -> Error {
    listing.libraries.iter().find_map(LibraryEntry::blank).unwrap_or_else(|| {
        let help = Help::from("insert it, or name its library with --module; ")
            .and(command("list"))
            .and(" shows what was looked at");
        Error::new(Exit::Token, "no token was found").help(help)
    })
}

/// The error that there is no token for an option that is for YubiKeys.
fn no_yubikey(option: &str) -> Error {
    let text = format!("no YubiKey was found, and {option} is for YubiKeys behind ykcs11");
    let help = Help::from("insert it, or name Yubico's library (libykcs11.so) with --module; ")
        .and(command("list"))
        .and(format!(" shows what was looked at. For another token leave {option} out"));
    Error::new(Exit::Token, text).help(help)
}

/// The token that a person picks. Without a person, an error lists the options that name each.
fn pick_token<'a>(
    tokens: &[(&'a LibraryEntry, &'a TokenEntry)],
) -> Result<(&'a LibraryEntry, &'a TokenEntry), Error> {
    let options: Vec<_> = tokens
        .iter()
        .map(|(library, token)| token_options(library, token).trim_start().to_owned())
        .collect();
    let picked = pick("Which token?", &options).and_then(|index| tokens.get(index));
    picked.copied().ok_or_else(|| {
        Error::new(Exit::Token, format!("{} tokens match", tokens.len()))
            .help(Help::from("name one with these options:").with_candidates(&options))
    })
}
