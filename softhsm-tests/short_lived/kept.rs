//! Credentials that a session keeps: one PIN for a shell, and nothing for another session.

use std::fs;

use super::{ISSUER, keeping, parts};
use crate::fixture::keys::Kind;
use crate::fixture::program::{Invocation, PROGRAM};
use crate::fixture::softhsm::{Store, token_with_pair};
use crate::fixture::tool::tool;

/// keyctl(2) on x86-64 and arm64, which have other numbers.
const KEYCTL: u32 = if cfg!(target_arch = "x86_64") { 250 } else { 219 };

/// For perl: runs its arguments with a session keyring of their own.
pub(crate) fn in_new_session() -> String {
    format!("syscall({KEYCTL}, 1, 0) > 0 or die; exec @ARGV")
}

/// A shell with a session keyring of its own, which runs this script; `signer OPTION…` is the program.
fn session(store: &Store, script: &str) -> Invocation {
    let signer = format!("signer() {{ {PROGRAM} \"$@\" --as=jwt --issuer {ISSUER}; }}\n{script}");
    let program = keeping(store, "1", &["credential"]);
    program.program(std::path::Path::new("perl")).before(&[
        "-e",
        &in_new_session(),
        "sh",
        "-ec",
        &signer,
        "sh",
    ])
}

fn tokens(printed: &str) -> Vec<&str> {
    printed.lines().filter(|it| it.contains('.')).collect()
}

#[test]
fn a_session_has_one_credential_until_half_of_its_life() {
    let store = token_with_pair(Kind::P256);
    let script = r#"signer "$@" --output=raw; signer "$@" --output=raw
        signer "$@" --output=raw --subject=other
        signer "$@" --output=raw --keep=command
        signer "$@" --output=raw --duration=12s; sleep 7; signer "$@" --output=raw --duration=12s"#;
    let outcome = session(&store, script).run();
    let printed = outcome.silently().printed();
    let [first, again, other, alone, short, later] = tokens(&printed)[..] else {
        panic!("{printed}")
    };
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_ne!(first, alone);
    assert_ne!(short, later);
    assert_eq!(parts(other).1["sub"], "other");
    assert_eq!(store.calls("C_Login").len(), 5);
    assert_eq!(store.calls("C_Sign").len(), 5);
}

#[test]
fn the_end_is_told_with_the_kept_one_too() {
    let store = token_with_pair(Kind::P256);
    let outcome = session(&store, r#"signer "$@"; sleep 1; signer "$@""#).run();
    let printed = outcome.silently().printed();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn a_refused_credential_is_not_handed_out_again() {
    let store = token_with_pair(Kind::P256);
    let request = |spec: &str| {
        format!(
            r#"KUBERNETES_EXEC_INFO='{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1","spec":{spec}}}' "#
        )
    };
    let [plain, refused] = [request("{}"), request(r#"{"response":{"code":401,"header":{}}}"#)];
    let signer = format!("{PROGRAM} \"$@\" --as=jwt --issuer {ISSUER}");
    let script = [&plain, &refused, &plain].map(|request| format!("{request}{signer}\n")).concat();
    let printed = session(&store, &script).run().silently().printed();
    let lines: Vec<_> = printed.lines().collect();
    assert_ne!(lines[0], lines[1]);
    assert_eq!(lines[1], lines[2]);
}

#[test]
fn another_session_of_the_user_can_not_read_it() {
    let store = token_with_pair(Kind::P256);
    let script = r#"mkfifo "$HOME/end"; signer "$@" --output=raw; grep external-signer /proc/keys; cat "$HOME/end""#;
    let mut holder = session(&store, script).start(None);
    let token = holder.line();
    let entry = holder.line();
    assert!(!entry.contains(&token) && entry.contains("0b000000"), "{entry}");
    let (serial, _) = entry.split_once(' ').unwrap();
    // KEYCTL_READ of the key, by root as well.
    let read =
        format!("syscall({KEYCTL}, 11, hex shift, my $text = ' ' x 4096, 4096); print $! + 0");
    let outcome = tool("perl", "perl-base").args(["-e", &read, serial]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "13");
    // And another session asks for its own.
    let other = session(&store, r#"signer "$@" --output=raw"#).run().silently().printed();
    assert_ne!(other.trim(), token.trim());
    fs::write(store.directory.path().join("end"), "").unwrap();
    holder.finish();
}

#[test]
fn without_a_session_of_ones_own_nothing_is_kept() {
    let store = token_with_pair(Kind::P256);
    // As one that was revoked, there is none.
    let script = format!(
        r#"perl -e 'syscall({KEYCTL}, 3, -3) == 0 or die'; signer "$@" --output=raw; signer "$@" --output=raw"#
    );
    let printed = session(&store, &script).run().silently().printed();
    let [first, second] = tokens(&printed)[..] else { panic!("{printed}") };
    assert_ne!(first, second);
}
