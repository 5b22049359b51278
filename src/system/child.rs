//! For tests that need a process of their own: because the process ends, because its standard output is taken away, or
//! because no other test may run in it. Such a test runs itself again, as a child.

#![expect(clippy::unwrap_used, reason = "for tests")]

use std::process::Command;

/// A variable that is set only in the child.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_TEST_CHILD";

/// Whether this process is the child.
pub fn is_this() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The command that runs the test of this full name in a process where nothing else runs: the harness there waits for it.
/// Its standard output begins with what the harness has written, up to ` ... `.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(MARK, "1");
    command
}
