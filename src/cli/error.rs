//! Errors of several commands.

use crate::error::{Error, Exit};

/// Arguments don't go together.
pub(super) fn needs(argument: &str, other: &str) -> Error {
    Error::new(Exit::Request, format!("missing argument: {argument} needs {other}"))
        .help("--help shows what goes with what")
}

/// `kubectl apply -f -` needs it for the manifest.
pub(super) fn standard_input_is_the_clients() -> Error {
    Error::new(Exit::Configuration, "pinSource is stdin, and standard input is the client's")
        .help("choose another pinSource (--pin-source): prompt, askpass, file:/path or env:NAME")
}
