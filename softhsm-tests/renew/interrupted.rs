//! `renew`, killed when it has written the certificate and not yet shown it to the cluster, without its token, and
//! without its server: the same command ends well, with one certificate.

use super::{Jane, assert_renewed};
use crate::fixture::*;

impl Jane {
    /// `renew` with these faults of its library, once the request is approved.
    fn renew_suffering(&self, arguments: &[&str], fault: &str) -> Invocation {
        let configuration = self.store.faulty(self.configuration.clone());
        let command = cluster().command(&self.store, &configuration, "renew");
        command.argument(self.duration).arguments(arguments).suffering(&self.store, fault)
    }

    /// Asks, and has it approved; the request's name.
    fn ask_approved(&self) -> String {
        let name = self.request();
        self.decide("approve", &name);
        cluster().issued_certificate(&name);
        name
    }
}

/// The first signature is for the connection with the present certificate.
const AT_THE_PROOF: &str = "C_Sign#2:print=error,C_Sign#2:hang";

#[test]
fn a_kill_before_the_proof_leaves_what_the_same_command_ends_with() {
    let jane = Jane::new();
    let name = jane.ask_approved();
    let mut running = jane.renew_suffering(&[], AT_THE_PROOF).start(None);
    running.wait_for_error("complaint from the module");
    kill_process(running.pid(), Signal::KILL).unwrap();
    running.finish();
    assert_eq!(jane.certificates().len(), 2);
    assert_renewed(&jane, &jane.renew(&[]).run());
    assert_eq!(jane.requests(&name), 1);
}

#[test]
fn a_token_that_is_pulled_is_told_and_gone_on_with_when_it_is_back() {
    let jane = Jane::new();
    let before = jane.certificates();
    let name = jane.ask_approved();
    // The library's first call after the wait finds no session any more.
    jane.renew_suffering(&[], "C_CreateObject:lose-sessions")
        .run()
        .fails(6, &["check that the token is still inserted", "run the command again: it goes on"]);
    assert_eq!(jane.certificates(), before);
    assert_renewed(&jane, &jane.renew(&[]).run());
    assert_eq!(jane.requests(&name), 1);
}

/// Takes a minute, which is what a library has for a call.
#[test]
fn a_library_that_hangs_while_it_writes_ends_the_command_and_the_same_command_goes_on() {
    let jane = Jane::new();
    let before = jane.certificates();
    let name = jane.ask_approved();
    jane.renew_suffering(&[], "C_CreateObject:hang")
        .run()
        .fails(4, &["libfault_module.so hangs: C_CreateObject has taken 60 s"]);
    assert_eq!(jane.certificates(), before);
    assert_renewed(&jane, &jane.renew(&[]).run());
    assert_eq!(jane.requests(&name), 1);
}

#[test]
fn a_certificate_that_can_not_be_read_back_is_written_once() {
    let jane = Jane::new();
    jane.ask_approved();
    let full = jane.renew_suffering(&[], "C_CreateObject:return=0x31").run();
    full.fails(6, &["has no room left"]);
    let reads = jane.store.calls("C_GetAttributeValue").len() + 1;
    // CKR_OBJECT_HANDLE_INVALID, as of SoftHSM on a full disk.
    let lost = format!("C_GetAttributeValue#{reads}:return=0x82");
    let lost = jane.renew_suffering(&[], &lost).run();
    lost.fails(6, &["has not kept the certificate of", "on a full disk"]);
    assert_eq!(jane.store.calls("C_CreateObject"), ["0x31", "0x0"]);
    assert_renewed(&jane, &jane.renew(&[]).run());
}

/// Why the proof failed is not lost behind what cleaning up says.
#[test]
fn a_certificate_that_is_not_proven_and_can_not_be_removed_is_told_with_both_reasons() {
    let jane = Jane::new();
    jane.ask_approved();
    let fault = "C_Sign#2:return=0x21,C_Sign#3:return=0x21,C_DestroyObject:return=0x30";
    let failed = jane.renew_suffering(&[], fault).run();
    failed.fails(8, &["C_Sign: CKR_DATA_LEN_RANGE"]);
    let left = "the new certificate, which the cluster has not let in, stays on the token: ";
    failed.says(&[left, "C_DestroyObject: CKR_DEVICE_ERROR"]);
    assert_eq!(jane.certificates().len(), 2);
    assert_renewed(&jane, &jane.renew(&[]).run());
}

/// Another program removes what has the key's CKA_ID.
#[test]
fn a_new_certificate_that_is_gone_by_the_end_is_told() {
    let jane = Jane::new();
    jane.ask_approved();
    let running = jane.renew_suffering(&[], "C_Sign#2:stop").start(None);
    wait_until_stopped(running.pid());
    for _ in 0..2 {
        pkcs11_tool(&jane.store, &["--delete-object", "--type=cert", "--id=01"]);
    }
    kill_process(running.pid(), Signal::CONT).unwrap();
    running.finish().fails(6, &["has not kept the certificate of"]);
}

#[test]
fn two_at_once_write_one_certificate() {
    let jane = Jane::new();
    let name = jane.request();
    let both = ["C_CreateObject:delay=3000", ""].map(|fault| {
        let mut running = jane.renew_suffering(&[], fault).start(None);
        running.wait_for_error("waiting for the approval");
        running
    });
    jane.decide("approve", &name);
    both.into_iter().for_each(|it| drop(it.finish().succeeded()));
    assert_eq!(jane.certificates().len(), 1);
    assert_eq!(jane.store.calls("C_CreateObject"), ["0x0"]);
    assert_eq!(jane.user(), "jane");
}

#[test]
fn a_server_that_goes_away_while_it_waits_is_told_and_asked_again_when_it_is_back() {
    let jane = Jane::new();
    let server = cluster().entry()["server"].as_str().unwrap().to_owned();
    let mut forwarder = Forwarder::to(&server);
    let name = jane.request();
    let through = || {
        let renewal = jane.renew(&[]);
        cluster().lead_to(&jane.store, &forwarder.url());
        renewal.start(None)
    };
    let before = jane.certificates();
    let mut running = through();
    running.wait_for_error("waiting for the approval");
    forwarder.stop();
    running.finish().fails(9, &["Connection refused"]);
    assert_eq!(jane.certificates(), before);
    forwarder.start();
    jane.decide("approve", &name);
    let running = jane.renew(&[]).start(None);
    assert_renewed(&jane, &running.finish());
    assert_eq!(jane.requests(&name), 1);
}
