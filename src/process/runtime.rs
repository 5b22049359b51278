//! The directories for what this user's processes tell each other: locks, and the kubeconfigs of
//! commands, in one that ends with the machine's run; what tokens have refused in one that doesn't.
//!
//! Which they are is the same for all processes of a user, whatever their environment: a PIN that
//! was refused in a shell is not sent once more by a cron job.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, Mode, OFlags, access, fstat, mkdir, open, stat};
use rustix::io::Errno;
use rustix::process::geteuid;

const NAME: &str = "pkcs11-external-signer";

/// For locks and runs: the first place that can be used. The error is a text for people, about all
/// of them.
pub(super) fn directory() -> Result<&'static Path, String> {
    static PLACE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        // Where there is nothing else, the variable is better than nothing.
        let variable = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let variable = variable.filter(|path| path.is_absolute() && is_own(path));
        let mut places = session_places();
        places.extend(variable.map(|path| path.join(NAME)));
        first_of(&places)
    });
    place.as_deref().map_err(String::clone)
}

/// For what must be known for longer: the first place that can be used.
pub(super) fn memory() -> Result<&'static Path, String> {
    static PLACE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let place = PLACE.get_or_init(|| first_of(memories()));
    place.as_deref().map_err(String::clone)
}

/// All places that may be it, and may have been.
pub(super) fn memories() -> &'static [PathBuf] {
    static PLACES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let state = super::home().map(|home| {
            // As $XDG_STATE_HOME is where it isn't set.
            for parent in [".local", ".local/state"] {
                let _ = mkdir(home.join(parent), Mode::RWXU);
            }
            home.join(".local/state").join(NAME)
        });
        state.into_iter().chain(session_places()).collect()
    })
}

/// The user's own, and others for a file system that is full or read-only, or a place that somebody
/// prepared. Not TMPDIR: they must be the same for every process of this user.
fn session_places() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let own = [
        super::user_directory(),
        Some(format!("/run/user/{user}").into()),
    ];
    let own = own.into_iter().flatten().filter(|path| is_own(path));
    let shared = ["/tmp", "/dev/shm"].map(|place| format!("{place}/{NAME}-{user}").into());
    own.map(|path| path.join(NAME)).chain(shared).collect()
}

fn is_own(path: &Path) -> bool {
    path.is_dir() && stat(path).is_ok_and(|found| found.st_uid == geteuid().as_raw())
}

fn first_of(places: &[PathBuf]) -> Result<PathBuf, String> {
    let mut reasons = Vec::new();
    for place in places {
        match open_directory(place) {
            Ok(_) => return Ok(place.clone()),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

/// Opens the directory, made if it isn't there, unless somebody else could have prepared it. The
/// error is a text for people.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd, String> {
    match mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_existing(path),
        Err(error) => Err(failure(path, error)),
    }
}

/// The same of one that is there.
pub(super) fn open_existing(path: &Path) -> Result<OwnedFd, String> {
    let failed = |error: Errno| failure(path, error);
    // What is checked is what was opened: the path may lead elsewhere a moment later.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => format!("{} is not a directory", path.display()),
        Errno::ACCESS => match stat(path) {
            Ok(found) => strangers(path, found.st_uid),
            Err(_) => failed(error),
        },
        error => failed(error),
    })?;
    let found = fstat(&directory).map_err(failed)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(strangers(path, found.st_uid));
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

fn strangers(path: &Path, owner: u32) -> String {
    format!(
        "{} belongs to another user (uid {owner}), who or root must remove it",
        path.display()
    )
}

/// A file name for any text. Texts that should collide would share a file: a wait without need, or a
/// memory of another token.
pub(super) fn file_name(text: &str, extension: &str) -> String {
    format!("{:016x}.{extension}", fnv_1a(text))
}

/// The text's FNV-1a hash, the same in every release.
pub fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What went wrong with a path, for people.
pub(super) fn failure(path: &Path, error: Errno) -> String {
    format!("{}: {}", path.display(), std::io::Error::from(error))
}
