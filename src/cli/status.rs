//! `status`, which shows what the tunnel process serves, and `stop`, which ends that process.

use std::collections::HashSet;
use std::path::Path;

use super::key::options::option;
use super::session::{CONCERN, CommandOutput, CommandSession, PLAIN};
use super::table::Table;
use config::OPTIONS;
use crypto::certificate::rfc_3339;
use messages::error::{Error, listed};
use messages::printable::printable;
use messages::report;
use tunnel::Trouble;
use tunnel_process::{self, ClusterStatus, KeyStatus, ProcessStatus, StatusDocument};

const SIGNS_DIGESTS: &str =
    "signs any digest for every program of yours: it was opened for an external signer";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer status
  pkcs11-external-signer status --json

--json prints null if no tunnel process is running. At a terminal, -v shows everything, as in a pipe.")]
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
    let output = &mut session.output;
    let text = match &status {
        Some(status) => text(status, output),
        None => "no tunnel process is running\n".to_owned(),
    };
    output.print_painted(&text)
}

/// Ends the tunnel process.
pub(super) fn stop() -> Result<(), Error> {
    if !tunnel_process::stop()? {
        report::note("no tunnel process is running");
    }
    Ok(())
}

/// The status for people: as tables at a terminal if they fit, or else as lines with all there is.
fn text(status: &StatusDocument, output: &CommandOutput) -> String {
    let tables = if output.is_brief() { tables(status, output) } else { None };
    tables.unwrap_or_else(|| {
        let mut text = String::new();
        for Line { indent, text: line } in lines(status) {
            text += &format!("{}\n", output.folded(&printable(&line), indent, indent + 2));
        }
        text
    })
}

/// A table of the keys and one of the clusters, with what went wrong below them. `None` if they don't fit the terminal,
/// or don't tell two keys apart.
fn tables(status: &StatusDocument, output: &CommandOutput) -> Option<String> {
    let mut text = format!("tunnel process {}\n", status.pid);
    if !status.keys.is_empty() {
        text += &format!("\n{}", key_table(&status.keys)?.shown(output)?);
    }
    if !status.clusters.is_empty() {
        let mut table = Table::new(["cluster", "server", "local address"]);
        for ClusterStatus { name, server, address, .. } in &status.clusters {
            table.add(PLAIN, [name.clone(), server.clone(), address.to_string()]);
        }
        text += &format!("\n{}", table.shown(output)?);
    }
    for ClusterStatus { name, last_trouble, .. } in &status.clusters {
        if let Some(Trouble { time, message }) = last_trouble {
            let line = format!("{name}: last trouble at {}: {message}", rfc_3339(*time));
            text += &concern(&line, output);
        }
    }
    for key in status.keys.iter().filter(|key| key.signs_digests) {
        text += &concern(&format!("{}: {SIGNS_DIGESTS}", key.subject), output);
    }
    Some(text)
}

/// A line that is marked as a concern, below an empty line.
fn concern(line: &str, output: &CommandOutput) -> String {
    let line = output.folded(&printable(line), 2, 2);
    format!("\n{} {}\n", output.paint(CONCERN, "!"), line.trim_start())
}

/// The table of the keys; `None` if two keys have the same name on tokens of the same label.
fn key_table(keys: &[KeyStatus]) -> Option<Table<5>> {
    let mut table = Table::new(["key", "token", "open until", "used by", "kubeconfig"]);
    let mut names = HashSet::new();
    for key in keys {
        if !names.insert((&key.subject, &key.token.label)) {
            return None;
        }
        let mut users: Vec<_> = key.callers.iter().map(process).collect();
        if key.connections > 0 {
            users.push(connections(key));
        }
        let users = if users.is_empty() { "nobody now".to_owned() } else { users.join(", ") };
        let kubeconfigs: Vec<_> = key.kubeconfigs.iter().map(|file| in_home(file)).collect();
        let (subject, label) = (key.subject.clone(), key.token.label.clone());
        table.add(PLAIN, [subject, label, key.until.clone(), users, kubeconfigs.join(", ")]);
    }
    Some(table)
}

/// Names a process in a line: `k9s (process 18022)`.
fn process(caller: &ProcessStatus) -> String {
    format!("{} (process {})", caller.name, caller.pid)
}

fn connections(key: &KeyStatus) -> String {
    match key.connections {
        1 => "1 connection".to_owned(),
        count => format!("{count} connections"),
    }
}

/// A kubeconfig's path, with `~` for the home directory.
fn in_home(path: &str) -> String {
    let home = std::env::var_os("HOME").unwrap_or_default();
    match Path::new(path).strip_prefix(&home) {
        Ok(rest) if !home.is_empty() => format!("~/{}", rest.display()),
        _ => path.to_owned(),
    }
}

/// A line, and how many characters it is indented by.
struct Line {
    indent: usize,
    text: String,
}

impl Line {
    fn outer(text: String) -> Self {
        Self { indent: 0, text }
    }

    fn inner(text: String) -> Self {
        Self { indent: 2, text }
    }
}

/// All lines of the status: each thing that there is, with what belongs to it below.
fn lines(status: &StatusDocument) -> Vec<Line> {
    let mut lines = vec![Line::outer(format!("tunnel process {}", status.pid))];
    lines.extend(status.keys.iter().flat_map(lines_of_key));
    for cluster in &status.clusters {
        let (name, server, address) = (&cluster.name, &cluster.server, cluster.address);
        lines.push(Line::outer(format!("cluster \"{name}\" ({server}) at {address}")));
        if let Some(Trouble { time, message }) = &cluster.last_trouble {
            lines.push(Line::inner(format!("last trouble at {}: {message}", rfc_3339(*time))));
        }
    }
    lines
}

/// The lines of a key: first what it is and who holds it, then what tells it from every other one.
fn lines_of_key(key: &KeyStatus) -> Vec<Line> {
    let kubeconfigs: Vec<_> = key.kubeconfigs.iter().map(String::as_str).collect();
    let kubeconfigs = match kubeconfigs.as_slice() {
        [] => String::new(),
        files => format!(", for {}", listed(files, "and")),
    };
    let connections = connections(key);
    let KeyStatus { subject, token, until, process: number, .. } = key;
    let mut lines = vec![
        Line::outer(format!(
            "key of {subject} on token {token}{kubeconfigs}: {connections}; open until {until}"
        )),
        Line::inner(format!("in process {number}:{}", options_of(&key.configuration))),
    ];
    for caller in &key.callers {
        lines.push(Line::inner(format!("used by {}", process(caller))));
    }
    if key.signs_digests {
        lines.push(Line::inner(SIGNS_DIGESTS.to_owned()));
    }
    lines
}

/// The options of commands that select the key.
fn options_of(configuration: &[(String, String)]) -> String {
    let options = configuration.iter().filter_map(|(key, value)| {
        let known = OPTIONS.iter().find(|(known, _)| known == key);
        let (_, name) = known.filter(|(key, _)| *key != "pinSource")?;
        Some(option(name, Some(value)))
    });
    options.collect()
}
