//! The person's kubectl, which brings the credentials that they have now, whatever those are.
//!
//! kubectl and its credential plugins ask for logins on standard error. That is passed on as it comes, except
//! for what kubectl says of the request itself: that is the answer, or becomes an error of ours.

use std::io::{self, PipeReader, Read, Write as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};

use super::error::{ApiError, KubectlError};
use super::status::Status;
use super::{ApiAnswer, ApiMethod, ApiRequest, ClusterApi, LONGEST_ANSWER, unusable};
use crate::error::Error;
use crate::kubeconfig::{Kubeconfig, KubeconfigError, find_program};
use crate::process::descriptors::hand_on;

/// A login in a browser, with a second factor, has to fit into it.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a kubectl that writes nothing is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long after kubectl's end its last words may take to arrive. A program that a plugin has left behind may
/// hold the streams for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What is kept of an error, in bytes.
const LONGEST_ERROR: usize = 1 << 16;

/// What kubectl's own lines about a request begin with (cmd/util, helpers.go), in the end.
const ERRORS: [&str; 8] = [
    "Error from server",
    "Error in configuration: ",
    "The CertificateSigningRequest \"",
    "The TokenRequest \"",
    "The connection to the server ",
    "The request is invalid",
    "Unable to connect to the server: ",
    "error: ",
];
const WARNING: &str = "Warning: ";

/// What is done with text that is for the person, as it comes.
type PassOn = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The cluster, asked by the person's kubectl as the user of a context.
pub struct Kubectl {
    program: PathBuf,
    options: Vec<String>,
    cluster: String,
    context: String,
    pass_on: PassOn,
}

impl Kubectl {
    /// kubectl as it is found in PATH, with this context or the current one of `kubeconfig`, which was loaded
    /// from `file` if that is given, or else from where kubectl finds it. `pass_on` gets what kubectl and its
    /// plugins write for the person.
    ///
    /// # Errors
    ///
    /// There is no such context, or no kubectl.
    pub fn find(
        kubeconfig: &Kubeconfig,
        file: Option<&Path>,
        context: Option<&str>,
        pass_on: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let context = match context {
            Some(name) => kubeconfig.context(name)?.name,
            None => kubeconfig.selected_context()?.name,
        };
        let file = match file {
            Some(path) => Some(path.to_str().ok_or_else(|| KubeconfigError::Unreadable {
                path: path.to_owned(),
                reason: "its path is not UTF-8".to_owned(),
            })?),
            None => None,
        };
        let program = find_program("kubectl").ok_or(KubectlError::Missing)?;
        // One word each: a name could begin with a hyphen.
        let options =
            [Some(format!("--context={context}")), file.map(|file| format!("--kubeconfig={file}"))];
        Ok(Self {
            program,
            options: options.into_iter().flatten().collect(),
            cluster: format!("context \"{context}\""),
            context,
            pass_on: Box::new(pass_on),
        })
    }

    /// The context's name.
    pub fn context(&self) -> &str {
        &self.context
    }

    fn ask(&self, request: &ApiRequest<'_>) -> Result<Told, KubectlError> {
        let mut command = Command::new(&self.program);
        command.args(match request.method {
            ApiMethod::Create => ["create", "--raw"],
            ApiMethod::Delete => ["delete", "--raw"],
            ApiMethod::Get => ["get", "--raw"],
            ApiMethod::Replace => ["replace", "--raw"],
        });
        command.arg(request.path).args(&self.options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let body = request.body.map(ToString::to_string);
        // Not through standard input: a plugin may ask the person there.
        let reader = match body {
            Some(body) => {
                let reader = pipe_of(body).map_err(KubectlError::NotStarted)?;
                command.arg(format!("--filename=/dev/fd/{}", reader.as_raw_fd()));
                Some(reader)
            }
            None => None,
        };
        let kept = reader.iter().map(AsRawFd::as_raw_fd).collect();
        let child = hand_on(&mut command, kept).spawn().map_err(KubectlError::NotStarted)?;
        drop(reader);
        let mut child = Ending(child);
        let (sender, heard) = mpsc::channel();
        let output = child.0.stdout.take();
        let errors = child.0.stderr.take();
        listen(output, sender.clone(), Heard::Output).map_err(KubectlError::NotStarted)?;
        listen(errors, sender, Heard::Error).map_err(KubectlError::NotStarted)?;
        let deadline = Instant::now() + LIMIT;
        let mut told = Told::default();
        let mut ended = None;
        loop {
            match heard.recv_timeout(GLANCE) {
                Ok(Heard::Output(bytes)) => {
                    told.output.extend(bytes);
                    if told.output.len() > LONGEST_ANSWER {
                        return Ok(told);
                    }
                }
                Ok(Heard::Error(bytes)) => told.words.hear(&bytes, &self.pass_on),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if matches!(child.0.try_wait(), Ok(Some(_))) => {
                    if ended.get_or_insert_with(Instant::now).elapsed() > LAST_WORDS {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() > deadline {
                return Err(KubectlError::TimedOut {
                    cluster: self.cluster.clone(),
                    purpose: request.purpose.to_owned(),
                    seconds: LIMIT.as_secs(),
                });
            }
        }
        let status = child.0.wait().map_err(KubectlError::NotStarted)?;
        told.words.end(&self.pass_on);
        if !status.success() {
            // A prompt that nobody answered: the error has a line of its own.
            if told.words.is_passed_on {
                (self.pass_on)(b"\n");
            }
            let said = told.words.error.take();
            told.error = Some(said.unwrap_or_else(|| KubectlError::silent(status)));
        }
        Ok(told)
    }
}

impl ClusterApi for Kubectl {
    fn send(&self, request: &ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        let Told { output, words, error } = self.ask(request)?;
        let warnings = words.warnings;
        if let Some(said) = error {
            return Err(match Status::from_kubectl(&said) {
                Some(status) => status.refused(&self.cluster, request, warnings),
                None => KubectlError::Failed {
                    cluster: self.cluster.clone(),
                    purpose: request.purpose.to_owned(),
                    message: said.trim().trim_start_matches("error: ").to_owned(),
                }
                .into(),
            });
        }
        if output.len() > LONGEST_ANSWER {
            return Err(unusable(&self.cluster, request, &"it is too long").into());
        }
        let object = serde_json::from_slice(&output)
            .map_err(|error| unusable(&self.cluster, request, &error))?;
        Ok(ApiAnswer { object, warnings })
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }
}

/// A process that is ended if it isn't waited for.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// What a kubectl has printed and said.
#[derive(Default)]
struct Told {
    output: Vec<u8>,
    words: Words,
    /// Where it failed.
    error: Option<String>,
}

enum Heard {
    Output(Vec<u8>),
    Error(Vec<u8>),
}

/// A pipe, inherited by the next process, from which this text is read.
fn pipe_of(text: String) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    fcntl_setfd(&reader, FdFlags::empty())?;
    // A pipe can be shorter than the text.
    thread::Builder::new().name("kubectl's input".to_owned()).spawn(move || {
        let _ = writer.write_all(text.as_bytes());
    })?;
    Ok(reader)
}

/// Sends what is read from the stream, until it ends.
fn listen(
    stream: Option<impl Read + Send + 'static>,
    sender: Sender<Heard>,
    heard: fn(Vec<u8>) -> Heard,
) -> io::Result<()> {
    let mut stream = stream.ok_or_else(|| io::Error::other("it has no streams"))?;
    let read = move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            let read = bytes.get(..length).unwrap_or_default();
            if sender.send(heard(read.to_vec())).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("kubectl's output".to_owned()).spawn(read)?;
    Ok(())
}

/// kubectl's standard error: what is for the person, and what it says of the request.
#[derive(Debug, Default)]
struct Words {
    /// The beginning of a line that may be kubectl's own.
    line: Vec<u8>,
    /// The line is being passed on.
    is_passed_on: bool,
    /// From the line on that says why the request failed, which is the last that kubectl says.
    error: Option<String>,
    warnings: Vec<String>,
}

impl Words {
    /// Passes on what is for the person; a prompt has no end of line.
    fn hear(&mut self, heard: &[u8], pass_on: &PassOn) {
        for piece in heard.split_inclusive(|byte| *byte == b'\n') {
            if let Some(error) = &mut self.error {
                if error.len() < LONGEST_ERROR {
                    error.push_str(&String::from_utf8_lossy(piece));
                }
                continue;
            }
            let is_end = piece.ends_with(b"\n");
            if self.is_passed_on {
                self.pass(piece, is_end, pass_on);
                continue;
            }
            self.line.extend_from_slice(piece);
            self.judge(is_end, pass_on);
        }
    }

    /// kubectl has ended.
    fn end(&mut self, pass_on: &PassOn) {
        if !self.line.is_empty() {
            self.judge(true, pass_on);
        }
    }

    fn judge(&mut self, is_end: bool, pass_on: &PassOn) {
        let text = String::from_utf8_lossy(&self.line).into_owned();
        if ERRORS.iter().any(|own| text.starts_with(own)) {
            self.error = Some(text);
            self.line.clear();
            return;
        }
        if let Some(warning) = text.strip_prefix(WARNING) {
            // It may go on.
            if is_end || self.line.len() > LONGEST_ERROR {
                self.warnings.push(warning.trim_end().to_owned());
                self.line.clear();
            }
            return;
        }
        let mut own = ERRORS.iter().chain([&WARNING]);
        if is_end || !own.any(|own| own.as_bytes().starts_with(&self.line)) {
            let line = std::mem::take(&mut self.line);
            self.pass(&line, is_end, pass_on);
        }
    }

    /// Passes on what is not kubectl's own.
    fn pass(&mut self, piece: &[u8], is_end: bool, pass_on: &PassOn) {
        let (others, own) = piece.split_at(own_words(piece));
        pass_on(others);
        self.is_passed_on = !is_end;
        if !own.is_empty() {
            pass_on(b"\n");
            self.is_passed_on = false;
            self.error = Some(String::from_utf8_lossy(own).into_owned());
        }
    }
}

/// Where kubectl's own words begin behind a prompt that nobody answered; else the text's end.
fn own_words(piece: &[u8]) -> usize {
    // What is written at once begins with them.
    if ERRORS.iter().any(|own| piece.starts_with(own.as_bytes())) {
        return 0;
    }
    let find = |own: &&str| {
        let mut windows = piece.windows(own.len());
        windows.position(|window| window == own.as_bytes())
    };
    // A plugin may say "error: " itself, in a sentence.
    let telling = ERRORS.iter().filter(|own| **own != "error: ");
    telling.filter_map(find).min().unwrap_or(piece.len())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is passed on, the error and the warnings, of a standard error that comes in these pieces.
    fn heard(pieces: &[&str]) -> (Vec<String>, Option<String>, Vec<String>) {
        let passed = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&passed);
        let pass_on: PassOn = Box::new(move |bytes| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            into.lock().unwrap().push(text);
        });
        let mut words = Words::default();
        for piece in pieces {
            words.hear(piece.as_bytes(), &pass_on);
        }
        words.end(&pass_on);
        let passed = passed.lock().unwrap().clone();
        (passed, words.error, words.warnings)
    }

    #[test]
    fn a_prompt_is_passed_on_before_its_line_ends() {
        let (passed, error, _) = heard(&["Enter the code", ": ", "\nthanks\n"]);
        assert_eq!(passed, ["Enter the code", ": ", "\n", "thanks\n"]);
        assert_eq!(error, None);
    }

    #[test]
    fn the_error_and_all_behind_it_is_kept_back_however_it_comes() {
        let whole = "E1122 a log\nError from server (Forbidden): no\n\x1b[2J";
        let bytes: Vec<_> = whole.split_inclusive("").collect();
        for pieces in [&[whole][..], &bytes] {
            let (passed, error, _) = heard(pieces);
            assert_eq!(passed.concat(), "E1122 a log\n");
            assert_eq!(error.as_deref(), Some("Error from server (Forbidden): no\n\x1b[2J"));
        }
    }

    #[test]
    fn an_error_behind_an_unanswered_prompt_is_one() {
        for pieces in [
            &["Enter the code: Unable to connect to the server: no\n"][..],
            &["Enter the code: ", "Unable to connect to the server: no\n"],
            &["Enter the ", "code: Unable to connect to the server: no\n"],
        ] {
            let (passed, error, _) = heard(pieces);
            assert_eq!(passed.concat(), "Enter the code: \n", "{pieces:?}");
            assert_eq!(error.as_deref(), Some("Unable to connect to the server: no\n"));
        }
    }

    #[test]
    fn warnings_are_told_and_not_passed_on() {
        let (passed, error, warnings) =
            heard(&["War", "ning: it is ", "old\nWarn", "s of it\nerr"]);
        assert_eq!(passed.concat(), "Warns of it\nerr");
        assert_eq!((error, warnings), (None, vec!["it is old".to_owned()]));
    }
}
