//! A program by the name that a kubeconfig has for it, as Go finds it (os/exec, LookPath).

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// The program that a client runs: a path is itself, a name is looked for in PATH. `None` where it is
/// none, or is found by a relative folder, from which Go runs nothing.
pub fn find_program(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|path| is_executable(path));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(command))
        .find(|path| is_executable(path))
        .filter(|path| path.is_absolute())
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}
