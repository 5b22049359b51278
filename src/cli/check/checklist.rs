//! What `check` prints: a line for each finding as it is made, or a JSON document at the end.

use serde::Serialize;
use serde_json::json;

use crate::cli::output::CommandOutput;
use crate::cli::style::{Palette, Style};
use crate::error::{Error, Help};
use crate::printable::printable;

/// What a finding is about: its name in the document, and what its line begins with.
#[derive(Clone, Copy)]
pub(super) struct CheckStep(&'static str, &'static str);

impl CheckStep {
    pub(super) const CONFIGURATION: Self = Self("configuration", "configuration");
    /// The local address that clients with the credential plugin use.
    pub(super) const CLIENT: Self = Self("client", "client");
    pub(super) const LIBRARY: Self = Self("library", "library");
    pub(super) const TOKEN: Self = Self("token", "token");
    pub(super) const PIN_TRIES: Self = Self("pin-tries", "PIN tries");
    pub(super) const CERTIFICATE: Self = Self("certificate", "certificate");
    /// What an audit log calls the certificate.
    pub(super) const CREDENTIAL_ID: Self = Self("credential-id", "credential-id");
    pub(super) const VALIDITY: Self = Self("validity", "validity");
    pub(super) const PUBLIC_KEY: Self = Self("public-key", "public key");
    pub(super) const MECHANISMS: Self = Self("mechanisms", "mechanisms");
    pub(super) const LOGIN: Self = Self("login", "PIN");
    pub(super) const PRIVATE_KEY: Self = Self("private-key", "private key");
    pub(super) const SIGNATURE: Self = Self("signature", "signature");
    pub(super) const TLS_VERSIONS: Self = Self("tls-versions", "TLS");
    pub(super) const SERVER: Self = Self("server", "cluster");
    pub(super) const SEALED: Self = Self("sealed", "sealed file");
    /// What kubelet is answered.
    pub(super) const ANSWER: Self = Self("answer", "for kubelet");
}

/// A finding of `check --json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepEntry {
    step: &'static str,
    /// `good`, `bad`, or `concern`: it works, but not for long or not everywhere.
    status: &'static str,
    text: String,
    help: Option<String>,
    /// Set if the step failed.
    exit_code: Option<u8>,
}

/// The findings, printed or kept for the document.
pub(super) struct Checklist<'o> {
    output: &'o mut CommandOutput,
    palette: Palette,
    is_json: bool,
    /// Of printing.
    failure: Option<Error>,
    entries: Vec<StepEntry>,
}

impl<'o> Checklist<'o> {
    pub(super) fn new(output: &'o mut CommandOutput, palette: Palette, is_json: bool) -> Self {
        Self { output, palette, is_json, failure: None, entries: Vec::new() }
    }

    pub(super) fn good(&mut self, step: CheckStep, text: impl Into<String>) {
        self.add(step, text.into(), None, None);
    }

    pub(super) fn concern(
        &mut self,
        step: CheckStep,
        text: impl Into<String>,
        help: impl Into<Help>,
    ) {
        let help = help.into().in_this_call();
        self.add(step, text.into(), Some(help), None);
    }

    pub(super) fn bad(&mut self, step: CheckStep, error: &Error) {
        self.add(step, error.to_string(), Some(error.remedy()), Some(error.exit_code()));
    }

    /// What came of a step; an error is reported.
    pub(super) fn keep<T>(&mut self, step: CheckStep, outcome: Result<T, Error>) -> Option<T> {
        outcome.map_err(|error| self.bad(step, &error)).ok()
    }

    fn add(&mut self, step: CheckStep, text: String, help: Option<Help>, exit_code: Option<u8>) {
        let (status, mark, style) = match (&help, exit_code) {
            (None, _) => ("good", "✔", Style::Good),
            (Some(_), None) => ("concern", "!", Style::Concern),
            (Some(_), Some(_)) => ("bad", "✘", Style::Bad),
        };
        if !self.is_json {
            let mark = self.palette.paint(style, mark);
            let mut shown = format!("{mark} {:14} {}\n", step.1, printable(&text));
            if let Some(help) = &help {
                shown.push_str(&format!("  help: {}\n", printable(&help.text)));
                let candidates =
                    help.candidates.iter().map(|it| format!("    {}\n", printable(it)));
                shown.extend(candidates);
            }
            if let Err(error) = self.output.print(&shown) {
                self.failure.get_or_insert(error);
            }
        }
        let help = help.map(|help| help.to_string());
        self.entries.push(StepEntry { step: step.0, status, text, help, exit_code });
    }

    /// That of the first step that failed, or 0.
    pub(super) fn exit_code(&self) -> u8 {
        self.entries.iter().find_map(|entry| entry.exit_code).unwrap_or(0)
    }

    /// Prints the document, if that is wanted; what kept it or a line from being printed.
    pub(super) fn finish(self) -> Result<(), Error> {
        if !self.is_json {
            return self.failure.map_or(Ok(()), Err);
        }
        // Described in docs/commands.md.
        self.output.print_json(&json!({
            "apiVersion": "pkcs11-external-signer/v1",
            "exitCode": self.exit_code(),
            "steps": self.entries,
        }))
    }
}
