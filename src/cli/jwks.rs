//! `jwks`: the key set by which a cluster verifies the tokens that a key has signed.

use std::path::Path;

use super::key::choice::{NamedKey, WholeSource};
use super::key::options::KeyOptions;
use super::session::StartingSession;
use config::Config;
use crypto::jose::key_set;
use messages::error::Error;
use token::read_certificates;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer jwks > jwks.json
  pkcs11-external-signer jwks --certificate-file jane.pem > jwks.json

No PIN is needed.")]
pub(super) struct JwksArguments {
    #[command(flatten)]
    key: KeyOptions,
}

pub(super) fn run(
    JwksArguments { key: options }: &JwksArguments,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    options.set_call();
    let (key, session) = match &options.certificate_file {
        Some(file) if !options.names_a_key() && options.context.is_none() => {
            (read_certificates(Path::new(file))?.leaf.public_key().clone(), start.ready())
        }
        _ => {
            let WholeSource { mut source, session, .. } = options.whole_source(true, start)?;
            let config = &Config::from_map(&mut source.configuration)?;
            let mut token = session.open(config)?.token(&config.token)?;
            (NamedKey::find(&mut token, config, None)?.key.public_key, session)
        }
    };
    session.output.print_json(&key_set(&key)?)
}
