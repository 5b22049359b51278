//! Whom Go takes the bearer of a certificate for, as softhsm-tests/identities tells it; scripts/fuzz builds it, and names
//! it in IDENTITIES.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crypto::certificate::{Certificate, CertificationRequest};
use serde_json::Value;

/// Demands that Go reads the same user and groups, or refuses the certificate.
pub fn assert_certificate(certificate: &Certificate) {
    let (user, groups) = (certificate.user.as_deref(), &certificate.groups);
    assert_same("certificate", certificate.der(), user, groups);
}

/// Demands that Kubernetes' signer would issue a certificate for the same user and groups, or none.
pub fn assert_request(pem: &str, asked: &CertificationRequest) {
    assert_same("request", pem.as_bytes(), asked.user.as_deref(), &asked.groups);
}

fn assert_same(kind: &str, bytes: &[u8], user: Option<&str>, groups: &[String]) {
    static GO: LazyLock<Mutex<(ChildStdin, BufReader<ChildStdout>)>> = LazyLock::new(|| {
        let program = std::env::var("IDENTITIES").expect("IDENTITIES, as scripts/fuzz sets it");
        let mut go = Command::new(program);
        let go = go.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let go = go.expect("the program in Go");
        let pipes = go.stdin.zip(go.stdout).expect("pipes");
        Mutex::new((pipes.0, BufReader::new(pipes.1)))
    });
    let mut go = GO.lock().expect("one thread");
    writeln!(go.0, "{kind} {}", BASE64_STANDARD.encode(bytes)).expect("a question");
    let mut answer = String::new();
    go.1.read_line(&mut answer).expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    if answer.is_null() {
        return;
    }
    assert_eq!(answer["user"], user.unwrap_or_default());
    let theirs = answer["groups"].as_array().expect("groups").iter();
    let theirs: BTreeSet<_> = theirs.filter_map(Value::as_str).collect();
    assert_eq!(theirs, groups.iter().map(String::as_str).collect());
}
