//! `unseal`: shows a person what is in a sealed file.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use super::again::Invocation;
use super::output::CommandOutput;
use super::sealed::{self, FileOpener, OpeningOptions};
use crate::config::{Config, PinSource};
use crate::error::{Error, Exit, PROGRAM, THIS_KEY};
use crate::library::{self, Library};
use crate::pin_entry::Sources;
use crate::printable::shell_word;
use crate::process::environment::TakenVariables;
use crate::process::lock;
use crate::report;

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

impl UnsealArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.options.invocation(None)
    }
}

/// Prints it; the exit code.
#[cold]
pub(super) fn run(arguments: &UnsealArguments) -> u8 {
    super::with_library(report::error, |opened| unseal(arguments, opened))
}

fn unseal(arguments: &UnsealArguments, opened: &mut Option<Library>) -> Result<(), Error> {
    if !io::stdin().is_terminal() {
        let text = "unsealing wants a person at a terminal, and there is none";
        let help = format!(
            "run it at a terminal; `{PROGRAM} check --sealed {}{THIS_KEY}` says without one whether the file can \
             be opened",
            shell_word(&arguments.file.to_string_lossy())
        );
        return Err(Error::new(Exit::Login, text).help(help));
    }
    let mut output = CommandOutput::open()?;
    let file = sealed::read(&arguments.file)?;
    // A PIN that lies somewhere shows no person.
    let mut pins = Sources::new(PinSource::Prompt, &TakenVariables::default());
    let config = Config::of_token(&mut arguments.options.configuration(Some("prompt")))?;
    let init_args = config.init_args.as_ref();
    let library = library::open(&config.library, init_args, lock::LIMIT)?;
    let library = opened.insert(library);
    let mut opener = FileOpener::new(library, &config)?;
    let key = opener.recipient_key(&file, Some(&mut pins))?;
    let registries = opener.open(&file, key, &mut pins)?;
    output.print(&format!("{}\n", registries.to_config().trim_end()))
}
