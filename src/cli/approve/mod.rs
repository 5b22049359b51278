//! `approve`: shows CertificateSigningRequests and who made them, compares the two, and approves what was shown.

mod all;
mod assessment;
mod one;
mod record;
mod rules;
mod verifier;

use std::path::PathBuf;

use self::assessment::Assessment;
use self::rules::{PolicyWithVerifier, Rules, roots_and};
use super::key::options::{KeyOptions, contexts};
use super::session::CommandSession;
use clap::ValueHint;
use cluster_api::Kubectl;
use cluster_api::signing_request::SigningRequest;
use messages::error::{Error, Exit};
use messages::printable::{PrintableLines, quoted};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
You see the request and who made it, and confirm by typing yes at a terminal. Exactly what you have seen is approved: if the request has changed since, nothing is. kubectl is run with your credentials, which need the right to approve requests for the signer kubernetes.io/kube-apiserver-client.

Examples:
  pkcs11-external-signer approve jane-8f3a01c9d2 --context prod
  pkcs11-external-signer approve --policy policy.yaml --context prod

The second example shows all pending requests in a table, and approves those whose keys are in devices that the policy allows, such as YubiKeys. docs/policy.md has a policy to begin with.")]
pub(super) struct ApproveArguments {
    /// The request's name, as `enroll` prints it [default with --policy: all pending requests]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", add = contexts())]
    context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Approve even if the request is for a user or group that the requester isn't
    #[arg(long, requires = "name")]
    despite_mismatch: bool,
    /// Accept attestations under this root (PEM), too, such as your company's; may be given several times
    #[arg(long = "root", value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "policy")]
    roots: Vec<PathBuf>,
    /// Approve only what this policy allows: which users, with which YubiKeys or other devices
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// Show what would be approved, and approve nothing
    #[arg(long)]
    dry_run: bool,
    /// Check the policy's file, and that its verifier is there, without asking the cluster
    #[arg(long, requires = "policy", conflicts_with_all = ["name", "dry_run"])]
    check: bool,
}

pub(super) fn run(arguments: &ApproveArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = KeyOptions::of_context(&arguments.kubeconfig, arguments.context.clone());
    options.set_call();
    let policy = arguments.policy.as_deref().map(PolicyWithVerifier::read).transpose()?;
    if let (Some(policy), true) = (&policy, arguments.check) {
        return session.output.print(&PrintableLines::of([policy.summary()]));
    }
    let context = options.selected()?.context.name;
    let kubectl = Kubectl::new(&context, arguments.kubeconfig.as_deref(), None);
    let is_dry_run = arguments.dry_run;
    match (&arguments.name, &policy) {
        (Some(name), Some(policy)) => {
            let approver = Approver { kubectl, rules: Rules::Policy(policy), is_dry_run };
            one::approve(&approver, name, arguments.despite_mismatch, session)
        }
        (Some(name), None) => {
            let roots = roots_and(&arguments.roots)?;
            let approver = Approver { kubectl, rules: Rules::Roots(&roots), is_dry_run };
            one::approve(&approver, name, arguments.despite_mismatch, session)
        }
        (None, Some(policy)) => {
            let approver = Approver { kubectl, rules: Rules::Policy(policy), is_dry_run };
            all::approve(&approver, policy, session)
        }
        (None, None) => Err(no_name()),
    }
}

fn no_name() -> Error {
    Error::new(Exit::Request, "missing argument: which request is to be approved?").help(
        "give its <NAME>, which `enroll` has printed; or, to approve many at once, what they must be like, with --policy \
         <FILE> (docs/policy.md)",
    )
}

/// An approver: the person's kubectl, and the rules to judge by.
struct Approver<'a> {
    kubectl: Kubectl,
    rules: Rules<'a>,
    is_dry_run: bool,
}

impl Approver<'_> {
    /// Sends the approval of what was shown. The request may have been approved, denied or removed meanwhile, or made
    /// anew under the same name, perhaps for another key.
    fn send(&self, assessment: &Assessment) -> Result<(), Error> {
        let (kubectl, request) = (&self.kubectl, &assessment.request);
        let record = assessment.record(self.rules);
        let Err(error) = kubectl.approve(request, &record) else { return Ok(()) };
        let name = &request.metadata.name;
        let again = "look at it as it is now: run this command again";
        // The API server may have approved the request, and only its answer was lost.
        match SigningRequest::read(kubectl, name) {
            Ok(Some(now)) if now.is_approved_version_of(request, &record) => Ok(()),
            Ok(Some(now)) if now.is_version_of(request) => Err(error),
            Ok(_) => {
                let text = format!(
                    "the request \"{name}\" is no longer the one that was shown; nothing was approved"
                );
                Err(Error::new(Exit::Cluster, text).help(again))
            }
            Err(_) => {
                let what = format!("it isn't known whether the request \"{name}\" was approved");
                Err(error.about(what).help(again))
            }
        }
    }
}

/// The names in quotes, or the word none.
fn shown_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => quoted(names),
    }
}
