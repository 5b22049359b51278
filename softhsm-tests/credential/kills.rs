//! Client, plugin and tunnel process are killed in every order and at any moment: nothing is left, and the
//! next command works.

use std::env;

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;

/// How many times, unless `KILLS=1000` asks for a longer look.
#[expect(clippy::disallowed_methods, reason = "a test has no other options")]
pub(crate) fn rounds(usual: u32) -> u32 {
    env::var("KILLS").map_or(usual, |number| number.parse().expect("KILLS is a number"))
}

/// SoftHSM's files. With each login it writes the token's flags anew, and a kill at that moment leaves no token.
struct Tokens(Vec<(PathBuf, Vec<u8>)>);

impl Tokens {
    fn of(user: &PlainUser) -> Self {
        let files = below(&user.path("tokens")).into_iter().filter(|it| it.is_file());
        Self(files.map(|it| (it.clone(), fs::read(it).unwrap())).collect())
    }

    fn mend(&self) {
        for (path, content) in &self.0 {
            if fs::read(path).map_or(0, |it| it.len()) < content.len() {
                fs::write(path, content).unwrap();
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Victim {
    Client,
    Plugin,
    Tunnel,
}

const VICTIMS: [Victim; 3] = [Victim::Client, Victim::Plugin, Victim::Tunnel];

/// Kills it if it is there.
fn kill(user: &PlainUser, victim: Victim) -> bool {
    let processes = user.processes();
    let found = processes.iter().find(|it| match victim {
        Victim::Client => !it.is_ours && it.command.contains("kubectl"),
        Victim::Plugin => it.is_ours && it.command.contains(" credential "),
        Victim::Tunnel => it.is_ours && it.command.contains("-process"),
    });
    found.is_some_and(|process| kill_process(process.pid, Signal::KILL).is_ok())
}

/// How often each of the three was there to be killed.
type Hits = [u32; VICTIMS.len()];

/// The kills of one round: each of the three at some moment, in some order, or not at all. A command took `alone`.
fn one_round(user: &PlainUser, numbers: &mut Numbers, alone: Duration, hits: &mut Hits) -> String {
    let mut order = VICTIMS;
    order.swap(0, numbers.below(3));
    order.swap(1, 1 + numbers.below(2));
    let number = 1 + numbers.below(3);
    let running = user.kubectl(&["get", "namespace", "default"]).start(None);
    let mut told = Vec::new();
    for victim in &order[..number] {
        let pause = numbers.moment(alone.max(Duration::from_millis(100)));
        thread::sleep(pause);
        let is_hit = kill(user, *victim);
        hits[*victim as usize] += u32::from(is_hit);
        let outcome = if is_hit { "killed" } else { "not there" };
        told.push(format!("{victim:?} {outcome} after {pause:?}"));
    }
    // kubectl may go on without a plugin or a tunnel, or have ended before.
    running.finish();
    told.join(", ")
}

fn many_rounds(options: &[&str]) {
    let user = PlainUser::new(options);
    let mut numbers = Numbers::new();
    let tokens = Tokens::of(&user);
    let mut alone = user.shell(ASK).run().took;
    user.program(&["stop"]).run().printed();
    let (usual, mut hits, mut round) = (rounds(60) / 2, Hits::default(), 0);
    // Of any kind, one round in twenty hits at the least.
    while round < usual || hits.contains(&0) {
        assert!(round < usual + 300, "{hits:?} of {VICTIMS:?} were killed");
        let told = one_round(&user, &mut numbers, alone, &mut hits);
        tokens.mend();
        // A login that was killed counts as a refusal.
        for record in fs::read_dir(user.path("state")).unwrap() {
            fs::remove_file(record.unwrap().path()).unwrap();
        }
        let next = user.shell(ASK).run();
        let which = format!("round {round}: {told}: {next:?}");
        assert!(next.status.success(), "{which}");
        assert_eq!(next.stdout, ANSWER.as_bytes(), "{which}");
        next.says_only(&[]);
        // The key may still be kept, for a client that was handed it and hasn't connected.
        user.program(&["stop"]).run().printed();
        user.expect_nothing_left();
        // The moments of the next round are those of a machine that is as busy as now.
        alone = next.took;
        round += 1;
    }
}

#[test]
fn random_kills_leave_nothing_and_the_next_command_works() {
    needs_isolation!();
    many_rounds(&[]);
}

/// The shell that has the terminal in these rounds is the kubectl of each.
#[test]
fn random_kills_leave_nothing_where_a_terminal_is_waited_for() {
    needs_isolation!();
    many_rounds(&["--keep=terminal"]);
}
