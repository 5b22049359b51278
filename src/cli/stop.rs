//! `stop`: ends the tunnel process.

#![forbid(unsafe_code)]

use crate::report;
use crate::tunnel_process;

/// End the tunnel process: its connections, and the logins to the tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer stop

Connections that are open end, and the next command asks for the PIN again. A process that doesn't answer \
is ended by signals. Without a tunnel process there is nothing to do.")]
pub(super) struct StopArguments {}

/// Ends it, if there is one; the exit code.
#[cold]
pub(super) fn run() -> u8 {
    match tunnel_process::stop() {
        Ok(true) => 0,
        Ok(false) => {
            report::note("no tunnel process is running");
            0
        }
        Err(error) => report::error(&error),
    }
}
