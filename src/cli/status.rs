//! `status`: what the tunnel process serves; and `stop`, its end.

use super::session::CommandSession;
use crate::error::Error;
use crate::printable::printable;
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
    let text = status.map_or_else(|| "no tunnel process is running\n".to_owned(), |it| text(&it));
    session.output.print(&text)
}

/// Ends the tunnel process.
pub(super) fn stop() -> Result<(), Error> {
    if !tunnel_process::stop()? {
        report::note("no tunnel process is running");
    }
    Ok(())
}

/// As a person reads it, a line for each thing.
fn text(status: &StatusDocument) -> String {
    let mut text = format!("tunnel process {}\n", status.pid);
    for key in &status.keys {
        let connections = match key.connections {
            1 => "1 connection".to_owned(),
            count => format!("{count} connections"),
        };
        let (subject, until) = (printable(&key.subject), printable(&key.until));
        text += &format!("key of {subject}: {connections}; open until {until}\n");
        for caller in &key.callers {
            text += &format!("  used by {} (process {})\n", printable(&caller.name), caller.pid);
        }
    }
    for cluster in &status.clusters {
        let (name, server) = (printable(&cluster.name), printable(&cluster.server));
        text += &format!("cluster \"{name}\" ({server}) at {}\n", cluster.address);
    }
    text
}
