//! The person's kubectl, with whatever credentials they have now. What kubectl and its credential plugins write to
//! standard error is for the person, and goes there.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, PipeReader, Write as _};
use std::iter;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;

use super::signing_request::{ApprovalRecord, PATH, SigningRequest};
use super::watch::Watch;
use super::{ClusterApi, parsed, unusable};
use kubeconfig::OriginalContext;
use messages::error::{Error, Exit};
use messages::printable::shell_word;
use system::descriptors::hand_on;

/// The resource of CertificateSigningRequests as kubectl takes it, with its group.
const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

/// A cluster that is asked by the person's kubectl, as the user of a context.
pub struct Kubectl {
    options: Vec<OsString>,
    cluster: String,
}

impl Kubectl {
    /// Prepares calls of kubectl with this context, from the kubeconfig `file` if that is given, or else from the one
    /// that kubectl finds. With `before`, kubectl acts as the user and for the cluster that the context had before.
    pub fn new(context: &str, file: Option<&Path>, before: Option<&OriginalContext>) -> Self {
        // Each option is one word, since a name could begin with a hyphen. The timeout ends the wait for a server that
        // doesn't answer.
        let mut options: Vec<OsString> =
            vec![format!("--context={context}").into(), "--request-timeout=60s".into()];
        if let Some(file) = file {
            let mut option = OsString::from("--kubeconfig=");
            option.push(file);
            options.push(option);
        }
        if let Some(OriginalContext { cluster, user }) = before {
            options.push(format!("--cluster={cluster}").into());
            options.push(format!("--user={}", user.as_deref().unwrap_or_default()).into());
        }
        Self { options, cluster: format!("context \"{context}\"") }
    }

    /// Approves this request as it was read. If another one has its name by now, or it has changed, the server answers
    /// with a conflict.
    pub fn approve(&self, request: &SigningRequest, record: &ApprovalRecord) -> Result<(), Error> {
        let path = format!("{PATH}/{}/approval", request.metadata.name);
        let object = request.approved(record);
        let purpose = "approve the CertificateSigningRequest";
        self.run(&["replace", "--raw", &path], Some(&object), purpose).map(drop)
    }

    /// Whether the API server answers, which kubectl finds out without a word.
    pub fn gets_answers(&self) -> bool {
        let mut command = Command::new(program());
        command.args(["get", "--raw", "/version"]).args(&self.options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        hand_on(&mut command, Vec::new()).status().is_ok_and(|status| status.success())
    }

    /// Lists the CertificateSigningRequests for this signer.
    pub(super) fn signing_requests(&self, signer: &str) -> Result<Vec<Value>, Error> {
        let signer = signer.replace('/', "%2F");
        let path = format!("{PATH}?fieldSelector=spec.signerName%3D{signer}");
        let mut requests = self.list_at(&path, "list the CertificateSigningRequests")?;
        for request in requests.iter_mut().filter_map(Value::as_object_mut) {
            // The items of a list have no kind of their own, and a request is sent back as it was read.
            request.insert("apiVersion".to_owned(), "certificates.k8s.io/v1".into());
            request.insert("kind".to_owned(), "CertificateSigningRequest".into());
        }
        Ok(requests)
    }

    /// Lists the items that `kubectl get` shows with these arguments.
    pub(super) fn list(&self, arguments: &[&str], purpose: &str) -> Result<Vec<Value>, Error> {
        let Some(mut list) = self.get(arguments, purpose)? else { return Ok(Vec::new()) };
        self.items(&mut list, purpose)
    }

    /// Lists the items at this path of the API server. kubectl asks the server for nothing else, so that it logs
    /// nothing if the server can't be reached.
    pub(super) fn list_at(&self, path: &str, purpose: &str) -> Result<Vec<Value>, Error> {
        let output = self.run(&["get", "--raw", path], None, purpose)?;
        let mut list = parsed(&self.cluster, purpose, &output)?;
        self.items(&mut list, purpose)
    }

    fn items(&self, list: &mut Value, purpose: &str) -> Result<Vec<Value>, Error> {
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Err(unusable(&self.cluster, purpose, "it is no list")),
        }
    }

    /// What `kubectl get` shows with these arguments, as JSON; `None` if it shows nothing.
    pub(super) fn get(&self, arguments: &[&str], purpose: &str) -> Result<Option<Value>, Error> {
        let options = ["--output=json", "--ignore-not-found"];
        match self.run(&[&["get"], arguments, &options].concat(), None, purpose)? {
            output if output.is_empty() => Ok(None),
            output => parsed(&self.cluster, purpose, &output).map(Some),
        }
    }

    /// Runs kubectl, and returns what it prints. `body` is JSON or YAML. Messages say that kubectl could not `purpose`.
    pub(super) fn run(
        &self,
        arguments: &[&str],
        body: Option<&dyn Display>,
        purpose: &str,
    ) -> Result<Vec<u8>, Error> {
        let mut command = Command::new(program());
        command.args(arguments).args(&self.options).stdin(Stdio::inherit());
        command.stderr(Stdio::inherit());
        // The body doesn't come through standard input, since a plugin may ask the person there.
        let reader = body
            .map(|body| pipe_of(body.to_string()))
            .transpose()
            .map_err(|error| not_run(&error))?;
        if let Some(reader) = &reader {
            command.arg(format!("--filename=/dev/fd/{}", reader.as_raw_fd()));
        }
        let kept = reader.iter().map(AsRawFd::as_raw_fd).collect();
        let output = hand_on(&mut command, kept).output().map_err(|error| not_run(&error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        // Either the server can't be reached, or it refuses, or a credential plugin has failed.
        let text = format!("{}: kubectl could not {purpose}; it says why above", self.cluster);
        let words =
            self.options.iter().map(|option| shell_word(&option.to_string_lossy()).into_owned());
        let options = words.collect::<Vec<_>>().join(" ");
        let help = format!("`kubectl auth whoami {options}` must succeed first");
        Err(Error::new(Exit::Cluster, text).help(help))
    }
}

impl ClusterApi for Kubectl {
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error> {
        self.get(&[REQUESTS, name], "show the CertificateSigningRequest")
    }

    fn watch_signing_request(&self, name: &str) -> Option<Watch> {
        let path = format!("{PATH}?watch=true&fieldSelector=metadata.name%3D{name}");
        let mut command = Command::new(program());
        // kubectl heeds the last one of an option that is given twice. A watch has no timeout.
        command.args(["get", "--raw", &path]).args(&self.options).arg("--request-timeout=0");
        Watch::start(hand_on(&mut command, Vec::new()))
    }

    fn named_requests(&self, names: &[String]) -> Result<Vec<Value>, Error> {
        let names = names.iter().map(String::as_str);
        let arguments: Vec<_> = iter::once(REQUESTS).chain(names).collect();
        self.list(&arguments, "show the CertificateSigningRequests")
    }

    fn create(&self, path: &str, object: &Value, purpose: &str) -> Result<Value, Error> {
        let output = self.run(&["create", "--raw", path], Some(&object), purpose)?;
        parsed(&self.cluster, purpose, &output)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }
}

/// The path of the kubectl to run: the one that has started this program as its plugin (kubectl 1.37 and later says
/// which), or else the first one in PATH.
pub(super) fn program() -> OsString {
    let caller = env::var_os("KUBECTL_PATH").filter(|path| Path::new(path).is_absolute());
    caller.unwrap_or_else(|| "kubectl".into())
}

/// The error that there is no kubectl, or that it can't be started.
pub(super) fn not_run(error: &io::Error) -> Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => "there is no kubectl in PATH to ask the cluster with".to_owned(),
        _ => format!("kubectl can't be run: {error}"),
    };
    Error::new(Exit::Cluster, text).help(
        "install kubectl (https://kubernetes.io/docs/tasks/tools/), or add its folder to PATH",
    )
}

/// Makes a pipe from which this text is read. The next process that is started inherits it.
fn pipe_of(text: String) -> io::Result<PipeReader> {
    let (reader, mut writer) = io::pipe()?;
    fcntl_setfd(&reader, FdFlags::empty())?;
    // The text may be longer than a pipe holds, so that a thread writes it.
    thread::Builder::new().name("kubectl's input".to_owned()).spawn(move || {
        let _ = writer.write_all(text.as_bytes());
    })?;
    Ok(reader)
}
