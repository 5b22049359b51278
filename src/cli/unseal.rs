//! `unseal`: shows a person what is in a sealed file.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use super::sealed::{self, OpeningOptions};
use super::session::CommandSession;
use crate::config::{Config, PinSource};
use crate::error::{Error, Exit, PROGRAM, THIS_KEY};
use crate::library;
use crate::pin_entry::Sources;
use crate::printable::shell_word;
use crate::process::environment::TakenVariables;

/// Print what is in a sealed file, after a PIN typed at the terminal
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer unseal registry.cms --token-label node1 \\
      --module /usr/lib/softhsm/libsofthsm2.so

It prints docker's config.json, with the passwords.")]
pub(super) struct UnsealArguments {
    /// The sealed file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    options: OpeningOptions,
}

pub(super) fn run(arguments: &UnsealArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = arguments.options.key_options();
    options.set_call();
    if !io::stdin().is_terminal() {
        let text = "unsealing wants a person at a terminal, and there is none";
        let help = format!(
            "run it at a terminal; `{PROGRAM} check --sealed {}{THIS_KEY}` says without one whether the file can \
             be opened",
            shell_word(&arguments.file.to_string_lossy())
        );
        return Err(Error::new(Exit::Login, text).help(help));
    }
    let file = sealed::read(&arguments.file)?;
    let config = Config::of_token(&mut options.configuration())?;
    // A PIN that lies somewhere shows no person.
    let mut pins = Sources::new(PinSource::Prompt, &TakenVariables::default());
    let mut token = library::open_in(&mut session.library, &config)?.token(&config.token)?;
    let key = sealed::recipient_key(&mut token, &config, &file, Some(&mut pins))?;
    let registries = sealed::open(&mut token, &file, key, &mut pins)?;
    session.output.print(&format!("{}\n", registries.to_config().trim_end()))
}
