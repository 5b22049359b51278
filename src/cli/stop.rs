//! `stop`: ends the tunnel process.

use crate::error::Error;
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

#[cold]
pub(super) fn run() -> Result<(), Error> {
    if !tunnel_process::stop()? {
        report::note("no tunnel process is running");
    }
    Ok(())
}
