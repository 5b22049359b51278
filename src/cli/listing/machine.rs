//! Lists every library of the machine, each in a process of its own: one that crashes, hangs or
//! writes nonsense is a line in the list and not its end.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use log::LevelFilter;
use rustix::process::{Pid, Signal, kill_process};

use super::{LibraryEntry, Listing};
use crate::discovery::{self, Installed};
use crate::error::{Error, Exit, PROGRAM};
use crate::printable::shell_word;
use crate::process::descriptors::inherit_only_stdio;
use crate::process::signals::Deferral;

/// How long a library may take if no PIN is asked for.
const LIMIT: Duration = Duration::from_secs(20);
/// How long it may take if a person may have to type PINs.
const ATTENDED_LIMIT: Duration = Duration::from_secs(300);

/// More than any token holds.
const LONGEST_DOCUMENT: u64 = 16 << 20;

/// What each library of this machine shows to `list --json` with these arguments, all at the same time. With a
/// login they come one after another, since they share the terminal.
pub(super) fn list_machine(arguments: &[String], asks: bool) -> Result<Listing, Error> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let libraries = discovery::libraries(home.as_deref());
    if libraries.is_empty() {
        let text = "no PKCS#11 library was found on this machine";
        return Err(Error::new(Exit::Library, text).help(
            "install the token's library (ykcs11 or opensc-pkcs11 for a YubiKey or smart card, \
             libtpm2-pkcs11-1 for a TPM, softhsm2 for trying out), or name it with --module",
        ));
    }
    let list = |library, limit| ask(library, arguments, limit);
    let entries = if asks {
        let attended = |library| {
            let _deferral = Deferral::of_sigint_for_child();
            list(library, ATTENDED_LIMIT)
        };
        libraries.iter().map(attended).collect()
    } else {
        thread::scope(|scope| {
            let look = |library| (library, scope.spawn(move || list(library, LIMIT)));
            let threads: Vec<_> = libraries.iter().map(look).collect();
            let entries = threads.into_iter().map(|(library, thread)| {
                let died = |_| failed(&library.path, "looking at it panicked");
                thread.join().unwrap_or_else(died)
            });
            entries.collect()
        })
    };
    Ok(Listing::new(entries))
}

fn ask(installed: &Installed, arguments: &[String], limit: Duration) -> LibraryEntry {
    let library = &installed.path;
    let (verbose, noise) = match log::max_level() {
        LevelFilter::Off => (None, Stdio::null()),
        LevelFilter::Info => (Some("-v"), Stdio::inherit()),
        _ => (Some("-vv"), Stdio::inherit()),
    };
    let init_args = installed.init_args.as_ref();
    let init_args = init_args.map(|text| format!("--init-args={text}"));
    let child = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command
            .args(["list", "--json", "--module"])
            .arg(library)
            .args(init_args)
            .args(arguments)
            .args(verbose)
            // A PIN on standard input is for one token, not for all that are found.
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(noise);
        inherit_only_stdio(&mut command).spawn()
    });
    let child = child.map_err(|error| format!("no process to look at it: {error}"));
    let entry = child.and_then(|child| answer(child, limit));
    entry.unwrap_or_else(|reason| failed(library, &reason))
}

/// What the process has listed, or why it listed nothing. It is killed after `limit`.
fn answer(mut child: Child, limit: Duration) -> Result<LibraryEntry, String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (sender, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let mut document = Vec::new();
        if let Some(output) = child.stdout.take() {
            let _ = output.take(LONGEST_DOCUMENT).read_to_end(&mut document);
        }
        let _ = sender.send((child.wait().ok(), document));
    });
    let Ok((status, document)) = receiver.recv_timeout(limit) else {
        // Not waited for yet, so the number is still its own.
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        let _ = waiting.join();
        return Err(format!("no answer within {} s", limit.as_secs()));
    };
    let listing = serde_json::from_slice::<Listing>(&document).ok();
    let entry = listing.and_then(|listing| listing.libraries.into_iter().next());
    entry.ok_or_else(|| ended(status))
}

fn ended(status: Option<ExitStatus>) -> String {
    match status.and_then(|status| status.signal()) {
        Some(signal) => format!("it crashes the process that loads it (signal {signal})"),
        // A library's trouble, and no document that says which.
        None if status.and_then(|status| status.code()) == Some(4) => {
            "it crashes the process that loads it".to_owned()
        }
        None => "the process that looked at it gave no answer".to_owned(),
    }
}

fn failed(library: &Path, reason: &str) -> LibraryEntry {
    let text = format!("PKCS#11 library {} does not list its tokens: {reason}", library.display());
    let error = Error::new(Exit::Library, text).help(format!(
        "look at it alone with `{PROGRAM} list -v --module {}`; restart its service (pcscd, tpm2-abrmd), or \
         update the library",
        shell_word(&library.to_string_lossy())
    ));
    LibraryEntry::failed(library.to_string_lossy().into_owned(), &error)
}
