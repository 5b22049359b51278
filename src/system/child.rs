//! Tests that need a process of their own: because it ends, because its standard output is taken,
//! or because no other test may run beside it. Such a test runs itself once more, as a child.

#![expect(clippy::unwrap_used, reason = "for tests")]

use std::process::Command;

/// Set in the child alone.
const MARK: &str = "PKCS11_EXTERNAL_SIGNER_TEST_CHILD";

/// Whether this is the child.
pub fn is_this() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The test of this full name, in a process where nothing runs beside it: the harness waits. What
/// it writes to standard output follows what the harness has written, which ends with ` ... `.
pub fn command(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(MARK, "1");
    command
}
