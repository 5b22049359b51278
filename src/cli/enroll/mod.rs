//! `enroll`: makes a key on a token, gets a certificate for it, and puts that beside the key.
//!
//! What an earlier call has done is read from the token and the cluster. So the command goes on where that was
//! interrupted, and says what it finds if there is nothing left to do.

mod certificate;
mod certify;
mod choice;
mod cluster;
mod key;
mod plan;
mod policies;
mod request;
mod token;
mod touch;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use self::certify::ContextEnrollment;
use self::choice::choose;
use self::plan::{InstallPlan, Plan};
use self::token::Enrollment;
pub(super) use self::touch::SUFFIX;
use super::issuance::{IssuanceOptions, IssuedCertificate, wait_until_valid};
use super::key::options::{KeyOptions, SELDOM};
use super::session::StartingSession;
use crate::enrollment::check_issued;
use ::token::{KeyKind, KeyPurpose, PivSlot, SlotPolicy};
use config::Keep;
use messages::error::Error;
use system::clock::unix_time;

/// The heading under which `--help` has the options for a YubiKey.
const YUBIKEY: &str = "A YubiKey";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer enroll --context prod
  pkcs11-external-signer enroll --user jane --group dev --csr jane.csr
  pkcs11-external-signer enroll --certificate jane.pem")]
#[command(after_long_help = "\
Examples:
  pkcs11-external-signer enroll --context prod
  pkcs11-external-signer enroll --user jane --group dev --csr jane.csr
  pkcs11-external-signer enroll --certificate jane.pem
  pkcs11-external-signer enroll --user jane --csr - --key rsa-2048
  pkcs11-external-signer enroll --object-id 2 --context prod
  pkcs11-external-signer enroll --context prod --writes-by-touch
  pkcs11-external-signer enroll --for unsealing --user node1 --csr node1.csr

The first example makes a key, has the cluster issue its certificate, and configures the context to use both. The second makes a key and writes a request for any CA; the third stores the certificate that this CA has issued. With another --object-id, a context gets a new key. After an interruption, type the same command again: no second key is made, and nothing on the token is overwritten.")]
pub(super) struct EnrollArguments {
    #[command(flatten)]
    key_options: KeyOptions,
    /// The card's slot: 9a, 9c, 9d, 9e, or 82 to 95
    #[arg(long, value_name = "SLOT", conflicts_with = "object_id", help_heading = YUBIKEY)]
    #[arg(value_parser = |name: &str| PivSlot::named(name).ok_or("it must be 9a, 9c, 9d, 9e, or 82 to 95"))]
    slot: Option<PivSlot>,
    /// When the new key wants the PIN
    #[arg(long, value_name = "POLICY", conflicts_with = "certificate", help_heading = YUBIKEY, hide_short_help = true)]
    #[arg(value_parser = one_of(["default", "never", "once", "always"], SlotPolicy::of_pin))]
    pin_policy: Option<SlotPolicy>,
    /// When the new key wants a touch; cached: every 15 seconds at most
    #[arg(long, value_name = "POLICY", conflicts_with = "certificate", help_heading = YUBIKEY, hide_short_help = true)]
    #[arg(value_parser = one_of(["default", "never", "always", "cached"], SlotPolicy::of_touch))]
    touch_policy: Option<SlotPolicy>,
    /// The user's name, and the key's label
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// The kind of key to make [default: ec-p256]
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    #[arg(value_parser = one_of(KeyKind::ALL.map(KeyKind::name), KeyKind::named))]
    key: Option<KeyKind>,
    /// What the key is for; a key for unsealing opens what `seal` has sealed
    #[arg(long = "for", value_name = "PURPOSE", requires = "csr", help_heading = SELDOM, hide_short_help = true)]
    #[arg(value_parser = one_of(["signing", "unsealing"], purpose))]
    purpose: Option<KeyPurpose>,
    /// Write a request for any CA to this file, or to -
    #[arg(long, value_name = "FILE", conflicts_with_all = ["certificate", "IssuanceOptions"])]
    csr: Option<PathBuf>,
    /// Store the certificate that this CA has issued
    #[arg(long, value_name = "FILE", conflicts_with_all = ["groups", "key", "IssuanceOptions"])]
    certificate: Option<PathBuf>,
    /// Replace the key's certificate, or destroy and replace the key in a YubiKey's slot; you are asked first
    #[arg(long, help_heading = SELDOM, hide_short_help = true)]
    replace: bool,
    /// Don't put the card's attestation (serial number, firmware, policies) into the request
    #[arg(long, conflicts_with_all = ["csr", "certificate", "hardware_groups"], help_heading = YUBIKEY)]
    #[arg(hide_short_help = true)]
    no_attestation: bool,
    /// Put the attestation in this file into the request: what `ykman piv keys attest` writes, then what `ykman piv
    /// certificates export f9` does; for a TPM see docs/tpm.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csr", "certificate", "no_attestation"], help_heading = YUBIKEY)]
    #[arg(hide_short_help = true)]
    attestation: Option<PathBuf>,
    /// Also request the groups that the attestation proves: hw:attested and hw:yubikey:SERIAL
    #[arg(long, conflicts_with_all = ["csr", "certificate"], help_heading = YUBIKEY, hide_short_help = true)]
    hardware_groups: bool,
    /// How long the key stays open: command, terminal, or a time such as 15m [default: terminal, if there is one]
    #[arg(long, value_name = "HOW LONG", conflicts_with_all = ["csr", "certificate"])]
    keep: Option<Keep>,
    /// Also make a key that wants a touch for each signature, for a user NAME-writes
    #[arg(long, conflicts_with_all = ["csr", "certificate"], help_heading = YUBIKEY)]
    writes_by_touch: bool,
    /// Set kubectl's preferences (kuberc) to act as that user in commands that change something
    #[arg(long, requires = "writes_by_touch", help_heading = YUBIKEY, hide_short_help = true)]
    kuberc: bool,
    #[command(flatten)]
    issuance: IssuanceOptions,
}

fn purpose(name: &str) -> Option<KeyPurpose> {
    Some(if name == "unsealing" { KeyPurpose::Unsealing } else { KeyPurpose::Signing })
}

/// Parses one of these names, which help and completion list.
fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    names: [&'static str; N],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(move |name| named(&name).ok_or("it is not known"))
}

pub(super) fn run(arguments: &EnrollArguments, start: StartingSession<'_>) -> Result<(), Error> {
    arguments.key_options.set_call();
    match Plan::of(arguments)? {
        Plan::Request(plan) => request::write(&plan, start),
        Plan::Install(plan) => install(&plan, start),
        Plan::Certify(plan) => {
            let (enrollment, session) = ContextEnrollment::begin(&plan, start)?;
            enrollment.run(session)
        }
        Plan::CertifyWrites(plan) => touch::enroll(plan, start),
    }
}

/// Stores the certificate of a file beside its key.
fn install(plan: &InstallPlan, start: StartingSession<'_>) -> Result<(), Error> {
    let issued = IssuedCertificate::from_file(&plan.file)?;
    wait_until_valid(&issued.certificate);
    check_issued(&issued.certificate, plan.user.as_deref(), None, unix_time())?;
    let user = issued.certificate.user.as_deref().unwrap_or_default();
    let options = &plan.token.options;
    let (session, variables) = start.take_pin_variable(options.configuration());
    let config = choose(&plan.token, Some(issued.certificate.public_key()), session)?;
    let mut enrollment = Enrollment::open(&plan.token, config, user, &variables, session)?;
    let installed = enrollment.install_issued(&issued, plan);
    enrollment.show(&mut session.output)?;
    installed
}
