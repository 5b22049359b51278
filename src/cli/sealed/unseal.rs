//! `unseal`: shows a person at a terminal what is in a sealed file.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use super::{OpeningOptions, open, read, recipient_key};
use crate::cli::session::CommandSession;
use config::{Config, PinSource};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::shell_word;
use pin_entry::Sources;
use system::environment::TakenVariables;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer unseal registry.cms --token-label node1 \\
      --module /usr/lib/softhsm/libsofthsm2.so

This prints docker's config.json, with the passwords.")]
pub(in crate::cli) struct UnsealArguments {
    /// The sealed file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    options: OpeningOptions,
}

pub(in crate::cli) fn run(
    arguments: &UnsealArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let options = arguments.options.key_options();
    options.set_call();
    if !io::stdin().is_terminal() {
        let text = "unsealing wants a person at a terminal, and there is none";
        let check = command("check --sealed ")
            .and(shell_word(&arguments.file.to_string_lossy()))
            .and(HelpPart::Key);
        let help = Help::from("run it at a terminal; ")
            .and(check)
            .and(" says without one whether the file can be opened");
        return Err(Error::new(Exit::Login, text).help(help));
    }
    let file = read(&arguments.file)?;
    let config = Config::of_token(&mut options.configuration())?;
    // The PIN is always typed: a stored one would show no person.
    let pins = Sources::new(PinSource::Prompt, &TakenVariables::default());
    let library = session.open(&config)?;
    let mut pins = library.lock.asking_unlocked(&config.library, pins);
    let mut token = library.token(&config.token)?;
    let key = recipient_key(&mut token, &config, &file, Some(&mut pins))?;
    let registries = open(&mut token, &file, key, &mut pins)?;
    session.output.print_document(&format!("{}\n", registries.to_config().trim_end()))
}
