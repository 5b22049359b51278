//! `enroll`: a key on a token, the request for its certificate, and the certificate beside it.
//!
//! Each step is read from where it was made: the key, and the certificate, on the token. So the command
//! goes on where an earlier one was interrupted, and says what it finds if there is nothing left to do.

#![forbid(unsafe_code)]

mod document;
mod file;
mod piv;
mod place;
mod token;

use std::path::{Path, PathBuf};

use self::document::{EnrollmentDocument, KeyOrigin};
use self::file::{CsrTarget, IssuedFile};
use self::piv::PivOptions;
use self::place::TokenChoice;
use self::token::EnrollmentToken;
use super::again::Invocation;
use super::completions::values;
use super::error::ArgumentNeeds;
use super::key_options::KeyOptions;
use super::output::CommandOutput;
use crate::enrollment::{
    Applicant, EnrollmentError, ExpectedCertificate, KeyWish, NextStep, Plan, PlannedKey,
    check_issued,
};
use crate::error::Error;
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::process::environment::SingleThreaded;
use crate::process::unix_time;
use crate::report;
use crate::token::KeyKind;

/// Make a key on a token, request a certificate for it, and put that beside it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer enroll --user jane --group dev --csr jane.csr
  pkcs11-external-signer enroll --certificate jane.pem
  pkcs11-external-signer enroll --user jane --csr - --key rsa-2048 --object-id 3
  pkcs11-external-signer enroll --user jane --csr jane.csr --dry-run

The first one makes a key and writes the request for any CA, the second one goes on with what the CA
has issued. A call that was interrupted is made again: no second key is made, and nothing on the token
is overwritten.")]
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
    /// Change nothing, and say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

fn key_kind(name: &str) -> Result<KeyKind, String> {
    KeyKind::named(name).ok_or_else(|| {
        let names = KeyKind::ALL.map(KeyKind::name);
        format!("it is none of {}", names.join(", "))
    })
}

impl EnrollArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key_options.invocation("enroll")
    }
}

/// Does the next steps; the exit code.
#[cold]
pub(super) fn run(arguments: &EnrollArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let mut opened = None;
    let outcome = enroll(arguments, verbosity, alone, &mut opened);
    let code = outcome.map_or_else(|error| report::error(&error), |()| 0);
    if let Some(library) = opened {
        library.finalize(code);
    }
    code
}

/// What is asked for, as far as it can be checked without a token.
enum Task<'a> {
    Request(Applicant, CsrTarget<'a>),
    Install(Box<IssuedFile>),
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
                for remark in check_issued(&issued.certificate, &expected, unix_time())? {
                    report::warning(&format!("the certificate in {}: {remark}", file.display()));
                }
                Ok(Self::Install(Box::new(issued)))
            }
            (None, None) => needs("enroll", "--csr <FILE> or --certificate <FILE>"),
        }
    }
}

fn enroll(
    arguments: &EnrollArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let task = Task::of(arguments)?;
    let options = &arguments.key_options;
    let variables = super::take_variables(options.own_source().configuration, alone);
    let place = TokenChoice::of(options, verbosity)?;
    let selector = place.open(opened)?;
    let library = opened
        .as_ref()
        .ok_or_else(|| Error::internal("no library is open"))?;
    let officer = Sources::of_person(&place.pin);
    let pins = [Sources::new(place.pin, &variables), officer];
    let mut token = EnrollmentToken::open(library, place.filter, selector, pins, &arguments.piv)?;
    let document = match task {
        Task::Request(applicant, target) => request(arguments, &applicant, &target, &mut token)?,
        Task::Install(issued) => install(arguments, &issued, &mut token)?,
    };
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
    let user = applicant.user();
    let candidates = token.candidates(&format!("to enroll {user}"))?;
    let wish = KeyWish {
        label: token.label().unwrap_or(user),
        id: token.id(),
        is_usual: token.has_usual_id(),
        kind: arguments.key,
    };
    let replaces = token.replaces_key(arguments)?;
    let plan = match replaces {
        true => Plan::for_new_key(&wish),
        false => Plan::for_request(&candidates, &wish, unix_time())?,
    };
    let mut document = EnrollmentDocument::new(token.name(), arguments.dry_run);
    document.set_request(applicant, target);
    let key = match (plan.key, plan.next) {
        (PlannedKey::TakeUp(key), NextStep::Done) => {
            return Err(token.already_enrolled(&candidates, &key));
        }
        (PlannedKey::TakeUp(key), _) if arguments.piv.has_policy() => {
            return Err(EnrollmentError::PolicyOfOldKey {
                key: key.selector().to_string(),
            }
            .into());
        }
        (PlannedKey::TakeUp(key), _) => {
            let found = token.key(&key)?;
            document.set_key(&found, KeyOrigin::Found)?;
            found
        }
        (PlannedKey::Make { id, label, kind }, _) => {
            let id = match id {
                Some(id) if replaces => id,
                id => token.free_id(id, kind)?,
            };
            if arguments.dry_run {
                document.plan_key(&id, &label, kind);
                return Ok(document);
            }
            if replaces {
                token.confirm_loss(&id, &candidates)?;
            }
            let made = token.make_key(kind, &id, &label, replaces)?;
            for promise in &made.unconfirmed {
                report::warning(&format!(
                    "the token does not confirm of the new key that {promise}"
                ));
            }
            document.set_key(&made.key, KeyOrigin::Made)?;
            made.key
        }
    };
    if arguments.dry_run {
        return Ok(document);
    }
    let csr = token.sign_request(applicant, &key)?;
    target.write(csr.pem())?;
    document.set_csr(csr);
    Ok(document)
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
    let key = token.key_of(certificate, &issued.words())?;
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
