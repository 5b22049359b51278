//! `jwks`: the key set by which a cluster verifies the tokens that a key has signed.

#![forbid(unsafe_code)]

use std::path::Path;

use super::again::Invocation;
use super::holder::KeyHolder;
use super::key_options::KeyOptions;
use super::output::CommandOutput;
use crate::certificate::PublicKey;
use crate::config::Config;
use crate::error::Error;
use crate::jose::Jwk;
use crate::library::{self, Library};
use crate::process::environment::SingleThreaded;
use crate::process::lock;
use crate::report;
use crate::token::read_certificates;

/// Print the key set (JWKS) by which a cluster verifies tokens that a key signs (`credential --as jwt`)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer jwks > jwks.json
  pkcs11-external-signer jwks --certificate-file jane.pem > jwks.json

It asks for no PIN.")]
pub(super) struct JwksArguments {
    #[command(flatten)]
    key: KeyOptions,
}

impl JwksArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key.invocation()
    }
}

/// Prints the set; the exit code.
#[cold]
pub(super) fn run(arguments: &JwksArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    super::with_library(report::error, |opened| print(&arguments.key, verbosity, alone, opened))
}

fn print(
    options: &KeyOptions,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let key = match &options.certificate_file {
        Some(file) if !options.names_a_key() && options.context.is_none() => {
            read_certificates(Path::new(file))?.0.public_key().clone()
        }
        _ => key_on_token(options, verbosity, alone, opened)?,
    };
    output.print_json(&Jwk::of(&key)?.set())
}

fn key_on_token(
    options: &KeyOptions,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<PublicKey, Error> {
    let (mut source, no_key) = options.source_if_any()?;
    // A library that is loaded sees what is left in the environment.
    drop(super::take_variables(source.configuration.clone(), alone));
    if source.context.is_none() {
        let completed = options.complete(&mut source.configuration, verbosity);
        completed.map_err(|error| no_key.unwrap_or(error))?;
    }
    let config = &Config::from_map(&mut source.configuration)?;
    let library = library::open(&config.library, config.init_args.as_ref(), lock::LIMIT)?;
    let mut token = opened.insert(library).token(&config.token)?;
    let holder = KeyHolder::find(&mut token, config, None)?;
    Ok(holder.key.public_key().clone())
}
