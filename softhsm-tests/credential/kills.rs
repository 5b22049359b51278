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

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        for (shift, left) in [(13, true), (7, false), (17, true)] {
            self.0 ^= if left { self.0 << shift } else { self.0 >> shift };
        }
        self.0 % limit
    }
}

/// SoftHSM's files. With each login it writes the token's flags anew, and a kill at that moment leaves no
/// token.
struct Tokens(Vec<(PathBuf, Vec<u8>)>);

impl Tokens {
    fn of(user: &PlainUser) -> Self {
        let tokens = fs::read_dir(user.path("tokens")).unwrap();
        let files = tokens.flat_map(|token| fs::read_dir(token.unwrap().path()).unwrap());
        let paths = files.map(|file| file.unwrap().path());
        Self(paths.map(|it| (it.clone(), fs::read(it).unwrap())).collect())
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
    let found = processes.iter().find(|it| {
        let is_tunnel = it.session == it.pid.as_raw_nonzero().get();
        match victim {
            Victim::Client => !it.is_ours && it.command.contains("kubectl"),
            Victim::Plugin => it.is_ours && !is_tunnel,
            Victim::Tunnel => it.is_ours && is_tunnel,
        }
    });
    found.is_some_and(|process| kill_process(process.pid, Signal::KILL).is_ok())
}

/// How often each of the three was there to be killed.
type Hits = [u32; VICTIMS.len()];

/// The kills of one round: each of the three at some moment, in some order, or not at all. A command took `alone`.
fn one_round(user: &PlainUser, random: &mut Random, alone: Duration, hits: &mut Hits) -> String {
    let alone = u64::try_from(alone.as_millis()).unwrap();
    let mut order = VICTIMS;
    order.swap(0, usize::try_from(random.below(3)).unwrap());
    order.swap(1, 1 + usize::try_from(random.below(2)).unwrap());
    let number = 1 + usize::try_from(random.below(3)).unwrap();
    let running = user.kubectl(&["get", "namespace", "default"]).start(None);
    let mut told = Vec::new();
    for victim in &order[..number] {
        let pause = random.below(alone.max(100));
        thread::sleep(Duration::from_millis(pause));
        let is_hit = kill(user, *victim);
        hits[*victim as usize] += u32::from(is_hit);
        let outcome = if is_hit { "killed" } else { "not there" };
        told.push(format!("{victim:?} {outcome} after {pause} ms"));
    }
    // kubectl may go on without a plugin or a tunnel, or have ended before.
    running.finish();
    told.join(", ")
}

fn many_rounds(seed: u64, options: &[&str]) {
    let user = PlainUser::new(options);
    let mut random = Random(seed);
    let tokens = Tokens::of(&user);
    let mut alone = user.shell(ASK).run().took;
    user.program(&["stop"]).run().printed();
    let (usual, mut hits, mut round) = (rounds(60) / 2, Hits::default(), 0);
    // Of any kind, one round in twenty hits at the least.
    while round < usual || hits.contains(&0) {
        assert!(round < usual + 300, "seed {seed}: {hits:?} of {VICTIMS:?} were killed");
        let told = one_round(&user, &mut random, alone, &mut hits);
        tokens.mend();
        // A login that was killed counts as a refusal.
        for record in fs::read_dir(user.path("state")).unwrap() {
            fs::remove_file(record.unwrap().path()).unwrap();
        }
        let next = user.shell(ASK).run();
        let which = format!("seed {seed}, round {round}: {told}: {next:?}");
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
    many_rounds(0x2545_f491_4f6c_dd1d, &[]);
}

/// The shell that has the terminal in these rounds is the kubectl of each.
#[test]
fn random_kills_leave_nothing_where_a_terminal_is_waited_for() {
    many_rounds(0x9e37_79b9_7f4a_7c15, &["--keep=terminal"]);
}
