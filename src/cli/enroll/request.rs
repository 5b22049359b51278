//! `enroll --csr`: makes a key, and writes the request for any CA.

use std::io;
use std::path::Path;

use super::choice::choose;
use super::key::EnrolledKey;
use super::plan::RequestPlan;
use super::token::Enrollment;
use crate::cli::issuance::{LONGEST, file_error, replace_file};
use crate::cli::session::{StartingSession, Step};
use crate::enrollment::{fingerprint, in_groups};
use crypto::certificate::{CertificationRequest, PublicKey};
use files::read_regular;
use messages::error::Error;
use messages::printable::in_groups_of_eight;
use token::KeyReference;

/// Finds or makes the key, and writes the request to its file, or prints it.
pub(super) fn write(plan: &RequestPlan, start: StartingSession<'_>) -> Result<(), Error> {
    let RequestPlan { token, applicant, file, .. } = plan;
    check_target(file)?;
    let (session, variables) = start.take_pin_variable(token.options.configuration());
    let config = choose(token, None, session)?;
    let mut enrollment = Enrollment::open(token, config, applicant.user(), &variables, session)?;
    let EnrolledKey { key, is_certified } = match enrollment.replacement(&plan.key, applicant) {
        Some(key) if is_request_for(file, &key.public_key) => {
            let request = format!("the request in {}", file.display());
            enrollment.go_on_with(&plan.key, key, &request)?
        }
        Some(_) | None => enrollment.key(&plan.key, applicant)?,
    };
    if is_certified {
        // The error says why nothing is left to do.
        enrollment.installed(&key, None)?;
    }
    // Whoever reads the request from a pipe may take their time.
    let mut enrollment = enrollment.share();
    let pem = enrollment.while_locked(|token| token.sign_request(applicant, None, &key))?;
    // A pipe gets the request and nothing else.
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

/// Checks before anything is made that the request can be written to this file. A request that is there is replaced;
/// any other file isn't.
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

/// Whether the file has a request for this key, from an earlier call.
fn is_request_for(path: &Path, key: &PublicKey) -> bool {
    let content =
        read_regular(path, LONGEST).ok().and_then(|content| String::from_utf8(content).ok());
    let request = content.and_then(|pem| CertificationRequest::from_pem(&pem).ok());
    request.is_some_and(|request| request.public_key == *key)
}

/// A line that identifies the key: `SHA-256 9631bb1a c73df083 …`.
fn fingerprint_line(key: &KeyReference) -> Result<String, Error> {
    Ok(format!("SHA-256 {}", in_groups_of_eight(&fingerprint(&key.public_key)?)))
}
