//! Lists every library of the machine, each in a process of its own. So a library that crashes, hangs or writes
//! nonsense costs only its own line of the list.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use log::LevelFilter;

use super::{LibraryEntry, Listing};
use crate::discovery::{self, Installed};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::printable::shell_word;
use messages::report;
use system::descriptors::hand_on;
use system::limits;
use system::signals::SigintLeftToChild;

/// The longest document that is read, in bytes: more than any token holds.
const LONGEST_DOCUMENT: u64 = 16 << 20;

/// Lists each library of this machine with `list --json` and these arguments, all at the same time. With a login they
/// come one after the other, since they share the terminal.
pub(super) fn list_machine(arguments: &[String], asks: bool) -> Result<Listing, Error> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let libraries = discovery::libraries(home.as_deref());
    note_remote(&discovery::remote(home.as_deref()));
    if libraries.is_empty() {
        let text = "no PKCS#11 library was found on this machine";
        return Err(Error::new(Exit::Library, text).help(
            "install the token's library (ykcs11 or opensc-pkcs11 for a YubiKey or smart card, \
             libtpm2-pkcs11-1 for a TPM, softhsm2 for trying out), or name it with --module",
        ));
    }
    let entries = if asks {
        list_one_by_one(&libraries, arguments)
    } else {
        list_at_once(&libraries, arguments)
    };
    Ok(Listing::new(entries))
}

/// Lists one library after the other, each for as long as a person may take.
fn list_one_by_one(libraries: &[Installed], arguments: &[String]) -> Vec<LibraryEntry> {
    let mut entries = Vec::new();
    for library in libraries {
        let _asking = SigintLeftToChild::begin();
        let process = LibraryProcess::start(library, arguments);
        entries.push(entry(library, process, Instant::now(), limits::ATTENDED_LISTING));
    }
    entries
}

/// Lists all libraries at the same time.
fn list_at_once(libraries: &[Installed], arguments: &[String]) -> Vec<LibraryEntry> {
    let started = Instant::now();
    let processes: Vec<_> =
        libraries.iter().map(|library| LibraryProcess::start(library, arguments)).collect();
    libraries
        .iter()
        .zip(processes)
        .map(|(library, process)| entry(library, process, started, limits::LISTING))
        .collect()
}

/// The entry that the library's process lists within this time from its start, or one with an error in its place.
fn entry(
    library: &Installed,
    process: io::Result<LibraryProcess>,
    started: Instant,
    limit: Duration,
) -> LibraryEntry {
    let answer = match process {
        Ok(process) => process.answer(started, limit),
        Err(error) => Err(format!("no process to look at it: {error}")),
    };
    answer.unwrap_or_else(|reason| failed(&library.path, &reason))
}

/// Says where there are tokens that no library of this machine shows.
fn note_remote(registrations: &[String]) {
    for name in registrations {
        let proxy = discovery::proxy().unwrap_or_else(|| "p11-kit-proxy.so".into());
        let proxy = proxy.to_string_lossy();
        let proxy = shell_word(&proxy);
        let list = Help::from(command(format!("list --module={proxy}"))).in_this_call();
        report::note(&format!(
            "{name} of p11-kit is elsewhere (remote:); p11-kit shows its tokens: {list}"
        ));
    }
}

/// A process that looks at a library.
struct LibraryProcess {
    child: Child,
    /// The socket that is the process's standard output. A socket can be read for a limited time.
    output: UnixStream,
}

impl LibraryProcess {
    /// Starts a process that lists the library with these arguments.
    fn start(installed: &Installed, arguments: &[String]) -> io::Result<Self> {
        let (verbose, noise) = match log::max_level() {
            LevelFilter::Off => (None, Stdio::null()),
            LevelFilter::Info => (Some("-v"), Stdio::inherit()),
            _ => (Some("-vv"), Stdio::inherit()),
        };
        let init_args = installed.init_args.as_ref();
        let init_args = init_args.map(|text| format!("--init-args={text}"));
        let (output, theirs) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["list", "--json", "--module"])
            .arg(&installed.path)
            .args(init_args)
            .args(arguments)
            .args(verbose)
            // A PIN on standard input belongs to one token, and not to all that are found.
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(theirs))
            .stderr(noise);
        let child = hand_on(&mut command, Vec::new()).spawn()?;
        Ok(Self { child, output })
    }

    /// Waits for what the process lists; the error says why it has listed nothing. The process is killed `limit` after
    /// its start.
    fn answer(self, started: Instant, limit: Duration) -> Result<LibraryEntry, String> {
        let Self { mut child, output } = self;
        // Waiting for the others may have taken all of the time, although this process had its answer.
        let left = limit.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
        let _ = output.set_read_timeout(Some(left));
        let mut document = Vec::new();
        let read = output.take(LONGEST_DOCUMENT).read_to_end(&mut document);
        if read.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().ok();
        if read.is_err() {
            return Err(format!("no answer within {} s", limit.as_secs()));
        }
        let listing = serde_json::from_slice::<Listing>(&document).ok();
        let entry = listing.and_then(|listing| listing.libraries.into_iter().next());
        entry.ok_or_else(|| ended(status))
    }
}

/// Why a process that has ended like this has listed nothing.
fn ended(status: Option<ExitStatus>) -> String {
    match status.and_then(|status| status.signal()) {
        Some(signal) => format!("it crashes the process that loads it (signal {signal})"),
        // The process has failed because of the library, and has printed no document that says why.
        None if status.and_then(|status| status.code()) == Some(4) => {
            "it crashes the process that loads it".to_owned()
        }
        None => "the process that looked at it gave no answer".to_owned(),
    }
}

/// The entry of a library that has listed nothing, for this reason.
fn failed(library: &Path, reason: &str) -> LibraryEntry {
    let text = format!("PKCS#11 library {} does not list its tokens: {reason}", library.display());
    let look = command("list -v --module ").and(shell_word(&library.to_string_lossy()));
    let help = Help::from("look at it alone with ")
        .and(look)
        .and("; restart its service (pcscd, tpm2-abrmd), or update the library");
    let error = Error::new(Exit::Library, text).help(help);
    LibraryEntry::failed(library.to_string_lossy().into_owned(), &error)
}
