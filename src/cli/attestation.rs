//! `attestation`: a YubiKey's attestation that it generated a key.

use super::key::choice::WholeSource;
use super::key::options::KeyOptions;
use super::session::StartingSession;
use crate::enrollment::{certificates_pem, fingerprint};
use attestation::YubiKeyClaims;
use config::Config;
use crypto::certificate::Certificate;
use messages::error::Error;
use messages::printable::printable;
use messages::report;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer attestation --object-id 1 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so
  pkcs11-external-signer attestation >chain.pem
  openssl verify -CAfile yubico-piv-ca-1.pem -untrusted chain.pem chain.pem

The attestation is printed as PEM, followed by the device's own certificate; what it says is printed on standard error. No PIN is needed. It proves nothing until it has been verified up to a root that Yubico publishes.")]
pub(super) struct AttestationArguments {
    #[command(flatten)]
    key: KeyOptions,
}

pub(super) fn run(
    arguments: &AttestationArguments,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    arguments.key.set_call();
    let WholeSource { mut source, session, .. } = arguments.key.whole_source(true, start)?;
    let config = Config::from_map(&mut source.configuration)?;
    let token = session.open(&config)?.token(&config.token)?;
    let chain = token.attestation(&config.object)?;
    let (leaf, others) = chain.split_first().ok_or_else(|| Error::internal("an empty chain"))?;
    report::note(&printable(&describe(leaf)?));
    session.output.print_document(&certificates_pem(leaf, others)?)
}

/// Describes in one line what the attestation says. Nobody has verified it.
fn describe(attestation: &[u8]) -> Result<String, Error> {
    let certificate = Certificate::from_der(attestation, "the attestation")?;
    let key = fingerprint(certificate.public_key())?;
    Ok(match YubiKeyClaims::unproven(attestation) {
        Ok(claims) => format!("made on {claims}; the key's SHA-256 is {key}"),
        Err(refusal) => format!(
            "the attestation of the key with SHA-256 {key} is in a form that nobody would take: {refusal}"
        ),
    })
}
