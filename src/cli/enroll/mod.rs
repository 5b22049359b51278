//! `enroll`: a key on a token, the request for its certificate, and the certificate beside it.
//!
//! Each step is read from where it was made: the key, and the certificate, on the token. So the command
//! goes on where an earlier one was interrupted, and says what it finds if there is nothing left to do.

#![forbid(unsafe_code)]

mod cluster;
mod document;
mod file;
mod piv;
mod place;
mod token;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::cluster::AskedCluster;
use self::document::{CertificateStatus, EnrollmentDocument, KeyOrigin};
use self::file::CsrTarget;
pub(super) use self::file::IssuedFile;
use self::piv::PivOptions;
use self::place::TokenChoice;
use self::token::EnrollmentToken;
pub(super) use self::token::removal;
use super::again::Invocation;
use super::completions::values;
use super::error::ArgumentNeeds;
use super::key_options::KeyOptions;
use super::output::CommandOutput;
use super::renew::{life, time};
use super::selection::Selection;
use crate::enrollment::{
    Applicant, EnrollmentError, ExpectedCertificate, KeyWish, NextStep, Plan, PlannedKey,
    check_issued, of_key,
};
use crate::error::Error;
use crate::keyring::Keyring;
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::printable::printable;
use crate::process::environment::SingleThreaded;
use crate::process::unix_time;
use crate::report;
use crate::token::{Candidate, FoundKey, KeyKind, KeyPurpose};

/// Make a key on a token, request a certificate for it, and put that beside it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer enroll --context prod
  pkcs11-external-signer enroll --user jane --group dev --csr jane.csr
  pkcs11-external-signer enroll --certificate jane.pem
  pkcs11-external-signer enroll --user jane --csr - --key rsa-2048
  pkcs11-external-signer enroll --user jane --csr jane.csr --dry-run
  pkcs11-external-signer enroll --for unsealing --user node1 --csr node1.csr

The first one makes a key, has the cluster issue its certificate, and has the context use both. The
second one makes a key and writes the request for any CA, and the third one goes on with what that
CA has issued. A command that was interrupted is typed again: no second key is made, and nothing on
the token is overwritten.")]
pub(super) struct EnrollArguments {
    #[command(flatten)]
    key_options: KeyOptions,
    #[command(flatten)]
    piv: PivOptions,
    /// The user's name, which is the key's label, too
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of the user; may be repeated
    #[arg(long = "group", value_name = "NAME")]
    groups: Vec<String>,
    /// The kind of key to make; without it ec-p256
    #[arg(long, value_name = "KIND", value_parser = key_kind)]
    key: Option<KeyKind>,
    /// What the key is for: signing, or unsealing what `seal` has sealed to it; without it signing
    #[arg(long = "for", value_name = "PURPOSE", value_parser = purpose, requires = "csr")]
    purpose: Option<KeyPurpose>,
    /// Write the request here, for any CA, and stop; - prints it
    #[arg(long, value_name = "FILE", conflicts_with = "certificate", add = values::files())]
    csr: Option<PathBuf>,
    /// Go on with the certificate that was issued
    #[arg(long, value_name = "FILE", conflicts_with_all = ["groups", "key"], add = values::files())]
    certificate: Option<PathBuf>,
    /// Put the certificate in the place of another one of the key, or on a YubiKey a new key in the place of
    /// another one, which is lost; after a yes that is typed
    #[arg(long)]
    replace: bool,
    /// How long the certificate is to be valid, such as 90d; without it as long as the cluster's signer gives
    #[arg(long, value_name = "TIME", value_parser = life, conflicts_with_all = ["csr", "certificate"])]
    duration: Option<Duration>,
    /// How long to wait for the approval
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time, conflicts_with_all = ["csr", "certificate"])]
    wait: Duration,
    /// Make another request after one that was denied or has failed
    #[arg(long, conflicts_with_all = ["csr", "certificate"])]
    again: bool,
    /// Change nothing, and say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// A kind of key by its name.
pub(super) fn key_kind(name: &str) -> Result<KeyKind, String> {
    KeyKind::named(name).ok_or_else(|| {
        let names = KeyKind::ALL.map(KeyKind::name);
        format!("it is none of {}", names.join(", "))
    })
}

fn purpose(name: &str) -> Result<KeyPurpose, String> {
    KeyPurpose::named(name).ok_or_else(|| {
        let names = KeyPurpose::ALL.map(KeyPurpose::name);
        format!("it is none of {}", names.join(", "))
    })
}

impl EnrollArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key_options.invocation()
    }

    /// # Errors
    /// [`EnrollmentError::OnlySigns`]
    fn purpose(&self) -> Result<KeyPurpose, EnrollmentError> {
        match (self.purpose.unwrap_or_default(), self.key) {
            (KeyPurpose::Unsealing, Some(KeyKind::Ed25519)) => Err(EnrollmentError::OnlySigns),
            (purpose, _) => Ok(purpose),
        }
    }
}

/// Does the next steps; the exit code.
#[cold]
pub(super) fn run(arguments: &EnrollArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let mut opened = None;
    let keyring = Arc::new(Keyring::default());
    let outcome = enroll(arguments, verbosity, alone, &mut opened, &keyring);
    let code = outcome.map_or_else(|error| report::error(&error), |()| 0);
    if let Some(library) = opened {
        library.finalize(code);
    }
    keyring.finish(code);
    code
}

/// What is asked for, as far as it can be checked without a token.
enum Task<'a> {
    Request(Applicant, CsrTarget<'a>),
    Install(Box<IssuedFile>),
    /// The cluster is asked for the certificate.
    Certify(Box<AskedCluster>),
    /// The context uses a key already.
    Prove,
}

impl<'a> Task<'a> {
    fn of(arguments: &'a EnrollArguments) -> Result<Self, Error> {
        let needs = |argument, other| Err(ArgumentNeeds { argument, other }.into());
        match (&arguments.csr, &arguments.certificate) {
            (Some(target), _) => {
                let Some(user) = arguments.user.clone() else {
                    return needs("--csr", "--user <NAME>");
                };
                let applicant = Applicant::new(user, arguments.groups.clone())?;
                Ok(Self::Request(applicant, CsrTarget::check(target)?))
            }
            (None, Some(file)) => {
                let issued = IssuedFile::read(file)?;
                let expected = ExpectedCertificate {
                    user: arguments.user.as_deref(),
                    ..ExpectedCertificate::default()
                };
                if let Some(remark) = check_issued(&issued.certificate, &expected, unix_time())? {
                    report::warning(&format!("the certificate in {}: {remark}", file.display()));
                }
                Ok(Self::Install(Box::new(issued)))
            }
            (None, None) => Ok(match AskedCluster::find(arguments)? {
                Some(cluster) => Self::Certify(Box::new(cluster)),
                None => Self::Prove,
            }),
        }
    }
}

fn enroll(
    arguments: &EnrollArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
    keyring: &Arc<Keyring>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let options = &arguments.key_options;
    let source = options.source().unwrap_or_else(|_| options.own_source());
    let variables = super::take_variables(source.configuration, alone);
    let purpose = arguments.purpose()?;
    let task = Task::of(arguments)?;
    if let Task::Prove = task {
        let proof = cluster::proof(arguments, opened, None, &variables, keyring)?;
        report::note("the context uses a key on a token already");
        return Ok(output.print(&format!("{}\n", printable(&proof)))?);
    }
    let choice = TokenChoice::of(options, verbosity)?;
    let selector = choice.open(opened)?;
    let library = opened.as_ref().ok_or_else(|| Error::internal("no library is open"))?;
    let officer = Sources::of_person(&choice.pin);
    let pins = [Sources::new(choice.pin, &variables), officer];
    let (filter, piv) = (choice.filter, &arguments.piv);
    let mut token = EnrollmentToken::open(library, filter, selector, pins, piv, purpose)?;
    let mut key_for_context = None;
    let mut document = match task {
        Task::Request(applicant, target) => request(arguments, &applicant, &target, &mut token)?,
        Task::Install(issued) => install(arguments, &issued, &mut token)?,
        Task::Certify(cluster) => {
            let (document, key) = certify(arguments, &cluster, library, &mut token)?;
            key_for_context = key;
            document
        }
        Task::Prove => return Err(Error::internal("a token where none is needed")),
    };
    let accepted = token.close();
    if let Some(selection) = key_for_context {
        let file = document.certificate_file();
        let file = file.map(|path| path.to_string_lossy().into_owned());
        cluster::write_context(arguments, selection, file, opened)?;
        let proof = cluster::proof(arguments, opened, accepted, &variables, keyring)?;
        document.set_proof(proof);
    }
    // The request alone, for a pipe.
    let is_printed = arguments.csr.as_deref() == Some(Path::new("-"));
    match document.request_text().filter(|_| is_printed) {
        _ if arguments.json => output.print_json(&document),
        Some(pem) => Ok(output.print(pem)?),
        None => Ok(output.print(&document.text())?),
    }
}

/// A key, and the request that it signs.
fn request(
    arguments: &EnrollArguments,
    applicant: &Applicant,
    target: &CsrTarget<'_>,
    token: &mut EnrollmentToken<'_>,
) -> Result<EnrollmentDocument, Error> {
    token.check_wish(arguments, applicant)?;
    let candidates = token.candidates(&format!("to enroll {}", applicant.user()))?;
    let mut document = EnrollmentDocument::new(token.name(), arguments.dry_run);
    document.set_request(applicant, target);
    let found = key_for(arguments, applicant, &candidates, token, &mut document)?;
    let Some((key, next)) = found else {
        return Ok(document);
    };
    if next == NextStep::Done {
        return Err(EnrollmentToken::already_enrolled(&candidates, &key));
    }
    if arguments.dry_run {
        return Ok(document);
    }
    let csr = token.sign_request(applicant, &key)?;
    target.write(csr.pem())?;
    document.set_csr(csr);
    Ok(document)
}

/// The applicant's key, found or made, and what is next; `None` if it is to be made and nothing may be changed.
fn key_for(
    arguments: &EnrollArguments,
    applicant: &Applicant,
    candidates: &[Candidate],
    token: &mut EnrollmentToken<'_>,
    document: &mut EnrollmentDocument,
) -> Result<Option<(FoundKey, NextStep)>, Error> {
    let wish = KeyWish {
        label: token.label().unwrap_or_else(|| applicant.user()),
        id: token.id(),
        is_usual: token.has_usual_id(),
        kind: arguments.key,
    };
    let replaces = arguments.replace;
    let plan = match replaces {
        true => Plan::for_new_key(&wish),
        false => Plan::for_request(candidates, &wish, unix_time())?,
    };
    let (id, label, kind) = match plan.key {
        PlannedKey::TakeUp(key) => {
            if plan.next != NextStep::Done && arguments.piv.has_policy() {
                return Err(
                    EnrollmentError::PolicyOfOldKey { key: key.selector().to_string() }.into()
                );
            }
            let found = token.key(&key)?;
            document.set_key(&found, KeyOrigin::Found)?;
            return Ok(Some((found, plan.next)));
        }
        PlannedKey::Make { id, label, kind } => (id, label, kind),
    };
    token.mention_lone_public_keys(candidates, &label);
    let id = match id {
        Some(id) if replaces => id,
        id => token.free_id(id, kind)?,
    };
    if arguments.dry_run {
        document.plan_key(&id, &label, kind);
        return Ok(None);
    }
    if replaces {
        token.confirm_loss(&id, candidates)?;
    }
    let made = token.make_key(kind, &id, &label, replaces)?;
    for promise in &made.unconfirmed {
        report::warning(&format!("the token does not confirm of the new key that {promise}"));
    }
    document.set_key(&made.key, KeyOrigin::Made)?;
    Ok(Some((made.key, plan.next)))
}

/// A key, and the certificate that the cluster issues for it; then what names the key in a configuration.
fn certify(
    arguments: &EnrollArguments,
    cluster: &AskedCluster,
    library: &Library,
    token: &mut EnrollmentToken<'_>,
) -> Result<(EnrollmentDocument, Option<Selection>), Error> {
    let applicant = cluster.applicant();
    token.check_wish(arguments, applicant)?;
    let candidates = token.candidates(&format!("to enroll {}", applicant.user()))?;
    let mut document = EnrollmentDocument::new(token.name(), arguments.dry_run);
    document.set_cluster(cluster.context(), applicant);
    let found = key_for(arguments, applicant, &candidates, token, &mut document)?;
    let Some((key, next)) = found else {
        return Ok((document, None));
    };
    if next == NextStep::Done {
        let own = of_key(&candidates, &key.public_key).into_iter();
        let own = own.max_by_key(|it| it.validity.not_after);
        // An earlier call has got so far.
        match own.filter(|own| own.user.as_deref() == Some(applicant.user())) {
            Some(own) => document.set_certificate(own, CertificateStatus::Present),
            None => return Err(EnrollmentToken::already_enrolled(&candidates, &key)),
        }
    } else if arguments.dry_run {
        let (name, is_there) = cluster.request(arguments, &key.public_key)?;
        document.set_cluster_request(name, is_there);
    } else {
        // Others can use the token while this waits for people.
        library.lock.release();
        let issued = cluster.obtain(arguments, &key.public_key, || {
            token.lock(library)?;
            let csr = token.sign_request(applicant, &key);
            library.lock.release();
            csr
        })?;
        token.lock(library)?;
        token.install(arguments, &issued, &key, &candidates, &mut document)?;
    }
    let selection = cluster::selection(library, token.name(), &key);
    Ok((document, Some(selection).filter(|_| !arguments.dry_run)))
}

/// The certificate that was issued, beside its key.
fn install(
    arguments: &EnrollArguments,
    issued: &IssuedFile,
    token: &mut EnrollmentToken<'_>,
) -> Result<EnrollmentDocument, Error> {
    let certificate = &issued.certificate;
    let user = certificate.user.as_deref().unwrap_or_default();
    let candidates = token.candidates(&format!("to enroll {user}"))?;
    let key = token.key_of(certificate, issued.words())?;
    // The name was said when the key was made.
    let has_name = token.label().is_none() && !token.names_keys();
    if arguments.user.is_none() && key.label != user && has_name {
        return Err(EnrollmentError::OtherApplicant {
            issued: format!("user \"{user}\""),
            asked: format!("\"{}\", as the key is labelled", key.label),
        }
        .into());
    }
    let mut document = EnrollmentDocument::new(token.name(), arguments.dry_run);
    document.set_key(&key, KeyOrigin::Found)?;
    token.install(arguments, issued, &key, &candidates, &mut document)?;
    Ok(document)
}
