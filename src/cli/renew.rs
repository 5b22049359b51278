//! `renew`: a new certificate for the same key, asked for with the one that is about to expire.
//!
//! The present certificate is removed only after the new one was read back from the token and the cluster has
//! let it in. What was done is read from the token and the cluster, so that the same command goes on after an
//! interruption.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::again::Invocation;
use super::connection_log::ConnectionLog;
use super::enroll::IssuedFile;
use super::issuance::{
    Inquiry, IssuanceError, Issued, RequestStanding, WantedCertificate, obtain, request_name,
    standing,
};
use super::key_options::{KeyOptions, KeySource, SelectedContext};
use super::listing::CertificateEntry;
use super::output::CommandOutput;
use crate::certificate::{Certificate, ValidityState};
use crate::cluster_api::{ClusterUser, Recognition, TokenConnection, self_subject_review, whoami};
use crate::config::{Config, long_duration};
use crate::enrollment::{Applicant, certificates_pem, of_key, sign_request};
use crate::error::Error;
use crate::keyring::{KeyNumber, Keyring};
use crate::library;
use crate::pin_entry::Sources;
use crate::pipeline::StageObserver;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::{unix_time, watchdog};
use crate::protocol::Configuration;
use crate::report;
use crate::token::{FoundKey, ObjectError};
use crate::tunnel::{TunnelObserver, TunnelTarget};

/// Have the cluster issue a new certificate for the key, before the present one expires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer renew                 # the key of the current context
  pkcs11-external-signer renew --context prod
  pkcs11-external-signer renew --dry-run

The request is made with the present certificate, and a person has to approve it: the command to type is
printed. Left before that, the same command goes on later. The present certificate stays until the
cluster has let the new one in.")]
pub(super) struct RenewArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// How long the certificate is to be valid, such as 90d; without it as long as the signer gives
    #[arg(long, value_name = "TIME", value_parser = life)]
    duration: Option<Duration>,
    /// How long to wait for the approval
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    wait: Duration,
    /// Make another request after one that was denied or has failed
    #[arg(long)]
    again: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl RenewArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key.invocation("renew")
    }
}

/// A time as Go writes it.
pub(super) fn time(text: &str) -> Result<Duration, &'static str> {
    long_duration(text).ok_or("it is no duration such as 5m or 1h30m")
}

/// How long a certificate can be asked for.
pub(super) fn life(text: &str) -> Result<Duration, &'static str> {
    const SHORTEST: Duration = Duration::from_secs(600);
    let life =
        long_duration(text).filter(|it| *it >= SHORTEST && u32::try_from(it.as_secs()).is_ok());
    life.ok_or("it is no duration from 10m on, such as 90d or 12h")
}

/// Renews the certificate; the exit code.
#[cold]
pub(super) fn run(arguments: &RenewArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let keyring = Arc::new(Keyring::to_write());
    let outcome = renew(arguments, verbosity, alone, &keyring);
    let code = outcome.map_or_else(|error| report::error(&error), |()| 0);
    keyring.finish(code);
    code
}

/// What `--json` prints, described in docs/commands.md.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenewalDocument<'a> {
    api_version: &'static str,
    state: RenewalState,
    /// The CertificateSigningRequest's name.
    request: &'a str,
    /// The new one, or with `--dry-run` the present one.
    certificate: CertificateEntry,
    /// Whom the cluster takes the bearer for.
    known_as: Option<KnownUser>,
}

#[derive(Serialize)]
struct KnownUser {
    user: String,
    groups: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RenewalState {
    Planned,
    Renewed,
}

/// A key in use: its configuration, its cluster, and its token.
struct Renewal<'a> {
    keyring: &'a Arc<Keyring>,
    map: Configuration,
    key: KeyNumber,
    observer: Arc<dyn TunnelObserver>,
    cluster: SelectedContext,
    place: CertificatePlace,
}

/// Where the key's certificate is.
enum CertificatePlace {
    /// `certificateFile`
    File(PathBuf),
    /// Beside the key, with room for others.
    Token,
    /// In a slot of a PIV card, which has one.
    Slot,
}

fn renew(
    arguments: &RenewArguments,
    verbosity: u8,
    alone: SingleThreaded,
    keyring: &Arc<Keyring>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let KeySource {
        configuration: mut map,
        context,
    } = arguments.key.source()?;
    let cluster = match context {
        Some(context) => context,
        None => {
            arguments.key.complete(&mut map, verbosity)?;
            arguments.key.selected()?
        }
    };
    let variables = super::take_variables(map.clone(), alone);
    let config = Config::from_map(&mut map.clone())?;
    let file = config.certificate_file.clone();
    let key = keyring.add(config, &variables)?;
    library::end_if_it_hangs(&keyring.library(key));
    let open = keyring.open(key, Box::new(Waits));
    watchdog::stop();
    let open = open?;
    let has_slots = keyring.with_token(key, Box::new(Waits), |token, _, _| {
        Ok(token.is_yubikey() || token.takes_no_certificates())
    })?;
    let renewal = Renewal {
        keyring,
        map,
        key,
        observer: Arc::new(ConnectionLog),
        cluster,
        place: match file {
            Some(file) => CertificatePlace::File(file),
            None if has_slots => CertificatePlace::Slot,
            None => CertificatePlace::Token,
        },
    };
    // What is being done needn't be said.
    let _ = open.take_renewal();
    let present = certificate(&open.chain)?;
    let now = unix_time();
    if let Some(reason) = present.concerns(now).into_iter().next() {
        let subject = present.subject.clone();
        return Err(IssuanceError::Expired { subject, reason }.into());
    }
    let user = present.user.clone().unwrap_or_default();
    let applicant = Applicant::new(user, present.groups.clone())?;
    let api = TokenConnection::new(renewal.target()?, key, keyring, &renewal.observer)?;
    let asking = Inquiry {
        api: &api,
        context: &renewal.cluster.context.name,
        kubeconfig: arguments.key.kubeconfig.as_deref(),
        wait: arguments.wait,
        again: arguments.again,
    };
    let wanted_after = |certificate: &Certificate| -> Result<WantedCertificate<'_>, Error> {
        Ok(WantedCertificate {
            name: request_name(applicant.user(), present.public_key(), Some(certificate))?,
            applicant: &applicant,
            public_key: present.public_key(),
            duration: arguments.duration,
        })
    };
    let wanted = wanted_after(&present)?;
    if arguments.dry_run {
        return plan(
            &renewal,
            &present,
            &standing(&wanted, &asking)?,
            &wanted,
            arguments,
            &mut output,
        );
    }
    let mut done = |name: &str, certificate: &Certificate, known: Recognition| {
        tell(
            &renewal,
            name,
            certificate,
            known,
            arguments.json,
            &mut output,
        )
    };
    // An earlier call may have been interrupted before it removed what it had renewed.
    for old in renewal.others(&present)? {
        let earlier = wanted_after(&old)?;
        let quiet = Inquiry {
            again: false,
            ..asking
        };
        if let Ok(RequestStanding::Issued(issued)) = standing(&earlier, &quiet)
            && issued.certificate.der() == present.der()
        {
            let known = self_subject_review(&api)?;
            let name = issued.name.clone();
            check_user(&known, &present)?;
            renewal.remove(&old)?;
            return done(&name, &present, known);
        }
    }
    let issued = obtain(&wanted, &asking, || {
        sign_request(&applicant, present.public_key(), |scheme, digest| {
            keyring.sign(key, scheme, digest.to_owned())
        })
    })?;
    if issued.certificate.validity.not_after <= present.validity.not_after {
        return Err(IssuanceError::EndsEarlier {
            name: issued.name,
            issued: issued.certificate.validity.expiry(now),
            present: present.validity.expiry(now),
        }
        .into());
    }
    let known = match &renewal.place {
        CertificatePlace::File(file) => renewal.replace_file(file, &issued)?,
        CertificatePlace::Token => renewal.replace_on_token(&present, &issued)?,
        CertificatePlace::Slot => renewal.replace_in_slot(&issued)?,
    };
    done(&issued.name, &issued.certificate, known)
}

impl Renewal<'_> {
    fn target(&self) -> Result<TunnelTarget, Error> {
        let name = &self.cluster.context.cluster;
        Ok(TunnelTarget {
            name: name.clone(),
            cluster: self.cluster.kubeconfig.cluster(name)?,
            heeds_environment: true,
        })
    }

    /// The other certificates of the key on the token that are still valid.
    fn others(&self, present: &Certificate) -> Result<Vec<Certificate>, Error> {
        let (key, own) = (present.public_key().clone(), present.der().to_owned());
        let found = self
            .keyring
            .with_token(self.key, Box::new(Waits), move |token, _, _| {
                let candidates = token.candidates()?;
                let others = of_key(&candidates, &key).into_iter();
                let others = others.map(|it| it.der().to_owned());
                Ok(others.filter(|it| *it != own).collect::<Vec<_>>())
            })?;
        let found = found
            .iter()
            .filter_map(|der| Certificate::from_der(der, "the token").ok());
        let now = unix_time();
        Ok(found
            .filter(|it| it.validity.at(now) != ValidityState::Expired)
            .collect())
    }

    /// Writes the new certificate beside its key, has the cluster let it in, and removes the present
    /// one. A new one that isn't let in is removed again.
    fn replace_on_token(
        &self,
        present: &Certificate,
        issued: &Issued,
    ) -> Result<Recognition, Error> {
        self.write(&issued.certificate)?;
        let known = self.proof(self.map.clone(), &issued.certificate);
        match known {
            Ok(known) => {
                self.remove(present)?;
                Ok(known)
            }
            Err(error) => {
                self.remove(&issued.certificate)?;
                Err(error)
            }
        }
    }

    /// To write there is to lose the present certificate: the cluster has to let the new one in before,
    /// from a file, which stays until the card has it.
    fn replace_in_slot(&self, issued: &Issued) -> Result<Recognition, Error> {
        let new = Certificate::from_der(issued.certificate.der(), "the new certificate")?;
        let kept = IssuedFile::of_cluster(new, issued.chain.clone(), &issued.name);
        let path = kept.keep(None)?;
        let discard = || {
            fs::remove_file(&path).map_err(|error| ObjectError::CertificateFile {
                path: path.clone(),
                reason: error.to_string(),
            })
        };
        let mut map = self.map.clone();
        map.set("certificateFile", &path.to_string_lossy());
        let known = match self.proof(map, &issued.certificate) {
            Ok(known) => known,
            Err(error) => {
                discard()?;
                return Err(error);
            }
        };
        if let Err(error) = self.write(&issued.certificate) {
            let file = path.display();
            report::note(&format!(
                "the cluster has let the new certificate in; it stays in {file}"
            ));
            let id = self.id_of_key()?;
            kept.advise(&id, &path);
            return Err(error);
        }
        discard()?;
        Ok(known)
    }

    fn id_of_key(&self) -> Result<Vec<u8>, Error> {
        self.keyring
            .with_token(self.key, Box::new(Waits), |_, reference, _| {
                Ok(reference.id().unwrap_or_default().to_owned())
            })
    }

    /// Writes it beside the key, after the login that the token wants for that.
    fn write(&self, certificate: &Certificate) -> Result<(), Error> {
        let der = certificate.der().to_owned();
        let pin = Config::from_map(&mut self.map.clone())?.pin;
        let mut officer = Sources::of_person(&pin);
        self.keyring
            .with_token(self.key, Box::new(Waits), move |token, reference, pins| {
                let certificate = Certificate::from_der(&der, "the new certificate")?;
                let id = reference.id().unwrap_or_default().to_owned();
                let candidates = token.candidates()?;
                let own = candidates.iter().find(|it| it.id == id);
                let key = FoundKey {
                    label: own.map_or_else(String::new, |it| it.label.clone()),
                    public_key: reference.public_key().clone(),
                    id,
                };
                let what = format!("to write the certificate of {}", certificate.subject);
                token.reveal_to_write(&what, pins, &mut officer)?;
                if let Some(warning) = token.default_key_warning() {
                    report::warning(&warning);
                }
                token.write_certificate(&certificate, &key)
            })
    }

    fn remove(&self, certificate: &Certificate) -> Result<(), Error> {
        let der = certificate.der().to_owned();
        self.keyring
            .with_token(self.key, Box::new(Waits), move |token, _, _| {
                token.remove_certificate(&Certificate::from_der(&der, "the certificate")?)
            })
    }

    /// The same with the file: the new one stands beside it until the cluster has let it in.
    fn replace_file(&self, file: &Path, issued: &Issued) -> Result<Recognition, Error> {
        let failed = |reason: std::io::Error| {
            Error::from(ObjectError::CertificateFile {
                path: file.to_owned(),
                reason: reason.to_string(),
            })
        };
        let file = fs::canonicalize(file).map_err(failed)?;
        let mut new = file.clone().into_os_string();
        new.push(".renewed");
        let new = PathBuf::from(new);
        let text = certificates_pem(issued.certificate.der(), &issued.chain)?;
        fs::write(&new, text).map_err(failed)?;
        fs::File::open(&new)
            .and_then(|new| new.sync_all())
            .map_err(failed)?;
        let mut map = self.map.clone();
        map.set("certificateFile", &new.to_string_lossy());
        match self.proof(map, &issued.certificate) {
            Ok(known) => {
                fs::rename(&new, &file).map_err(failed)?;
                Ok(known)
            }
            Err(error) => {
                fs::remove_file(&new).map_err(failed)?;
                Err(error)
            }
        }
    }

    /// Asks the cluster, with the new certificate, for whom it takes us.
    fn proof(&self, mut map: Configuration, new: &Certificate) -> Result<Recognition, Error> {
        let config = Config::from_map(&mut map)?;
        let key = self.keyring.add(config, &TakenVariables::default())?;
        let open = self.keyring.open(key, Box::new(Waits))?;
        if open.chain.first().map(Vec::as_slice) != Some(new.der()) {
            return Err(Error::internal(
                "another certificate is taken than the new one",
            ));
        }
        let known = whoami(self.target()?, key, self.keyring, &self.observer)?;
        check_user(&known, new)?;
        Ok(known)
    }
}

fn certificate(chain: &[Vec<u8>]) -> Result<Certificate, Error> {
    let der = chain.first().map(Vec::as_slice).unwrap_or_default();
    Ok(Certificate::from_der(der, "the certificate")?)
}

fn check_user(known: &Recognition, certificate: &Certificate) -> Result<(), Error> {
    match (known, certificate.user.as_deref()) {
        (Recognition::User(known), Some(user)) if known.name != user => {
            Err(IssuanceError::KnownAsAnother {
                known: format!("\"{}\"", known.name),
                expected: format!("\"{user}\""),
            }
            .into())
        }
        _ => Ok(()),
    }
}

fn plan(
    renewal: &Renewal<'_>,
    present: &Certificate,
    found: &RequestStanding,
    wanted: &WantedCertificate<'_>,
    arguments: &RenewArguments,
    output: &mut CommandOutput,
) -> Result<(), Error> {
    let (name, first) = match found {
        RequestStanding::Absent(name) => {
            let name = name.clone();
            let text = format!(
                "make the request {name} for user \"{}\"",
                wanted.applicant.user()
            );
            (name, text)
        }
        RequestStanding::Open(request) => {
            let name = request.name().to_owned();
            let text = format!("wait for the request {name}, which is there");
            (name, text)
        }
        RequestStanding::Issued(issued) => {
            let name = issued.name.clone();
            let text = format!("take the certificate that the request {name} was answered with");
            (name, text)
        }
    };
    if arguments.json {
        return output.print_json(&RenewalDocument {
            api_version: "pkcs11-external-signer/v1",
            state: RenewalState::Planned,
            request: &name,
            certificate: CertificateEntry::from(present),
            known_as: None,
        });
    }
    let place = match &renewal.place {
        CertificatePlace::File(file) => {
            format!("put the new certificate in the place of {}", file.display())
        }
        CertificatePlace::Token => {
            "write the new certificate to the token, and then remove the present one".to_owned()
        }
        CertificatePlace::Slot => {
            "write the new certificate in the place of the present one, once the cluster has let it in"
                .to_owned()
        }
    };
    let expiry = present.validity.expiry(unix_time());
    Ok(output.print(&format!(
        "the certificate of {} expires {expiry}; nothing is changed\nit would {first}\nit would {place}\n",
        present.subject
    ))?)
}

fn tell(
    renewal: &Renewal<'_>,
    name: &str,
    certificate: &Certificate,
    known: Recognition,
    is_json: bool,
    output: &mut CommandOutput,
) -> Result<(), Error> {
    let user = match known {
        Recognition::User(ClusterUser { name, groups, .. }) => {
            Some(KnownUser { user: name, groups })
        }
        Recognition::NotTold => None,
    };
    if is_json {
        return output.print_json(&RenewalDocument {
            api_version: "pkcs11-external-signer/v1",
            state: RenewalState::Renewed,
            request: name,
            certificate: CertificateEntry::from(certificate),
            known_as: user,
        });
    }
    let expiry = certificate.validity.expiry(unix_time());
    let server = renewal.target()?.cluster.server;
    let proof = match user {
        Some(user) => {
            let groups = user.groups.join(", ");
            format!(
                "{server} knows us as user \"{}\", groups {groups}",
                user.user
            )
        }
        None => format!("{server} was reached"),
    };
    Ok(output.print(&format!(
        "the certificate of {} is renewed: it expires {expiry}, {}\n{proof}\n",
        certificate.subject,
        certificate.credential_id()
    ))?)
}

/// Says why it waits for another request.
struct Waits;

impl StageObserver for Waits {
    fn waiting(&mut self, holder: Option<u32>) {
        library::note_wait(holder);
    }

    fn unlocked(&mut self, reason: &str) {
        library::warn_of_no_lock(reason);
    }
}
