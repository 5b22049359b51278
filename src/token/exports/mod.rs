//! Whether a file is a PKCS#11 library, found out without running any of it.
//!
//! Loading a library runs its constructors, whatever it is, and a kubeconfig can name any library
//! of the machine. So only a file is loaded that is a shared library for this machine and exports
//! one of PKCS#11's entry points, by the tables that the loader itself goes by. An entry point
//! that only a library behind it has is not seen.
//!
//! What is checked is the path that is loaded: `TrustedLibrary` made sure that in between nobody
//! but root and the user can put another file there.

mod elf;
mod mach_o;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::pod::{self, Pod};

use crate::error::ModuleError;

/// Either is enough (PKCS#11 3.0, 3.2).
const ENTRY_POINTS: [&str; 2] = ["C_GetFunctionList", "C_GetInterface"];

/// The file can be read, and is a library that exports an entry point.
pub(super) fn check(path: &Path) -> Result<(), ModuleError> {
    let file = File::open(path).map_err(|error| ModuleError::Load {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let exports = if cfg!(target_vendor = "apple") {
        mach_o::exports(&file, &ENTRY_POINTS)
    } else {
        elf::exports(&file, &ENTRY_POINTS)
    };
    let reason = match exports {
        Ok(true) => return Ok(()),
        Ok(false) => format!("it exports no {}", ENTRY_POINTS.join(" and no ")),
        Err(defect) => defect.words().to_owned(),
    };
    Err(ModuleError::NotAModule {
        path: path.to_owned(),
        reason,
    })
}

/// Why a file's exports aren't known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Defect {
    Damaged,
    /// Not in this system's format.
    Format,
    /// A program, or a part of one.
    Kind,
    Machine,
}

impl Defect {
    fn words(self) -> &'static str {
        match self {
            Self::Damaged => "its tables are damaged",
            Self::Format if cfg!(target_vendor = "apple") => "it is no Mach-O file",
            Self::Format => "it is no ELF file",
            Self::Kind => "it is no shared library",
            Self::Machine => "it is built for another kind of machine",
        }
    }
}

/// What doesn't fit the file, or is longer than it would be in any library.
impl From<()> for Defect {
    fn from((): ()) -> Self {
        Self::Damaged
    }
}

/// Longer than any table that is read as a whole.
const LONGEST_TABLE: u64 = 16 << 20;

/// A file that is read where something stands that is needed. Its numbers aren't believed: nothing
/// is read, or made room for, that is longer than it could be.
trait Pieces {
    fn read_into(&self, piece: &mut [u8], offset: u64) -> Result<(), ()>;

    fn read<T: Pod>(&self, offset: u64) -> Result<T, ()> {
        let mut longest = [0; 64];
        let piece = longest.get_mut(..size_of::<T>()).ok_or(())?;
        self.read_into(piece, offset)?;
        pod::from_bytes(piece).map(|(value, _)| *value)
    }

    fn read_bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, ()> {
        if length > LONGEST_TABLE {
            return Err(());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(drop)?];
        self.read_into(&mut bytes, offset)?;
        Ok(bytes)
    }
}

impl Pieces for File {
    fn read_into(&self, piece: &mut [u8], offset: u64) -> Result<(), ()> {
        self.read_exact_at(piece, offset).map_err(drop)
    }
}

#[cfg(test)]
impl Pieces for [u8] {
    fn read_into(&self, piece: &mut [u8], offset: u64) -> Result<(), ()> {
        let start = usize::try_from(offset).map_err(drop)?;
        let rest = self.get(start..).ok_or(())?;
        piece.copy_from_slice(rest.get(..piece.len()).ok_or(())?);
        Ok(())
    }
}

/// Where an entry of a table begins.
fn place(table: u64, index: u64, size: usize) -> Result<u64, ()> {
    let size = u64::try_from(size).map_err(drop)?;
    let offset = index.checked_mul(size).ok_or(())?;
    table.checked_add(offset).ok_or(())
}
