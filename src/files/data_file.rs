//! Small secrets of this user that stay: files in a directory that only this user can enter.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::{directories, open_regular, read_at_most, replaced_file};

/// The most that is read of a file, in bytes.
const MAX_SIZE: u64 = 64 * 1024;

/// The path of the file of this name, if this user has a home.
pub fn path(name: &str) -> Option<PathBuf> {
    directories::data_directory().map(|directory| directory.join(name))
}

/// The content of the file of this name, if there is one. The error is for people: it can't be read, or another
/// user can read or could have made it.
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

/// Makes the file, whole or not at all. One that another process has made meanwhile stays.
pub fn create(name: &str, content: &[u8]) -> Result<(), String> {
    let directory = directories::data_directory();
    let directory = directory.ok_or("the user database has no home for this user")?;
    directories::make_parents(&directory);
    directories::open_directory(&directory)?;
    let path = directory.join(name);
    replaced_file::add(&path, content).map_err(|error| format!("{}: {error}", path.display()))
}
