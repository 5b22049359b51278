//! What can happen to cluster, request and token while `enroll` waits: it is told, and the same command ends
//! well with the same key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Newcomer, bare_token, jane, of_store};
use crate::enroll::issue;
use crate::fixture::*;

fn approve(name: &str) {
    cluster().administrate(&["certificate", "approve", name], "");
}

/// One key, with its certificate.
#[track_caller]
fn assert_ends_well(newcomer: &Newcomer<'_>, arguments: &[&str]) {
    let outcome = newcomer.enroll(arguments).run();
    let known = "knows us as user \"jane\", groups dev, system:authenticated";
    outcome.printed();
    assert!(outcome.step("cluster").ends_with(known), "{outcome:?}");
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0]["certificate"]["user"], "jane");
}

#[test]
fn a_server_that_goes_away_is_told_and_asked_again_when_it_is_back() {
    let store = bare_token();
    let newcomer = jane(&store);
    let server = cluster().entry()["server"].as_str().unwrap().to_owned();
    let mut forwarder = Forwarder::to(&server);
    let file = newcomer.person.directory().join("kubeconfig");
    let kubeconfig = fs::read_to_string(&file).unwrap();
    fs::write(&file, kubeconfig.replace(&server, &forwarder.url())).unwrap();
    let name = newcomer.ask(&[]);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    forwarder.stop();
    let told = [
        "context \"prod\": kubectl could not show the CertificateSigningRequest",
        "must succeed first",
    ];
    // What kubectl says of it depends on what the connection was doing.
    running.finish().fails(9, &told);
    newcomer.enroll(&[]).run().fails(9, &["was refused"]);
    assert_eq!(newcomer.keys().len(), 1);
    forwarder.start();
    approve(&name);
    assert_ends_well(&newcomer, &[]);
}

/// What is on the token counts when the certificate is there, and not what was before somebody had approved it.
#[test]
fn a_certificate_that_another_command_has_stored_meanwhile_stays_the_keys() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");

    let csr = newcomer.person.directory().join("jane.csr");
    let pem = cluster().request(&name)["spec"]["request"].as_str().unwrap().to_owned();
    fs::write(&csr, STANDARD.decode(pem).unwrap()).unwrap();
    let of_another_ca = issue(csr.to_str().unwrap(), 30, "clientAuth");
    let options = newcomer.options();
    let store_it = newcomer.person.command("enroll").arguments(&options);
    let store_it = store_it.arguments(&["--pin-source=env:TOKEN_PIN", "--certificate"]);
    newcomer.enter(store_it.argument(&of_another_ca)).run().printed();
    let stored = newcomer.keys();

    approve(&name);
    let outcome = running.finish();
    outcome.says(&["the key has another certificate already"]);
    outcome.printed();
    let known = "knows us as user \"jane\", groups dev, system:authenticated";
    assert!(outcome.step("cluster").ends_with(known), "{outcome:?}");
    assert_eq!(newcomer.keys(), stored);
}

/// A signal that is sent to it alone doesn't reach kubectl, which would follow the request for an hour.
#[test]
fn the_kubectl_that_follows_the_request_ends_with_the_command() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    let number = running.pid().as_raw_nonzero();
    let watch = || {
        let children = format!("/proc/{number}/task/{number}/children");
        let children = fs::read_to_string(children).unwrap();
        let mut lines =
            children.split_whitespace().map(|it| PathBuf::from(format!("/proc/{it}/cmdline")));
        lines.find(|line| fs::read_to_string(line).is_ok_and(|line| line.contains("watch=true")))
    };
    let watch = wait_for("the watch", watch);
    kill_process(running.pid(), Signal::TERM).unwrap();
    running.finish();
    // Nobody may have waited for it.
    wait_until("the end of kubectl", || fs::read(&watch).unwrap_or_default().is_empty());
    cluster().administrate(&["delete", "csr", &name], "");
}

#[test]
fn a_request_that_is_removed_is_told_and_made_again() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    cluster().administrate(&["delete", "csr", &name], "");
    let removed = format!("the request {name} was removed from the cluster");
    running.finish().fails(9, &[&removed, "run the same command again: it makes another request"]);
    assert_eq!(newcomer.ask(&[]), name);
    approve(&name);
    assert_ends_well(&newcomer, &[]);
}

/// The cluster clears the one that was denied away first.
#[test]
fn a_later_request_is_gone_on_with_when_those_before_it_are_gone_and_is_made_once() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    // Another one is of no use as long as nobody has decided.
    assert_eq!(newcomer.ask(&["--again"]), name);
    cluster().administrate(&["certificate", "deny", &name], "");
    let other = newcomer.ask(&["--again"]);
    assert_eq!(other, format!("{name}-2"));
    assert_eq!(newcomer.ask(&["--again"]), other);
    cluster().administrate(&["delete", "csr", &name], "");
    assert_eq!(newcomer.ask(&[]), other);
    approve(&other);
    assert_ends_well(&newcomer, &[]);
}

/// Made anew under its name by a person who may, with the same key and the same user.
#[test]
fn a_request_with_other_usages_is_approved_and_not_signed_and_that_is_told() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    let own = cluster().request(&name);
    let changed = json!({
        "apiVersion": own["apiVersion"],
        "kind": own["kind"],
        "metadata": {"name": name},
        "spec": {
            "request": own["spec"]["request"],
            "signerName": own["spec"]["signerName"],
            "usages": ["client auth", "server auth"],
        },
    });
    cluster().administrate(&["delete", "csr", &name], "");
    cluster().administrate(&["create", "-f", "-"], &changed.to_string());
    let mut running = newcomer.enroll(&[]).start(None);
    running.wait_for_error("waiting for the approval");
    approve(&name);
    let text = format!("the cluster's signer has not signed the request {name}: ");
    running.finish().fails(9, &[&text, "server auth", "--again"]);
    newcomer.enroll(&[]).run().fails(9, &[&text]);
    let keys = newcomer.keys();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0]["certificate"], Value::Null);
    let other = newcomer.ask(&["--again"]);
    assert_eq!(other, format!("{name}-2"));
    approve(&other);
    assert_ends_well(&newcomer, &[]);
}

/// In a cluster whose signer doesn't sign, as some hosted ones: the approver has done their part.
#[test]
fn a_request_that_is_approved_and_not_signed_is_told_as_that() {
    let store = bare_token();
    let newcomer = jane(&store);
    // The person's kubectl, for whom nobody signs.
    let folder = store.path("programs");
    fs::create_dir(&folder).unwrap();
    let kubectl = cluster().programs().join("kubectl");
    let kubectl = kubectl.display();
    let script = format!("#!/bin/sh\n{kubectl} \"$@\" | sed '/\"certificate\":/d'\n");
    fs::write(folder.join("kubectl"), script).unwrap();
    fs::set_permissions(folder.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let name = newcomer.ask(&[]);
    approve(&name);
    cluster().issued_certificate(&name);
    let unsigned = newcomer.enroll(&["--wait=1s"]).variable("PATH", &path).run();
    let late = format!(
        "the request {name} is approved, and the cluster's signer has not signed it within 1"
    );
    unsigned.fails(9, &[&late, "ask the administrators of the cluster"]);
    assert_eq!(unsigned.step("approval"), format!("of {name}"));
    assert_ends_well(&newcomer, &[]);
}

/// It would be asked for ever.
#[test]
fn a_cluster_that_has_every_request_is_given_up() {
    let store = bare_token();
    let newcomer = jane(&store);
    let folder = store.path("programs");
    fs::create_dir(&folder).unwrap();
    let kubectl = cluster().programs().join("kubectl");
    let request = r#"{"metadata": {"name": "%s", "uid": "u", "resourceVersion": "1"}, "spec": {"request": "", "signerName": ""}}"#;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = get ] || exec {} \"$@\"\nshift 2\nseparator='{{\"items\": ['\n\
         for name; do case $name in -*) break; esac\necho \"$name\" >>\"$HOME/names\"\n\
         printf '%s{request}' \"$separator\" \"$name\"\nseparator=,\ndone\necho ']}}'\n",
        kubectl.display()
    );
    fs::write(folder.join("kubectl"), script).unwrap();
    fs::set_permissions(folder.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let given_up = newcomer.enroll(&[]).variable("PATH", path).run();
    given_up.fails(9, &["the cluster has 100 requests jane-", "have them removed"]);
    let names = fs::read_to_string(newcomer.person.directory().join("names")).unwrap();
    assert_eq!(names.lines().count(), 100);
}

#[test]
fn a_token_that_is_pulled_is_told_and_gone_on_with_when_it_is_back() {
    let store = bare_token();
    let newcomer = jane(&store);
    let name = newcomer.ask(&[]);
    let (mut token, enter) = of_store(&store);
    token[0] = store.faulty_module();
    // The library's first call after the wait finds no session any more.
    let at_faulty = Newcomer::jane(token, enter);
    let mut running =
        at_faulty.enroll(&[]).suffering(&store, "C_CreateObject:lose-sessions").start(None);
    running.wait_for_error("waiting for the approval");
    approve(&name);
    let told = [
        "writing the certificate on token \"prod\"",
        "check that the token is still inserted",
        "run the command again: it goes on",
    ];
    running.finish().fails(6, &told);
    assert_ends_well(&newcomer, &[]);
}
