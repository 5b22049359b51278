//! `revoke`: what gives a lost token rights in the cluster, and how it is taken away: the bindings of its card's group
//! or of its user, or for one certificate a policy by which its bearer changes nothing.

use std::path::PathBuf;
use std::str::FromStr;

use super::key::options::{KeyOptions, contexts, option};
use super::question;
use super::session::{CommandSession, Step};
use crate::start;
use attestation::yubikey::HARDWARE_GROUPS;
use cluster_api::Kubectl;
use cluster_api::binding::{Binding, Subject};
use cluster_api::revocation::RevokedCertificate;
use messages::error::{Error, Exit};
use messages::help::Help;
use messages::printable::{PrintableLines, printable, shell_word};
use messages::report;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --apply, nothing is changed: the kubectl commands that would do it are printed, or for a certificate a manifest. Standard error says what remains. kubectl is run with your credentials.

Examples:
  pkcs11-external-signer revoke 15873456
  pkcs11-external-signer revoke jane --context prod --apply
  pkcs11-external-signer revoke X509SHA256=97ec… | kubectl apply -f -")]
pub(super) struct RevokeArguments {
    /// A YubiKey's serial number, a certificate's X509SHA256=…, or a user's name
    #[arg(value_name = "WHAT")]
    bearer: Bearer,
    /// Do it, after you have typed yes
    #[arg(long)]
    apply: bool,
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", add = contexts())]
    context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Who is to have rights no longer.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Bearer {
    /// Whom the cluster knows as this user, or in this group.
    Subject(Subject),
    /// Who comes with this certificate.
    Certificate(RevokedCertificate),
}

impl FromStr for Bearer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(digits) = text.strip_prefix("X509SHA256=") {
            let certificate = RevokedCertificate::new(digits);
            return certificate.map(Self::Certificate).ok_or(
                "it is not X509SHA256= and 64 hexadecimal digits, as `list` and `check` print it",
            );
        }
        let card = format!("{HARDWARE_GROUPS}yubikey:");
        let serial = text.strip_prefix(&card).unwrap_or(text);
        if !serial.is_empty() && serial.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Subject(Subject::group(&format!("{card}{serial}"))));
        }
        match text {
            "" => Err("it is empty"),
            _ if text.starts_with("system:") => Err("it is an account of the cluster itself"),
            user => Ok(Self::Subject(Subject::user(user))),
        }
    }
}

pub(super) fn run(arguments: &RevokeArguments, session: &mut CommandSession) -> Result<(), Error> {
    let options = KeyOptions::of_context(&arguments.kubeconfig, arguments.context.clone());
    options.set_call();
    let cluster = || {
        let context = options.selected()?.context.name;
        let kubectl = Kubectl::new(&context, arguments.kubeconfig.as_deref(), None);
        Ok(AskedCluster { kubectl, context, kubeconfig: &arguments.kubeconfig })
    };
    match (&arguments.bearer, arguments.apply) {
        (Bearer::Subject(subject), false) => print_commands(&cluster()?, subject, session),
        (Bearer::Subject(subject), true) => take_roles(&cluster()?.kubectl, subject, session),
        (Bearer::Certificate(certificate), false) => {
            remains_of_certificate(certificate);
            session.output.print_document(&certificate.manifest())
        }
        (Bearer::Certificate(certificate), true) => {
            apply_policy(&cluster()?.kubectl, certificate, session)
        }
    }
}

/// The cluster of a context, and what kubectl needs to be told to ask it.
struct AskedCluster<'a> {
    kubectl: Kubectl,
    context: String,
    kubeconfig: &'a Option<PathBuf>,
}

impl AskedCluster<'_> {
    /// What is typed in a shell for kubectl with these arguments.
    fn command(&self, arguments: &[String]) -> String {
        let file = self.kubeconfig.as_ref().map(|path| path.to_string_lossy());
        let [file, context] =
            [option("--kubeconfig", file), option("--context", Some(&self.context))];
        let words: Vec<_> = arguments.iter().map(|argument| shell_word(argument)).collect();
        format!("kubectl{file}{context} {}", words.join(" "))
    }
}

/// Prints the commands that take the roles from this subject, each below what it is about.
fn print_commands(
    cluster: &AskedCluster<'_>,
    subject: &Subject,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let mut lines = Vec::new();
    for binding in bindings(&cluster.kubectl, subject)? {
        lines.push(format!("# {}", described(&binding, subject)));
        lines.push(cluster.command(&binding.removal(subject)));
    }
    remains_of_subject(subject);
    report::note("nothing was changed; with --apply this command carries it out");
    session.output.print(&PrintableLines::of(lines))
}

/// Takes the roles from this subject after a typed yes, and prints what was done. What has changed since it was shown is
/// left, and doesn't keep the rest from being done.
fn take_roles(
    kubectl: &Kubectl,
    subject: &Subject,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let bindings = bindings(kubectl, subject)?;
    let shown = bindings.iter().map(|binding| described(binding, subject) + "\n");
    report::lines(&shown.collect::<String>());
    remains_of_subject(subject);
    let whom = whom(subject);
    let question = printable(&format!("Take these roles from {whom}")).into_owned();
    question::confirm(&format!("the revocation of {whom}"), &question)?;
    let mut left = 0;
    for binding in &bindings {
        match binding.remove(kubectl, subject) {
            Ok(()) => {
                let is_deleted = binding.others(subject) == 0;
                let title = if is_deleted { "deleted" } else { "changed" };
                session.output.step(&Step { title, text: binding.to_string() })?;
            }
            Err(error) => {
                left += 1;
                report::warning(&error.sentence());
            }
        }
    }
    if left == 0 {
        return Ok(());
    }
    let text = format!("of {} bindings, {left} may still name {whom}", bindings.len());
    Err(Error::new(Exit::Cluster, text).help("run this command again: it shows them as they are"))
}

/// The bindings that give this subject roles, of which there are some.
fn bindings(kubectl: &Kubectl, subject: &Subject) -> Result<Vec<Binding>, Error> {
    let bindings = Binding::of_subject(kubectl, subject)?;
    if bindings.is_empty() {
        let whom = whom(subject);
        let text = format!("no RoleBinding or ClusterRoleBinding of the cluster names {whom}");
        let program = start::called();
        return Err(Error::new(Exit::Cluster, text).help(Help::from(format!(
            "there is nothing to take away; its rights come from elsewhere: look for the user (`{program} revoke USER`) and \
             the groups in the certificate (`kubectl auth can-i --list --as=USER --as-group=GROUP`), or keep the certificate \
             from changing anything (`{program} revoke X509SHA256=…`)"
        ))));
    }
    Ok(bindings)
}

/// `user "jane"`
fn whom(subject: &Subject) -> String {
    format!("{} {:?}", subject.kind.to_lowercase(), subject.name)
}

/// In one line what the binding gives to whom.
fn described(binding: &Binding, subject: &Subject) -> String {
    let role = &binding.role_ref;
    let whom = whom(subject);
    let fate = match binding.others(subject) {
        0 => format!("{whom} alone, and is to be deleted"),
        1 => format!("{whom}, who is to be removed, and 1 other"),
        others => format!("{whom}, who is to be removed, and {others} others"),
    };
    format!("{binding} gives {} {:?} to {fate}", role.kind, role.name)
}

/// Applies the policy after a typed yes, and prints what kubectl says of it.
fn apply_policy(
    kubectl: &Kubectl,
    certificate: &RevokedCertificate,
    session: &mut CommandSession,
) -> Result<(), Error> {
    report::lines(&certificate.manifest());
    remains_of_certificate(certificate);
    let id = certificate.credential_id();
    let question = format!("Let whoever comes with {id} change nothing in the cluster");
    question::confirm(&format!("the revocation of {id}"), &question)?;
    let applied = certificate.apply(kubectl)?;
    for line in applied.lines() {
        session.output.step(&Step { title: "policy", text: line.to_owned() })?;
    }
    Ok(())
}

/// What no revocation ends.
const OPEN: &str =
    "what is running: a watch, a followed log, an exec or port-forward goes on until it ends";
const MADE: &str = "what its bearer has made before, such as tokens of service accounts, other certificates and pods";

/// Says what a revocation of bindings leaves.
fn remains_of_subject(subject: &Subject) {
    let others = match subject.kind.as_str() {
        "Group" => format!(
            "what the certificate's user and its other groups are given, such as {HARDWARE_GROUPS}attested"
        ),
        _ => "what the groups in the certificate are given; in system:masters that is everything, whatever bindings say"
            .to_owned(),
    };
    let later = "the certificate, for whom bindings count that somebody makes later".to_owned();
    let left = [others, OPEN.to_owned(), MADE.to_owned(), later];
    report::steps("this leaves", &left);
}

/// Says what the policy leaves.
fn remains_of_certificate(certificate: &RevokedCertificate) {
    report::steps(
        "this leaves",
        &[
            "what it may read: get, list, watch and logs, as its user and groups are given it",
            "other certificates of the same user, and what it may do in the name of others (--as)",
            "the policy itself to whoever may delete it, as cluster-admin: take that role away, too",
            OPEN,
            MADE,
            "everything, before Kubernetes 1.32: the cluster doesn't tell certificates apart",
        ]
        .map(str::to_owned),
    );
    let name = certificate.policy_name();
    report::note(&format!(
        "`kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding {name}` undoes it"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_is_told_by_its_form() {
        let of = |text: &str| text.parse::<Bearer>();
        let card = Bearer::Subject(Subject::group("hw:yubikey:15873456"));
        assert_eq!(of("15873456").as_ref(), Ok(&card));
        assert_eq!(of("hw:yubikey:15873456").as_ref(), Ok(&card));
        assert_eq!(of("jane"), Ok(Bearer::Subject(Subject::user("jane"))));
        let digits = "AB".repeat(32);
        let Ok(Bearer::Certificate(certificate)) = of(&format!("X509SHA256={digits}")) else {
            panic!("no certificate")
        };
        assert_eq!(certificate.credential_id(), format!("X509SHA256={}", "ab".repeat(32)));
        for text in ["", "system:admin", "X509SHA256=", "X509SHA256=97ec"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
