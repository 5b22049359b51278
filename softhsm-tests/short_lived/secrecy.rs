//! Secrets of `credential --as`: the PIN that it takes, and what it hands out.

use super::ISSUER;
use super::certificate::{allow_requests, approve_next};
use super::plugin::Holder;
use super::token::account;
use crate::fixture::*;
use crate::secrecy::{AT_ITS_END, PIN, suffering, traces_of};

/// Somebody with this PIN and a certificate of the cluster's.
fn holder(subject: &'static str) -> Holder {
    let certificate = cluster().issue(Kind::P256, Claims { subject, ..JANE });
    let pair = [Object::key(key(Kind::P256), &[1]), Object::issued(certificate, &[1])];
    Holder::with(Store::new([blueprint("test token", pair).with_pin(PIN)]))
}

fn with_pin(invocation: Invocation, store: &Store, faults: &str) -> Invocation {
    suffering(invocation, store, faults).variable("TOKEN_PIN", PIN)
}

/// Neither in what is logged, nor in arguments and variables; and no PIN in memory when it has been answered.
#[test]
fn a_credential_is_on_standard_output_alone_and_the_pin_nowhere() {
    needs_isolation!();
    let jane = holder("/O=dev/CN=jane");
    account(&jane, "discreet");
    let other = holder("/CN=nina");
    allow_requests(&other, "nina");
    for (who, kind, more, secret) in [
        (&jane, "jwt", &["--issuer", ISSUER][..], "token"),
        (&jane, "token", &["--service-account=default/discreet"], "token"),
        (&other, "certificate", &[], "clientKeyData"),
    ] {
        let option = format!("--as={kind}");
        let arguments = [&["credential", "-vv", &option], more].concat();
        let run = with_pin(who.program(&arguments), &who.store, AT_ITS_END).start(None);
        // That of a cluster's user has the token in a process of its own, and waits a while for that one's end.
        let processes = match kind {
            "jwt" => vec![run.pid()],
            _ => vec![child_of(run.pid()), run.pid()],
        };
        if kind == "certificate" {
            approve_next(who, "nina");
        }
        wait_until_stopped(processes[0]);
        kill_process(run.pid(), Signal::STOP).unwrap();
        let place = format!("/proc/{}", run.pid().as_raw_nonzero());
        let words = fs::read(Path::new(&place).join("cmdline")).unwrap();
        let words = String::from_utf8_lossy(&words).into_owned();
        for process in processes {
            assert_eq!(traces_of(&[PIN], process), [""; 0], "{kind}");
        }
        let outcome = run.finish();
        let answer = outcome.answer();
        let secret = answer["status"][secret].as_str().unwrap();
        // The signature of a token, a line of a key.
        let mut pieces = secret.split(['.', '\n']).filter(|it| it.len() > 40);
        let piece = pieces.next_back().unwrap();
        let logged = &outcome.stderr;
        assert!(logged.contains("login: C_Login"), "{logged}");
        for text in [logged, &words] {
            for secret in [PIN, piece] {
                assert!(!text.contains(secret), "{kind}: {secret} in {text}");
            }
        }
    }
}
