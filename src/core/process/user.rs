//! Directories of the user that don't depend on the environment.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr;

use rustix::process::geteuid;

/// The home directory by the user database; `None` if there is none.
pub(super) fn home() -> Option<PathBuf> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts = vec![0; 16 * 1024];
    let mut found = ptr::null_mut();
    // SAFETY: the pointers are to local variables, and the length is that of the buffer.
    unsafe {
        libc::getpwuid_r(
            geteuid().as_raw(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &mut found,
        )
    };
    // SAFETY: null, or the entry above, which was written then.
    let entry = unsafe { found.as_ref() }.filter(|entry| !entry.pw_dir.is_null())?;
    // SAFETY: the entry's texts end with a NUL and are in the buffer.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    let home = PathBuf::from(OsStr::from_bytes(home.to_bytes()));
    Some(home).filter(|home| home.is_absolute())
}

/// The system's own directory for temporary files of this user; `None` where there is none but
/// `/run/user/UID`.
pub(super) fn temporary_directory() -> Option<PathBuf> {
    #[cfg(target_vendor = "apple")]
    {
        let mut text = [0_u8; 1024];
        let name = libc::_CS_DARWIN_USER_TEMP_DIR;
        // SAFETY: the length is that of the buffer.
        let length = unsafe { libc::confstr(name, text.as_mut_ptr().cast(), text.len()) };
        // The length includes the NUL.
        let text = text.get(..length.checked_sub(1)?)?;
        Some(OsStr::from_bytes(text).into())
    }
    #[cfg(not(target_vendor = "apple"))]
    None
}
