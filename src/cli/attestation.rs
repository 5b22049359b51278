//! `attestation`: the token's own word for where a key was made.

#![forbid(unsafe_code)]

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Serialize;

use super::again::Invocation;
use super::key_options::KeyOptions;
use super::output::CommandOutput;
use crate::certificate::KeyAttestation;
use crate::config::Config;
use crate::error::Error;
use crate::library::{self, LockReports};
use crate::pipeline::Library;
use crate::printable::printable;
use crate::process::lock;
use crate::report;

/// Print the certificate by which a YubiKey says that it made a key itself
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer attestation --object-id 1 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so
  pkcs11-external-signer attestation >chain.pem
  openssl verify -CAfile yubico-piv-ca-1.pem -untrusted chain.pem chain.pem

It is printed as PEM, with the device's certificate below it; what it says goes to standard error. No
PIN is asked for. It proves nothing before it was verified up to Yubico's root, which Yubico publishes.")]
pub(super) struct AttestationArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl AttestationArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key.invocation()
    }
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttestationDocument {
    api_version: &'static str,
    kind: &'static str,
    /// PEM, from that of the key upwards.
    certificates: Vec<String>,
    key_fingerprint: Option<String>,
    serial_number: Option<u64>,
    firmware: Option<String>,
    pin_policy: Option<&'static str>,
    touch_policy: Option<&'static str>,
}

/// Prints it; the exit code.
#[cold]
pub(super) fn run(arguments: &AttestationArguments, verbosity: u8) -> u8 {
    let mut opened = None;
    let outcome = show(arguments, verbosity, &mut opened);
    let code = outcome.map_or_else(|error| report::error(&error), |()| 0);
    if let Some(library) = opened {
        library.finalize(code);
    }
    code
}

fn show(
    arguments: &AttestationArguments,
    verbosity: u8,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let (mut source, _) = arguments.key.source_if_any()?;
    if source.context.is_none() {
        arguments.key.complete(&mut source.configuration, verbosity)?;
    }
    let config = Config::from_map(&mut source.configuration)?;
    let init_args = config.init_args.as_ref();
    let library = library::open(&config.library, init_args, lock::LIMIT, &mut LockReports)?;
    let library = opened.insert(library);
    let mut token = library.token(&config.token, None, &mut ())?;
    let chain = token.attestation(&config.object)?;
    let said = chain.first().and_then(|der| KeyAttestation::from_der(der));
    let certificates: Vec<_> = chain.iter().map(|der| pem(der)).collect();
    if arguments.json {
        let said = said.unwrap_or_default();
        return output.print_json(&AttestationDocument {
            api_version: "pkcs11-external-signer/v1",
            kind: "Attestation",
            certificates,
            key_fingerprint: Some(said.key_fingerprint).filter(|it| !it.is_empty()),
            serial_number: said.serial_number,
            firmware: said.firmware,
            pin_policy: said.pin_policy,
            touch_policy: said.touch_policy,
        });
    }
    if let Some(said) = &said {
        report::note(&printable(&words(said)));
    }
    // A certificate of another key, written beside this one.
    if let Ok(found) = token.certificate(&config.object, None)
        && let Some(said) = &said
        && let Some(other) = KeyAttestation::from_der(found.certificate.der())
        && other.key_fingerprint != said.key_fingerprint
    {
        report::warning(&format!(
            "the certificate of {} is not that of the attested key",
            printable(&found.certificate.subject)
        ));
    }
    Ok(output.print(&certificates.concat())?)
}

/// What the attestation says, in one line.
fn words(said: &KeyAttestation) -> String {
    let mut words = "made on this device".to_owned();
    if let Some(number) = said.serial_number {
        words = format!("made on YubiKey {number}");
    }
    if let Some(firmware) = &said.firmware {
        words.push_str(&format!(" with firmware {firmware}"));
    }
    for (name, policy) in [("PIN", said.pin_policy), ("touch", said.touch_policy)] {
        if let Some(policy) = policy {
            words.push_str(&format!(", {name} {policy}"));
        }
    }
    format!("{words}; the key's SHA-256 is {}", said.key_fingerprint)
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + "-----END CERTIFICATE-----\n"
}
