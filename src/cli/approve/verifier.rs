//! The policy's verifier, a program: its file, and a run of it.

use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use attestation::ExternalVerifier;
use attestation::external_verifier::LONGEST_ANSWER;
use attestation::policy::VerifierCommand;
use crypto::certificate::fingerprint;
use files::read_regular;
use messages::error::{Error, Exit};
use rustix::process::geteuid;
use system::descriptors::hand_on;
use system::limits;
use system::process::end_of_child;

/// Of a verifier's file, in bytes.
const LONGEST_PROGRAM: u64 = 256 * 1024 * 1024;
/// What is kept of what a verifier says on standard error, in bytes.
const LONGEST_ERROR: u64 = 64 * 1024;
/// Of the line of it that is shown, in characters.
const LONGEST_REASON: usize = 200;

/// A verifier that is there.
#[derive(Debug)]
pub(super) struct VerifierProgram {
    name: String,
    sha256: String,
    path: PathBuf,
    arguments: Vec<String>,
    /// The policy's, in which it runs.
    directory: PathBuf,
}

impl VerifierProgram {
    /// The one that the policy in this file names.
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
        let sha256 = fingerprint(&read_regular(&path, LONGEST_PROGRAM)?);
        let found = path.metadata()?;
        if found.mode() & 0o111 == 0 {
            return Err(io::Error::other("it is not executable"));
        }
        let is_foreign = ![0, geteuid().as_raw()].contains(&found.uid());
        if is_foreign || found.mode() & 0o002 != 0 {
            return Err(io::Error::other("another user can change it"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let arguments = command.arguments.clone();
        Ok(Self { name, sha256, path, arguments, directory })
    }

    fn start(&self) -> io::Result<Run> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).current_dir(&self.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        hand_on(&mut command, Vec::new()).spawn().map(Run)
    }
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
        let errors = received(&output.errors, deadline)?;
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

/// A running verifier; it is killed when this is dropped.
struct Run(Child);

/// What it prints, each once it has ended.
struct Output {
    /// Of standard output, so much that too much shows.
    answer: Receiver<Vec<u8>>,
    /// Of standard error, the beginning.
    errors: Receiver<Vec<u8>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    /// Hands it the question.
    fn ask(&mut self, question: String) -> io::Result<Output> {
        let streams = (self.0.stdin.take(), self.0.stdout.take(), self.0.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // One that reads nothing has its reasons.
        in_background(move || drop(input.write_all(question.as_bytes())))?;
        let answer = beginning_of(output, LONGEST_ANSWER + 1)?;
        Ok(Output { answer, errors: beginning_of(errors, LONGEST_ERROR)? })
    }

    fn end(&mut self, deadline: Instant) -> Result<ExitStatus, String> {
        let end = end_of_child(&mut self.0, left(deadline));
        let end = end.map_err(|error| format!("its end can't be awaited: {error}"))?;
        end.ok_or_else(late)
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
