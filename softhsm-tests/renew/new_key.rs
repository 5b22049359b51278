//! `renew --new-key`: the context uses the new key once the cluster has let it in, the old key stays, and no
//! interruption leaves a third one.

use std::fs;

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Jane, MINUTE, answer, janes};
use crate::enroll_cluster;
use crate::fixture::cluster::cluster;
use crate::fixture::keys::{Kind, credential_id, expiring, key};
use crate::fixture::program::{Invocation, Outcome};
use crate::fixture::softhsm::Object;

impl Jane {
    /// Asks for the new key's certificate and leaves; the request's name.
    fn ask_with_new_key(&self) -> String {
        asked(&self.renew(&["--new-key", "--wait=1s"]).run())
    }

    /// What the user of the kubeconfig says of the key.
    pub(super) fn written(&self) -> Value {
        let file = self.store.directory.path().join("kubeconfig");
        let config: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        config["users"][0]["user"]["auth-provider"]["config"].clone()
    }

    /// The next commands have a kubeconfig that names the key as the last one has written it.
    fn follow(self) -> Self {
        let id = self.written()["objectId"].as_str().unwrap().to_owned();
        Self { configuration: self.configuration.with("objectId", &id), ..self }
    }

    /// Demands the new key's certificate alone, which the kubeconfig names and the cluster knows.
    #[track_caller]
    pub(super) fn assert_uses_new_key(self, outcome: &Outcome, old: &[u8]) {
        assert!(outcome.status.success(), "{outcome:?}");
        let id = id_after(old);
        assert_eq!(self.written()["objectId"], format!("0x{id}"));
        let keys = self.keys();
        let [of_old, of_new] = &keys[..] else {
            panic!("{keys:?}");
        };
        assert_eq!(of_old["certificate"], Value::Null);
        assert_eq!(of_old["objectId"], "1");
        assert_eq!(of_new["objectId"], format!("0x{id}"));
        assert_eq!(of_new["objectLabel"], "jane");
        assert_eq!(self.follow().user(), "jane");
    }
}

/// The CKA_ID of the key that takes over from this certificate's, in hexadecimal digits.
fn id_after(certificate: &[u8]) -> String {
    let hash = Sha256::digest(certificate);
    hash[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[track_caller]
fn asked(outcome: &Outcome) -> String {
    outcome.fails(9, &["was not approved within 1 seconds"]);
    let (_, name) = outcome.stderr.split_once(" approve ").unwrap();
    name.split_whitespace().next().unwrap().to_owned()
}

fn approve(name: &str) {
    cluster().administrate(&["certificate", "approve", name], "");
}

#[test]
fn stock_kubectl_uses_the_new_key_and_the_next_one_takes_up_none_that_was_left() {
    let store = enroll_cluster::bare_token();
    let jane = enroll_cluster::jane(&store);
    jane.assert_enrolls(&[], &[], Invocation::run);
    jane.assert_changes_key();
    jane.assert_changes_key();
    assert_eq!(jane.keys().len(), 3);
}

#[test]
fn a_dry_run_says_which_key_it_would_make_and_makes_none() {
    let old = janes();
    let jane = Jane::with(old.clone());
    let id = id_after(&old);
    let planned = jane.renew(&["--new-key", "--dry-run"]).run();
    let planned = planned.silently().printed();
    for step in [
        format!("make a key, ECDSA P-256, with objectId 0x{id}\n"),
        "make a request for user \"jane\"\n".to_owned(),
        "have the context \"test\" (user \"jane\") use the new key, once the cluster has let it in, \
         and then remove the present certificate\n"
            .to_owned(),
    ] {
        assert!(planned.contains(&format!("it would {step}")), "{planned}");
    }
    let arguments = ["--new-key", "--key=rsa-2048", "--dry-run", "--json"];
    let planned = jane.renew(&arguments).run().silently().printed();
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(planned["state"], "planned");
    assert_eq!(planned["request"], Value::Null);
    let expected =
        json!({"objectId": format!("0x{id}"), "kind": "RSA-2048", "certificateFile": null});
    assert_eq!(planned["key"], expected);
    assert_eq!(jane.keys().len(), 1);
    assert_eq!(jane.written()["objectId"], "1");
    for arguments in [&["--new-key", "--object-id=7"][..], &["--key=rsa-2048"]] {
        let outcome = jane.renew(arguments).run();
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
    }
}

#[test]
fn a_key_that_was_made_is_gone_on_with() {
    let old = janes();
    let jane = Jane::with(old.clone());
    let name = jane.ask_with_new_key();
    assert_eq!(jane.keys().len(), 2);
    let mut running = jane.renew(&["--new-key"]).start(None);
    running.wait_for_error("waiting for the request");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.finish();
    assert_eq!(jane.certificates(), [credential_id(&old)]);
    assert_eq!(jane.written()["objectId"], "1");
    let planned = jane.renew(&["--new-key", "--dry-run"]).run().printed();
    let there = format!("go on with the key with objectId \"0x{}\"", id_after(&old));
    assert!(planned.contains(&there), "{planned}");
    let other = jane.renew(&["--new-key", "--key=ec-p384"]).run();
    other.fails(6, &["is ECDSA P-256, not ECDSA P-384"]);
    approve(&name);
    let outcome = jane.renew(&["--new-key", "--json"]).run();
    let document: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(document["state"], "renewed");
    assert_eq!(document["key"]["objectId"], format!("0x{}", id_after(&old)));
    assert_eq!(document["knownAs"]["user"], "jane");
    assert_eq!(jane.requests(&name), 1);
    let removal = "--login --delete-object --type privkey --id 01\n";
    assert!(outcome.stderr.contains(removal), "{outcome:?}");
    jane.assert_uses_new_key(&outcome, &old);
}

/// The old pair, and a new one whose certificate is written.
fn both(old: &[u8]) -> ([Object; 4], String) {
    let id = id_after(old);
    let new = bytes(&id);
    let left = 20 * MINUTE;
    let certificate = expiring(Kind::P384, "jane", left, ClientAuth, cluster().authority());
    let objects = [
        Object::key(key(Kind::P256), &[1]).labelled("jane"),
        Object::issued(old.to_owned(), &[1]).labelled("jane"),
        Object::key(key(Kind::P384), &new).labelled("jane"),
        Object::issued(certificate, &new).labelled("jane"),
    ];
    (objects, id)
}

#[test]
fn what_an_interruption_has_left_is_finished_without_another_request() {
    let old = janes();
    let (mut objects, id) = both(&old);
    // bare_key() looks at public keys.
    let public = Object::public_key(key(Kind::P384), &bytes(&id)).labelled("jane");
    let with_public = objects.iter().cloned().chain([public]);
    // Before the context was changed.
    let jane = Jane::of(with_public);
    let outcome = jane.renew(&["--new-key"]).run();
    assert!(!outcome.stderr.contains("approve"), "{outcome:?}");
    jane.assert_uses_new_key(&outcome, &old);
    // And after it.
    objects.reverse();
    let jane = Jane::of(objects);
    let jane =
        Jane { configuration: jane.configuration.with("objectId", &format!("0x{id}")), ..jane };
    let planned = jane.renew(&["--new-key", "--dry-run"]).run().printed();
    let step = "it would remove the old certificate, of the key with objectId 1\n";
    assert!(planned.ends_with(step), "{planned}");
    let outcome = jane.renew(&["--new-key"]).run();
    assert!(!outcome.stderr.contains("approve"), "{outcome:?}");
    jane.assert_uses_new_key(&outcome, &old);
}

#[test]
fn half_of_a_new_key_is_told_with_the_line_that_removes_it() {
    for (half, kind) in [("private key", "privkey"), ("public key", "pubkey")] {
        let old = janes();
        let id = id_after(&old);
        let new = key(Kind::P384);
        let left = match kind {
            "privkey" => Object::key(new, &bytes(&id)),
            _ => Object::public_key(new, &bytes(&id)),
        };
        let jane = Jane::of([
            Object::key(key(Kind::P256), &[1]).labelled("jane"),
            Object::issued(old, &[1]).labelled("jane"),
            left.labelled("jane"),
        ]);
        jane.renew(&["--new-key"]).run().fails(
            6,
            &[
                &format!("of the new key with objectId \"0x{id}\", only the {half} is on token"),
                &format!("--delete-object --type {kind} --id {id}\n"),
            ],
        );
    }
}

#[test]
fn a_key_that_the_cluster_does_not_let_in_changes_nothing_for_the_context() {
    let old = janes();
    let jane = Jane::with(old.clone());
    let name = jane.ask_with_new_key();
    // Of a CA that the cluster doesn't know: what openssl makes of the request, for the key is on the token.
    let request = cluster().request(&name);
    let pem = crate::fixture::request::decode(&request["spec"]["request"]);
    answer(&jane, &name, &issued_by_another(&pem));
    let outcome = jane.renew(&["--new-key"]).run();
    assert!(!outcome.status.success(), "{outcome:?}");
    assert_eq!(jane.certificates(), [credential_id(&old)]);
    assert_eq!(jane.written()["objectId"], "1");
    assert_eq!(jane.user(), "jane");
}

/// A certificate for the request, of a CA of its own, in DER.
fn issued_by_another(request: &[u8]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("csr"), request).unwrap();
    fs::write(directory.path().join("usage"), "extendedKeyUsage=clientAuth\n").unwrap();
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=other -keyout key -out ca -days 1 2>&1
        openssl x509 -req -in csr -CA ca -CAkey key -CAcreateserial -days 1 -extfile usage -outform DER -out new 2>&1";
    let mut command = crate::fixture::tool::tool("bash", "bash");
    let output = command.args(["-ec", script]).current_dir(directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::read(directory.path().join("new")).unwrap()
}

#[test]
fn a_certificate_file_has_a_file_for_its_successor() {
    let old = janes();
    let (jane, file) = Jane::with_file(&old);
    approve(&jane.ask_with_new_key());
    let outcome = jane.renew(&["--new-key"]).run();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(fs::read(&file).unwrap(), old);
    let told = format!("the old certificate stays in {}\n", file.display());
    assert!(outcome.stderr.contains(&told), "{outcome:?}");
    let new = jane.written()["certificateFile"].as_str().unwrap().to_owned();
    assert_ne!(new, file.to_str().unwrap());
    let jane = jane.follow();
    let jane = Jane { configuration: jane.configuration.with("certificateFile", &new), ..jane };
    assert_eq!(jane.user(), "jane");
}

#[test]
fn the_old_certificate_stays_for_the_context_of_another_user() {
    let old = janes();
    let jane = Jane::with(old.clone());
    approve(&jane.ask_with_new_key());
    let renewal = jane.renew(&["--new-key"]);
    cluster().add_context(&jane.store, "1");
    let outcome = renewal.run();
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stderr.contains("is used by the contexts other;"), "{outcome:?}");
    assert!(jane.certificates().contains(&credential_id(&old)));
    assert_eq!(jane.certificates().len(), 2);
    assert_eq!(jane.follow().user(), "jane");
}
