//! `approve` for all pending requests: one table with a verdict on each, and one typed yes for those that pass.

use std::io::stderr;

use super::assessment::Assessment;
use super::rules::PolicyWithVerifier;
use super::{Approver, shown_names};
use crate::cli::issuance::shown_duration;
use crate::cli::question;
use crate::cli::session::CommandSession;
use crate::cli::table::Table;
use cluster_api::signing_request::{SigningRequest, UnusableRequest};
use cluster_api::{Kubectl, whoami};
use messages::error::{Error, Exit};
use messages::folding::{folded, terminal_width};
use messages::printable::{PrintableLines, printable, quoted};
use messages::report;

const HEADINGS: [&str; 6] = ["", "request", "user", "groups", "for", "hardware"];

/// How far the lines that belong to a request are indented, in characters.
const INDENT: usize = 5;

/// Shows the requests that nobody has decided on. After a typed yes, approves those that nothing speaks against, each
/// as it was shown. One that fails doesn't stop the others.
pub(super) fn approve(
    approver: &Approver<'_>,
    policy: &PolicyWithVerifier,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let rows = rows(approver)?;
    if rows.is_empty() {
        report::note("no request for a client certificate is pending");
        return Ok(());
    }
    show(policy, &rows);
    let passing: Vec<_> = rows.iter().filter_map(Row::passing).collect();
    let all = rows.len();
    let refused = all - passing.len();
    if passing.is_empty() {
        return Tally { all, refused, failed: 0 }.end();
    }
    warn_requester(&approver.kubectl, &passing);
    if !approver.is_dry_run {
        let passing = passing.len();
        let question = format!("Approve {passing} of {all} requests, as the table has them");
        question::confirm("the approval", &question)?;
    }
    let failed = approve_each(approver, &passing, session)?;
    Tally { all, refused, failed }.end()
}

/// Shows the policy and the requests on standard error.
fn show(policy: &PolicyWithVerifier, rows: &[Row]) {
    let width = terminal_width(stderr());
    let mut text = String::new();
    for (title, line) in policy.titled() {
        let line = format!("{title}  {}", printable(&line));
        text += &format!("{}\n", folded(&line, width, 0, INDENT));
    }
    report::lines(&(text + &listing(rows, width)));
}

/// Approves the requests one after the other. A failure is reported and doesn't stop the others; returns how many have
/// failed.
fn approve_each(
    approver: &Approver<'_>,
    passing: &[&Assessment],
    session: &mut CommandSession,
) -> Result<usize, Error> {
    let mut failed = 0;
    for assessment in passing {
        let name = &assessment.request.metadata.name;
        match approve_one(approver, assessment) {
            Ok(outcome) => {
                session.output.print(&PrintableLines::of([format!("{name} {outcome}")]))?;
            }
            Err(error) => {
                report::warning(&error.to_string());
                failed += 1;
            }
        }
    }
    Ok(failed)
}

/// What became of a request that passes.
fn approve_one(approver: &Approver<'_>, assessment: &Assessment) -> Result<&'static str, Error> {
    if approver.is_dry_run {
        return Ok("would be approved");
    }
    approver.send(assessment).map(|()| "approved")
}

/// How many requests there were, and what became of them.
struct Tally {
    all: usize,
    /// How many requests something speaks against.
    refused: usize,
    /// How many approvals the cluster has not taken.
    failed: usize,
}

impl Tally {
    /// Fails if any request is not approved.
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

/// A request that was looked at, or that can't be.
enum Row {
    Assessed(Box<Assessment>),
    Unusable { name: String, reason: String },
}

fn rows(approver: &Approver<'_>) -> Result<Vec<Row>, Error> {
    let pending = SigningRequest::pending(&approver.kubectl)?.into_iter();
    Ok(pending.map(|request| Row::of(request, approver)).collect())
}

impl Row {
    fn of(request: Result<SigningRequest, UnusableRequest>, approver: &Approver<'_>) -> Self {
        let (name, assessed) = match request {
            Ok(request) => {
                let name = request.metadata.name.clone();
                (name, Assessment::of(request, approver.rules))
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

    /// The cells of the request's row, in the order of the headings.
    fn cells(&self) -> [String; 6] {
        let mark = if self.passing().is_some() { "✔" } else { "✘" };
        match self {
            Self::Unusable { name, .. } => [mark, name, "", "", "", ""].map(str::to_owned),
            Self::Assessed(assessment) => {
                let Assessment { request, csr, .. } = assessment.as_ref();
                let user = csr.user.as_ref().map(|user| format!("{user:?}"));
                [
                    mark.to_owned(),
                    request.metadata.name.clone(),
                    user.unwrap_or_else(|| "none".to_owned()),
                    shown_names(&csr.groups),
                    shown_duration(request.spec.expiration_seconds),
                    assessment.hardware_in_short(),
                ]
            }
        }
    }

    /// The request as a paragraph, for a terminal that is too narrow for a table.
    fn paragraph(&self, width: Option<usize>) -> String {
        let [mark, name, user, groups, duration, hardware] = self.cells();
        let mut lines = vec![printable(&format!("{mark}  {name}")).into_owned()];
        if let Self::Assessed(_) = self {
            let asked = format!("user {user}, groups {groups}, for {duration}");
            lines.extend([asked, hardware].iter().map(|line| indented(line, width)));
        }
        lines.extend(self.reasons().iter().map(|reason| indented(reason, width)));
        lines.join("\n")
    }

    /// What speaks against the request.
    fn reasons(&self) -> Vec<String> {
        match self {
            Self::Assessed(assessment) => assessment.reasons(),
            Self::Unusable { reason, .. } => vec![reason.clone()],
        }
    }
}

/// All requests, each marked with its verdict, and below it what speaks against it. This is a table, unless the
/// terminal is too narrow.
fn listing(rows: &[Row], width: Option<usize>) -> String {
    let mut table = Table::new(HEADINGS);
    for row in rows {
        let reasons = row.reasons().iter().map(|reason| indented(reason, width)).collect();
        table.add_with_notes(row.cells(), reasons);
    }
    table.plain(width).unwrap_or_else(|| {
        rows.iter().map(|row| row.paragraph(width)).collect::<Vec<_>>().join("\n")
    })
}

/// A text that belongs to a request, folded into lines that are fit for a terminal.
fn indented(text: &str, width: Option<usize>) -> String {
    folded(&printable(text), width, INDENT, INDENT + 2)
}

/// Warns approvers who would approve requests of their own.
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
