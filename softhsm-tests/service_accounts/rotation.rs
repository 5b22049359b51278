//! A rotation without a restart: of the signer, or of the API server.

use super::*;

fn write_list(store: &Store, lines: &str) -> String {
    let file = store.file("list", lines, 0o600);
    format!("--keys={}", file.display())
}

/// The states of the keys, as `status --json` has them.
fn states(status: &Value) -> Vec<&str> {
    let keys = status["keys"].as_array().unwrap().iter();
    keys.map(|key| key["work"]["state"].as_str().unwrap()).collect()
}

#[test]
fn a_new_key_is_published_before_it_signs_and_an_old_one_until_it_is_taken_out() {
    let store = token_of_keys(&[Kind::P256, Kind::P384]);
    let list = write_list(&store, "# the newest first\n1\n");
    let mut signer = Signer::start(store, &[&list, "--refresh=1s", "--publish-first=6s"]);
    let cluster = SignedCluster::of(&signer);
    let first = cluster.token(&[]);
    assert_eq!(states(&signer.status()), ["signs"]);

    write_list(&signer.store, "2\n1\n");
    signer.signal(Signal::HUP);
    let status = signer.wait_for("the new key is published", |status| states(status).len() == 2);
    assert_eq!(states(&status), ["signsFrom", "signs"]);
    assert_contains(
        &signer.told(),
        &["is published, and signs from", "next: nothing; list 2 for the signers"],
    );
    // The API server knows it before a token is signed with it.
    wait_until("the API server shows both keys", || cluster.shown_keys().len() == 2);
    assert_eq!(cluster.token(&[]).key(), first.key());

    let status = signer.wait_for("the new key signs", |status| states(status)[0] == "signs");
    assert_eq!(states(&status), ["signs", "verifiesUntil"]);
    let second = cluster.token(&[]);
    assert_eq!(second.header["alg"], "ES384");
    for token in [&first, &second] {
        cluster.who_is(&signer.store, token).printed();
    }
    let told = signer.told();
    assert_contains(
        &told,
        &["verifies old tokens, the last one until", "next: nothing; leave 1 in "],
    );

    // As after the old key's last token has expired, or when it was stolen.
    write_list(&signer.store, "2\n");
    signer.signal(Signal::HUP);
    signer.wait_for("the old key is gone", |status| states(status) == ["signs"]);
    wait_until("the API server has forgotten it", || cluster.shown_keys().len() == 1);
    cluster.who_is(&signer.store, &second).printed();
    // What the API server has accepted, it accepts for ten seconds more.
    let is_refused = || cluster.who_is(&signer.store, &first).stderr.contains("Unauthorized");
    wait_until("its token is refused", is_refused);
}

/// A restart must not let a new key sign at once, nor wait anew.
#[test]
fn a_restart_goes_on_where_the_rotation_stood() {
    let store = token_of_keys(&[Kind::P256, Kind::P384]);
    let list = write_list(&store, "2\n1\n");
    let mut signer = Signer::start(store, &[&list]);
    let before = signer.status();
    assert_eq!(states(&before), ["signsFrom", "signs"]);
    assert_eq!(signer.token("{}").header["alg"], "ES256");
    signer.end();
    let invocation = Signer::invocation(&signer.store, softhsm_option(), &[&list]);
    let mut running = invocation.start(None);
    running.wait_for_error("serves API servers at");
    signer.running = Some(running);
    let after = signer.status();
    assert_eq!(states(&after), ["signsFrom", "signs"]);
    assert_eq!(after["keys"][0]["work"], before["keys"][0]["work"]);
    assert_eq!(after["keys"][1]["publishedSince"], before["keys"][1]["publishedSince"]);
}

#[test]
fn a_list_with_a_mistake_leaves_the_keys_as_they_are() {
    let store = token_of_keys(&[Kind::P256]);
    let list = write_list(&store, "1\n");
    let mut signer = Signer::start(store, &[&list]);
    for (lines, text) in [
        ("", "no key is named that can sign"),
        ("9\n1\n", "no private key with objectId \"9\""),
        ("1\nfile:/no/such.pub\n", "/no/such.pub holds no public key"),
    ] {
        write_list(&signer.store, lines);
        signer.signal(Signal::HUP);
        let told = signer.running().wait_for_error("the former keys are kept");
        assert!(told.contains(text), "{told}");
        assert!(signer.status()["lastTrouble"]["message"].as_str().unwrap().contains(text));
        signer.token("{}");
    }
}
