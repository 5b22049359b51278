//! PINs that come from another program: which one, what it learns, and how many tries it gets.

use crate::fixture::*;

const OWN: &str = "PKCS11_EXTERNAL_SIGNER_ASKPASS";

/// A request for a signature, with the recording library, `pinSource: askpass`, and neither program nor pinentry.
fn sign(store: &Store, faults: &str) -> Invocation {
    let configuration = store.configuration().with("pinSource", "askpass");
    store.sign_suffering(configuration, faults).variable("PATH", store.directory.path())
}

/// A program of this name beside the token.
fn program(store: &Store, name: &str, script: &str) -> PathBuf {
    let path = store.path(name);
    write_file(&path, format!("#!/bin/bash\n{script}\n"), 0o755);
    path
}

#[test]
fn the_programs_own_variable_goes_first_then_sshs_then_pinentry() {
    let store = token_with_pair(Kind::P256);
    let right = program(&store, "right", &format!("echo {PIN}"));
    let wrong = program(&store, "wrong", "exit 1");
    assert_signed(&sign(&store, "").variable(OWN, &right).variable("SSH_ASKPASS", &wrong).run());
    assert_signed(&sign(&store, "").variable(OWN, "").variable("SSH_ASKPASS", &right).run());
    let talk = |pin| {
        format!(
            "echo OK; while read -r word _; do [ $word != GETPIN ] || echo D {pin}; echo OK; done"
        )
    };
    program(&store, "pinentry", &talk(PIN));
    assert_signed(&sign(&store, "").run());
    // macOS's, beside one that has no window.
    program(&store, "pinentry-mac", &talk(PIN));
    program(&store, "pinentry", &talk(WRONG_PIN));
    assert_signed(&sign(&store, "").run());
    assert_eq!(store.calls("C_Login"), ["0x0"; 4]);
}

#[test]
fn it_is_told_what_the_pin_is_for_and_nothing_else() {
    let store = token_with_pair(Kind::P256);
    let shown = store.path("shown");
    let script = format!("{{ echo \"$1\"; /usr/bin/env; }} > {}; echo {PIN}", shown.display());
    let asking = program(&store, "ask", &script);
    let outcome = sign(&store, "")
        .variable(OWN, &asking)
        .variable("DISPLAY", ":7")
        .variable("LD_LIBRARY_PATH", "/nowhere")
        .variable("SOME_SECRET", "x")
        .run();
    assert_signed(&outcome);
    let shown = fs::read_to_string(shown).unwrap();
    assert!(shown.starts_with("PIN for \"test token\" (test p256): "), "{shown}");
    assert!(shown.contains("DISPLAY=:7"), "{shown}");
    for hidden in ["LD_LIBRARY", "SOME_SECRET", "EXTERNAL_SIGNER", "TOKEN_PIN", "FAULT_MODULE"] {
        assert!(!shown.contains(hidden), "{hidden} in {shown}");
    }
}

#[test]
fn a_program_that_always_says_the_same_costs_one_try() {
    let store = token_with_pair(Kind::P256);
    let wrong = program(&store, "wrong", &format!("echo {WRONG_PIN}"));
    sign(&store, "")
        .variable(OWN, &wrong)
        .run()
        .fails(7, &["refused the PIN from", "gave the same one again", "not sent again"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
    // Only a person makes the last try.
    let store = token_with_pair(Kind::P256);
    let right = program(&store, "right", &format!("echo {PIN}"));
    sign(&store, "C_GetTokenInfo:set=CKF_USER_PIN_FINAL_TRY")
        .variable(OWN, right)
        .run()
        .fails(7, &["has one PIN try left", "was not sent"]);
    assert_eq!(store.calls("C_Login"), [""; 0]);
}

/// Who mistypes, types another one and then the first one again has one try left.
#[test]
fn a_refused_pin_is_not_sent_again_after_another_one() {
    let store = token_with_pair(Kind::P256);
    let script = format!(
        "cd ~; echo >> asked; mapfile all < asked; case ${{#all[@]}} in 2) echo {WRONG_PIN}-2;; *) echo {WRONG_PIN};; \
         esac"
    );
    let asking = program(&store, "ask", &script);
    sign(&store, "").variable(OWN, &asking).run().fails(7, &["gave the same one again"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"; 2]);
    // With changing answers the error can't say whether a person or a program gave them.
    let store = token_with_pair(Kind::P256);
    let asking = program(&store, "guess", "echo $RANDOM$RANDOM");
    sign(&store, "")
        .variable(OWN, &asking)
        .run()
        .fails(7, &["CKR_PIN_INCORRECT", "which PIN the token wants", "correct what that program"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"; 3]);
}

/// A script in a loop, or in a job of its own each time, would lock a card that shows no wrong PINs.
#[test]
fn a_program_that_is_called_again_and_again_costs_one_try_of_all_its_processes() {
    let store = token_with_pair(Kind::P256);
    let wrong = program(&store, "wrong", &format!("echo asked >> ~/asked; echo {WRONG_PIN}"));
    let flags = "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW";
    for _ in 0..10 {
        sign(&store, flags).variable(OWN, &wrong).run().fails(7, &["refused"]);
    }
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
    assert_eq!(fs::read_to_string(store.path("asked")).unwrap().lines().count(), 2);
    // The person corrects it, and says so.
    let right = program(&store, "right", &format!("echo {PIN}"));
    let refused = sign(&store, flags).variable(OWN, &right).run();
    refused.fails(7, &["seems to have refused a PIN", "--despite-refusal"]);
    let configuration = store.faulty(store.configuration().with("pinSource", "askpass"));
    let check = store.with_kubeconfig(&configuration).arguments(&["check", "--despite-refusal"]);
    check.suffering(&store, flags).variable(OWN, &right).run().succeeded();
    assert_signed(&sign(&store, flags).variable(OWN, &right).run());
}

/// Both may have it from the same place.
#[test]
fn a_programs_pin_is_not_sent_if_another_process_was_refused_one_meanwhile() {
    let store = token_with_pair(Kind::P256);
    let script = format!(
        "echo >> ~/asked; until [ -e ~/refused ]; do /bin/sleep 0.1; done; echo {WRONG_PIN}"
    );
    let asking = program(&store, "ask", &script);
    let flags = "C_GetTokenInfo:clear=CKF_USER_PIN_COUNT_LOW";
    let asked = sign(&store, flags).variable(OWN, &asking).start(None);
    wait_until("the program is asked", || store.path("asked").exists());
    let stored = store.configuration().with("pin", WRONG_PIN);
    store.sign_suffering(stored, flags).run().fails(7, &["CKR_PIN_INCORRECT"]);
    fs::write(store.path("refused"), "").unwrap();
    asked.finish().fails(7, &["seems to have refused a PIN", "was not sent"]);
    assert_eq!(store.calls("C_Login"), ["0xa0"]);
}

/// The first answer was thrown away unsent, so that a person may say yes and give it again.
#[test]
fn a_pin_that_was_not_sent_may_be_given_again() {
    let store = token_with_pair(Kind::P256);
    let talk = format!(
        "cd ~; echo OK; while read -r word _; do echo $word >> said; \
         [ $word != GETPIN ] || echo D {PIN}; echo OK; done"
    );
    program(&store, "pinentry", &talk);
    let faults = "C_GetTokenInfo#3:set=CKF_USER_PIN_FINAL_TRY,\
                  C_GetTokenInfo#4:set=CKF_USER_PIN_FINAL_TRY";
    assert_signed(&sign(&store, faults).run());
    let said = fs::read_to_string(store.path("said")).unwrap();
    assert_eq!(said.matches("GETPIN").count(), 2, "{said}");
    assert_eq!(said.matches("CONFIRM").count(), 1, "{said}");
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}

/// A client's second try.
const TWICE: &str = "\"$SIGNER\" 2>/dev/null; exec \"$SIGNER\"";
const CANCELLED: &str = "its prompt was cancelled a moment ago\nhelp: run the command again";

#[test]
fn a_program_that_gives_no_pin_is_named() {
    for script in ["exit 1", "echo", "echo 1; exit 3", "head -c 1000000 /dev/zero"] {
        let store = token_with_pair(Kind::P256);
        let asking = program(&store, "ask", script);
        let ask = || sign(&store, "").variable(OWN, &asking);
        ask().run().fails(7, &["no PIN was entered"]);
        // A client that tries again opens no second window.
        ask().within("/bin/sh", TWICE).run().fails(7, &[CANCELLED]);
        assert!(store.calls("C_Login").is_empty());
    }
    let store = token_with_pair(Kind::P256);
    let asking = program(&store, "ask", "echo 1");
    sign(&store, "").variable(OWN, asking).run().fails(7, &["was not sent"]);
    for path in ["ask", "/nowhere/ask", "/etc/passwd"] {
        sign(&store, "").variable(OWN, path).run().fails(7, &[OWN, "is not the path of a program"]);
    }
    sign(&store, "").run().fails(7, &["no program to ask for the PIN", "install pinentry"]);
    // A kubeconfig can't say which.
    let configuration = store.configuration().with("pinSource", "askpass:/bin/true");
    store.sign_with(&configuration).run().fails(3, &["pinSource must be"]);
    assert!(store.calls("C_Login").is_empty());
}

/// The person may have given no answer, or could not be asked.
#[test]
fn a_pinentry_that_fails_is_told_from_a_person_who_leaves_it() {
    let store = token_with_pair(Kind::P256);
    let pinentry = |answer: &str| {
        let talk = "echo OK; while read -r line; do echo \"$line\" >> said; case $line in \
                    GETPIN) echo";
        let talk = format!("cd \"$HOME\"; {talk} {answer};; *) echo OK;; esac; done");
        program(&store, "pinentry", &talk);
    };
    pinentry("ERR 83918950 Inappropriate ioctl for device");
    // Nobody has said no, so the next one is asked.
    for _ in 0..2 {
        let reason = "pinentry gave no PIN: it answered ERR 83918950 Inappropriate ioctl";
        sign(&store, "").run().fails(7, &[reason]);
    }
    let said = fs::read_to_string(store.path("said")).unwrap();
    assert_eq!(said.matches("GETPIN").count(), 2);
    assert!(!said.contains("ttyname"), "there is no terminal: {said}");
    program(&store, "pinentry", "echo ERR no");
    sign(&store, "").run().fails(7, &["pinentry gave no PIN"]);
    // A real one that finds no place to ask.
    let real = || sign(&store, "").variable("PATH", "/usr/bin:/bin");
    real().run().fails(7, &["pinentry gave no PIN"]);

    pinentry("ERR 83886179 Operation cancelled");
    sign(&store, "").run().fails(7, &["no PIN was entered"]);
    sign(&store, "").within("/bin/sh", TWICE).run().fails(7, &[CANCELLED]);
    assert!(store.calls("C_Login").is_empty());
}

#[test]
fn pinentry_draws_on_the_terminal() {
    let store = token_with_pair(Kind::P256);
    let mut terminal = sign(&store, "").variable("PATH", "/usr/bin:/bin").at_terminal();
    assert_signed(&terminal.expect("test token").type_text(&format!("{PIN}\r")).finish().0);
    assert_eq!(store.calls("C_Login"), ["0x0"]);
}
