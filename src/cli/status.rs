//! `status`: what the tunnel process serves; and `stop`, its end.

use super::key::options::option;
use super::session::CommandSession;
use config::OPTIONS;
use crypto::certificate::rfc_3339;
use messages::error::{Error, listed};
use messages::printable::PrintableLines;
use messages::report;
use tunnel::Trouble;
use tunnel_process::{self, KeyStatus, StatusDocument};

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
    let lines = match &status {
        Some(status) => lines(status),
        None => vec!["no tunnel process is running".to_owned()],
    };
    session.output.print(&PrintableLines::of(lines))
}

/// Ends the tunnel process.
pub(super) fn stop() -> Result<(), Error> {
    if !tunnel_process::stop()? {
        report::note("no tunnel process is running");
    }
    Ok(())
}

/// As a person reads it: what there is, each with what belongs to it below.
fn lines(status: &StatusDocument) -> Vec<String> {
    let mut lines = vec![format!("tunnel process {}", status.pid)];
    lines.extend(status.keys.iter().flat_map(lines_of_key));
    for cluster in &status.clusters {
        let (name, server, address) = (&cluster.name, &cluster.server, cluster.address);
        lines.push(format!("cluster \"{name}\" ({server}) at {address}"));
        if let Some(Trouble { time, message }) = &cluster.last_trouble {
            lines.push(format!("  last trouble at {}: {message}", rfc_3339(*time)));
        }
    }
    lines
}

/// What the key is and who holds it; then by what it can be told from every other one.
fn lines_of_key(key: &KeyStatus) -> Vec<String> {
    let kubeconfigs: Vec<_> = key.kubeconfigs.iter().map(String::as_str).collect();
    let kubeconfigs = match kubeconfigs.as_slice() {
        [] => String::new(),
        files => format!(", for {}", listed(files, "and")),
    };
    let connections = match key.connections {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    };
    let KeyStatus { subject, token, until, process, .. } = key;
    let mut lines = vec![
        format!(
            "key of {subject} on token {token}{kubeconfigs}: {connections}; open until {until}"
        ),
        format!("  in process {process}:{}", options_of(&key.configuration)),
    ];
    for caller in &key.callers {
        lines.push(format!("  used by {} (process {})", caller.name, caller.pid));
    }
    if key.signs_digests {
        lines.push(
            "  signs any digest for every program of yours: it was opened for an external signer"
                .to_owned(),
        );
    }
    lines
}

/// What selects the key, as options of commands.
fn options_of(configuration: &[(String, String)]) -> String {
    let options = configuration.iter().filter_map(|(key, value)| {
        let known = OPTIONS.iter().find(|(known, _)| known == key);
        let (_, name) = known.filter(|(key, _)| *key != "pinSource")?;
        Some(option(name, Some(value)))
    });
    options.collect()
}
