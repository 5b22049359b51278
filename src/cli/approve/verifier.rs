//! The policy's verifier, a program: its file, and a run of it.
//!
//! The file is read when the policy is, and once more right before each run: what is shown and recorded is the hash of what
//! runs, even if the file is changed while a person reads. Between the last look and the start only its owner and root
//! could change it.

use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use attestation::ExternalVerifier;
use attestation::external_verifier::LONGEST_ANSWER;
use attestation::policy::VerifierCommand;
use crypto::certificate::fingerprint;
use files::ownership::read_trusted;
use messages::error::{Error, Exit};
use rustix::process::{Pid, Signal, kill_process_group};
use system::descriptors::hand_on;
use system::limits;
use system::process::child_ends_within;
use system::signals::EndWithThis;

/// The most bytes of a verifier's file.
const LONGEST_PROGRAM: u64 = 256 * 1024 * 1024;
/// How much is kept of what a verifier prints on standard error, in bytes.
const LONGEST_ERROR: usize = 64 * 1024;
/// How much is shown of the last line there, in characters.
const LONGEST_REASON: usize = 200;

/// A verifier whose file was found.
#[derive(Debug)]
pub(super) struct VerifierProgram {
    /// The file's name, for people.
    name: String,
    /// The SHA-256 of the file when it was found.
    sha256: String,
    path: PathBuf,
    arguments: Vec<String>,
    /// The policy's directory, in which the program runs.
    directory: PathBuf,
}

impl VerifierProgram {
    /// The verifier that the policy in this file names.
    pub(super) fn of(command: &VerifierCommand, policy: &Path) -> Result<Self, Error> {
        Self::found(command, policy).map_err(|error| {
            let VerifierCommand { place, program, .. } = command;
            let text = format!("{}, {place}: {program}: {error}", policy.display());
            Error::new(Exit::Configuration, text).help(
                "name an executable file, by an absolute path or one that begins at the policy's directory; PATH isn't searched",
            )
        })
    }

    fn found(command: &VerifierCommand, policy: &Path) -> io::Result<Self> {
        let parent = policy.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::canonicalize(parent.unwrap_or_else(|| Path::new(".")))?;
        let path = directory.join(&command.program);
        let sha256 = hash_of_program(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let arguments = command.arguments.clone();
        Ok(Self { name, sha256, path, arguments, directory })
    }

    /// Starts the program, unless its file is another one by now than was shown.
    fn start(&self) -> io::Result<Run> {
        if hash_of_program(&self.path)? != self.sha256 {
            return Err(io::Error::other("its file has changed since the policy was read"));
        }
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // It has a process group of its own, so that what it starts can be killed with it.
        command.process_group(0);
        let child = hand_on(&mut command, Vec::new()).spawn()?;
        let group = Pid::from_child(&child);
        Ok(Run { child, end: Some(EndWithThis::of_group(group)) })
    }
}

/// The SHA-256 of the program's file, in hexadecimal digits. Fails if it can't be executed, or if another user
/// can change it or a directory above it.
fn hash_of_program(path: &Path) -> io::Result<String> {
    let content = read_trusted(path, LONGEST_PROGRAM)?;
    if path.metadata()?.mode() & 0o111 == 0 {
        return Err(io::Error::other("it is not executable"));
    }
    Ok(fingerprint(&content))
}

impl ExternalVerifier for VerifierProgram {
    fn name(&self) -> &str {
        &self.name
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }

    fn answer(&self, question: &str) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + limits::VERIFIER;
        let not_run = |error: io::Error| format!("it can't be run: {error}");
        let mut run = self.start().map_err(not_run)?;
        let output = run.ask(question.to_owned()).map_err(not_run)?;
        let answer = received(&output.answer, deadline)?;
        if answer.len() as u64 > LONGEST_ANSWER {
            return Err(format!("it printed more than {LONGEST_ANSWER} bytes"));
        }
        let status = run.end(deadline)?;
        if status.success() {
            return Ok(answer);
        }
        let ended = match status.signal() {
            Some(signal) => format!("it was ended by signal {signal}"),
            None => format!("it ended with exit code {}", status.code().unwrap_or_default()),
        };
        // A process that is left behind may keep the stream open, although the verifier itself has ended.
        let errors = received(&output.errors, deadline).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        match errors.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => {
                let reason: String = line.trim().chars().take(LONGEST_REASON).collect();
                Err(format!("{ended}: {reason}"))
            }
            None => Err(format!("{ended}, and didn't say why")),
        }
    }
}

/// A running verifier. If this is dropped before its end was seen, it is killed with all that it has started.
struct Run {
    child: Child,
    /// What ends the verifier with this process, until its end was seen.
    end: Option<EndWithThis>,
}

/// What the verifier prints. Each part comes once its stream has been closed, an answer that is too long before.
struct Output {
    /// The beginning of standard output: one byte more than an answer may have.
    answer: Receiver<Vec<u8>>,
    /// The end of standard error.
    errors: Receiver<Vec<u8>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            drop(end);
            let _ = self.child.wait();
        }
    }
}

impl Run {
    /// Hands the question to the verifier.
    fn ask(&mut self, question: String) -> io::Result<Output> {
        let streams = (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // A verifier that doesn't read the question has its reasons.
        in_background(move || drop(input.write_all(question.as_bytes())))?;
        let answer = beginning_of(output, LONGEST_ANSWER + 1)?;
        Ok(Output { answer, errors: end_of(errors, LONGEST_ERROR)? })
    }

    /// Waits for the verifier's end until the deadline.
    fn end(&mut self, deadline: Instant) -> Result<ExitStatus, String> {
        let not_awaited = |error: io::Error| format!("its end can't be awaited: {error}");
        if !child_ends_within(&self.child, left(deadline)).map_err(not_awaited)? {
            return Err(late());
        }
        self.end = None;
        self.child.wait().map_err(not_awaited)
    }
}

/// Reads the first bytes of a stream, in the background: a process that the verifier leaves behind may keep it open.
fn beginning_of(stream: impl Read + Send + 'static, length: u64) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    in_background(move || {
        let mut bytes = Vec::new();
        let _ = stream.take(length).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    })?;
    Ok(receiver)
}

/// Reads a stream to its end, in the background, and keeps its last bytes. A stream that is closed
/// earlier would end who writes to it (SIGPIPE).
fn end_of(mut stream: impl Read + Send + 'static, length: usize) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    in_background(move || {
        let (mut kept, mut part) = (Vec::new(), [0; 8192]);
        while let Ok(count @ 1..) = stream.read(&mut part) {
            kept.extend_from_slice(part.get(..count).unwrap_or_default());
            kept.drain(..kept.len().saturating_sub(length));
        }
        let _ = sender.send(kept);
    })?;
    Ok(receiver)
}

fn in_background(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("verifier".to_owned()).spawn(work).map(drop)
}

fn received(stream: &Receiver<Vec<u8>>, deadline: Instant) -> Result<Vec<u8>, String> {
    stream.recv_timeout(left(deadline)).map_err(|_| late())
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn late() -> String {
    format!("it didn't end within {} s", limits::VERIFIER.as_secs())
}
