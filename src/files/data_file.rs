//! Small secrets of this user that are kept for good: files in a directory that only this user can enter.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::{directories, open_regular, read_at_most, replaced_file};

/// The size in bytes up to which a file is read.
const MAX_SIZE: u64 = 64 * 1024;

/// The path of the file of this name, if this user has a home.
pub fn path(name: &str) -> Option<PathBuf> {
    directories::data_directory().map(|directory| directory.join(name))
}

/// The content of the file of this name; `None` if there is none. The error says, for people, that it can't be read, or
/// that another user can read it or could have made it.
pub fn read(name: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(directory) = directories::data_directory().filter(|directory| directory.exists())
    else {
        return Ok(None);
    };
    directories::open_owned(&directory)?;
    let path = directory.join(name);
    let about = |error: io::Error| format!("{}: {error}", path.display());
    let file = match open_regular(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(about)?,
    };
    directories::check_private(&path, &file)?;
    read_at_most(file, MAX_SIZE).map(Some).map_err(about)
}

/// Makes the file, as a whole or not at all. If another process has made it in the meantime, that file stays.
pub fn create(name: &str, content: &[u8]) -> Result<(), String> {
    let directory = directories::data_directory();
    let directory = directory.ok_or("the user database has no home for this user")?;
    directories::make_parents(&directory);
    directories::open_directory(&directory)?;
    let path = directory.join(name);
    replaced_file::add(&path, content).map_err(|error| format!("{}: {error}", path.display()))
}
