//! `enroll`: a key on a token, the request for its certificate, and the certificate beside it.
//!
//! Each step is read from where it was made: the key, and the certificate, on the token. So the command
//! goes on where an earlier one was interrupted, and says what it finds if there is nothing left to do.

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

use self::choice::choose;
use self::plan::{InstallPlan, Plan};
use self::token::Enrollment;
pub(super) use self::touch::SUFFIX;
use super::issuance::{IssuanceOptions, IssuedCertificate, wait_until_valid};
use super::key::options::{KeyOptions, SELDOM};
use super::session::CommandSession;
use crate::enrollment::check_issued;
use ::token::{KeyKind, KeyPurpose, PivSlot, SlotPolicy};
use config::Keep;
use messages::error::Error;
use system::clock::unix_time;

/// Under which `--help` has the options for a YubiKey.
const YUBIKEY: &str = "A YubiKey";

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer enroll --context prod
  pkcs11-external-signer enroll --user jane --group dev --csr jane.csr
  pkcs11-external-signer enroll --certificate jane.pem
  pkcs11-external-signer enroll --user jane --csr - --key rsa-2048
  pkcs11-external-signer enroll --object-id 2 --context prod
  pkcs11-external-signer enroll --context prod --writes-by-touch
  pkcs11-external-signer enroll --for unsealing --user node1 --csr node1.csr

The first example makes a key, has the cluster issue its certificate, and configures the context to use both. The second makes a key and writes the request for any CA; the third installs what that CA has issued. Another --object-id gives a context a new key. After an interruption, type the same command again: no second key is made, and nothing on the token is overwritten.")]
pub(super) struct EnrollArguments {
    #[command(flatten)]
    key_options: KeyOptions,
    /// Its slot, instead of --object-id: 9a, 9c, 9d, 9e, or 82 to 95
    #[arg(long, value_name = "SLOT", conflicts_with = "object_id", help_heading = YUBIKEY)]
    #[arg(value_parser = |name: &str| PivSlot::named(name).ok_or("it is none of 9a, 9c, 9d, 9e and 82 to 95"))]
    slot: Option<PivSlot>,
    /// When it wants its PIN for the new key
    #[arg(long, value_name = "POLICY", conflicts_with = "certificate", help_heading = YUBIKEY)]
    #[arg(value_parser = one_of(["default", "never", "once", "always"], SlotPolicy::of_pin))]
    pin_policy: Option<SlotPolicy>,
    /// When it wants to be touched; cached: every 15 seconds at most
    #[arg(long, value_name = "POLICY", conflicts_with = "certificate", help_heading = YUBIKEY)]
    #[arg(value_parser = one_of(["default", "never", "always", "cached"], SlotPolicy::of_touch))]
    touch_policy: Option<SlotPolicy>,
    /// The user's name, and the key's label
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of the user; may be repeated
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// The kind of key to make, instead of ec-p256
    #[arg(long, value_name = "KIND", value_parser = one_of(KeyKind::ALL.map(KeyKind::name), KeyKind::named))]
    key: Option<KeyKind>,
    /// What the key is for; an unsealing key opens what `seal` has sealed
    #[arg(long = "for", value_name = "PURPOSE", requires = "csr", help_heading = SELDOM)]
    #[arg(value_parser = one_of(["signing", "unsealing"], purpose))]
    purpose: Option<KeyPurpose>,
    /// Write the request for any CA to this file and stop; - prints it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["certificate", "IssuanceOptions"])]
    csr: Option<PathBuf>,
    /// Continue with the certificate that the CA has issued
    #[arg(long, value_name = "FILE", conflicts_with_all = ["groups", "key", "IssuanceOptions"])]
    certificate: Option<PathBuf>,
    /// Replace another certificate of the key, or the key in a YubiKey's slot, which is lost; asks first
    #[arg(long, help_heading = SELDOM)]
    replace: bool,
    /// Leave its evidence (serial number, firmware, policies) out of the request
    #[arg(long, conflicts_with_all = ["csr", "certificate", "hardware_groups"], help_heading = YUBIKEY)]
    no_attestation: bool,
    /// Put in this evidence of it: what `ykman piv keys attest`, then `ykman piv certificates export f9` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csr", "certificate", "no_attestation"], help_heading = YUBIKEY)]
    attestation: Option<PathBuf>,
    /// Also ask for the groups that this evidence opens: hw:attested and hw:yubikey:SERIAL
    #[arg(long, conflicts_with_all = ["csr", "certificate"], help_heading = YUBIKEY)]
    hardware_groups: bool,
    /// How long the key stays open for kubectl: command, terminal (the default at one), or a time such as 15m
    #[arg(long, value_name = "HOW LONG", conflicts_with_all = ["csr", "certificate"])]
    keep: Option<Keep>,
    /// Also make a key that wants a touch for each signature, for a second user, NAME-writes
    #[arg(long, conflicts_with_all = ["csr", "certificate"], help_heading = YUBIKEY)]
    writes_by_touch: bool,
    /// Have kubectl be that user for what changes something, by its preferences (kuberc)
    #[arg(long, requires = "writes_by_touch", help_heading = YUBIKEY)]
    kuberc: bool,
    #[command(flatten)]
    issuance: IssuanceOptions,
}

fn purpose(name: &str) -> Option<KeyPurpose> {
    Some(if name == "unsealing" { KeyPurpose::Unsealing } else { KeyPurpose::Signing })
}

/// Parses what has one of these names, which help and completion list.
fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    names: [&'static str; N],
    named: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(move |name| named(&name).ok_or("it is not known"))
}

pub(super) fn run(arguments: &EnrollArguments, session: &mut CommandSession) -> Result<(), Error> {
    arguments.key_options.set_call();
    match Plan::of(arguments)? {
        Plan::Request(plan) => request::write(&plan, session),
        Plan::Install(plan) => install(&plan, session),
        Plan::Certify(plan) => certify::certify(&plan, session),
        Plan::CertifyWrites(plan) => touch::enroll(plan, session),
    }
}

/// The certificate of a file, beside its key.
fn install(plan: &InstallPlan, session: &mut CommandSession) -> Result<(), Error> {
    let issued = IssuedCertificate::from_file(&plan.file)?;
    wait_until_valid(&issued.certificate);
    check_issued(&issued.certificate, plan.user.as_deref(), None, unix_time())?;
    let user = issued.certificate.user.as_deref().unwrap_or_default();
    let options = &plan.token.options;
    let variables = &session.take_variables(options.configuration());
    let config = choose(options, Some(issued.certificate.public_key()), session)?;
    let mut enrollment = Enrollment::open(&plan.token, config, user, variables, session)?;
    let installed = enrollment.install_issued(&issued, plan);
    enrollment.show(&mut session.output)?;
    installed
}
