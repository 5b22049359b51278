//! The options by which the commands in help texts name the same key, token or file as this call.
//!
//! `check --pin-source prompt` logs in to the token of the current context. In the help of a command
//! that was given another kubeconfig, context or token, it has to repeat that.

#![forbid(unsafe_code)]

use std::path::Path;

use super::selection::Selection;
use crate::config::{PinSource, Uri};
use crate::error::{self, Call};
use crate::printable::shell_word;
use crate::start;

/// Those of its options that say which key is meant.
#[derive(Default)]
pub(super) struct Invocation<'a> {
    pub(super) selection: Option<&'a Selection>,
    pub(super) uri: Option<&'a str>,
    pub(super) certificate_file: Option<&'a str>,
    /// Of the login.
    pub(super) pin_source: Option<&'a str>,
    pub(super) kubeconfig: Option<&'a Path>,
    pub(super) context: Option<String>,
}

impl Invocation<'_> {
    /// Has help name commands with these options, and the program as it was called.
    pub(super) fn set_call(&self) {
        error::set_call(self.call());
    }

    fn call(&self) -> Call {
        Call {
            program: Some(start::called()),
            key: self.key(),
            token: self.token(),
            // What is none may be the PIN.
            pin_source: option(
                "--pin-source",
                self.pin_source.filter(|it| PinSource::parse(it).is_ok()),
            ),
            kubeconfig: option("--kubeconfig", self.kubeconfig.map(Path::to_string_lossy)),
        }
    }

    /// What says which token is meant.
    fn token(&self) -> String {
        let selection = self.selection.map(Selection::of_token).unwrap_or_default();
        let uri = self.shown_uri(|uri| Uri { id: None, object: None, pin_source: None, ..uri });
        format!("{}{uri}", options(&selection))
    }

    /// What says which key is meant.
    fn key(&self) -> String {
        [
            self.selection.map(options).unwrap_or_default(),
            self.shown_uri(|uri| uri),
            option("--kubeconfig", self.kubeconfig.map(Path::to_string_lossy)),
            option("--context", self.context.as_ref()),
            option("--certificate-file", self.certificate_file),
        ]
        .concat()
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
pub(super) fn option(name: &str, value: Option<impl AsRef<str>>) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", shell_word(value.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_and_a_context_are_repeated() {
        let call = Invocation {
            kubeconfig: Some(Path::new("a b.yaml")),
            context: Some("it's".to_owned()),
            ..Invocation::default()
        }
        .call();
        assert_eq!(call.key, r" --kubeconfig='a b.yaml' --context='it'\''s'");
        assert_eq!(call.kubeconfig, " --kubeconfig='a b.yaml'");
    }

    #[test]
    fn a_pin_in_a_uri_is_not_repeated() {
        let call = Invocation {
            uri: Some("pkcs11:token=prod;id=%01?pin-value=123456"),
            pin_source: Some("env:PIN"),
            ..Invocation::default()
        }
        .call();
        assert_eq!(call.key, " --uri='pkcs11:token=prod;id=%01'");
        assert_eq!(call.token, " --uri='pkcs11:token=prod'");
        assert_eq!(call.pin_source, " --pin-source=env:PIN");
        let call = Invocation { pin_source: Some("123456"), ..Invocation::default() }.call();
        assert_eq!(call.pin_source, "");
    }
}
