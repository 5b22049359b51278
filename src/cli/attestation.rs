//! `attestation`: a YubiKey's attestation that it generated a key.

use super::key::options::KeyOptions;
use super::session::CommandSession;
use crate::enrollment::certificates_pem;
use config::Config;
use crypto::certificate::KeyAttestation;
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
    session: &mut CommandSession,
) -> Result<(), Error> {
    arguments.key.set_call();
    let (mut source, _) = arguments.key.whole_source(true, session)?;
    let config = Config::from_map(&mut source.configuration)?;
    let token = session.open(&config)?.token(&config.token)?;
    let chain = token.attestation(&config.object)?;
    let (leaf, others) = chain.split_first().ok_or_else(|| Error::internal("an empty chain"))?;
    if let Some(attestation) = KeyAttestation::from_der(leaf) {
        report::note(&printable(&describe(&attestation)));
    }
    session.output.print_document(&certificates_pem(leaf, others)?)
}

/// What the attestation says, in one line.
fn describe(attestation: &KeyAttestation) -> String {
    let mut text = match attestation.serial_number {
        Some(number) => format!("made on YubiKey {number}"),
        None => "made on this device".to_owned(),
    };
    if let Some(firmware) = &attestation.firmware {
        text += &format!(" with firmware {firmware}");
    }
    for (name, policy) in [("PIN", attestation.pin_policy), ("touch", attestation.touch_policy)] {
        text += &policy.map_or_else(String::new, |policy| format!(", {name} {policy}"));
    }
    format!("{text}; the key's SHA-256 is {}", attestation.key_fingerprint)
}
