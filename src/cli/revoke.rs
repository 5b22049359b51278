//! `revoke`: what gives a lost token rights in the cluster, and how it is taken away: the bindings of its card's group
//! or of its user, or for one certificate a policy by which its bearer changes nothing.

use std::path::PathBuf;
use std::str::FromStr;

use super::enroll::SUFFIX;
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
  pkcs11-external-signer revoke user=15873456 --context prod
  pkcs11-external-signer revoke X509SHA256=97ec… | kubectl apply -f -")]
pub(super) struct RevokeArguments {
    /// A YubiKey's serial number (digits alone; also serial=…), a user's name (also user=…), or a certificate's X509SHA256=…
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

/// Whoever is to lose their rights. What is typed decides which it is, whatever the cluster has.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Bearer {
    /// A user or a group that has roles by bindings.
    Subject(Subject),
    /// Whoever comes with this certificate.
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
        subject(text).map(Self::Subject)
    }
}

/// Reads the subject from what was typed. Digits alone are always the serial number of a YubiKey. `user=` stands before
/// the name of a user that looks like something else.
fn subject(text: &str) -> Result<Subject, &'static str> {
    if is_number(text) {
        return Ok(Subject::group(&card_group(text)));
    }
    let serial = text.strip_prefix("serial=").or_else(|| text.strip_prefix(&*card_group("")));
    if let Some(serial) = serial {
        let card = is_number(serial).then(|| Subject::group(&card_group(serial)));
        return card.ok_or("it is no serial number of a YubiKey");
    }
    let named = text.strip_prefix("user=");
    let user = named.unwrap_or(text);
    if user.is_empty() {
        return Err("it is empty");
    }
    if user.starts_with("system:") {
        return Err("it is an account of the cluster itself");
    }
    if named.is_none() && !user.chars().any(char::is_alphanumeric) {
        return Err("it has no letter and no digit; if a user is called so, write user= before it");
    }
    Ok(Subject::user(user))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The group of the YubiKey with this serial number.
fn card_group(serial: &str) -> String {
    format!("{HARDWARE_GROUPS}yubikey:{serial}")
}

pub(super) fn run(arguments: &RevokeArguments, session: &mut CommandSession) -> Result<(), Error> {
    KeyOptions::of_context(&arguments.kubeconfig, arguments.context.clone()).set_call();
    match &arguments.bearer {
        Bearer::Subject(subject) => revoke_subject(subject, arguments, session),
        Bearer::Certificate(certificate) if arguments.apply => {
            apply_policy(certificate, arguments, session)
        }
        Bearer::Certificate(certificate) => print_policy(certificate, arguments, session),
    }
}

impl RevokeArguments {
    /// The options that have kubectl use the same kubeconfig and context.
    fn kubectl_options(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|path| path.to_string_lossy());
        [option("--kubeconfig", file), option("--context", self.context.as_ref())].concat()
    }
}

/// The cluster of a context, and what makes kubectl ask it.
struct AskedCluster<'a> {
    kubectl: Kubectl,
    context: String,
    kubeconfig: &'a Option<PathBuf>,
}

impl<'a> AskedCluster<'a> {
    fn of(arguments: &'a RevokeArguments) -> Result<Self, Error> {
        let kubeconfig = &arguments.kubeconfig;
        let options = KeyOptions::of_context(kubeconfig, arguments.context.clone());
        let context = options.selected()?.context.name;
        let kubectl = Kubectl::new(&context, kubeconfig.as_deref(), None);
        Ok(Self { kubectl, context, kubeconfig })
    }

    /// The command line that runs kubectl with these arguments in a shell.
    fn command(&self, arguments: &[String]) -> String {
        let file = self.kubeconfig.as_ref().map(|path| path.to_string_lossy());
        let [file, context] =
            [option("--kubeconfig", file), option("--context", Some(&self.context))];
        let words: Vec<_> = arguments.iter().map(|argument| shell_word(argument)).collect();
        format!("kubectl{file}{context} {}", words.join(" "))
    }
}

/// Takes the roles from this subject, or prints the commands that do it.
fn revoke_subject(
    subject: &Subject,
    arguments: &RevokeArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let cluster = AskedCluster::of(arguments)?;
    let mut bindings = Binding::all(&cluster.kubectl)?;
    show_second_user(subject, &bindings, arguments);
    show_user_of_number(subject, &bindings, arguments);
    bindings.retain(|binding| binding.names(subject));
    if bindings.is_empty() {
        return Err(no_bindings(subject));
    }
    if arguments.apply {
        take_roles(&cluster.kubectl, subject, &bindings, session)
    } else {
        print_commands(&cluster, subject, &bindings, session)
    }
}

/// Says that there is a second user with roles, whom `enroll --writes-by-touch` has made for this one.
fn show_second_user(subject: &Subject, bindings: &[Binding], arguments: &RevokeArguments) {
    let second = Subject { name: format!("{}{SUFFIX}", subject.name), ..subject.clone() };
    if subject.is_user() && bindings.iter().any(|binding| binding.names(&second)) {
        let Subject { name, .. } = second;
        report::note(&format!(
            "this leaves user {name:?}, who has roles of its own: `{} revoke {}{}` takes them",
            start::called(),
            shell_word(&name),
            arguments.kubectl_options()
        ));
    }
}

/// Says that there is a user with roles whose name is the serial number of this YubiKey.
fn show_user_of_number(subject: &Subject, bindings: &[Binding], arguments: &RevokeArguments) {
    let Some(number) = subject.name.strip_prefix(&*card_group("")) else { return };
    let user = Subject::user(number);
    if !subject.is_user() && bindings.iter().any(|binding| binding.names(&user)) {
        report::note(&format!(
            "this leaves user {number:?}, whose name is the YubiKey's serial number: `{} revoke user={number}{}` takes \
             the roles of that user",
            start::called(),
            arguments.kubectl_options()
        ));
    }
}

/// Prints the commands that take the roles from this subject, each below a comment that says what it is about.
fn print_commands(
    cluster: &AskedCluster<'_>,
    subject: &Subject,
    bindings: &[Binding],
    session: &mut CommandSession,
) -> Result<(), Error> {
    let mut lines = Vec::new();
    for binding in bindings {
        lines.push(format!("# {}", described(binding, subject)));
        lines.push(cluster.command(&binding.removal(subject)));
    }
    remains_of_subject(subject);
    report::note("nothing was changed; with --apply this command carries it out");
    session.output.print(&PrintableLines::of(lines))
}

/// Takes the roles from this subject after a typed yes, and prints what was done. A binding that has changed since it
/// was shown is left alone, and doesn't keep the others from being changed.
fn take_roles(
    kubectl: &Kubectl,
    subject: &Subject,
    bindings: &[Binding],
    session: &mut CommandSession,
) -> Result<(), Error> {
    let shown = bindings.iter().map(|binding| described(binding, subject) + "\n");
    report::lines(&shown.collect::<String>());
    remains_of_subject(subject);
    let whom = whom(subject);
    let question = printable(&format!("Take these roles from {whom}")).into_owned();
    question::confirm(&format!("the revocation of {whom}"), &question)?;
    let mut left = 0;
    for binding in bindings {
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

/// The error that nothing gives this subject a role.
fn no_bindings(subject: &Subject) -> Error {
    let whom = whom(subject);
    let text = format!("no RoleBinding or ClusterRoleBinding of the cluster names {whom}");
    let program = start::called();
    Error::new(Exit::Cluster, text).help(Help::from(format!(
        "there is nothing to take away; its rights come from elsewhere: look for the user (`{program} revoke USER`) and \
         the groups in the certificate (`kubectl auth can-i --list --as=USER --as-group=GROUP`), or keep the certificate \
         from changing anything (`{program} revoke X509SHA256=…`)"
    )))
}

/// Names the subject in a sentence: `user "jane"`.
fn whom(subject: &Subject) -> String {
    format!("{} {:?}", subject.kind.to_lowercase(), subject.name)
}

/// Says in one line what the binding gives to whom.
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

/// Prints the policy, which a person can apply by hand.
fn print_policy(
    certificate: &RevokedCertificate,
    arguments: &RevokeArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let options = arguments.kubectl_options();
    remains_of_certificate(certificate, &options);
    report::note(&format!(
        "nothing was changed; `kubectl{options} apply -f -` applies what is printed, and this command with --apply does, too"
    ));
    session.output.print_document(&certificate.manifest())
}

/// Applies the policy after a typed yes, and prints what kubectl says of it.
fn apply_policy(
    certificate: &RevokedCertificate,
    arguments: &RevokeArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let kubectl = AskedCluster::of(arguments)?.kubectl;
    report::lines(&certificate.manifest());
    remains_of_certificate(certificate, &arguments.kubectl_options());
    let id = certificate.credential_id();
    let question = format!("Block every change made with {id}");
    question::confirm(&format!("the revocation of {id}"), &question)?;
    let applied = certificate.apply(&kubectl)?;
    for line in applied.lines() {
        session.output.step(&Step { title: "policy", text: line.to_owned() })?;
    }
    Ok(())
}

/// Connections that no revocation ends.
const OPEN: &str =
    "what is running: a watch, a followed log, an exec or port-forward goes on until it ends";
const MADE: &str = "what its bearer has made before, such as tokens of service accounts, other certificates and pods";

/// Says what a revocation of bindings leaves.
fn remains_of_subject(subject: &Subject) {
    let others = if subject.is_user() {
        "what the groups in the certificate are given; in system:masters that is everything, whatever bindings say"
            .to_owned()
    } else {
        format!(
            "what the certificate's user and its other groups are given, such as {HARDWARE_GROUPS}attested"
        )
    };
    let later = "the certificate, for whom bindings count that somebody makes later".to_owned();
    let left = [others, OPEN.to_owned(), MADE.to_owned(), later];
    report::steps("this leaves", &left);
}

/// Says what the policy leaves, and how it is undone by kubectl with these options.
fn remains_of_certificate(certificate: &RevokedCertificate, options: &str) {
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
        "`kubectl{options} delete validatingadmissionpolicy,validatingadmissionpolicybinding {name}` undoes it"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_is_told_by_its_form() {
        let of = |text: &str| text.parse::<Bearer>();
        let known = |subject: Subject| Ok(Bearer::Subject(subject));
        let card = known(Subject::group("hw:yubikey:15873456"));
        for text in ["15873456", "serial=15873456", "hw:yubikey:15873456"] {
            assert_eq!(of(text), card);
        }
        assert_eq!(of("jane"), known(Subject::user("jane")));
        assert_eq!(of("user=4711"), known(Subject::user("4711")));
        assert_eq!(of("ω"), known(Subject::user("ω")));
        assert_eq!(of("user=!!!"), known(Subject::user("!!!")));
        assert_eq!(of("user=user=4711"), known(Subject::user("user=4711")));
        let digits = "AB".repeat(32);
        let Ok(Bearer::Certificate(certificate)) = of(&format!("X509SHA256={digits}")) else {
            panic!("no certificate")
        };
        assert_eq!(certificate.credential_id(), format!("X509SHA256={}", "ab".repeat(32)));
        let refused = [
            "",
            "!!!",
            " ",
            "system:admin",
            "user=system:admin",
            "user=",
            "serial=jane",
            "hw:yubikey:",
        ];
        for text in refused.into_iter().chain(["X509SHA256=", "X509SHA256=97ec"]) {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
