//! Which build of the program this is.

use crypto::certificate::rfc_3339;
use messages::error::PROGRAM;

pub(super) const TEXT: &str = env!("CARGO_PKG_VERSION");

/// The version in one line, with what scripts/build.rs could find out about the source.
pub(super) fn text() -> String {
    let date = env!("SOURCE_DATE").parse().map(rfc_3339).unwrap_or_default();
    let day = date.split('T').next().unwrap_or_default();
    let parts = [env!("SOURCE_COMMIT"), day, env!("SOURCE_TARGET")];
    let known: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{PROGRAM} {TEXT} ({})\n", known.join(", "))
}
