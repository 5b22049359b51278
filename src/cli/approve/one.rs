//! One request, shown with all that is compared.

use std::fmt::Write as _;

use super::assessment::{Assessment, Rules};
use super::{Approver, shown_names};
use crate::cli::issuance::shown_duration;
use crate::cli::question;
use crate::cli::session::CommandSession;
use cluster_api::signing_request::{CREDENTIAL_ID, RequestState, SigningRequest};
use cluster_api::{Kubectl, whoami};
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{PrintableLines, in_groups_of_eight, printable, quoted};
use messages::report;

/// Approves the request of this name after a typed yes. Where it isn't its requester's, that has to be said before
/// (`is_despite_mismatch`).
pub(super) fn approve(
    approver: &Approver,
    name: &str,
    is_despite_mismatch: bool,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let Approver { kubectl, rules, is_dry_run } = approver;
    let request = SigningRequest::read(kubectl, name)?.ok_or_else(|| {
        let text = format!("there is no CertificateSigningRequest \"{name}\"");
        let help = Help::from("`kubectl get certificatesigningrequests")
            .and(HelpPart::Key)
            .and("` lists those of this context's cluster; the requester can make it anew");
        Error::new(Exit::Cluster, text).help(help)
    })?;
    let assessment = Assessment::of(request, rules)?;
    report::lines(&shown(&assessment, rules));
    let Assessment { request, mismatches, .. } = &assessment;
    let state = request.state()?;
    if state == RequestState::Pending {
        let checked = assessment.check_hardware(rules);
        checked.map_err(|error| error.about(format!("the request \"{name}\"")))?;
    }
    let outcome = match state {
        RequestState::Approved => "has been approved before, and is not signed yet",
        RequestState::Issued(_) => "has been approved before, and its certificate is issued",
        RequestState::Pending if !mismatches.is_empty() && !is_despite_mismatch => {
            let text = format!("the request \"{name}\" {}", listed(mismatches, "and"));
            return Err(Error::new(Exit::Cluster, text).help(
                "ask the requester by another channel why; --despite-mismatch approves it all the same",
            ));
        }
        RequestState::Pending => {
            warn_requester(kubectl, request);
            if *is_dry_run {
                "would be approved"
            } else {
                confirm(&assessment)?;
                approver.send(&assessment)?;
                "approved"
            }
        }
    };
    session.output.print(&PrintableLines::of([format!("{name} {outcome}")]))
}

/// Warns one who would approve a request of their own. A cluster before Kubernetes 1.28 doesn't tell.
fn warn_requester(kubectl: &Kubectl, request: &SigningRequest) {
    match whoami(kubectl) {
        Ok(user) if user.name == request.spec.username => report::warning(
            "you are the requester yourself, so nobody but you compares this request: have another person approve it",
        ),
        Ok(_) => {}
        Err(_) => {
            report::warning("the cluster doesn't tell whether you are the requester yourself")
        }
    }
}

/// A typed yes at the terminal.
fn confirm(assessment: &Assessment) -> Result<(), Error> {
    let Assessment { request, csr, mismatches, .. } = assessment;
    let name = &request.metadata.name;
    let user = csr.user.as_deref().unwrap_or_default();
    let groups = match csr.groups.as_slice() {
        [] => "in no group".to_owned(),
        groups => format!("in {}", quoted(groups)),
    };
    let despite = if mismatches.is_empty() { "" } else { " DESPITE what speaks against it" };
    let question = format!(
        "Whoever has the key {}… becomes {}, {}.\nApprove{despite}",
        in_groups_of_eight(csr.fingerprint.get(..16).unwrap_or_default()),
        printable(&format!("{user:?}")),
        printable(&groups)
    );
    question::confirm(&format!("the request \"{name}\""), &question)
}

/// Request and requester, a line for each thing that is compared.
fn shown(assessment: &Assessment, rules: &Rules) -> String {
    let Assessment { request, csr, mismatches, disallowed, .. } = assessment;
    let mut text = String::new();
    let mut add = |title: &str, value: &str| {
        // Writing to a String can't fail.
        let line = format!("{:<22}{}", printable(title), printable(value));
        let _ = writeln!(text, "{}", line.trim_end());
    };
    let credentials = match request.credential_ids() {
        [] => "not told (Kubernetes before 1.32, or no certificate and no token)".to_owned(),
        ids => ids.join(", "),
    };
    let spec = &request.spec;
    add("request", &request.metadata.name);
    add("made", request.metadata.creation_timestamp.as_deref().unwrap_or("not told"));
    add("requester", &format!("{:?}", spec.username));
    add("  groups", &shown_names(&spec.groups));
    add("  authenticated by", &credentials);
    for (key, values) in spec.extra.iter().filter(|(key, _)| *key != CREDENTIAL_ID) {
        add(&format!("  {key}"), &shown_names(values));
    }
    let user = csr.user.as_ref().map(|user| format!("{user:?}"));
    add("asks to be", user.as_deref().unwrap_or("no user"));
    add("  groups", &shown_names(&csr.groups));
    add("  subject", &csr.subject);
    add("  key", &csr.public_key.to_string());
    add("  SHA-256 of the key", "");
    add(&format!("    {}", in_groups_of_eight(&csr.fingerprint)), "");
    add("  hardware", &assessment.hardware());
    add("  usages", &spec.usages.join(", "));
    add("  signer", &spec.signer_name);
    add("  for", &shown_duration(spec.expiration_seconds));
    if let Some(policy) = rules.named_policy() {
        add("policy", &policy);
    }
    for objection in disallowed {
        add("✘", objection);
    }
    for mismatch in mismatches {
        add("✘", &format!("the request {mismatch}"));
    }
    if mismatches.is_empty() {
        add("✔", "the requester is who the certificate will be for");
    }
    text
}
