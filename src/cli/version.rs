//! Which build of the program this is.

#![forbid(unsafe_code)]

use crate::certificate::rfc_3339;
use crate::error::PROGRAM;

pub(super) const TEXT: &str = env!("CARGO_PKG_VERSION");

/// What scripts/build.rs could find out about the source; empty where it couldn't.
const COMMIT: &str = env!("SOURCE_COMMIT");
/// In seconds since 1970.
const DATE: &str = env!("SOURCE_DATE");
const TARGET: &str = env!("SOURCE_TARGET");

/// In one line, or with a line for each thing there is to say.
pub(super) fn text(is_verbose: bool) -> String {
    let date = DATE.parse().map(rfc_3339).unwrap_or_default();
    let day = date.split('T').next().unwrap_or_default();
    if is_verbose {
        let lines = [("commit", COMMIT), ("date", &*date), ("target", TARGET)];
        let known = lines.iter().filter(|(_, value)| !value.is_empty());
        let known = known.map(|(name, value)| format!("{name}: {value}\n"));
        return format!("{PROGRAM} {TEXT}\n{}", known.collect::<String>());
    }
    let commit = COMMIT.get(..12).unwrap_or(COMMIT);
    let known: Vec<_> = [commit, day, TARGET].into_iter().filter(|it| !it.is_empty()).collect();
    format!("{PROGRAM} {TEXT} ({})\n", known.join(", "))
}
