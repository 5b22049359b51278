//! What `check` prints: a line for each finding as it is made, or a JSON document at the end.

use serde::Serialize;

use crate::cli::output::CommandOutput;
use crate::cli::style::{Palette, Style};
use crate::error::{Error, Help};
use crate::printable::line;
use crate::report;

/// What a finding is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CheckStep {
    Configuration,
    /// What a client with the credential plugin meets.
    Client,
    Library,
    Token,
    PinTries,
    Certificate,
    /// What an audit log calls the certificate.
    CredentialId,
    Validity,
    PublicKey,
    Mechanisms,
    Login,
    PrivateKey,
    Signature,
    TlsVersions,
    Server,
    /// A sealed file.
    Sealed,
    /// What kubelet is told.
    Answer,
}

impl CheckStep {
    /// What a line about it begins with.
    fn title(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Client => "client",
            Self::Library => "library",
            Self::Token => "token",
            Self::PinTries => "PIN tries",
            Self::Certificate => "certificate",
            Self::CredentialId => "credential-id",
            Self::Validity => "validity",
            Self::PublicKey => "public key",
            Self::Mechanisms => "mechanisms",
            Self::Login => "PIN",
            Self::PrivateKey => "private key",
            Self::Signature => "signature",
            Self::TlsVersions => "TLS",
            Self::Server => "cluster",
            Self::Sealed => "sealed file",
            Self::Answer => "for kubelet",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StepStatus {
    Good,
    /// It works, but not for long or not everywhere.
    Concern,
    Bad,
}

/// A finding of `check --json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StepEntry {
    step: CheckStep,
    status: StepStatus,
    text: String,
    help: Option<String>,
    /// Set if the step failed.
    exit_code: Option<u8>,
}

/// What `check --json` prints, described in docs/commands.md.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckDocument<'a> {
    api_version: &'static str,
    exit_code: u8,
    steps: &'a [StepEntry],
}

/// The findings, printed or kept for the document.
pub(super) struct Checklist {
    output: CommandOutput,
    palette: Palette,
    /// The width of standard output if it is a terminal.
    columns: Option<usize>,
    is_json: bool,
    /// Of printing.
    failure: Option<Error>,
    entries: Vec<StepEntry>,
}

impl Checklist {
    pub(super) fn new(
        output: CommandOutput,
        palette: Palette,
        columns: Option<usize>,
        is_json: bool,
    ) -> Self {
        Self { output, palette, columns, is_json, failure: None, entries: Vec::new() }
    }

    pub(super) fn good(&mut self, step: CheckStep, text: impl Into<String>) {
        self.add(step, StepStatus::Good, text.into(), None, None);
    }

    pub(super) fn concern(
        &mut self,
        step: CheckStep,
        text: impl Into<String>,
        remedy: impl Into<Help>,
    ) {
        let help = remedy.into().in_this_call();
        self.add(step, StepStatus::Concern, text.into(), Some(help), None);
    }

    pub(super) fn bad(&mut self, step: CheckStep, error: &Error) {
        let help = Some(error.remedy());
        let code = Some(error.exit_code());
        self.add(step, StepStatus::Bad, error.to_string(), help, code);
    }

    /// What came of a step; an error is reported.
    pub(super) fn keep<T, E: Into<Error>>(
        &mut self,
        step: CheckStep,
        outcome: Result<T, E>,
    ) -> Option<T> {
        outcome.map_err(|error| self.bad(step, &error.into())).ok()
    }

    fn add(
        &mut self,
        step: CheckStep,
        status: StepStatus,
        text: String,
        help: Option<Help>,
        exit_code: Option<u8>,
    ) {
        if !self.is_json {
            let shown = self.shown(step.title(), status, &text, help.as_ref());
            self.print(&shown);
        }
        self.entries.push(StepEntry {
            step,
            status,
            text,
            help: help.map(|help| help.to_string()),
            exit_code,
        });
    }

    fn shown(&self, title: &str, status: StepStatus, text: &str, help: Option<&Help>) -> String {
        let (mark, style) = match status {
            StepStatus::Good => ("✔", Style::Good),
            StepStatus::Concern => ("!", Style::Concern),
            StepStatus::Bad => ("✘", Style::Bad),
        };
        let folded = |line: String| match self.columns {
            Some(columns) => report::hanging(&line, columns),
            None => line,
        };
        let mark = self.palette.paint(style, mark);
        let finding = folded(format!("  {title:14} {}", line(text)));
        let mut shown = format!("{mark} {}\n", finding.trim_start());
        if let Some(help) = help {
            shown.push_str(&folded(format!("  help: {}", line(&help.text))));
            shown.push('\n');
            for candidate in &help.candidates {
                shown.push_str(&format!("    {}\n", line(candidate)));
            }
        }
        shown
    }

    fn print(&mut self, text: &str) {
        if let Err(error) = self.output.print(text) {
            self.failure.get_or_insert_with(|| error.into());
        }
    }

    /// That of the first step that failed, or 0.
    pub(super) fn exit_code(&self) -> u8 {
        let mut codes = self.entries.iter().filter_map(|entry| entry.exit_code);
        codes.next().unwrap_or(0)
    }

    /// Prints the document, if that is wanted; the process's exit code.
    pub(super) fn finish(mut self) -> u8 {
        let code = self.exit_code();
        if self.is_json {
            let printed = self.output.print_json(&CheckDocument {
                api_version: "pkcs11-external-signer/v1",
                exit_code: code,
                steps: &self.entries,
            });
            self.failure = printed.err();
        }
        match self.failure {
            Some(error) => report::error(&error),
            None => code,
        }
    }
}

/// `"a", "b"`: an item with a comma in it stays one.
pub(super) fn quoted(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.join(", ")
}
