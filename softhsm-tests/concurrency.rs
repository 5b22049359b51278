//! Many requests at once on one token, as a client with many connections makes them, and requests
//! that are killed at any moment.
//!
//! SoftHSM is the judge, since nothing is as sensitive: it keeps a token in files and rewrites one of them at each
//! login, by emptying it first. Without the lock, fewer than half of fifty processes get through.

use crate::credential::kills::rounds;
use crate::fixture::*;

/// A user who can be kept from writing to a file.
const NOBODY: u32 = 65534;

fn sign(store: &Store) -> Invocation {
    store.sign(&Options::hash(Hash::Sha256), &sample(32))
}

#[test]
fn two_hundred_processes_sign_at_once_and_all_answer() {
    let store = token_with_pair(Kind::P256);
    let running: Vec<_> = (0..200).map(|_| sign(&store).start(None)).collect();
    for run in running {
        assert_signed(&run.finish());
    }
}

/// The files of the store, with their content, except for the number by which SoftHSM sees that
/// something has changed, and what it locks.
fn files(store: &Store) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = below(&store.path("tokens"));
    found.retain(|path| path.extension().is_some_and(|it| it == "object"));
    found.sort();
    let found: Vec<_> = found.into_iter().map(|it| (it.clone(), fs::read(it).unwrap())).collect();
    assert_eq!(found.len(), 3, "a token, a key and a certificate");
    found
}

/// With the file that SoftHSM rewrites out of its reach, since SIGKILL can't be deferred:
/// logins work without. Half of them are killed alone, half in a crowd. Who is killed in a login leaves
/// it in doubt, and after two of those no stored PIN is sent before a person logs in.
#[test]
fn kills_at_any_moment_damage_nothing_and_keep_nobody_waiting() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let copy = copy_of_program(store.directory.path());
    let sign = || sign(&store).program(&copy).by(NOBODY);
    let log_in = || {
        let key = [softhsm_option(), "--token-label=test token", "--object-id=1"];
        let check = store.with_pin(&["check", "--despite-refusal", "--pin-source=env:TOKEN_PIN"]);
        check.arguments(&key).program(&copy).by(NOBODY).run().succeeded();
    };
    drop(sign());
    hand_over(store.directory.path(), NOBODY);
    let before = files(&store);
    let (token, _) = before.iter().find(|(path, _)| path.ends_with("token.object")).unwrap();
    fs::set_permissions(token, fs::Permissions::from_mode(0o400)).unwrap();

    let mut numbers = Numbers::new();
    // The shortest yet: later than a run's end there is nothing to kill.
    let mut alone = sign().run().took;
    let mut killed = |count: u32, spans: u32| {
        let span = alone * spans;
        let started = Instant::now();
        let mut running: Vec<_> =
            (0..count).map(|_| (numbers.moment(span), sign().start(None))).collect();
        running.sort_by_key(|(moment, _)| *moment);
        for (moment, run) in &running {
            thread::sleep(moment.saturating_sub(started.elapsed()));
            kill_process(run.pid(), Signal::KILL).unwrap();
        }
        let outcomes = running.into_iter().map(|(_, run)| run.finish());
        let (killed, ended): (Vec<_>, Vec<_>) =
            outcomes.partition(|outcome| outcome.status.signal() == Some(9));
        // Who was quicker has a signature to show, or had no PIN to send.
        let (answered, refused): (Vec<_>, Vec<_>) =
            ended.into_iter().partition(|outcome| outcome.status.success());
        for outcome in &answered {
            assert_signed(outcome);
            alone = alone.min(outcome.took);
        }
        for outcome in &refused {
            outcome.fails(7, &["seems to have refused a PIN", "was not sent"]);
        }
        if !refused.is_empty() {
            log_in();
        }
        u32::try_from(killed.len()).unwrap()
    };
    let (wanted, mut kills, mut aimed) = (rounds(200), 0, 0);
    while kills < wanted {
        // Some come too late, on a busy machine as well.
        assert!(aimed < 20 * wanted, "of {aimed} runs, {kills} could be killed");
        let is_alone = kills < wanted / 2;
        let (count, spans) = if is_alone { (1, 1) } else { (50, 12) };
        kills += killed(count, spans);
        aimed += count;
        if !is_alone {
            log_in();
            assert_signed(sign().run().silently());
        }
    }
    assert_signed(sign().run().silently());
    assert_eq!(files(&store), before);
}

/// Ctrl-C goes to kubectl and to us; a token that it destroys one time in twenty is no token.
#[test]
fn interruptions_at_any_moment_leave_the_token_whole() {
    let store = token_with_pair(Kind::P256);
    let sign = || signing(&store, "");
    let mut alone = sign().run().took;
    let mut numbers = Numbers::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (mut logins_hit, mut round) = (0, 0);
        while round < 70 || logins_hit == 0 {
            assert!(round < 700, "no login was interrupted by {signal:?}");
            // On a machine that has become slower or faster, other moments are those of a login.
            if round % 70 == 0 {
                alone = sign().run().took;
            }
            let logins = store.calls("C_Login").len();
            let run = sign().start(None);
            let moment = numbers.moment(alone);
            thread::sleep(moment);
            let _ = kill_process(run.pid(), signal);
            let outcome = run.finish();
            let is_whole = files(&store).iter().all(|(_, content)| !content.is_empty());
            assert!(is_whole, "{signal:?} after {moment:?}");
            // It was let finish, and nothing came after it.
            let ends_with_login = store.history().last().unwrap().starts_with("C_Login ")
                && store.calls("C_Login").len() > logins;
            let is_interrupted = outcome.status.signal() == Some(signal.as_raw());
            logins_hit += u32::from(is_interrupted && ends_with_login);
            round += 1;
        }
    }
    assert_signed(sign().run().silently());
}

/// Asks for a signature.
fn signing(store: &Store, faults: &str) -> Invocation {
    store.sign_suffering(store.configuration_with_pin_source(), faults)
}

/// Interrupts a login that says that it has begun.
fn interrupted(login: Invocation, signal: Signal) -> Running {
    let mut run = login.start(None);
    run.wait_for_error("C_Login");
    kill_process(run.pid(), signal).unwrap();
    run
}

#[test]
fn an_interruption_waits_for_the_login_and_not_for_ever() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let store = token_with_pair(Kind::P256);
        let is_ready = store.path("ready");
        let login = signing(&store, &format!("C_Login:print,C_Login:until={}", is_ready.display()));
        // What ends a deferral is not to come here.
        let mut run = interrupted(login.through("env", &["--block-signal=ALRM"]), signal);
        run.wait_for_error("interrupted by");
        fs::write(is_ready, "").unwrap();
        let outcome = run.finish();
        outcome.dies_of(signal);
        assert!(!outcome.stderr.contains("interrupted by"), "{outcome:?}");
        assert_eq!(store.calls("C_Login"), ["0x0"]);
        // Nothing is done after it.
        assert_eq!(store.calls("C_SignInit"), [""; 0]);
    }
    let store = token_with_pair(Kind::P256);
    let hanging = signing(&store, "C_Login:print,C_Login:hang");
    interrupted(hanging, Signal::INT).finish().dies_of(Signal::INT);
}

/// It ends the process by itself: the alarm that ends a deferral isn't reached here.
#[test]
fn a_second_interruption_waits_for_nothing() {
    for second in [Signal::INT, Signal::TERM] {
        let store = token_with_pair(Kind::P256);
        let hanging = signing(&store, "C_Login:print,C_Login:hang");
        let hanging = hanging.through("env", &["--block-signal=ALRM"]);
        let mut run = interrupted(hanging, Signal::INT);
        run.wait_for_error("interrupted by SIGINT");
        kill_process(run.pid(), second).unwrap();
        let ended_by = run.finish().status.signal();
        // Of two at the same moment, either may be the last.
        assert!(
            [Signal::INT, second].map(|it| Some(it.as_raw())).contains(&ended_by),
            "{ended_by:?}"
        );
    }
}

/// As a cron job's that began before the login, with which the user's runtime directory comes.
#[test]
fn a_lock_from_before_a_login_keeps_others_waiting_after_it() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let may_go_on = store.path("go-on");
    let faults = format!("C_Login:until={}", may_go_on.display());
    let before = store.sign_suffering(store.configuration_with_pin_source(), &faults);
    let none = "mount -t tmpfs none /run/user && exec \"$SIGNER\"";
    let mut before = before.without_variable("XDG_RUNTIME_DIR").within("sh", none).start(None);
    let calls = || fs::read_to_string(store.path("calls")).unwrap_or_default();
    wait_until("it has the token", || calls().contains("C_OpenSession"));
    let faulty = store.configuration_with_pin_source();
    let mut after = store.sign_suffering(faulty, "").start(None);
    after.wait_for_error("waiting for another request");
    assert!(!before.has_ended(), "{}", before.describe());
    fs::write(may_go_on, "").unwrap();
    for running in [before, after] {
        assert_signed(&running.finish());
    }
}
