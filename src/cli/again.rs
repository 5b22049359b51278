//! The options by which the commands in help texts name the same key, token or file as this call.
//!
//! `check --pin-source prompt` logs in to the token of the current context. In the help of a command
//! that was given another kubeconfig, context or token, it has to repeat that.

use std::path::Path;

use super::key_options::KeyOptions;
use super::selection::Selection;
use crate::config::{PinSource, without_pin};
use crate::error::{self, Call};
use crate::printable::shell_word;
use crate::start;

impl KeyOptions {
    /// Has help name commands with these options, and the program as it was called.
    pub(super) fn set_call(&self) {
        error::set_call(self.call());
    }

    fn call(&self) -> Call {
        let kubeconfig =
            option("--kubeconfig", self.kubeconfig.as_deref().map(Path::to_string_lossy));
        // What is none may be the PIN.
        let pin_source = self.pin_source.as_ref().filter(|it| PinSource::parse(it).is_ok());
        let key = [
            options(&self.selection),
            kubeconfig.clone(),
            option("--context", self.context.as_ref()),
            option("--certificate-file", self.certificate_file.as_ref()),
        ];
        let mut token = self.selection.of_token();
        token.uri = token.uri.as_deref().map(without_pin);
        Call {
            program: Some(start::called()),
            key: key.concat(),
            token: options(&token),
            pin_source: option("--pin-source", pin_source),
            kubeconfig,
        }
    }
}

fn options(selection: &Selection) -> String {
    selection.options().map(|(name, value)| option(name, Some(value))).collect()
}

/// ` --name='value'`, for a shell; the value could begin with a hyphen.
pub(super) fn option(name: &str, value: Option<impl AsRef<str>>) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", shell_word(value.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_and_a_context_are_repeated() {
        let call = KeyOptions {
            kubeconfig: Some("a b.yaml".into()),
            context: Some("it's".to_owned()),
            ..KeyOptions::default()
        }
        .call();
        assert_eq!(call.key, r" --kubeconfig='a b.yaml' --context='it'\''s'");
        assert_eq!(call.kubeconfig, " --kubeconfig='a b.yaml'");
    }

    #[test]
    fn a_pin_in_a_uri_is_not_repeated() {
        let uri = Some("pkcs11:token=prod;id=%01?pin-value=123456".to_owned());
        let call = KeyOptions {
            selection: Selection { uri, ..Selection::default() },
            pin_source: Some("env:PIN".to_owned()),
            ..KeyOptions::default()
        }
        .call();
        assert_eq!(call.key, " --uri='pkcs11:token=prod;id=%01'");
        assert_eq!(call.token, " --uri='pkcs11:token=prod'");
        assert_eq!(call.pin_source, " --pin-source=env:PIN");
        let pin = Some("123456".to_owned());
        let call = KeyOptions { pin_source: pin, ..KeyOptions::default() }.call();
        assert_eq!(call.pin_source, "");
    }
}
