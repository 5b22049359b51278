//! Prepares the process to hold a PIN, and protects it from the library that it loads.
//!
//! In this order, while there is one thread and no library: [`harden`] (no core file, no access by
//! other processes), [`signals`] (interruptions are announced), [`environment`] (the request is taken
//! out and wiped), [`output`] (standard output is set aside). Then [`lock`], which other processes
//! see, [`watchdog`], and when the answer is out [`exit_guard`]. [`memory`] wipes what is freed, and
//! [`descriptors`] limits what other programs inherit. A run also has a [`command`] and a
//! [`run_directory`] for the command's kubeconfig. Because of its system calls, `unsafe` is allowed
//! here.

#![allow(unsafe_code, reason = "system calls and the environment block")]

#[cfg(test)]
mod child;
pub mod command;
pub mod descriptors;
pub mod environment;
mod error;
pub mod exit_guard;
pub mod harden;
pub mod lock;
pub mod memory;
pub mod output;
pub mod run_directory;
mod runtime;
pub mod signals;
pub mod watchdog;

pub use error::{AnswerError, RunError};
pub use runtime::fnv_1a;

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

/// The clock, in whole seconds since 1970; 0 for a clock that is set before that.
pub fn unix_time() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Opens a regular file to read it. Anything else is refused without being waited for, such as a FIFO
/// that has no writer.
///
/// # Errors
/// It can't be opened, or is no regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found)),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The number of this process's session, which has at most one terminal; 0 if the session's leader
/// is in another PID namespace.
pub fn session() -> i32 {
    // SAFETY: getsid has no preconditions.
    unsafe { libc::getsid(0) }
}

/// The user's home directory by the user database, independent of the environment; `None` if there
/// is none.
fn home() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;

    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut texts = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to what lives until the end of this function, and the length is that
    // of the buffer.
    let code = unsafe {
        libc::getpwuid_r(
            rustix::process::geteuid().as_raw(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &mut found,
        )
    };
    if code != 0 || found.is_null() {
        return None;
    }
    // SAFETY: an entry was found, so it was written.
    let entry = unsafe { entry.assume_init() };
    if entry.pw_dir.is_null() {
        return None;
    }
    // SAFETY: the entry's texts end with a NUL and are in the buffer.
    let home = unsafe { std::ffi::CStr::from_ptr(entry.pw_dir) };
    let home = std::ffi::OsString::from_vec(home.to_bytes().to_owned());
    Some(std::path::PathBuf::from(home)).filter(|home| home.is_absolute())
}

/// A directory of the user's that the system has for things like ours.
#[cfg(target_vendor = "apple")]
fn user_directory() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;

    let mut text = vec![0_u8; 1024];
    // SAFETY: the length is that of the buffer.
    let length = unsafe {
        libc::confstr(
            libc::_CS_DARWIN_USER_TEMP_DIR,
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    // With its NUL.
    text.truncate(length.checked_sub(1).filter(|it| *it < text.len())?);
    Some(std::ffi::OsString::from_vec(text).into())
}

/// None but /run/user/UID.
#[cfg(not(target_vendor = "apple"))]
fn user_directory() -> Option<std::path::PathBuf> {
    None
}

/// Ends the process at once: no destructor of a library runs, and nothing it left in its buffers
/// is written.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}
