//! `approve --policy` with a verifier, a program that judges attestations of other devices than YubiKeys.

use std::os::unix::fs::lchown;

use super::{approver, jane};
use crate::fixture::yubikey::{janes, key, tpm_bundle};
use crate::fixture::*;

/// The answer of a verifier in sh, which has read the request's key.
const ANSWER: &str = r#"echo '{"apiVersion":"pkcs11-external-signer/v1alpha1","kind":"AttestationClaims",
"publicKey":"'"$key"'","device":"'"$1"'","claims":["made there","can'"'"'t leave it"]}'"#;

/// Jane's request, with a statement about its key.
fn request(groups: &[&str]) -> String {
    janes(&key(), groups, &[&tpm_bundle(b"made there")])
}

/// A policy by which jane's key may be in laptop-17, and its verifier in a folder beside it.
fn write_policy(person: &Person, script: &str) -> PathBuf {
    let policy = "\
apiVersion: pkcs11-external-signer/v1alpha1
kind: ApprovalPolicy
verifier: [bin/verify, laptop-17]
users:
- name: jane
  devices: [laptop-17]
  groups: [dev]
";
    let folder = person.directory().join("policies");
    fs::create_dir_all(folder.join("bin")).unwrap();
    write_verifier(&folder, script);
    let path = folder.join("policy.yaml");
    fs::write(&path, policy).unwrap();
    path
}

fn write_verifier(folder: &Path, script: &str) {
    let read = r#"key=$(sed 's/.*"publicKey":"\([^"]*\)".*/\1/')"#;
    let path = folder.join("bin/verify");
    write_file(&path, format!("#!/bin/sh\n{read}\n{script}\n"), 0o755);
}

#[test]
fn what_it_claims_is_shown_and_recorded_with_its_name_and_hash_and_opens_groups() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let policy = write_policy(&otto, ANSWER);
    let option = format!("--policy={}", policy.display());
    let groups = ["dev", "hw:attested", "hw:device:laptop-17"];
    jane.asks_by("of-a-laptop", &Wanted::default(), &request(&groups));
    let approve = otto.command("approve").arguments(&["of-a-laptop", &option]);
    let mut terminal = approve.at_terminal();
    terminal.expect("Type yes: ");
    let outcome = terminal.type_line("yes").finish().0;
    assert_eq!(outcome.printed(), "of-a-laptop approved\n");
    let hash = printed(tool("sha256sum", "coreutils").arg(policy.with_file_name("bin/verify")));
    let hash = hash.split_whitespace().next().unwrap();
    let claims = "laptop-17: made there, can't leave it, says verify";
    outcome.says(&[
        &format!("hardware            ✔ {claims}\n"),
        &format!("verifier              verify, SHA-256 {hash}\n"),
    ]);
    let condition = cluster.request("of-a-laptop")["status"]["conditions"][0].take();
    assert_eq!(condition["reason"], "HardwareAttested");
    let message = condition["message"].as_str().unwrap();
    assert!(message.starts_with("allowed by the policy with SHA-256 "), "{message}");
    let recorded = format!("; {claims} with SHA-256 {hash}; compared with the requester");
    assert!(message.contains(&recorded), "{message}");
    cluster.issued_certificate("of-a-laptop");
}

#[test]
fn nothing_else_opens_what_it_would_open() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let policy = write_policy(&otto, ANSWER);
    let option = format!("--policy={}", policy.display());
    let other = ["dev", "hw:device:laptop-18"];
    jane.asks_by("of-another-laptop", &Wanted::default(), &request(&other));
    for more in [&[][..], &["--despite-mismatch"]] {
        let approve = otto.command("approve").arguments(&["of-another-laptop", &option]);
        let refused = approve.arguments(more).run();
        refused.fails(6, &["no attestation opens the groups \"hw:device:laptop-18\""]);
    }
    // Without the policy nobody can read the statement.
    let refused = otto.command("approve").argument("of-another-laptop").run();
    refused.fails(6, &["2.23.133.20.1, which a verifier judges", "in a policy, under verifier"]);

    jane.asks_by("of-jane-18", &Wanted::default(), &request(&["dev"]));
    write_verifier(policy.parent().unwrap(), &ANSWER.replace("$1", "laptop-18"));
    let refused = otto.command("approve").arguments(&["of-jane-18", &option]).run();
    let reason = "line 6 (users[0].devices): the key is in laptop-18, which is none of these";
    refused.fails(6, &[reason]);
    for name in ["of-another-laptop", "of-jane-18"] {
        assert!(cluster.conditions(name).is_empty(), "{name}");
    }
}

#[test]
fn whatever_else_it_does_is_a_refusal_with_its_reason() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks_by("not-judged", &Wanted::default(), &request(&["dev"]));
    let policy = write_policy(&otto, ANSWER);
    let option = format!("--policy={}", policy.display());
    for (script, reason) in [
        (
            "echo 'a line' >&2; echo no TPM at all >&2; exit 3",
            "it ended with exit code 3: no TPM at all",
        ),
        // The last line counts, also of many.
        (
            "head -c 300000 /dev/zero | tr '\\0' '\\n' >&2; echo no TPM at all >&2; exit 3",
            "it ended with exit code 3: no TPM at all",
        ),
        ("exit 1", "it ended with exit code 1, and didn't say why"),
        ("kill -9 $$", "it was ended by signal 9"),
        ("true", "its answer can't be used: EOF"),
        ("echo yes", "its answer can't be used: expected"),
        (&format!("{ANSWER}; exit 1"), "it ended with exit code 1"),
        (&ANSWER.replace("$key", "AAAA"), "it is about another key than the request's"),
        (&ANSWER.replace("claims", "claim"), "unknown field `claim`"),
        (&ANSWER.replace(r#""made there","can'"'"'t leave it""#, ""), "it has no claims"),
        ("yes | head -c 20000", "it printed more than 16384 bytes"),
        ("exec yes", "it printed more than 16384 bytes"),
        // What it leaves behind keeps its output open.
        (&format!("sleep 1000 & echo $! >left; {ANSWER}"), "it didn't end within 10 s"),
        ("exec sleep 1000", "it didn't end within 10 s"),
    ] {
        write_verifier(policy.parent().unwrap(), script);
        let refused = otto.command("approve").arguments(&["not-judged", &option]).run();
        refused.fails(
            6,
            &["its attestation doesn't count: verify: ", reason, "the policy's verifier"],
        );
    }
    assert!(cluster.conditions("not-judged").is_empty());
    let left = fs::read_to_string(policy.with_file_name("left")).unwrap();
    wait_until_ended(&left);
}

/// Waits for the end of the process with this number. Nobody may have reaped it.
fn wait_until_ended(number: &str) {
    let line = Path::new("/proc").join(number.trim()).join("cmdline");
    wait_until("the end of the process", || fs::read(&line).unwrap_or_default().is_empty());
}

/// A signal that is sent to the command alone reaches neither the verifier nor what that has started.
#[test]
fn it_ends_with_the_command_and_so_does_what_it_has_started() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks_by("interrupted", &Wanted::default(), &request(&["dev"]));
    let policy = write_policy(&otto, "sleep 1000 & echo $$ $! >both; wait");
    let option = format!("--policy={}", policy.display());
    let approve = otto.command("approve").arguments(&["interrupted", &option]).start(None);
    let both = wait_for("the verifier", || {
        let both = fs::read_to_string(policy.with_file_name("both")).ok()?;
        both.ends_with('\n').then_some(both)
    });
    kill_process(approve.pid(), Signal::TERM).unwrap();
    approve.finish();
    both.split_whitespace().for_each(wait_until_ended);
    assert!(cluster.conditions("interrupted").is_empty());
}

/// Between two requests, or while a person reads. What is shown and recorded is the hash of what has judged.
#[test]
fn it_is_not_run_once_its_file_has_changed() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    let policy = write_policy(&otto, &format!("echo '# more' >>\"$0\"; {ANSWER}"));
    for name in ["judged-once", "judged-twice"] {
        jane.asks_by(name, &Wanted::default(), &request(&["dev"]));
    }
    let approve = otto.command("approve").arguments(&["--dry-run", "--policy"]);
    let outcome = approve.argument(policy.to_str().unwrap()).run();
    outcome.says(&["verify: it can't be run: its file has changed since the policy was read"]);
}

/// Whoever can change it decides what is approved.
#[test]
fn it_is_an_executable_file_that_no_other_user_can_change() {
    needs_isolation!();
    let otto = approver(quiet_cluster());
    let policy = write_policy(&otto, ANSWER);
    let option = format!("--policy={}", policy.display());
    let check = || otto.command("approve").arguments(&["--check", &option]).run();
    let verifier = policy.with_file_name("bin/verify");
    // A program that needs no libraries is as large.
    write_file(&verifier, "#".repeat(2 * 1024 * 1024), 0o755);
    check().succeeded();
    for (mode, reason) in [
        (0o644, "bin/verify: it is not executable"),
        (0o757, "bin/verify: another user can change it"),
        (0o775, "bin/verify: another user can change it"),
    ] {
        set_mode(&verifier, mode);
        check().fails(3, &[reason, "name an executable file"]);
    }
    set_mode(&verifier, 0o755);
    lchown(&verifier, Some(1), None).unwrap();
    check().fails(3, &["bin/verify: another user can change it"]);
}

/// Anybody can make requests, and a verifier may take its time over each.
#[test]
fn it_is_not_asked_about_what_the_policy_does_not_allow_whatever_it_says() {
    let cluster = hasty_cluster();
    let (mallory, otto) = (cluster.person("mallory", &["dev", REQUESTERS]), approver(cluster));
    mallory.asks_by("not-janes-own", &Wanted::default(), &request(&["dev"]));
    let policy = write_policy(&otto, &format!("echo asked >asked; {ANSWER}"));
    let option = format!("--policy={}", policy.display());
    let refused = otto.command("approve").arguments(&["not-janes-own", &option]).run();
    refused.fails(6, &["it isn't asked, since the request for \"jane\" is made by \"mallory\""]);
    assert!(!policy.with_file_name("asked").exists());
}

#[test]
fn its_answer_is_as_long_as_the_limit_and_no_longer() {
    let cluster = hasty_cluster();
    let (jane, otto) = (jane(cluster), approver(cluster));
    jane.asks_by("told-at-length", &Wanted::default(), &request(&["dev"]));
    let padded = |length| format!("printf '%-{length}s' \"$({ANSWER})\"");
    let policy = write_policy(&otto, &padded(16_384));
    let option = format!("--policy={}", policy.display());
    let arguments = ["told-at-length", &option, "--dry-run"];
    let approve = || otto.command("approve").arguments(&arguments).run();
    assert_eq!(approve().printed(), "told-at-length would be approved\n");
    write_verifier(policy.parent().unwrap(), &padded(16_385));
    approve().fails(6, &["it printed more than 16384 bytes"]);
}
