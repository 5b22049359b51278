//! What `check` finds: a line for each finding as it is made, or a JSON document at the end.

use serde::Serialize;
use serde_json::json;

use super::CheckArguments;
use crate::cli::output::{BAD, CONCERN, GOOD};
use crate::cli::session::CommandSession;
use crate::error::{Error, Exit, Help};
use crate::printable::printable;

/// A finding of `check --json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    step: &'static str,
    /// `good`, `bad`, or `concern`: it works, but not for long or not everywhere.
    status: &'static str,
    text: String,
    help: Option<String>,
    /// Set if the step failed.
    exit_code: Option<u8>,
}

/// The findings of a check, printed or kept for the document.
pub(super) struct Checklist<'a> {
    pub(super) arguments: &'a CheckArguments,
    pub(super) session: &'a mut CommandSession,
    /// Of printing.
    failure: Option<Error>,
    findings: Vec<Finding>,
}

impl<'a> Checklist<'a> {
    pub(super) fn new(arguments: &'a CheckArguments, session: &'a mut CommandSession) -> Self {
        Self { arguments, session, failure: None, findings: Vec::new() }
    }

    pub(super) fn good(&mut self, step: &'static str, text: impl Into<String>) {
        self.add(step, text.into(), None, None);
    }

    pub(super) fn concern(
        &mut self,
        step: &'static str,
        text: impl Into<String>,
        help: impl Into<Help>,
    ) {
        let help = help.into().in_this_call();
        self.add(step, text.into(), Some(help), None);
    }

    pub(super) fn bad(&mut self, step: &'static str, error: &Error) {
        self.add(step, error.to_string(), Some(error.remedy()), Some(error.exit_code()));
    }

    /// What came of a step; an error is reported as that of the step, or of the login or the token in it.
    pub(super) fn keep<T>(&mut self, step: &'static str, outcome: Result<T, Error>) -> Option<T> {
        let report = |error: Error| match error.exit_code() {
            code if code == Exit::Login as u8 => self.bad("login", &error),
            code if code == Exit::Token as u8 => self.bad("token", &error),
            _ => self.bad(step, &error),
        };
        outcome.map_err(report).ok()
    }

    fn add(&mut self, step: &'static str, text: String, help: Option<Help>, exit_code: Option<u8>) {
        let (status, mark, style) = match (&help, exit_code) {
            (None, _) => ("good", "✔", GOOD),
            (Some(_), None) => ("concern", "!", CONCERN),
            (Some(_), Some(_)) => ("bad", "✘", BAD),
        };
        if !self.arguments.json {
            let mark = self.session.output.paint(style, mark);
            let mut shown = format!("{mark} {:14} {}\n", title(step), printable(&text));
            if let Some(help) = &help {
                shown.push_str(&format!("  help: {}\n", printable(&help.text)));
                let candidates =
                    help.candidates.iter().map(|it| format!("    {}\n", printable(it)));
                shown.extend(candidates);
            }
            if let Err(error) = self.session.output.print(&shown) {
                self.failure.get_or_insert(error);
            }
        }
        let help = help.map(|help| help.to_string());
        self.findings.push(Finding { step, status, text, help, exit_code });
    }

    /// That of the first step that failed, or 0.
    pub(super) fn exit_code(&self) -> u8 {
        self.findings.iter().find_map(|it| it.exit_code).unwrap_or(0)
    }

    /// Prints the document, if that is wanted; what kept it or a line from being printed.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.session.exit_code = self.exit_code();
        if !self.arguments.json {
            return self.failure.map_or(Ok(()), Err);
        }
        // Described in docs/commands.md.
        self.session.output.print_json(&json!({
            "apiVersion": "pkcs11-external-signer/v1",
            "exitCode": self.exit_code(),
            "steps": self.findings,
        }))
    }
}

/// What the step's lines begin with.
fn title(step: &'static str) -> &'static str {
    match step {
        "pin-tries" => "PIN tries",
        "public-key" => "public key",
        "login" => "PIN",
        "private-key" => "private key",
        "tls-versions" => "TLS",
        "server" => "cluster",
        "sealed" => "sealed file",
        "answer" => "for kubelet",
        name => name,
    }
}
