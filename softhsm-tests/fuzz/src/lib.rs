//! What fuzz targets demand of every error.

pub mod go;

use messages::error::Error;
use messages::printable::printable;

/// Demands that text and remedy are a readable line each.
pub fn told(error: impl Into<Error>) -> Error {
    let error: Error = error.into();
    for text in [error.to_string(), error.remedy().to_string()] {
        let text = printable(&text);
        assert!(!text.is_empty() && !text.contains(['\n', '\r', '\u{1b}']), "{text:?}");
    }
    error
}
