//! `renew`: a new certificate for the same key or a new one, asked for with the one that is about to expire.
//!
//! The present certificate is removed only after the new one was read back from the token and the cluster has
//! let it in. What was done is read from the token and the cluster, so that the same command goes on after an
//! interruption.

#![forbid(unsafe_code)]

mod context;
mod document;
mod error;
mod key_in_use;
mod new_key;
mod place;

use std::sync::Arc;
use std::time::Duration;

use self::document::{Report, step_of};
use self::key_in_use::{KeyInUse, check_user};
use self::new_key::KeyChange;
use self::place::CertificatePlace;
use super::again::Invocation;
use super::connection_log::ConnectionLog;
use super::enroll::key_kind;
use super::issuance::{
    Inquiry, IssuanceError, Issued, RequestStanding, WantedCertificate, obtain, request_name,
    standing,
};
use super::key_options::{KeyOptions, KeySource};
use super::output::CommandOutput;
use crate::certificate::Certificate;
use crate::cluster_api::{TokenConnection, self_subject_review};
use crate::config::{Config, long_duration};
use crate::enrollment::{Applicant, sign_request};
use crate::error::Error;
use crate::keyring::Keyring;
use crate::library::{self, LockReports};
use crate::process::environment::SingleThreaded;
use crate::process::{unix_time, watchdog};
use crate::report;
use crate::token::KeyKind;

/// Have the cluster issue a new certificate for the key, before the present one expires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer renew                # the key of the current context
  pkcs11-external-signer renew --context prod
  pkcs11-external-signer renew --new-key --context prod
  pkcs11-external-signer renew --dry-run

The request is made with the present certificate, and a person has to approve it: the command to type is
printed. Left before that, the same command goes on later. The present certificate stays until the
cluster has let the new one in.")]
pub(super) struct RenewArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Make a new key, too, under another objectId, and have the context use it
    #[arg(long, conflicts_with_all = ["Selection", "uri"])]
    new_key: bool,
    /// The kind of the new key; without it that of the present one
    #[arg(long = "key", value_name = "KIND", value_parser = key_kind, requires = "new_key")]
    kind: Option<KeyKind>,
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
        self.key.invocation()
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

fn renew(
    arguments: &RenewArguments,
    verbosity: u8,
    alone: SingleThreaded,
    keyring: &Arc<Keyring>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let mut report = Report { output: &mut output, is_json: arguments.json };
    let KeySource { configuration: mut map, context } = arguments.key.source()?;
    let cluster = match context {
        Some(context) => context,
        None => {
            arguments.key.complete(&mut map, verbosity)?;
            arguments.key.selected()?
        }
    };
    let variables = super::take_variables(map.clone(), alone);
    let number = keyring.add(Config::from_map(&mut map.clone())?, &variables)?;
    library::end_if_it_hangs(&keyring.library(number));
    let open = keyring.open(number, Box::new(LockReports));
    watchdog::stop();
    let open = open?;
    let key = KeyInUse { keyring, map, number, observer: Arc::new(ConnectionLog), cluster };
    // What is being done needn't be said.
    let _ = open.take_renewal();
    let present = certificate(&open.chain)?;
    if let Some(reason) = present.concerns(unix_time()).into_iter().next() {
        let subject = present.subject.clone();
        return Err(IssuanceError::Expired { subject, reason }.into());
    }
    let user = present.user.clone().unwrap_or_default();
    let applicant = Applicant::new(user, present.groups.clone())?;
    let api = TokenConnection::new(key.target()?, number, keyring, &key.observer)?;
    let asking = Inquiry {
        api: &api,
        context: &key.cluster.context.name,
        kubeconfig: arguments.key.kubeconfig.as_deref(),
        wait: arguments.wait,
        again: arguments.again,
    };
    let place = CertificatePlace::of(&key)?;
    if arguments.new_key {
        let change = KeyChange {
            arguments,
            key: &key,
            present: &present,
            applicant: &applicant,
            asking: &asking,
        };
        return change.run(&place, &mut report);
    }
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
        let standing = standing(&wanted, &asking)?;
        let steps = [step_of(&standing, applicant.user()), place.plan()];
        return report.plan(&present, Some(standing.name()), &steps, None);
    }
    // An earlier call may have been interrupted before it removed what it had renewed.
    for old in key.others(&present)? {
        let earlier = wanted_after(&old)?;
        let quiet = Inquiry { again: false, ..asking };
        if let Ok(RequestStanding::Issued(issued)) = standing(&earlier, &quiet)
            && issued.certificate.der() == present.der()
        {
            let known = self_subject_review(&api)?;
            check_user(&known, &present)?;
            key.remove(&old, Some(&present))?;
            return report.renewed(&key, &issued.name, &present, known, None);
        }
    }
    let issued = obtain(&wanted, &asking, || {
        sign_request(&applicant, present.public_key(), |scheme, digest| {
            keyring.sign(number, scheme, digest.to_owned())
        })
    })?;
    check_end(&issued, &present)?;
    let known = place.replace(&key, &present, &issued)?;
    report.renewed(&key, &issued.name, &issued.certificate, known, None)
}

/// # Errors
/// [`IssuanceError::EndsEarlier`]
fn check_end(issued: &Issued, present: &Certificate) -> Result<(), IssuanceError> {
    if issued.certificate.validity.not_after > present.validity.not_after {
        return Ok(());
    }
    let now = unix_time();
    Err(IssuanceError::EndsEarlier {
        name: issued.name.clone(),
        issued: issued.certificate.validity.expiry(now),
        present: present.validity.expiry(now),
    })
}

fn certificate(chain: &[Vec<u8>]) -> Result<Certificate, Error> {
    let der = chain.first().map(Vec::as_slice).unwrap_or_default();
    Ok(Certificate::from_der(der, "the certificate")?)
}
