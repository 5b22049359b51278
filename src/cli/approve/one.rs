//! `approve` for one request, which is shown with all that is compared.

use super::assessment::Assessment;
use super::record::policy_of;
use super::rules::Rules;
use super::{Approver, shown_names};
use crate::cli::issuance::shown_duration;
use crate::cli::question;
use crate::cli::session::CommandSession;
use cluster_api::signing_request::{CREDENTIAL_ID, RequestState, SigningRequest};
use cluster_api::{ClusterUser, Kubectl, whoami};
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{PrintableLines, excerpt, in_groups_of_eight, printable, quoted};
use messages::report;

/// Approves the request of this name after a typed yes. If it asks for what its requester doesn't have,
/// `is_despite_mismatch` has to allow that.
pub(super) fn approve(
    approver: &Approver<'_>,
    name: &str,
    is_despite_mismatch: bool,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let Approver { kubectl, .. } = approver;
    let rules = approver.rules;
    let user = approving_user(kubectl)?;
    let request = SigningRequest::read(kubectl, name)?.ok_or_else(|| {
        let text = format!("there is no CertificateSigningRequest \"{name}\"");
        let help = Help::from("`kubectl get certificatesigningrequests")
            .and(HelpPart::Key)
            .and("` lists those of this context's cluster; the requester can make it anew");
        Error::new(Exit::Cluster, text).help(help)
    })?;
    let assessment = Assessment::of(request, rules)?;
    report::lines(&shown(&assessment, rules));
    let outcome = match assessment.request.state()? {
        RequestState::Pending => {
            approve_pending(approver, user.as_ref(), &assessment, is_despite_mismatch)?
        }
        RequestState::Approved => approved_before(&assessment, rules, "is not signed yet")?,
        RequestState::Issued(_) => {
            approved_before(&assessment, rules, "its certificate is issued")?
        }
    };
    session.output.print(&PrintableLines::of([format!("{name} {outcome}")]))
}

/// Approves a request that nobody has decided on, and says what became of it.
fn approve_pending(
    approver: &Approver<'_>,
    user: Option<&ClusterUser>,
    assessment: &Assessment,
    is_despite_mismatch: bool,
) -> Result<String, Error> {
    let Assessment { request, mismatches, .. } = assessment;
    let name = &request.metadata.name;
    let checked = assessment.check_hardware(approver.rules);
    checked.map_err(|error| error.about(format!("the request \"{name}\"")))?;
    if !mismatches.is_empty() && !is_despite_mismatch {
        let text = format!("the request \"{name}\" {}", listed(mismatches, "and"));
        return Err(Error::new(Exit::Cluster, text).help(
            "ask the requester by another channel why; --despite-mismatch approves it all the same",
        ));
    }
    warn_requester(user, request);
    if approver.is_dry_run {
        return Ok("would be approved".to_owned());
    }
    confirm(assessment)?;
    approver.send(assessment)?;
    Ok("approved".to_owned())
}

/// Says that a request was approved before, and what has happened `since`. Fails if the record of the approval doesn't
/// say that this policy allowed it.
fn approved_before(
    assessment: &Assessment,
    rules: Rules<'_>,
    since: &str,
) -> Result<String, Error> {
    let told = format!("has been approved before, and {since}");
    let Rules::Policy(policy) = rules else { return Ok(told) };
    let request = &assessment.request;
    let record = request.approval_message().unwrap_or_default();
    if policy_of(record) == Some(policy.policy.sha256.as_str()) {
        return Ok(told);
    }
    let text = format!(
        "the request \"{}\" {told}, by another policy or none: its record says {:?}",
        request.metadata.name,
        excerpt(record)
    );
    Err(Error::new(Exit::Object, text).help(
        "this policy was not applied, and an approval can't be taken back; `revoke` takes the rights of the user or the \
         certificate away",
    ))
}

/// The approver as the cluster knows them; `None` if it doesn't tell, as before Kubernetes 1.28. This is asked first: if the
/// API server can't be reached, kubectl says so in one line here, and would log several when it looks for a request.
fn approving_user(kubectl: &Kubectl) -> Result<Option<ClusterUser>, Error> {
    match whoami(kubectl) {
        Ok(user) => Ok(Some(user)),
        Err(_) if kubectl.gets_answers() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Warns approvers who would approve a request of their own.
fn warn_requester(user: Option<&ClusterUser>, request: &SigningRequest) {
    match user {
        Some(user) if user.name == request.spec.username => report::warning(
            "you are the requester yourself, so nobody but you compares this request: have another person approve it",
        ),
        Some(_) => {}
        None => report::warning("the cluster doesn't tell whether you are the requester yourself"),
    }
}

/// Has a person type yes at the terminal.
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

/// The request and its requester, with a line for each thing that is compared.
fn shown(assessment: &Assessment, rules: Rules<'_>) -> String {
    let mut lines = Lines::default();
    lines.add_requester(&assessment.request);
    lines.add_wish(assessment);
    if let Rules::Policy(policy) = rules {
        for (title, text) in policy.titled() {
            lines.add(title, &text);
        }
    }
    lines.add_verdict(assessment);
    lines.0
}

/// Lines for a terminal, each a title and what it says of the request.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, title: &str, value: &str) {
        let line = format!("{:<22}{}", printable(title), printable(value));
        self.0 += &format!("{}\n", line.trim_end());
    }

    /// Adds who made the request, and by which credential.
    fn add_requester(&mut self, request: &SigningRequest) {
        let credentials = match request.credential_ids() {
            [] => "not told (Kubernetes before 1.32, or no certificate and no token)".to_owned(),
            ids => ids.join(", "),
        };
        let spec = &request.spec;
        self.add("request", &request.metadata.name);
        self.add("made", request.metadata.creation_timestamp.as_deref().unwrap_or("not told"));
        self.add("requester", &format!("{:?}", spec.username));
        self.add("  groups", &shown_names(&spec.groups));
        self.add("  authenticated by", &credentials);
        for (key, values) in spec.extra.iter().filter(|(key, _)| *key != CREDENTIAL_ID) {
            self.add(&format!("  {key}"), &shown_names(values));
        }
    }

    /// Adds what the certificate would be for.
    fn add_wish(&mut self, assessment: &Assessment) {
        let Assessment { request, csr, .. } = assessment;
        let spec = &request.spec;
        let user = csr.user.as_ref().map(|user| format!("{user:?}"));
        self.add("asks to be", user.as_deref().unwrap_or("no user"));
        self.add("  groups", &shown_names(&csr.groups));
        self.add("  subject", &csr.subject);
        self.add("  key", &csr.public_key.to_string());
        self.add("  SHA-256 of the key", "");
        self.add(&format!("    {}", in_groups_of_eight(&csr.fingerprint)), "");
        self.add("  hardware", &assessment.hardware());
        self.add("  usages", &spec.usages.join(", "));
        self.add("  signer", &spec.signer_name);
        self.add("  for", &shown_duration(spec.expiration_seconds));
    }

    /// Adds what speaks against the request, or that its requester may make it.
    fn add_verdict(&mut self, assessment: &Assessment) {
        let Assessment { request, csr, mismatches, disallowed, .. } = assessment;
        for objection in disallowed {
            self.add("✘", objection);
        }
        for mismatch in mismatches {
            self.add("✘", &format!("the request {mismatch}"));
        }
        if !mismatches.is_empty() {
            return;
        }
        let is_own = csr.user.as_ref() == Some(&request.spec.username);
        let reason = if is_own {
            "the requester is who the certificate will be for"
        } else {
            "the policy has this requester ask for the user"
        };
        self.add("✔", reason);
    }
}
