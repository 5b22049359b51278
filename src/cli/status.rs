//! `status`: what the tunnel process serves; and `stop`, its end.

use super::session::CommandSession;
use crate::error::Error;
use crate::printable::PrintableLines;
use crate::report;
use crate::tunnel_process::{self, StatusDocument};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer status
  pkcs11-external-signer status --json

With --json it prints a document, or null if no tunnel process is running.")]
pub(super) struct StatusArguments {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &StatusArguments, session: &mut CommandSession) -> Result<(), Error> {
    let status = tunnel_process::status()?;
    if arguments.json {
        return session.output.print_json(&status);
    }
    let lines =
        status.map_or_else(|| vec!["no tunnel process is running".to_owned()], |it| lines(&it));
    session.output.print(&PrintableLines::of(lines))
}

/// Ends the tunnel process.
pub(super) fn stop() -> Result<(), Error> {
    if !tunnel_process::stop()? {
        report::note("no tunnel process is running");
    }
    Ok(())
}

/// As a person reads it, a line for each thing.
fn lines(status: &StatusDocument) -> Vec<String> {
    let mut lines = vec![format!("tunnel process {}", status.pid)];
    for key in &status.keys {
        let connections = match key.connections {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        lines.push(format!("key of {}: {connections}; open until {}", key.subject, key.until));
        let used = key.callers.iter();
        lines.extend(used.map(|it| format!("  used by {} (process {})", it.name, it.pid)));
    }
    for cluster in &status.clusters {
        let (name, server, address) = (&cluster.name, &cluster.server, cluster.address);
        lines.push(format!("cluster \"{name}\" ({server}) at {address}"));
    }
    lines
}
