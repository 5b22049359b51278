//! Exit code 2: the request can't be answered as it was asked.

use base::error::{Error, Exit};

pub fn refused(what: impl Into<String>, help: &str) -> Error {
    Error::new(Exit::Request, what).help(help)
}

/// `what` is what the variable holds instead of a request.
pub fn no_request(what: &str) -> Error {
    let help = "EXTERNAL_SIGNER_PLUGIN_CONFIG must hold one JSON object; docs/protocol.md shows a request of each kind";
    refused(format!("the request is not {what}"), help)
}

pub(super) fn missing(field: &str) -> Error {
    refused(format!("missing field {field}"), DISAGREEMENT)
}

pub(super) fn malformed(field: &str, expected: &str) -> Error {
    refused(format!("malformed field {field}: expected {expected}"), DISAGREEMENT)
}

const DISAGREEMENT: &str = "the client that wrote the request and this program disagree on the protocol; \
                            docs/protocol.md shows a request of each kind";
