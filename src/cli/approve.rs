//! `approve`: shows a CertificateSigningRequest and who made it, compares the two, and approves what was shown.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::issuance::{LONGEST, file_error, shown_duration};
use super::key::options::{KeyOptions, contexts};
use super::question;
use super::session::CommandSession;
use attestation::yubikey::HARDWARE_GROUPS;
use attestation::{Refusal, Roots, Verdict};
use clap::ValueHint;
use cluster_api::signing_request::{CREDENTIAL_ID, RequestState, SigningRequest};
use cluster_api::{Kubectl, objections, whoami};
use crypto::certificate::CertificationRequest;
use files::read_regular;
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{PrintableLines, in_groups_of_eight, printable, quoted};
use messages::report;
use system::clock::unix_time;

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
    #[arg(long, value_name = "NAME", add = contexts())]
    context: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Approve although the request asks for what the requester isn't
    #[arg(long)]
    despite_mismatch: bool,
    /// Another root than Yubico's by which evidence of hardware is verified, in PEM; may be repeated
    #[arg(long = "root", value_name = "FILE", value_hint = ValueHint::FilePath)]
    roots: Vec<PathBuf>,
}

pub(super) fn run(arguments: &ApproveArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = KeyOptions::of_context(&arguments.kubeconfig, arguments.context.clone());
    options.set_call();
    let context = options.selected()?.context.name;
    let kubectl = Kubectl::new(&context, arguments.kubeconfig.as_deref(), None);
    let name = &arguments.name;
    let request = SigningRequest::read(&kubectl, name)?.ok_or_else(|| {
        let text = format!("there is no CertificateSigningRequest \"{name}\"");
        let help = Help::from("`kubectl get certificatesigningrequests")
            .and(HelpPart::Key)
            .and("` lists those of this context's cluster; the requester can make it anew");
        Error::new(Exit::Cluster, text).help(help)
    })?;
    let csr = CertificationRequest::from_pem(&request.pem).map_err(|reason| {
        let text = format!("the request \"{name}\" can't be approved: {reason}");
        let help = Help::from(format!(
            "have it removed (`kubectl delete certificatesigningrequest {name}"
        ));
        Error::new(Exit::Cluster, text).help(help.and(HelpPart::Key).and("`) and asked for anew"))
    })?;
    let verdict = attestation::verify(&csr.der, &roots(&arguments.roots)?, unix_time());
    let granted = match &verdict {
        Ok(Verdict::Proven(claims)) => claims.groups().to_vec(),
        _ => Vec::new(),
    };
    let objections = objections(&request, &csr, &granted);
    report::lines(&shown(&request, &csr, &verdict, &objections));
    let state = request.state()?;
    if state == RequestState::Pending {
        check_evidence(&csr, verdict, &granted)
            .map_err(|error| error.about(format!("the request \"{name}\"")))?;
    }
    let outcome = match state {
        RequestState::Approved => "has been approved before, and is not signed yet",
        RequestState::Issued(_) => "has been approved before, and its certificate is issued",
        RequestState::Pending if !objections.is_empty() && !arguments.despite_mismatch => {
            let text = format!("the request \"{name}\" {}", listed(&objections, "and"));
            return Err(Error::new(Exit::Cluster, text).help(
                "ask the requester by another channel why; --despite-mismatch approves it all the same",
            ));
        }
        RequestState::Pending => {
            warn_requester(&kubectl, &request);
            confirm(&request, &csr, !objections.is_empty())?;
            send(&kubectl, &request)?;
            "approved"
        }
    };
    session.output.print(&PrintableLines::of([format!("{name} {outcome}")]))
}

/// Yubico's roots and those of these files.
fn roots(files: &[PathBuf]) -> Result<Roots, Error> {
    files.iter().try_fold(Roots::yubico()?, |roots, path| {
        let pem = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        Ok(roots.and(Roots::from_pem(&pem, &path.display().to_string())?))
    })
}

/// Fails for evidence that doesn't count, and for a group that only evidence opens without it. No option helps against
/// that: rights that are bound to these groups rest on it.
fn check_evidence(
    csr: &CertificationRequest,
    verdict: Result<Verdict, Refusal>,
    granted: &[String],
) -> Result<(), Error> {
    if let Err(refusal) = verdict {
        let text = format!("its evidence of hardware doesn't count: {refusal}");
        return Err(Error::new(Exit::Object, text).help(
            "nothing was approved; --root FILE names the root of a company's own, and without evidence \
             (`enroll --no-attestation --again`) the request can be approved as any other",
        ));
    }
    let is_unproven =
        |group: &&String| group.starts_with(HARDWARE_GROUPS) && !granted.contains(group);
    let unproven: Vec<_> = csr.groups.iter().filter(is_unproven).cloned().collect();
    if unproven.is_empty() {
        return Ok(());
    }
    let text = format!("its evidence doesn't open the groups {}", quoted(&unproven));
    Err(Error::new(Exit::Object, text).help(
        "nothing was approved; such groups are for keys that a YubiKey has made: have the requester enroll one with \
         --hardware-groups",
    ))
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
fn confirm(
    request: &SigningRequest,
    csr: &CertificationRequest,
    is_mismatch: bool,
) -> Result<(), Error> {
    let name = &request.metadata.name;
    let user = csr.user.as_deref().unwrap_or_default();
    let groups = match csr.groups.as_slice() {
        [] => "in no group".to_owned(),
        groups => format!("in {}", quoted(groups)),
    };
    let despite = if is_mismatch { " DESPITE what speaks against it" } else { "" };
    let question = format!(
        "Whoever has the key {}… becomes {}, {}.\nApprove{despite}",
        in_groups_of_eight(csr.fingerprint.get(..16).unwrap_or_default()),
        printable(&format!("{user:?}")),
        printable(&groups)
    );
    question::confirm(&format!("the request \"{name}\""), &question)
}

/// Sends the approval of what was shown. It may have been approved, denied or removed meanwhile, or removed and made
/// anew under the same name, perhaps for another key.
fn send(kubectl: &Kubectl, request: &SigningRequest) -> Result<(), Error> {
    kubectl.approve(request).map_err(|error| {
        let name = &request.metadata.name;
        match SigningRequest::read(kubectl, name) {
            Ok(now) if !now.as_ref().is_some_and(|now| now.is_version_of(request)) => {
                let text = format!(
                    "the request \"{name}\" is no longer the one that was shown; nothing was approved"
                );
                Error::new(Exit::Cluster, text)
                    .help("look at it as it is now: run this command again")
            }
            _ => error,
        }
    })
}

/// Request and requester, a line for each thing that is compared.
fn shown(
    request: &SigningRequest,
    csr: &CertificationRequest,
    verdict: &Result<Verdict, Refusal>,
    objections: &[String],
) -> String {
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
    add("  hardware", &hardware(csr, verdict));
    add("  usages", &spec.usages.join(", "));
    add("  signer", &spec.signer_name);
    add("  for", &shown_duration(spec.expiration_seconds));
    for objection in objections {
        add("✘", &format!("the request {objection}"));
    }
    if objections.is_empty() {
        add("✔", "the requester is who the certificate will be for");
    }
    text
}

/// What the evidence says of where the key is.
fn hardware(csr: &CertificationRequest, verdict: &Result<Verdict, Refusal>) -> String {
    match verdict {
        Ok(Verdict::NoEvidence) => "– nothing shows that this key is in hardware".to_owned(),
        Err(refusal) => format!("✘ {refusal}"),
        Ok(Verdict::Proven(claims)) => match claims.firmware.advisory(&csr.public_key) {
            Some(advisory) => format!("✔ {claims}; but {advisory}"),
            None => format!("✔ {claims}"),
        },
    }
}

fn shown_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => quoted(names),
    }
}
