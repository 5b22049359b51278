//! The commands that remedies name, with the options of this call.
//!
//! `check --pin-source prompt` logs in to the token of the current context. In a remedy of a command
//! that was given another kubeconfig, context or token, it has to repeat that.

#![forbid(unsafe_code)]

use std::path::Path;

use super::selection::Selection;
use crate::config::Uri;
use crate::error::{OwnCommand, Setting};
use crate::kubeconfig::options as setting_options;
use crate::printable::shell_word;
use crate::report::{self, Wording};
use crate::start;

const CERTIFICATE: &str = "--certificate-file";

/// A command and those of its options that say which key is meant.
#[derive(Default)]
pub(super) struct Invocation<'a> {
    pub(super) command: &'a str,
    pub(super) selection: Option<&'a Selection>,
    pub(super) uri: Option<&'a str>,
    pub(super) certificate_file: Option<&'a str>,
    /// Of the login.
    pub(super) pin_source: Option<&'a str>,
    pub(super) kubeconfig: Option<&'a Path>,
    pub(super) context: Option<String>,
}

impl Invocation<'_> {
    /// Has remedies name commands with these options, and the program as it was called.
    pub(super) fn set_wording(&self) {
        let all = self.takes_options();
        let is_option = |name: &str| all || name == CERTIFICATE && self.certificate_file.is_some();
        report::set_wording(Wording {
            program: Some(start::called()),
            commands: self.commands(),
            options: setting_options()
                .filter(|(_, option)| is_option(option))
                .map(|(key, option)| (Setting(key), option))
                .collect(),
            is_without_file: all,
        });
    }

    /// Whether options say what a kubeconfig says elsewhere.
    fn takes_options(&self) -> bool {
        match self.command {
            "enroll" | "list" | "kubeconfig" => true,
            _ => self.names_a_key(),
        }
    }

    fn names_a_key(&self) -> bool {
        self.selection.is_some_and(|it| !it.is_empty()) || self.uri.is_some()
    }

    fn commands(&self) -> Vec<(OwnCommand, String)> {
        let list = format!("list{} --login", self.token());
        let check = format!("check{}", self.key());
        let log_in = match self.command {
            "list" | "kubeconfig" => list.clone(),
            _ => format!("{check} --pin-source prompt"),
        };
        let kubeconfig = option("--kubeconfig", self.kubeconfig.map(Path::to_string_lossy));
        let pin_source = option("--pin-source", self.pin_source);
        vec![
            (OwnCommand::DespiteRefusal, format!("{check}{pin_source} --despite-refusal")),
            (OwnCommand::Help, format!("{} --help", self.command).trim_start().to_owned()),
            (OwnCommand::ListHidden, list),
            (OwnCommand::LogIn, log_in),
            (OwnCommand::Enroll, format!("enroll{}", self.key())),
            (OwnCommand::Renew, format!("renew{}", self.key())),
            (OwnCommand::WriteKubeconfig, format!("kubeconfig --write{kubeconfig}")),
        ]
    }

    /// What says which token is meant.
    fn token(&self) -> String {
        let selection = self.selection.map(Selection::of_token).unwrap_or_default();
        let uri = self.shown_uri(|uri| Uri { id: None, object: None, pin_source: None, ..uri });
        format!("{}{uri}", options(&selection))
    }

    /// What says which key is meant.
    fn key(&self) -> String {
        let mut said = String::new();
        if self.names_a_key() {
            said.push_str(&self.selection.map(options).unwrap_or_default());
            said.push_str(&self.shown_uri(|uri| uri));
        } else {
            let file = self.kubeconfig.map(Path::to_string_lossy);
            said.push_str(&option("--kubeconfig", file));
            said.push_str(&option("--context", self.context.as_ref()));
        }
        said + &option(CERTIFICATE, self.certificate_file)
    }

    /// As it is printed: without a PIN.
    fn shown_uri(&self, change: impl FnOnce(Uri) -> Uri) -> String {
        let uri = self.uri.and_then(|uri| Uri::parse(uri).ok()).map(change);
        option("--uri", uri.map(|uri| uri.to_string()))
    }
}

fn options(selection: &Selection) -> String {
    let pairs = selection.pairs();
    pairs.map(|(name, _, value)| option(name, Some(value))).collect()
}

/// ` --name='value'`, for a shell; the value could begin with a hyphen.
fn option(name: &str, value: Option<impl AsRef<str>>) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", shell_word(value.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(invocation: &Invocation<'_>, command: OwnCommand) -> String {
        let commands = invocation.commands();
        let (_, said) = commands.into_iter().find(|(it, _)| *it == command).unwrap();
        said
    }

    #[test]
    fn a_kubeconfig_and_a_context_are_repeated() {
        let invocation = Invocation {
            command: "run",
            kubeconfig: Some(Path::new("a b.yaml")),
            context: Some("it's".to_owned()),
            ..Invocation::default()
        };
        assert_eq!(
            said(&invocation, OwnCommand::LogIn),
            r"check --kubeconfig='a b.yaml' --context='it'\''s' --pin-source prompt"
        );
        assert_eq!(
            said(&invocation, OwnCommand::WriteKubeconfig),
            "kubeconfig --write --kubeconfig='a b.yaml'"
        );
    }

    #[test]
    fn a_pin_in_a_uri_is_not_repeated() {
        let invocation = Invocation {
            command: "check",
            uri: Some("pkcs11:token=prod;id=%01?pin-value=123456"),
            pin_source: Some("env:PIN"),
            ..Invocation::default()
        };
        assert_eq!(
            said(&invocation, OwnCommand::DespiteRefusal),
            "check --uri='pkcs11:token=prod;id=%01' --pin-source=env:PIN --despite-refusal"
        );
        assert_eq!(
            said(&invocation, OwnCommand::ListHidden),
            "list --uri='pkcs11:token=prod' --login"
        );
    }

    #[test]
    fn without_options_they_are_said_as_they_are() {
        let invocation = Invocation { command: "check", ..Invocation::default() };
        for (command, said) in invocation.commands() {
            assert_eq!(
                said,
                match command {
                    OwnCommand::Help => "check --help".to_owned(),
                    // The current context's.
                    OwnCommand::Enroll => "enroll".to_owned(),
                    OwnCommand::Renew => "renew".to_owned(),
                    _ => command.to_string(),
                }
            );
        }
    }
}
