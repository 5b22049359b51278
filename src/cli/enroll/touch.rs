//! `enroll --writes-by-touch`: makes a second key, which wants a touch for each signature, for a second user who does
//! what changes something; and sets kubectl's preferences (kuberc), so that kubectl takes that user for such commands.

use super::certify::ContextEnrollment;
use super::plan::{Preferences, UsualUser, WritesPlan};
use crate::cli::key::options::{KeyOptions, SelectedContext};
use crate::cli::question::confirm;
use crate::cli::session::{CommandSession, StartingSession, Step};
use cluster_api::preferences::{Kuberc, KubercCommand, WRITING, add_context};
use kubeconfig::{Context, Kubeconfig, Provider};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::{printable, shell_word};

/// What is added to the first user's and context's names for those of the second one.
pub(in crate::cli) const SUFFIX: &str = "-writes";

/// Makes the second key, user and context, and then sets kubectl's preferences.
pub(super) fn enroll(plan: WritesPlan, start: StartingSession<'_>) -> Result<(), Error> {
    let WritesPlan { certify: mut second, preferences } = plan;
    if preferences == Preferences::Change {
        // An error in the preferences is found before anything is made. They are read again when they are changed.
        Kuberc::read()?;
    }
    let WritingContext { name, usual } = WritingContext::find_or_add(&second.token.options)?;
    second.token.options.context = Some(name);
    second.whom.usual = usual;
    let (enrollment, session) = ContextEnrollment::begin(&second, start)?;
    enrollment.run(session)?;
    let user = second.token.options.selected()?.context.user;
    match preferences {
        Preferences::Change => change_preferences(&user, session),
        Preferences::Print => print_preferences(&user, session),
    }
}

/// Has kubectl take this user for commands that change something. kubectl knows one such user for all contexts, so
/// another one goes only after a typed yes.
fn change_preferences(user: &str, session: &mut CommandSession) -> Result<(), Error> {
    let kuberc = Kuberc::read()?;
    let others: Vec<_> =
        kuberc.others_for_writes(user).into_iter().map(|other| format!("{other:?}")).collect();
    if !others.is_empty() {
        let others = others.join(", ");
        let question = format!(
            "kubectl takes user {others} for what changes something, in every context. Have it take {user:?} instead"
        );
        let what = format!("user {user:?} in the place of {others} in kubectl's preferences");
        confirm(&what, &printable(&question)).map_err(|error| {
            let user = shell_word(user);
            error.help(format!(
                "the key is enrolled: `kubectl --user={user} …` uses it in its context; for kubectl to take that user by \
                 itself, run this command again at a terminal and type yes"
            ))
        })?;
    }
    kuberc.use_for_writes(user)?;
    let text = format!("takes user \"{user}\" for what changes something, in every context");
    session.output.step(&Step { title: "kubectl", text })
}

/// Prints the commands by which kubectl takes this user for commands that change something.
fn print_preferences(user: &str, session: &mut CommandSession) -> Result<(), Error> {
    let commands: Vec<_> = WRITING.iter().map(|command| shell_word(command)).collect();
    let found = KubercCommand::find()?;
    let since = if found.is_some() { "" } else { " 1.36 or later" };
    let text = format!(
        "For kubectl{since} to take this user by itself for what changes something, in every context (--kuberc does this, \
         and keeps other defaults of these commands):"
    );
    let kuberc = found.map_or_else(|| "kubectl kuberc".to_owned(), KubercCommand::typed);
    let line = format!(
        "for command in {}; do {kuberc} set --section=defaults --command=\"$command\" --overwrite --option=user={}; done",
        commands.join(" "),
        shell_word(user)
    );
    session.output.hint(&text, &[&line])
}

/// The context of the second user, which exists.
struct WritingContext {
    name: String,
    /// The user that its key is for: once the context has a key, the user that the cluster knows by that, or else a
    /// second one beside the first.
    usual: UsualUser,
}

impl WritingContext {
    /// Finds or adds the context beside the selected one, which has a key on a token. The selected context may be that
    /// one itself.
    fn find_or_add(options: &KeyOptions) -> Result<Self, Error> {
        let SelectedContext { kubeconfig, context } = options.selected()?;
        let reading = reading_context(&kubeconfig, context);
        if !matches!(kubeconfig.provider(&reading.user)?, Provider::ExternalSigner(_)) {
            return Err(has_no_key(&reading));
        }
        let name = format!("{}{SUFFIX}", reading.name);
        let Ok(present) = kubeconfig.context(&name) else {
            let namespace = kubeconfig.namespace(&reading.name);
            add_context(options.kubeconfig.as_deref(), &name, &reading, namespace)?;
            return Ok(Self { name, usual: UsualUser::SecondOfRequester });
        };
        check_cluster(&kubeconfig, &reading, &present)?;
        // The context was given its key before.
        if kubeconfig.original(&name).is_ok() {
            return Ok(Self { name, usual: UsualUser::Requester });
        }
        if present.user != reading.user {
            let user = &present.user;
            let reason = format!("it has user \"{user}\", and not \"{}\"", reading.user);
            return Err(is_another(&present, &reading, &reason));
        }
        Ok(Self { name, usual: UsualUser::SecondOfRequester })
    }
}

/// The context that reads: the selected one, unless that is the one for writes beside another.
fn reading_context(kubeconfig: &Kubeconfig, selected: Context) -> Context {
    let reading = selected.name.strip_suffix(SUFFIX);
    reading.and_then(|name| kubeconfig.context(name).ok()).unwrap_or(selected)
}

/// Fails unless the context for writes leads to the cluster of the one that reads.
fn check_cluster(
    kubeconfig: &Kubeconfig,
    reading: &Context,
    present: &Context,
) -> Result<(), Error> {
    let [wanted, found] =
        [kubeconfig.cluster(&reading.cluster)?, kubeconfig.cluster(&present.cluster)?];
    if found.cluster == wanted.cluster {
        return Ok(());
    }
    let [wanted, found] = [wanted, found].map(|named| named.cluster.server);
    let reason = if found == wanted {
        format!("it is for the cluster at {found} in another way")
    } else {
        format!("it is for the cluster at {found}, and not at {wanted}")
    };
    Err(is_another(present, reading, &reason))
}

/// The error for a context that has this name, but isn't the one for writes beside the one that reads.
fn is_another(present: &Context, reading: &Context, reason: &str) -> Error {
    let text = format!(
        "context \"{}\" is not the one for writes beside \"{}\": {reason}",
        present.name, reading.name
    );
    let name = shell_word(&present.name);
    let help = Help::from(format!(
        "give it another name, then run this command again: `kubectl config rename-context {name} NEW`"
    ));
    Error::new(Exit::Configuration, text).help(help)
}

/// The error for a context that has no key yet to read with.
fn has_no_key(reading: &Context) -> Error {
    let text =
        format!("context \"{}\" has no key on a token yet, with which to read", reading.name);
    let help = Help::from("make that first: ").and(command("enroll").and(HelpPart::Key));
    Error::new(Exit::Configuration, text).help(help)
}
