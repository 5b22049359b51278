//! What happens to a signer in its life, and what of it an API server sees.

use super::*;

/// The trouble that `status` shows last.
fn last_trouble(status: &Value) -> String {
    status["lastTrouble"]["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_library_that_crashes_costs_no_token() {
    // Each process dies at its third signature.
    let store = token_of_keys(&[Kind::P256]);
    let signer = Signer::suffering(store, &["--key=1", "--sessions=1"], "C_Sign#3:crash=segv");
    for _ in 0..7 {
        signer.token("{}");
    }
    let status = signer.status();
    assert_eq!(status["counts"]["tokenProcessStarts"], 4);
    assert!(
        last_trouble(&status).contains("has crashed: its process has ended (signal: 11"),
        "{status}"
    );
    assert_eq!(status["counts"]["failures"], json!({}));
}

#[test]
fn a_token_that_was_pulled_and_put_back_signs_on() {
    let store = token_of_keys(&[Kind::P256]);
    let faults = "C_SignInit#2:lose-sessions,C_SignInit#2:return=179";
    let signer = Signer::suffering(store, &["--key=1", "--sessions=1"], faults);
    for _ in 0..3 {
        signer.token("{}");
    }
    assert_eq!(signer.store.calls("C_Login"), ["0x0"; 3]);
}

#[test]
fn while_the_token_is_gone_tokens_are_refused_and_keys_are_published() {
    let mut signer = Signer::start(token_of_keys(&[Kind::P256]), &["--key=1"]);
    signer.token("{}");
    let (tokens, away) = (signer.store.path("tokens"), signer.store.path("away"));
    fs::rename(&tokens, &away).unwrap();
    fs::create_dir(&tokens).unwrap();
    kill_process(child_of(signer.pid()), Signal::KILL).unwrap();
    let status = signer.wait_for("it is noticed", |status| status["token"]["state"] == "failed");
    assert!(last_trouble(&status).contains("no token with tokenLabel"), "{status}");
    let refused = signer.ask(&["sign", "{}"]).failed();
    refused.says(&["Unavailable", "the signer can't use its token"]);
    // Whoever has asked for a token learns nothing of the machine.
    assert!(!refused.stderr.contains("tokenLabel"), "{refused:?}");
    assert_eq!(signer.ask(&["keys"]).json()["keys"].as_array().unwrap().len(), 1);
    assert_contains(
        &signer.told(),
        &["can't sign, and tries again", "next: nothing; it tries again"],
    );
    fs::remove_dir(&tokens).unwrap();
    fs::rename(&away, &tokens).unwrap();
    signer.wait_for("it is back", |status| status["token"]["state"] == "open");
    signer.token("{}");
}

#[test]
fn a_signer_starts_without_its_token_and_finds_it_later() {
    let store = token_of_keys(&[Kind::P256]);
    let (tokens, away) = (store.path("tokens"), store.path("away"));
    fs::rename(&tokens, &away).unwrap();
    fs::create_dir(&tokens).unwrap();
    let signer = Signer::start(store, &["--key=1"]);
    signer.ask(&["keys"]).failed().says(&["Unavailable", "the signer can't use its token"]);
    assert!(last_trouble(&signer.status()).contains("no token with tokenLabel"));
    fs::remove_dir(&tokens).unwrap();
    fs::rename(&away, &tokens).unwrap();
    signer.wait_for("it is found", |status| status["token"]["state"] == "open");
    signer.token("{}");
}

#[test]
fn a_slow_hsm_is_named_before_the_api_servers_limit() {
    let store = token_of_keys(&[Kind::P256]);
    let signer = Signer::suffering(store, &["--key=1"], "C_Sign:delay=3000");
    let refused = signer.ask(&["sign", "{}", "1s"]).failed();
    refused.says(&[
        "DeadlineExceeded",
        "the token has not signed within 0.",
        "check the HSM's load",
    ]);
    signer.token("{}");
    assert_eq!(signer.status()["counts"]["failures"], json!({"DeadlineExceeded": 1}));
    assert_eq!(signer.status()["counts"]["tokenProcessStarts"], 1);
}

#[test]
fn a_wrong_pin_is_sent_once_and_then_a_person_is_waited_for() {
    let store = token_of_keys(&[Kind::P256]);
    let pin = store.file("pin", WRONG_PIN, 0o600);
    let source = format!("--pin-source=file:{}", pin.display());
    let module = store.faulty_module();
    let mut options = options(&store);
    options.retain(|option| !option.starts_with("--pin-source"));
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let invocation = store.command(&options).arguments(&[&module, &source, "--key=1"]);
    let invocation = invocation.suffering(&store, "");
    let mut signer = Signer::begin(store, invocation);
    let refused = signer.ask(&["sign", "{}"]).failed();
    refused.says(&["FailedPrecondition", "the signer waits for a person"]);
    assert!(last_trouble(&signer.status()).contains("refused the PIN"));
    signer.ask(&["keys"]).failed().says(&["FailedPrecondition"]);
    signer.signal(Signal::HUP);
    wait_until("it was tried once more", || signer.status()["counts"]["tokenProcessStarts"] == 2);
    signer.wait_for("it waits", |status| status["token"]["state"] == "waitsForPerson");
    assert_eq!(signer.store.calls("C_Login").len(), 1);
    assert_contains(&signer.told(), &["can't sign until somebody has done something", "kill -HUP"]);

    fs::write(&pin, PIN).unwrap();
    let label = format!("--token-label={}", signer.store.tokens[0].label);
    let login = signer.store.command(&["list", softhsm_option(), &label, "--login"]);
    login.at_terminal().finish_with_pin().succeeded();
    signer.signal(Signal::HUP);
    signer.wait_for("it signs", |status| status["token"]["state"] == "open");
    signer.token("{}");
}

#[test]
fn requests_in_flight_are_answered_after_sigterm() {
    let store = token_of_keys(&[Kind::P256]);
    let mut signer = Signer::suffering(store, &["--key=1"], "C_Sign:delay=200");
    let socket = signer.socket.to_str().unwrap().to_owned();
    let load = Invocation::new(signer.store.directory.path()).program(client());
    let load = load.arguments(&["load", &socket, "60", "60"]).start(None);
    signer
        .wait_for("all have asked", |status| status["counts"]["openRequests"].as_u64() > Some(30));
    let outcome = signer.end();
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    assert!(load.finish().printed().starts_with("60 ok, 0 failed"));
}

#[test]
fn a_wrong_signature_is_withheld() {
    let store = token_of_keys(&[Kind::Rsa(2048)]);
    let signer = Signer::suffering(store, &["--key=1"], "C_Sign#1:flip");
    signer.ask(&["sign", "{}"]).failed().says(&["the signer can't use its token"]);
    let trouble = last_trouble(&signer.status());
    assert!(trouble.contains("does not verify with its public key and was withheld"), "{trouble}");
    signer.token("{}");
}

/// 1,000 at once, by the socket alone.
#[test]
fn many_requests_at_once_wait_for_their_turn() {
    let store = token_of_keys(&[Kind::P256]);
    let signer = Signer::suffering(store, &["--key=1"], "C_Sign:delay=5");
    let load = signer.ask(&["load", "1000", "1000"]);
    assert!(load.printed().starts_with("1000 ok, 0 failed"), "{load:?}");
    let most = signer.status()["counts"]["mostOpenRequests"].as_u64().unwrap();
    assert!(most > 500, "{most}");
    // Eight sessions of one login.
    assert_eq!(signer.store.calls("C_OpenSession").len(), 8);
    assert_eq!(signer.store.calls("C_Login").len(), 1);
}
