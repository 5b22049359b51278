//! All pending requests, in one table with a verdict each, and one typed yes for those that pass.

use super::assessment::Assessment;
use super::{Approver, shown_names};
use crate::cli::issuance::shown_duration;
use crate::cli::question;
use crate::cli::session::CommandSession;
use cluster_api::signing_request::{SigningRequest, UnusableRequest};
use cluster_api::{Kubectl, whoami};
use messages::error::{Error, Exit};
use messages::printable::{PrintableLines, printable, quoted};
use messages::report;

/// A column is at most so many characters wide; a longer text moves what follows it.
const WIDEST: usize = 40;

const HEADINGS: [&str; 5] = ["REQUEST", "USER", "GROUPS", "FOR", "HARDWARE"];

/// Shows the requests that nobody has decided on, and approves those that nothing speaks against after a typed yes, each
/// as it was shown. One that fails doesn't stop the others.
pub(super) fn approve(approver: &Approver, session: &mut CommandSession) -> Result<(), Error> {
    let rows = rows(approver)?;
    let policy = approver.rules.named_policy().unwrap_or_default();
    if rows.is_empty() {
        report::note("no request for a client certificate is pending");
        return Ok(());
    }
    report::lines(&format!("policy  {policy}\n{}", table(&rows)));
    let passing: Vec<_> = rows.iter().filter_map(Row::passing).collect();
    let mut tally = Tally { all: rows.len(), refused: rows.len() - passing.len(), failed: 0 };
    if passing.is_empty() {
        return tally.end();
    }
    warn_requester(&approver.kubectl, &passing);
    if !approver.is_dry_run {
        let (passing, all) = (passing.len(), tally.all);
        let question = format!("Approve {passing} of {all} requests, as the table has them");
        question::confirm("the approval", &question)?;
    }
    for assessment in passing {
        let name = &assessment.request.metadata.name;
        match approve_one(approver, assessment) {
            Ok(outcome) => {
                session.output.print(&PrintableLines::of([format!("{name} {outcome}")]))?;
            }
            Err(error) => {
                report::warning(&error.to_string());
                tally.failed += 1;
            }
        }
    }
    tally.end()
}

/// What became of it.
fn approve_one(approver: &Approver, assessment: &Assessment) -> Result<&'static str, Error> {
    if approver.is_dry_run {
        return Ok("would be approved");
    }
    approver.send(assessment).map(|()| "approved")
}

/// How many requests there were, and what became of them.
struct Tally {
    all: usize,
    /// What something speaks against.
    refused: usize,
    /// What the cluster has not taken.
    failed: usize,
}

impl Tally {
    /// Fails if a request is not approved.
    fn end(&self) -> Result<(), Error> {
        let Self { all, refused, failed } = self;
        let (exit, help) = match (refused, failed) {
            (0, 0) => return Ok(()),
            (_, 0) => (
                Exit::Object,
                "the table says what speaks against each; have the requesters ask for what is allowed, or change the policy",
            ),
            _ => (
                Exit::Cluster,
                "the warnings above say why; run this command again for what is pending then",
            ),
        };
        let text = format!("{} of {all} requests were not approved", refused + failed);
        Err(Error::new(exit, text).help(help))
    }
}

/// A request that was looked at, or can't be.
enum Row {
    Assessed(Box<Assessment>),
    Unusable { name: String, reason: String },
}

fn rows(approver: &Approver) -> Result<Vec<Row>, Error> {
    let pending = SigningRequest::pending(&approver.kubectl)?.into_iter();
    Ok(pending.map(|request| Row::of(request, approver)).collect())
}

impl Row {
    fn of(request: Result<SigningRequest, UnusableRequest>, approver: &Approver) -> Self {
        let (name, assessed) = match request {
            Ok(request) => {
                let name = request.metadata.name.clone();
                (name, Assessment::of(request, &approver.rules))
            }
            Err(UnusableRequest { name, error }) => (name, Err(error)),
        };
        match assessed {
            Ok(assessment) => Self::Assessed(Box::new(assessment)),
            Err(error) => Self::Unusable { name, reason: error.to_string() },
        }
    }

    fn passing(&self) -> Option<&Assessment> {
        match self {
            Self::Assessed(assessment) if assessment.reasons().is_empty() => Some(assessment),
            Self::Assessed(_) | Self::Unusable { .. } => None,
        }
    }

    /// What stands in the columns, fit for a terminal.
    fn cells(&self) -> [String; 5] {
        let cells = match self {
            Self::Unusable { name, .. } => [name.as_str(), "", "", "", ""].map(str::to_owned),
            Self::Assessed(assessment) => {
                let Assessment { request, csr, .. } = assessment.as_ref();
                let user = csr.user.as_ref().map(|user| format!("{user:?}"));
                [
                    request.metadata.name.clone(),
                    user.unwrap_or_else(|| "none".to_owned()),
                    shown_names(&csr.groups),
                    shown_duration(request.spec.expiration_seconds),
                    assessment.hardware_in_short(),
                ]
            }
        };
        cells.map(|cell| printable(&cell).into_owned())
    }

    /// What speaks against the request.
    fn reasons(&self) -> Vec<String> {
        match self {
            Self::Assessed(assessment) => assessment.reasons(),
            Self::Unusable { reason, .. } => vec![reason.clone()],
        }
    }
}

/// A line for each request, marked with its verdict, and below it what speaks against it.
fn table(rows: &[Row]) -> String {
    let cells: Vec<_> = rows.iter().map(Row::cells).collect();
    let headings = HEADINGS.map(str::to_owned);
    let width = |column: usize| {
        let widths = cells.iter().chain([&headings]).map(|cells| cells[column].chars().count());
        widths.max().unwrap_or_default().min(WIDEST)
    };
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |mark: &str, cells: &[String; 5]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("  {cell:<width$}"));
        format!("{mark}{}", padded.collect::<String>()).trim_end().to_owned()
    };
    let mut lines = vec![line(" ", &headings)];
    for (row, cells) in rows.iter().zip(&cells) {
        let reasons = row.reasons();
        lines.push(line(if reasons.is_empty() { "✔" } else { "✘" }, cells));
        lines.extend(reasons.iter().map(|reason| format!("     {}", printable(reason))));
    }
    lines.join("\n")
}

/// Warns one who would approve requests of their own.
fn warn_requester(kubectl: &Kubectl, passing: &[&Assessment]) {
    let Ok(approver) = whoami(kubectl) else {
        return report::warning("the cluster doesn't tell whether a request is your own");
    };
    let own = passing.iter().map(|assessment| &assessment.request);
    let own = own.filter(|request| request.spec.username == approver.name);
    let own: Vec<_> = own.map(|request| request.metadata.name.clone()).collect();
    if !own.is_empty() {
        report::warning(&format!(
            "you have made {} yourself, so nobody but you and the policy compares that: have another person approve it",
            quoted(&own)
        ));
    }
}
