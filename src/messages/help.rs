//! Help: what to do about an error, as a sentence in which commands are parts of their own.
//!
//! A command in a help should be about the same key, token or file as the call that has failed, and begin with the
//! program's name as the user has typed it. The code that finds an error knows neither; in a process that works for others,
//! it doesn't even know whose call it is. So a help is put together where it is printed, with the one [`Call`] of that
//! process.

use std::fmt::{self, Display};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::PROGRAM;
use crate::printable::shell_word;

/// How many candidates are listed. More are no help: the token of a trust module holds hundreds of certificates.
const MOST_CANDIDATES: usize = 20;

/// What to do next: a sentence, and the candidates that it refers to, one on each line. It can be sent to another process.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Help {
    sentence: Vec<HelpPart>,
    candidates: Vec<String>,
}

/// A part of a help's sentence. All but the text belong to commands, this program's or others' (kubectl), and name what this
/// call is about.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum HelpPart {
    /// Text, which is printed as it is.
    Text(String),
    /// A command of this program, which is shown between backticks and with the program's name as this call has it.
    Command(Command),
    /// The options by which this call names its key, each with a space before it.
    Key,
    /// The options by which this call names its token, each with a space before it.
    Token,
    /// The option with this call's PIN source, with a space before it.
    PinSource,
    /// The option with this call's kubeconfig, with a space before it.
    Kubeconfig,
    /// The name of this call's context, for a shell; NAME if it has none.
    Context,
}

/// A command of this program that a help names: [`command`] makes it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Command {
    arguments: Vec<HelpPart>,
}

/// The command of this program with these arguments, as they are typed behind the program's name: `list --login`.
pub fn command(arguments: impl Into<String>) -> Command {
    Command { arguments: vec![HelpPart::Text(arguments.into())] }
}

impl Command {
    /// The command goes on with this: options of this call, or a text with a space before it.
    pub fn and(mut self, more: impl Into<Help>) -> Self {
        self.arguments.extend(more.into().sentence);
        self
    }
}

impl Help {
    /// The sentence goes on with this: a text, a command, another part, or the sentence of another help.
    pub fn and(mut self, more: impl Into<Self>) -> Self {
        self.sentence.extend(more.into().sentence);
        self
    }

    /// Adds the first of these candidates, and how many more there are.
    pub fn with_candidates<T: Display>(mut self, candidates: &[T]) -> Self {
        self.candidates = candidates.iter().take(MOST_CANDIDATES).map(T::to_string).collect();
        if let Some(more @ 1..) = candidates.len().checked_sub(MOST_CANDIDATES) {
            self.candidates.push(format!("and {more} more"));
        }
        self
    }

    /// The help as it is printed in this call.
    pub fn in_this_call(&self) -> Remedy {
        let call = CALL.get_or_init(Call::default);
        Remedy { text: call.complete(&self.sentence), candidates: self.candidates.clone() }
    }
}

impl From<Command> for Help {
    fn from(command: Command) -> Self {
        HelpPart::Command(command).into()
    }
}

impl From<HelpPart> for Help {
    fn from(part: HelpPart) -> Self {
        Self { sentence: vec![part], candidates: Vec::new() }
    }
}

impl<T: Into<String>> From<T> for Help {
    fn from(text: T) -> Self {
        HelpPart::Text(text.into()).into()
    }
}

/// A help as it is printed.
#[derive(Debug)]
pub struct Remedy {
    pub text: String,
    pub candidates: Vec<String>,
}

/// The text and the candidates, in one line.
impl Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.candidates.join("; ") {
            candidates if candidates.is_empty() => f.write_str(&self.text),
            candidates => write!(f, "{} {candidates}", self.text),
        }
    }
}

/// What this process was called for: the options that commands in a help need in order to be about the same key, token or
/// file.
#[derive(Debug, Default)]
pub struct Call {
    /// What is typed to run the program, such as `kubectl pkcs11`; `None` for the program's name.
    pub program: Option<&'static str>,
    pub key: String,
    pub token: String,
    pub pin_source: String,
    pub kubeconfig: String,
}

/// What this process was called for, for everything that prints a help: messages, warnings, documents, answers of a tunnel.
/// It can be set only once.
static CALL: OnceLock<Call> = OnceLock::new();
/// The name of this call's context, as a word for a shell. If it is the kubeconfig's current context, it is known later
/// than the rest.
static CONTEXT: OnceLock<String> = OnceLock::new();

/// Sets what this process was called for, for all help that is printed from now on.
pub fn set_call(call: Call) {
    let _ = CALL.set(call);
}

/// Sets the context that this call names or uses, for all help that is printed from now on.
pub fn set_context(name: &str) {
    let _ = CONTEXT.set(shell_word(name).into_owned());
}

impl Call {
    fn complete(&self, sentence: &[HelpPart]) -> String {
        sentence.iter().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: &HelpPart) -> String {
        match part {
            HelpPart::Text(text) => text.clone(),
            HelpPart::Command(command) => {
                let program = self.program.unwrap_or(PROGRAM);
                format!("`{program} {}`", self.complete(&command.arguments))
            }
            HelpPart::Key => self.key.clone(),
            HelpPart::Token => self.token.clone(),
            HelpPart::PinSource => self.pin_source.clone(),
            HelpPart::Kubeconfig => self.kubeconfig.clone(),
            HelpPart::Context => CONTEXT.get().map_or("NAME", String::as_str).to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_completed_with_what_this_call_is_about() {
        let call = Call {
            program: Some("kubectl pkcs11"),
            key: " --context='a b'".to_owned(),
            ..Call::default()
        };
        let help = Help::from("renew it: ")
            .and(command("renew").and(HelpPart::Key))
            .and("; or `kubectl get nodes")
            .and(HelpPart::Key)
            .and(format!("`; {PROGRAM} is a program"));
        assert_eq!(
            call.complete(&help.sentence),
            "renew it: `kubectl pkcs11 renew --context='a b'`; or `kubectl get nodes --context='a b'`; \
             pkcs11-external-signer is a program"
        );
    }
}
