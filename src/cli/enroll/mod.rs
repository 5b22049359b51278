//! `enroll`: a key on a token, the request for its certificate, and the certificate beside it.
//!
//! Each step is read from where it was made: the key, and the certificate, on the token. So the command
//! goes on where an earlier one was interrupted, and says what it finds if there is nothing left to do.

mod cluster;
mod token;
mod touch;

use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};

use self::cluster::{IssuingCluster, is_applicant, known_as};
use self::token::{EnrolledKey, Enrollment, PausedEnrollment, check_options, choose};
use super::issuance::{
    Issuance, IssuanceOptions, IssuedCertificate, LONGEST, file_error, replace_file,
    wait_until_valid,
};
use super::key::context::{ContextEntries, check_change};
use super::key::options::{KeyOptions, SELDOM, SelectedContext};
use super::session::{CommandSession, Step};
use crate::enrollment::{Applicant, check_issued, fingerprint, in_groups};
use ::token::{KeyKind, KeyPurpose, KeyReference, PivSlot, SlotPolicy};
use cluster_api::ClusterUser;
use cluster_api::kind;
use config::pin::Pin;
use config::{Config, Keep};
use files::read_regular;
use messages::error::{Error, Exit};
use messages::printable::in_groups_of_eight;
use messages::report;
use protocol::Configuration;
use system::clock::unix_time;
use system::environment::TakenVariables;

/// Under which `--help` has the options for a YubiKey.
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
    /// certificates export f9` does
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

impl EnrollArguments {
    /// One that was given of those that are for a YubiKey.
    fn of_yubikeys(&self) -> Option<&'static str> {
        let replaces_key = self.replace && self.certificate.is_none();
        let wants_touch = self.writes_by_touch && self.slot.is_some();
        [
            (wants_touch, "--writes-by-touch without --object-id"),
            (self.slot.is_some(), "--slot"),
            (self.pin_policy.is_some(), "--pin-policy"),
            (self.touch_policy.is_some(), "--touch-policy"),
            (replaces_key, "--replace without --certificate"),
        ]
        .into_iter()
        .find_map(|(is_given, option)| is_given.then_some(option))
    }
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

/// Checks before anything is made that the request can be written. One that is there is replaced, any other file is not.
fn check_target(path: &Path) -> Result<(), Error> {
    const REQUEST: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";
    if path == Path::new("-") {
        return Ok(());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if directory.is_some_and(|directory| !directory.is_dir()) {
        return Err(file_error(path, "its directory is not there"));
    }
    match read_regular(path, LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(content) if content.starts_with(REQUEST) => Ok(()),
        Ok(_) => Err(file_error(path, "it is there, and is no certificate request")),
        Err(error) => Err(file_error(path, error)),
    }
}

pub(super) fn run(arguments: &EnrollArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = &arguments.key_options;
    options.set_call();
    let (purpose, kind) = (arguments.purpose, arguments.key);
    if purpose == Some(KeyPurpose::Unsealing) && kind == Some(KeyKind::Ed25519) {
        let text = "an Ed25519 key only signs, and opens no sealed file";
        return Err(Error::new(Exit::Request, text).help("leave --key out, or name another kind"));
    }
    match (&arguments.csr, &arguments.certificate) {
        (Some(file), _) => request(arguments, file, session),
        (None, Some(file)) => install(arguments, file, session),
        (None, None) if arguments.writes_by_touch => touch::enroll(arguments, session),
        (None, None) => certify(arguments, session),
    }
}

/// A key, and the request for any CA in a file, unless it is printed.
fn request(
    arguments: &EnrollArguments,
    file: &Path,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let user = arguments.user.clone().ok_or_else(|| {
        Error::new(Exit::Request, "missing argument: --csr needs --user <NAME>")
            .help("`pkcs11-external-signer enroll --help` shows what goes with what")
    })?;
    let applicant = &Applicant::new(user, arguments.groups.clone())?;
    check_target(file)?;
    let variables = &session.take_variables(arguments.key_options.configuration());
    let config = choose(&arguments.key_options, None, session)?;
    let mut enrollment = Enrollment::open(arguments, config, applicant.user(), variables, session)?;
    let EnrolledKey { key, is_certified } = enrollment.key(applicant)?;
    if is_certified {
        // Why nothing is left to do.
        enrollment.installed(&key, None)?;
    }
    let pem = enrollment.sign_request(applicant, &key)?;
    // The request alone, for a pipe.
    if file == Path::new("-") {
        return session.output.print_document(&pem);
    }
    enrollment.show(&mut session.output)?;
    session.output.detail(&fingerprint_line(&key)?)?;
    replace_file(file, &pem)?;
    let (file, user, groups) = (file.display(), applicant.user(), in_groups(applicant.groups()));
    let text = format!("in {file}, for user {user:?}, {groups}");
    session.output.step(&Step { title: "request", text })
}

/// What identifies the key: `SHA-256 9631bb1a c73df083 …`.
fn fingerprint_line(key: &KeyReference) -> Result<String, Error> {
    Ok(format!("SHA-256 {}", in_groups_of_eight(&fingerprint(&key.public_key)?)))
}

/// The certificate of this file, beside its key.
fn install(
    arguments: &EnrollArguments,
    file: &Path,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let issued = IssuedCertificate::from_file(file)?;
    wait_until_valid(&issued.certificate);
    check_issued(&issued.certificate, arguments.user.as_deref(), None, unix_time())?;
    let user = issued.certificate.user.as_deref().unwrap_or_default();
    let variables = &session.take_variables(arguments.key_options.configuration());
    let config = choose(&arguments.key_options, Some(issued.certificate.public_key()), session)?;
    let mut enrollment = Enrollment::open(arguments, config, user, variables, session)?;
    let installed = enrollment.install_issued(&issued);
    enrollment.show(&mut session.output)?;
    installed
}

/// A key, the certificate that the cluster issues for it, and the context that uses both, once the cluster knows their
/// bearer.
fn certify(arguments: &EnrollArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = &arguments.key_options;
    let selected = &options.selected()?;
    let server = selected.target()?.cluster.server;
    let present = options.key_of_context(selected).ok().filter(|_| !options.names_a_key());
    let variables = &session.take_variables(present.unwrap_or_else(|| options.configuration()));
    let context = ContextEnrollment { arguments, selected, server, variables };
    let chosen = chosen_yubikey(arguments, session)?;
    let Some(mut cluster) = IssuingCluster::find(arguments, selected, variables, session)? else {
        let known = context.known_as(options.key_of_context(selected)?, None, session)?;
        let text = format!("\"{}\" uses a key on a token already", context.name());
        session.output.step(&Step { title: "context", text })?;
        return context.show_user(&known, session);
    };
    // Before anybody is sent for.
    check_change(options.kubeconfig.as_deref(), context.name())?;
    let applicant = &cluster.applicant;
    let config = match cluster.key.take().or(chosen) {
        Some(config) => config,
        None => choose(options, None, session)?,
    };
    let mut enrollment = Enrollment::open(arguments, config, applicant.user(), variables, session)?;
    let EnrolledKey { mut key, is_certified } = enrollment.key(applicant)?;
    enrollment.show(&mut session.output)?;
    let applicant = &enrollment.attest(&key, applicant)?;
    enrollment.show(&mut session.output)?;
    if is_certified {
        // An earlier call has got so far, or the certificate is for another cluster.
        match context.try_present_certificate(enrollment, &key, applicant, session)? {
            Trial::Finished => return Ok(()),
            Trial::Unsuited(paused) => {
                enrollment = paused.resume(applicant.user(), session)?;
                // It is the one that was shown.
                key = enrollment.key_again(applicant)?;
            }
        }
    }
    let issuance = Issuance {
        api: &cluster.kubectl,
        applicant,
        public_key: &key.public_key,
        duration: arguments.issuance.duration,
        renewed: None,
    };
    // Others can use the token while this waits for people.
    enrollment.lock.release();
    let issued = issuance.obtain(&arguments.issuance, &mut session.output, || {
        enrollment.sign_request(applicant, &key)
    })?;
    let installed = enrollment.install(&issued, &key);
    enrollment.show(&mut session.output)?;
    let file = installed?;
    context.use_new_certificate(enrollment, &key, file, applicant, session)
}

/// The token, if an option is for YubiKeys: chosen, and found to be one, before the cluster is asked, perhaps with a key
/// that wants its PIN.
fn chosen_yubikey(
    arguments: &EnrollArguments,
    session: &mut CommandSession,
) -> Result<Option<Config>, Error> {
    if arguments.of_yubikeys().is_none() {
        return Ok(None);
    }
    let config = choose(&arguments.key_options, None, session)?;
    check_options(arguments, &config, session)?;
    Ok(Some(config))
}

/// The context that is to use the key, once its cluster knows the bearer.
struct ContextEnrollment<'a> {
    arguments: &'a EnrollArguments,
    selected: &'a SelectedContext,
    /// The URL of the context's API server.
    server: String,
    variables: &'a TakenVariables,
}

/// What came of the certificate that the key had already.
enum Trial<'a> {
    /// The context uses it.
    Finished,
    /// The cluster takes its bearer for nobody, or for somebody else.
    Unsuited(Box<PausedEnrollment<'a>>),
}

impl<'a> ContextEnrollment<'a> {
    fn name(&self) -> &str {
        &self.selected.context.name
    }

    /// For whom the context's cluster takes the bearer of this key.
    fn known_as(
        &self,
        key: Configuration,
        accepted: Option<Pin>,
        session: &mut CommandSession,
    ) -> Result<ClusterUser, Error> {
        known_as(self.selected.target()?, key, accepted, self.variables, session)
    }

    /// Tries the certificate beside the key with the cluster, and has the context use it if that knows the applicant by it.
    fn try_present_certificate(
        &self,
        enrollment: Enrollment<'a>,
        key: &KeyReference,
        applicant: &Applicant,
        session: &mut CommandSession,
    ) -> Result<Trial<'a>, Error> {
        let user = applicant.user();
        let certificate = enrollment.installed(key, Some(user))?;
        let ready = enrollment.key_for_context(key, None, session)?;
        let entries = ready.entries(self.name(), user, self.arguments.keep)?;
        let paused = enrollment.pause();
        let reason = match self.known_as(entries.configuration(), paused.accepted_pin(), session) {
            Ok(known) if is_applicant(&known, applicant) => {
                session.output.step(&certificate)?;
                self.finish(&entries, &known, session)?;
                return Ok(Trial::Finished);
            }
            Ok(known) => known.describe(&self.server),
            Err(error) if error.is(&kind::NOT_RECOGNISED) => error.to_string(),
            Err(error) => return Err(error),
        };
        report::note(&format!(
            "another certificate is asked for: with the key's own one, {reason}"
        ));
        Ok(Trial::Unsuited(Box::new(paused)))
    }

    /// Has the context use the key with the certificate that was installed, in `file` if the token doesn't hold it, once
    /// the cluster knows the bearer.
    fn use_new_certificate(
        &self,
        enrollment: Enrollment<'_>,
        key: &KeyReference,
        file: Option<PathBuf>,
        applicant: &Applicant,
        session: &mut CommandSession,
    ) -> Result<(), Error> {
        let ready = enrollment.key_for_context(key, file, session)?;
        let entries = ready.entries(self.name(), applicant.user(), self.arguments.keep)?;
        let paused = enrollment.pause();
        match self.known_as(entries.configuration(), paused.accepted_pin(), session) {
            Ok(known) => self.finish(&entries, &known, session),
            Err(error) => {
                report::note(&format!("context \"{}\" stays as it was", self.name()));
                Err(error)
            }
        }
    }

    /// Writes the context, and says what can be done next.
    fn finish(
        &self,
        entries: &ContextEntries<'_>,
        known: &ClusterUser,
        session: &mut CommandSession,
    ) -> Result<(), Error> {
        self.show_user(known, session)?;
        entries.write(&mut session.output)
    }

    /// Prints for whom the cluster takes the bearer of the key.
    fn show_user(&self, known: &ClusterUser, session: &mut CommandSession) -> Result<(), Error> {
        session.output.step(&Step { title: "cluster", text: known.describe(&self.server) })
    }
}
