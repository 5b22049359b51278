//! A run, and what happens to its card meanwhile.

use super::cards::{Cards, Instruction, LIBRARIES, PIN, YKCS11};
use crate::fixture::*;
use crate::short_lived::structured::Trusted;

const KUBECTL: &str = "kubectl get namespace default -o name";

#[test]
#[ignore = "scripts/test --all"]
fn kubectl_reaches_the_cluster_with_every_key() {
    let cards = Cards::issued_by(cluster().authority());
    for library in LIBRARIES {
        for id in ["1", "2", "3", "4"] {
            cards.token(library, 1).assert_kubectl_gets(id);
        }
    }
}

/// With each key of the card: one that wants the PIN for the signature, and one that wants none.
#[test]
#[ignore = "scripts/test --all"]
fn what_lives_minutes_is_handed_out() {
    let cards = Cards::issued_by(cluster().authority());
    let keys = [
        ("1", "https://keys.example/9a", "RS256"),
        ("2", "https://keys.example/9c", "ES256"),
        ("3", "https://keys.example/9d", "ES384"),
        ("4", "https://keys.example/9e", "RS256"),
    ];
    let trusted = Trusted::new(keys.map(|(id, issuer, _)| (issuer, id)), |id| {
        cards.token(YKCS11, 1).jwks(id)
    });
    for library in LIBRARIES {
        let token = cards.token(library, 1);
        for (id, issuer, algorithm) in keys {
            token.assert_signs_tokens(&trusted, id, issuer, algorithm);
            token.assert_gets_an_accounts_token(id);
        }
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn the_pin_of_a_key_that_wants_it_each_time_is_typed_once() {
    let cards = Cards::issued_by(cluster().authority());
    for library in LIBRARIES {
        let configuration = cards.token(library, 1).configuration("2").without("pinSource");
        let script = format!("for i in 1 2 3; do {KUBECTL} || exit 1; done");
        let store = &cards.environment.store;
        let run = cluster().run(store, &configuration, &["sh", "-c", &script]);
        let mut terminal = cards.enter(run).at_terminal();
        let (outcome, screen) = terminal.expect_prompt().type_line(PIN).finish();
        assert_eq!(outcome.printed(), "namespace/default\n".repeat(3));
        assert_eq!(screen.matches("PIN").count(), 1, "{screen}");
    }
}

/// A run whose commands each begin when the test says so.
struct Steps<'c> {
    cards: &'c Cards,
    running: Running,
    begun: usize,
}

impl<'c> Steps<'c> {
    /// The context `other` has key 3 of the card.
    fn start(cards: &'c Cards, library: &str, id: &str, command: &str, count: usize) -> Self {
        let home = cards.environment.store.directory.path();
        let mut script = String::new();
        for step in 0..count {
            let begin = home.join(format!("step-{step}"));
            let _ = fs::remove_file(&begin);
            script += &format!(
                "echo ready; until [ -e '{}' ]; do sleep 0.05; done; {command}\n",
                begin.display()
            );
        }
        let configuration = cards.token(library, 1).configuration(id);
        let store = &cards.environment.store;
        let run = cluster().run(store, &configuration, &["sh", "-c", &script]);
        cluster().add_context(store, "3");
        let mut running = cards.enter(run).start(None);
        assert_eq!(running.line(), "ready");
        Self { cards, running, begun: 0 }
    }

    /// kubectl begins.
    fn begin(&mut self) {
        let home = self.cards.environment.store.directory.path();
        fs::write(home.join(format!("step-{}", self.begun)), "").unwrap();
        self.begun += 1;
    }

    /// kubectl has ended without an answer, and the next one is to come.
    #[track_caller]
    fn expect_failure(&mut self) {
        assert_eq!(self.running.line(), "ready");
    }

    /// The last kubectl has got what it asked for.
    #[track_caller]
    fn expect_success(self) -> Outcome {
        let outcome = self.running.finish();
        assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
        assert_eq!(outcome.stdout, b"namespace/default\n", "{outcome:?}");
        outcome
    }
}

/// With a key that wants the PIN for the session, and with one that wants it for each signature.
fn with_each(test: impl Fn(&Cards, &str, &str)) {
    let cards = Cards::issued_by(cluster().authority());
    for library in LIBRARIES {
        for id in ["1", "2"] {
            test(&cards, library, id);
        }
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn a_card_that_was_put_back_signs_on_with_any_key() {
    with_each(|cards, library, id| {
        for command in [KUBECTL, &format!("{KUBECTL} --context other")] {
            let mut steps = Steps::start(cards, library, id, command, 1);
            cards.pull(1);
            cards.insert(1);
            steps.begin();
            steps.expect_success().silently();
        }
    });
}

/// Whatever the library makes of a card that is pulled while it signs (OpenSC: CKR_GENERAL_ERROR or
/// CKR_DEVICE_REMOVED), it is finalised before it is asked again.
#[test]
#[ignore = "scripts/test --all"]
fn a_card_that_is_pulled_is_asked_for_and_may_come_back() {
    with_each(|cards, library, id| {
        for while_it_signs in [false, true] {
            let mut steps = Steps::start(cards, library, id, KUBECTL, 2);
            if while_it_signs {
                cards.stop_at(1, Instruction::GeneralAuthenticate);
                steps.begin();
                cards.pull_stopped(1);
            } else {
                cards.pull(1);
                steps.begin();
            }
            steps.expect_failure();
            cards.insert(1);
            steps.begin();
            let told = steps.expect_success().stderr;
            assert!(told.contains("; insert the token"), "{told}");
        }
    });
}
