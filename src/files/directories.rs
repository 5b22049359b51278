//! The directories in which this user's processes leave files for each other.
//!
//! Locks on tokens, and records of the PINs that tokens have refused, are in the same place for all processes of a user,
//! whatever their environment: a PIN that was refused in a shell must not be sent again by a cron job. The control socket
//! of the tunnel process and the kubeconfigs of runs are in the runtime directory, like an agent's socket: with another
//! `XDG_RUNTIME_DIR` there are others.

#![allow(unsafe_code, reason = "the user database")]

use std::ffi::{CStr, OsStr};
use std::fs::Permissions;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::LazyLock;

use rustix::fs::{Access, FileType, Mode, OFlags, Stat, access, fstat, mkdir, open, stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::{Builder, TempDir};

const NAME: &str = "pkcs11-external-signer";

/// The directories for locks, the best one first. They last until the machine is restarted, and are the same whether or not
/// the user is logged in. `/run/user/UID` isn't the first one, because it is removed with the user's last session, even if
/// a cron job holds a lock there.
pub(super) static LOCKS: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    // If there is nothing else, a place that not every process has is better than none.
    PUBLIC.iter().cloned().chain(of_session()).chain(named_by_environment()).collect()
});

/// The directories for the tunnel's control socket and the kubeconfigs of runs, the best one first.
pub static SESSION: LazyLock<Vec<PathBuf>> =
    LazyLock::new(|| named_by_environment().into_iter().chain(SHARED.iter().cloned()).collect());

/// The directory below `XDG_RUNTIME_DIR`, if that is set to a directory of this user.
fn named_by_environment() -> Option<PathBuf> {
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    (runtime.is_absolute() && is_ours(&runtime)).then(|| runtime.join(NAME))
}

/// The directories for what has to be known after a restart of the machine, the best one first.
pub(super) static LASTING: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    // The default of $XDG_STATE_HOME.
    let state = HOME.as_ref().map(|home| home.join(".local/state").join(NAME));
    if let Some(state) = &state
        && !state.exists()
    {
        make_parents(state);
    }
    state.iter().chain(SHARED.iter()).cloned().collect()
});

/// The directory for files that are made once and kept; `None` for a user without a home.
pub(super) fn data_directory() -> Option<PathBuf> {
    // The default of $XDG_DATA_HOME.
    Some(HOME.as_ref()?.join(".local/share").join(NAME))
}

/// Makes the two parent directories of a directory below the home.
pub(super) fn make_parents(directory: &Path) {
    for parent in [2, 1].into_iter().filter_map(|above| directory.ancestors().nth(above)) {
        let _ = mkdir(parent, Mode::RWXU);
    }
}

/// The user's runtime directory, and others in case its file system is full or read-only, or another user has taken a
/// place.
static SHARED: LazyLock<Vec<PathBuf>> =
    LazyLock::new(|| of_session().into_iter().chain(PUBLIC.iter().cloned()).collect());

/// This user's directories in directories that all users share. Not in TMPDIR: they have to be the same for every process
/// of this user.
static PUBLIC: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let user = geteuid().as_raw();
    ["/tmp", "/dev/shm"].map(|path| format!("{path}/{NAME}-{user}").into())
});

/// The user's directory that systemd makes while the user is logged in.
fn of_session() -> Option<PathBuf> {
    let runtime = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    is_ours(&runtime).then(|| runtime.join(NAME))
}

/// The home directory that the user database names; `None` if it names none.
static HOME: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| home_of(geteuid().as_raw()).filter(|home| home.is_absolute()));

/// The home directory that getpwuid_r(3) finds.
fn home_of(user: u32) -> Option<PathBuf> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut texts = [const { MaybeUninit::<u8>::uninit() }; 16 * 1024];
    let mut found = ptr::null_mut();
    let room = texts.len();
    let into = texts.as_mut_ptr().cast();
    // SAFETY: the pointers are to local variables, and the length is the room behind one.
    unsafe { libc::getpwuid_r(user, entry.as_mut_ptr(), into, room, &mut found) };
    // SAFETY: null, or the entry above, which was written then.
    let entry = unsafe { found.as_ref() }.filter(|entry| !entry.pw_dir.is_null())?;
    // SAFETY: the entry's texts end with a NUL and are in the buffer.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    Some(OsStr::from_bytes(home.to_bytes()).into())
}

fn is_ours(path: &Path) -> bool {
    let is_directory = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_dir();
    stat(path).is_ok_and(|found| is_directory(&found) && found.st_uid == geteuid().as_raw())
}

/// Makes a directory with an unpredictable name, readable by this user alone. When this is dropped, it is removed with
/// everything in it.
pub fn run_directory() -> Result<TempDir, String> {
    in_first(&SESSION, |parent, _| {
        let mut new = Builder::new();
        new.prefix("run-").permissions(Permissions::from_mode(0o700));
        new.tempdir_in(parent).map_err(|error| format!("{}: {error}", parent.display()))
    })
}

/// Calls `make` for one directory after the other, and returns its first success. If it has none, the error lists the
/// reasons.
pub fn in_first<T>(
    paths: &[PathBuf],
    mut make: impl FnMut(&Path, OwnedFd) -> Result<T, String>,
) -> Result<T, String> {
    let mut reasons = Vec::new();
    for path in paths {
        match open_directory(path).and_then(|directory| make(path, directory)) {
            Ok(made) => return Ok(made),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

/// Opens the directory, and makes it if it isn't there. An error if another user could have prepared it.
pub fn open_directory(path: &Path) -> Result<OwnedFd, String> {
    match mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failure(path, error)),
    }
    let directory = open_owned(path)?;
    // A directory on a read-only file system is there, but no file can be made in it.
    access(path, Access::WRITE_OK).map_err(|error| failure(path, error))?;
    Ok(directory)
}

/// Opens the directory, to read what is there. An error if another user could have prepared it.
pub(super) fn open_owned(path: &Path) -> Result<OwnedFd, String> {
    // The open directory is checked, and not its path, which may lead elsewhere a moment later.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory =
        open(path, flags, Mode::empty()).map_err(|error| match (error, stat(path)) {
            (Errno::NOTDIR | Errno::LOOP, _) => format!("{} is not a directory", path.display()),
            (Errno::ACCESS, Ok(found)) => format!("{} {}", path.display(), not_owned(found.st_uid)),
            _ => failure(path, error),
        })?;
    check_private(path, &directory)?;
    Ok(directory)
}

/// Checks that no other user could have made what was opened, or can use it.
pub(super) fn check_private(path: &Path, open: impl AsFd) -> Result<(), String> {
    match exposure(open, &[geteuid().as_raw()]) {
        Ok(None) => Ok(()),
        Ok(Some(exposure)) => Err(format!("{} {exposure}", path.display())),
        Err(error) => Err(failure(path, error)),
    }
}

/// In what way other users than these could have made what was opened, or can use it; `None` if they can't.
pub fn exposure(open: impl AsFd, owners: &[u32]) -> Result<Option<String>, Errno> {
    let found = fstat(open)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    Ok(if !owners.contains(&found.st_uid) {
        Some(not_owned(found.st_uid))
    } else if mode.intersects(Mode::RWXG | Mode::RWXO) {
        Some(format!("is open to other users (mode {:04o})", mode.bits()))
    } else {
        None
    })
}

fn not_owned(owner: u32) -> String {
    format!("belongs to another user (uid {owner}), who or root must give it to you or remove it")
}

/// The text's FNV-1a hash, the same in every release.
pub fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

pub(super) fn failure(path: &Path, error: Errno) -> String {
    format!("{}: {}", path.display(), std::io::Error::from(error))
}
