//! The file in which the history of the keys outlives the signer: without it, a restart would begin each wait anew.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::rotation::KeyHistory;
use files::{directories, read_regular, replaced_file};
use messages::error::{DOCUMENT_VERSION, Error, Exit};

/// The longest history, in bytes.
const LONGEST: u64 = 256 * 1024;

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: String,
    keys: KeyHistory,
}

/// Where the history of the signer at this socket is, unless somebody says otherwise.
pub fn default_history(socket: &Path) -> Result<PathBuf, Error> {
    let name = directories::fnv_1a(&socket.to_string_lossy());
    let name = format!("service-account-keys-{name:016x}.json");
    directories::in_first(&directories::LASTING, |directory, _| Ok(directory.join(&name)))
        .map_err(|reason| unusable(&format!("no directory for it: {reason}")))
}

/// The history that is there; an empty one if there is no file.
pub(crate) fn read(path: &Path) -> Result<KeyHistory, Error> {
    let bytes = match read_regular(path, LONGEST) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(KeyHistory::default());
        }
        read => read.map_err(|error| unusable(&format!("{}: {error}", path.display())))?,
    };
    let document: Result<Document, _> = serde_json::from_slice(&bytes);
    let document = document.map_err(|error| unusable(&format!("{}: {error}", path.display())))?;
    Ok(document.keys)
}

pub(crate) fn write(path: &Path, keys: &KeyHistory) -> Result<(), Error> {
    let document = Document { api_version: DOCUMENT_VERSION.to_owned(), keys: keys.clone() };
    let bytes = serde_json::to_vec_pretty(&document)
        .map_err(|error| Error::internal(format!("JSON: {error}")))?;
    replaced_file::put(path, &bytes, 0o600)
        .map_err(|error| unusable(&format!("{}: {error}", path.display())))
}

fn unusable(reason: &str) -> Error {
    let text = format!("the record of when keys were published can't be used: {reason}");
    Error::new(Exit::Configuration, text).help(
        "name a file in a directory where this user may write with --state; a file that was damaged can be removed: the \
         oldest key signs then, and a new one waits anew",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written_and_a_damaged_one_is_no_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        assert_eq!(read(&path).unwrap(), KeyHistory::default());
        let history: KeyHistory =
            serde_json::from_str("{\"a\": {\"publishedSince\": 1, \"lastSigned\": null}}").unwrap();
        write(&path, &history).unwrap();
        assert_eq!(read(&path).unwrap(), history);
        std::fs::write(&path, "{").unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.exit_code(), 3, "{error}");
    }
}
