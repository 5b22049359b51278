//! What a locked-down container doesn't have: a signature is made, or the error says what is missing.

use super::{ANSWER, ASK, PlainUser, assert_told_through_kubectl};
use crate::fixture::*;

/// All file systems are read-only, but the tokens'.
const READ_ONLY: &str = "for place in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
        mount -o remount,bind,ro $place 2>/dev/null
    done
    mount --bind ~/tokens ~/tokens && mount -o remount,bind,rw ~/tokens || exit 99
    ! touch ~/state/file 2>/dev/null || exit 99
    exec \"$@\"";
/// There are no places for what a user's processes share until the machine is restarted.
const NO_SHARED_PLACES: &str =
    "for place in /run /dev/shm; do mount -t tmpfs -o ro,mode=755 none $place || exit 99; done
    exec \"$@\"";
/// What a container's filter of system calls refuses, beside keyrings and namespaces.
fn without_calls(others: &str) -> String {
    let calls = format!("keyctl,add_key,request_key,unshare,setns,memfd_create,mlock{others}");
    format!("exec strace -f -qq -o /dev/null -e trace={calls} --inject={calls}:error=EPERM \"$@\"")
}

#[test]
fn a_container_that_lacks_things_signs_or_says_what_it_lacks() {
    needs_isolation!();
    let read_only = "Read-only file system";
    let unremembered = (7, ["could not be remembered", read_only]);
    let placeless = (9, ["no place for the control socket", read_only]);
    let unwatched = (9, ["can't be watched", "Operation not permitted"]);
    for (script, signing, asking) in [
        (READ_ONLY, Some(unremembered), Some(placeless)),
        (NO_SHARED_PLACES, None, None),
        (&without_calls(""), None, None),
        (&without_calls(",pidfd_open"), None, Some(unwatched)),
    ] {
        let user = PlainUser::new(&[]);
        let within = |invocation: Invocation| {
            invocation.through("unshare", &["--mount", "sh", "-c", script, "sh"]).run()
        };
        let signed = within(user.store.sign(&Options::hash(Hash::Sha256), &sample(32)));
        match signing {
            Some((code, said)) => drop(signed.fails(code, &said)),
            None => assert_signed(signed.silently()),
        }
        let asked = within(user.shell(ASK));
        match asking {
            Some((code, said)) => assert_told_through_kubectl(&asked, code, &said),
            None => assert_eq!(asked.printed(), ANSWER),
        }
        user.expect_nothing_left();
    }
}
