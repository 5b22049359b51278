//! `credential --as` beside a tunnel process that has the key open: it keeps what lives minutes, too.

use std::time::{Duration, Instant};

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::program::PROGRAM;
use crate::fixture::wait::wait_until;
use crate::short_lived::kept::in_new_session;

const ISSUER: &str = "https://keys.example/jane";

/// A token, asked for in a session that has no other one's keyring.
fn token(user: &PlainUser, options: &[&str]) -> String {
    let context = user.context();
    let credential =
        ["credential", "--as=jwt", "--output=raw", "--issuer", ISSUER, "--context", &context];
    let own = in_new_session();
    let run = ["-e", &own, PROGRAM];
    let words = [&run, &credential[..], options].concat();
    let perl = user.client(std::path::Path::new("perl")).arguments(&words);
    perl.run().silently().printed()
}

#[test]
fn the_process_keeps_it_for_all_sessions_as_long_as_the_key_is_open() {
    let user = PlainUser::new(&["--keep=15m"]);
    // Nothing keeps it.
    assert_ne!(token(&user, &[]), token(&user, &[]));
    assert_eq!(user.counts(), (2, 2));
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let (logins, signatures) = user.counts();
    let first = token(&user, &[]);
    assert_eq!(token(&user, &[]), first);
    assert_eq!(user.counts(), (logins + 1, signatures + 1));
    for other in [token(&user, &["--keep=command"]), token(&user, &["--subject=other"])] {
        assert_ne!(other, first);
    }
    assert_eq!(token(&user, &[]), first);
    // Half of twelve seconds, which begin at a whole one.
    let began = Instant::now();
    let short = token(&user, &["--duration=12s"]);
    wait_until("another token", || token(&user, &["--duration=12s"]) != short);
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    // It goes with the process.
    user.program(&["stop"]).run().printed();
    assert_ne!(token(&user, &[]), first);
    user.expect_nothing_left();
}
