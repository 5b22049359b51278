//! `enroll --writes-by-touch`: a second key, which wants a touch for each signature, as a second user for what changes
//! something; and kubectl's preferences (kuberc), by which it takes that user for such commands.

use super::certify::certify;
use super::plan::{Preferences, WritesPlan};
use crate::cli::key::options::{KeyOptions, SelectedContext};
use crate::cli::session::{CommandSession, Step};
use cluster_api::preferences::{WRITING, add_context, use_for_writes};
use kubeconfig::Provider;
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart};
use messages::printable::shell_word;

/// Of the second user and of their context, behind the names of the first ones.
pub(in crate::cli) const SUFFIX: &str = "-writes";

/// The key, the user and a context for both, beside those that read; then kubectl's preferences.
pub(super) fn enroll(plan: WritesPlan, session: &mut CommandSession) -> Result<(), Error> {
    let WritesPlan { certify: mut second, preferences } = plan;
    let context = writing_context(&second.token.options)?;
    second.token.options.context = Some(context);
    certify(&second, session)?;
    let user = second.token.options.selected()?.context.user;
    match preferences {
        Preferences::Change => {
            use_for_writes(&user)?;
            let text =
                format!("takes user \"{user}\" for what changes something, in every context");
            session.output.step(&Step { title: "kubectl", text })
        }
        Preferences::Print => print_preferences(&user, session),
    }
}

/// Prints the commands by which kubectl takes this user for what changes something.
fn print_preferences(user: &str, session: &mut CommandSession) -> Result<(), Error> {
    let commands: Vec<_> = WRITING.iter().map(|command| shell_word(command)).collect();
    let set = "kubectl kuberc set --section=defaults --command=\"$command\" --option=user=";
    let name = shell_word(user);
    let text = "For kubectl 1.34 or later to take this user by itself for what changes something, in every context \
                (--kuberc does this):";
    let line = format!("for command in {}; do {set}{name}; done", commands.join(" "));
    session.output.hint(text, &[&line])
}

/// The name of the second user's context, which is there then. The first one's has a key on a token.
fn writing_context(options: &KeyOptions) -> Result<String, Error> {
    let SelectedContext { kubeconfig, context: reading } = options.selected()?;
    let name = format!("{}{SUFFIX}", reading.name);
    let is_there = kubeconfig.context(&name).is_ok();
    if !matches!(kubeconfig.provider(&reading.user)?, Provider::ExternalSigner(_)) {
        let text =
            format!("context \"{}\" has no key on a token yet, with which to read", reading.name);
        let help = Help::from(format!("make that first: `{PROGRAM} enroll")).and(HelpPart::Key);
        return Err(Error::new(Exit::Configuration, text).help(help.and("`")));
    }
    if !is_there {
        add_context(options.kubeconfig.as_deref(), &name, &reading)?;
    }
    Ok(name)
}
