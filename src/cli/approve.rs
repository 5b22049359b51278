//! `approve`: shows a CertificateSigningRequest and who made it, compares the two, and approves what was shown.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::completions::values;
use super::error::ApprovalError;
use super::output::CommandOutput;
use super::question::says_yes;
use crate::certificate::CertificationRequest;
use crate::cluster_api::signing_request::{self, RequestState, SigningRequest};
use crate::cluster_api::{ApiError, Kubectl, Objection, objections};
use crate::error::Error;
use crate::printable::printable;
use crate::report;

/// Under which the approval stands in the request.
const REASON: &str = "ComparedByApprover";

/// Show a CertificateSigningRequest, compare it with who made it, and approve it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
kubectl is run with your credentials, which must be allowed to approve requests for the signer
kubernetes.io/kube-apiserver-client. What is approved is the request that was shown, after a typed yes;
if it has changed meanwhile, nothing is. It is never approved without a terminal.

Examples:
  pkcs11-external-signer approve jane-8f3a01c9d2 --context prod")]
pub(super) struct ApproveArguments {
    /// The request's name, which `enroll` prints
    #[arg(value_name = "NAME")]
    name: String,
    /// The context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    context: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    kubeconfig: Option<PathBuf>,
    /// Approve although the request asks for what the requester isn't
    #[arg(long)]
    despite_mismatch: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// What became of it, for scripts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalDocument<'a> {
    api_version: &'static str,
    name: &'a str,
    uid: &'a str,
    /// `approved` now, or before: `already-approved`, `already-issued`.
    outcome: &'static str,
    requester: &'a str,
    requester_groups: &'a [String],
    credential_ids: &'a [String],
    user: Option<&'a str>,
    groups: &'a [String],
    key: String,
    key_fingerprint: &'a str,
    usages: &'a [String],
    signer_name: &'a str,
    expiration_seconds: Option<i64>,
    mismatches: Vec<String>,
}

/// Approves; the exit code.
#[cold]
pub(super) fn run(arguments: &ApproveArguments) -> u8 {
    match approve(arguments) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    }
}

fn approve(arguments: &ApproveArguments) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let kubeconfig = super::load(&super::locations(arguments.kubeconfig.as_deref()))?;
    let kubectl = Kubectl::find(
        &kubeconfig,
        arguments.kubeconfig.as_deref(),
        arguments.context.as_deref(),
        report::passed_on,
    )?;
    let name = &arguments.name;
    let Some(request) = signing_request::read(&kubectl, name)? else {
        return Err(ApprovalError::Missing { name: name.clone() }.into());
    };
    warn(&request);
    let asked = CertificationRequest::from_pem(&request.pem)
        .map_err(|reason| ApprovalError::Unreadable { name: name.clone(), reason })?;
    let objections = objections(&request, &asked);
    report::lines(&shown(&request, &asked, &objections));
    let outcome = match request.state() {
        RequestState::Denied { reason, message } => {
            return Err(ApprovalError::Denied { name: name.clone(), reason, message }.into());
        }
        RequestState::Failed { reason, message } => {
            return Err(ApprovalError::Failed { name: name.clone(), reason, message }.into());
        }
        RequestState::Approved => "already-approved",
        RequestState::Issued(_) => "already-issued",
        RequestState::Pending if !objections.is_empty() && !arguments.despite_mismatch => {
            return Err(ApprovalError::Mismatch {
                name: name.clone(),
                objections: told(&objections),
            }
            .into());
        }
        RequestState::Pending => {
            confirm(&request, &asked, !objections.is_empty())?;
            warn(&send(&kubectl, &request)?);
            "approved"
        }
    };
    if arguments.json {
        return output.print_json(&ApprovalDocument {
            api_version: "pkcs11-external-signer/v1",
            name: request.name(),
            uid: request.uid(),
            outcome,
            requester: request.requester(),
            requester_groups: request.requester_groups(),
            credential_ids: request.credential_ids(),
            user: asked.user.as_deref(),
            groups: &asked.groups,
            key: asked.public_key.to_string(),
            key_fingerprint: &asked.fingerprint,
            usages: request.usages(),
            signer_name: request.signer(),
            expiration_seconds: request.seconds(),
            mismatches: told(&objections),
        });
    }
    let text = match outcome {
        "approved" => "approved",
        "already-approved" => "has been approved before, and is not signed yet",
        _ => "has been approved before, and its certificate is issued",
    };
    Ok(output.print(&format!("{} {text}\n", printable(name)))?)
}

/// A typed yes at the terminal.
fn confirm(
    request: &SigningRequest,
    asked: &CertificationRequest,
    is_mismatch: bool,
) -> Result<(), ApprovalError> {
    let name = || request.name().to_owned();
    let user = asked.user.as_deref().unwrap_or_default();
    let groups = match asked.groups.as_slice() {
        [] => "in no group".to_owned(),
        groups => format!("in {}", quoted(groups)),
    };
    let despite = match is_mismatch {
        true => " DESPITE what speaks against it",
        false => "",
    };
    let question = format!(
        "Whoever has the key {}… becomes {}, {}.\nApprove{despite}? Type yes: ",
        asked.fingerprint.get(..16).unwrap_or_default(),
        printable(&format!("{user:?}")),
        printable(&groups)
    );
    match says_yes(&question) {
        None => Err(ApprovalError::NoTerminal { name: name() }),
        Some(true) => Ok(()),
        Some(false) => Err(ApprovalError::NotConfirmed { name: name() }),
    }
}

/// Sends the approval of what was shown.
fn send(kubectl: &Kubectl, request: &SigningRequest) -> Result<SigningRequest, Error> {
    let message = "compared with the requester by pkcs11-external-signer approve";
    match signing_request::approve(kubectl, request, REASON, message) {
        Ok(approved) => Ok(approved),
        Err(ApiError::Refused(refused)) if matches!(refused.code, Some(404 | 409)) => {
            Err(ApprovalError::Changed { name: request.name().to_owned() }.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn warn(request: &SigningRequest) {
    for warning in &request.warnings {
        report::warning(&format!("the API server: {warning}"));
    }
}

fn told(objections: &[Objection]) -> Vec<String> {
    objections.iter().map(ToString::to_string).collect()
}

/// Request and requester, a line for each thing that is compared.
fn shown(
    request: &SigningRequest,
    asked: &CertificationRequest,
    objections: &[Objection],
) -> String {
    let mut text = String::new();
    let mut add = |title: &str, value: &str| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{:<22}{}", printable(title), printable(value));
    };
    let credentials = match request.credential_ids() {
        [] => "not told (Kubernetes before 1.32, or no certificate and no token)".to_owned(),
        ids => ids.join(", "),
    };
    add("request", request.name());
    add("made", request.created().unwrap_or("not told"));
    add("requester", &format!("{:?}", request.requester()));
    add("  groups", &quoted(request.requester_groups()));
    add("  authenticated by", &credentials);
    for (key, values) in request.requester_extra() {
        if key != signing_request::CREDENTIAL_ID {
            add(&format!("  {key}"), &quoted(values));
        }
    }
    let user = asked.user.as_ref().map(|user| format!("{user:?}"));
    add("asks to be", user.as_deref().unwrap_or("no user"));
    add("  groups", &quoted(&asked.groups));
    add("  subject", &asked.subject);
    add("  key", &asked.public_key.to_string());
    add("  SHA-256 of the key", &asked.fingerprint);
    add("  usages", &request.usages().join(", "));
    add("  signer", request.signer());
    add("  for", &duration(request.seconds()));
    for objection in objections {
        add("✘", &format!("the request {objection}"));
    }
    if objections.is_empty() {
        add("✔", "the requester is who the certificate will be for");
    }
    text
}

fn quoted(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        quoted => quoted.join(", "),
    }
}

/// In the largest unit that leaves no rest.
fn duration(seconds: Option<i64>) -> String {
    const UNITS: [(i64, &str); 3] = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let Some(seconds) = seconds else {
        return "as long as the signer likes (often a year)".to_owned();
    };
    let fits = |(size, _): &&(i64, &str)| seconds >= *size && seconds % size == 0;
    match UNITS.iter().find(fits) {
        Some((size, unit)) if seconds == *size => format!("1 {unit}"),
        Some((size, unit)) => format!("{} {unit}s", seconds / size),
        None => format!("{seconds} seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn a_duration_has_the_largest_unit_that_it_is_made_of() {
        for (seconds, told) in [
            (Some(600), "10 minutes"),
            (Some(3_600), "1 hour"),
            (Some(31_536_000), "365 days"),
            (Some(601), "601 seconds"),
            (Some(-600), "-600 seconds"),
        ] {
            assert_eq!(duration(seconds), told);
        }
        assert!(duration(None).contains("signer"));
    }
}
