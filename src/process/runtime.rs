//! The directory for what this user's processes tell each other: locks, markers, and the
//! kubeconfigs of commands.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, Mode, OFlags, access, fstat, mkdir, open, stat};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};

/// Where it is for this process: the first place that can be used, and the first one of all where
/// there is none.
pub(super) fn directory() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let user = geteuid();
        let first = place(std::env::var_os("XDG_RUNTIME_DIR"), user);
        // Others for a file system that is full or read-only, or a place that somebody prepared.
        let others = ["/tmp", "/dev/shm"].map(|place| fallback(place, user));
        std::iter::once(first.clone())
            .chain(others)
            .find(|place| open_directory(place).is_ok())
            .unwrap_or(first)
    })
}

/// Fixed, and not TMPDIR: it must be the same for every process of this user.
fn fallback(place: &str, user: Uid) -> PathBuf {
    PathBuf::from(format!("{place}/pkcs11-external-signer-{}", user.as_raw()))
}

fn place(runtime: Option<OsString>, user: Uid) -> PathBuf {
    let is_users_own = |path: &PathBuf| {
        path.is_absolute()
            && stat(path).is_ok_and(|found| found.st_uid == user.as_raw())
            && path.is_dir()
    };
    match runtime.map(PathBuf::from).filter(is_users_own) {
        Some(runtime) => runtime.join("pkcs11-external-signer"),
        None => fallback("/tmp", user),
    }
}

/// Opens the directory, made if it isn't there, unless somebody else could have prepared it. The
/// error is a text for people.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, String> {
    let failed = |error: Errno| failure(path, error);
    match mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }
    // What is checked is what was opened: the path may lead elsewhere a moment later.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => format!("{} is not a directory", path.display()),
        error => failed(error),
    })?;
    let found = fstat(&directory).map_err(failed)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(format!(
            "{} belongs to another user (uid {})",
            path.display(),
            found.st_uid
        ));
    }
    // On a read-only file system one from before is there, but takes nothing.
    access(path, Access::WRITE_OK).map_err(failed)?;
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(format!(
            "{} is open to other users (mode {:04o})",
            path.display(),
            mode.bits()
        ));
    }
    Ok(directory)
}

/// A file name for any text: its FNV-1a hash, the same in every release. Texts that should collide
/// would share a file: a wait without need, or a memory of another token.
pub(super) fn file_name(text: &str, extension: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}.{extension}")
}

/// What went wrong with a path, for people.
pub(super) fn failure(path: &Path, error: Errno) -> String {
    format!("{}: {}", path.display(), std::io::Error::from(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_directory_counts_only_if_it_is_the_users_own() {
        let runtime = tempfile::tempdir().unwrap();
        let path = runtime.path().as_os_str().to_owned();
        let (user, other) = (geteuid(), Uid::from_raw(geteuid().as_raw() + 1));
        assert_eq!(
            place(Some(path.clone()), user),
            runtime.path().join("pkcs11-external-signer")
        );
        let fallback = |user: Uid| PathBuf::from(format!("/tmp/pkcs11-external-signer-{user}"));
        assert_eq!(place(Some(path), other), fallback(other));
        for unfit in [
            None,
            Some("".into()),
            Some(".".into()),
            Some("/nowhere/at/all".into()),
        ] {
            assert_eq!(place(unfit, user), fallback(user));
        }
    }
}
