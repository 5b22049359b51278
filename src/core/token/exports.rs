//! Whether a file is a PKCS#11 library, found out without running any of it.
//!
//! Loading a library runs its constructors, and a kubeconfig can name any library of the machine. So
//! only a file is loaded that is a shared library for this machine and exports one of PKCS#11's
//! entry points. An entry point that only a library behind it has is not seen.
//!
//! The path that is checked is the one that is loaded: `TrustedLibrary` made sure that in between
//! only root and the user can put another file there.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::{
    Architecture, FileKind, NameOrOrdinal, Object as _, ObjectKind, ObjectSegment as _, ReadCache,
    ReadRef,
};

use super::error::ModuleError;

/// Either is enough (PKCS#11 3.0, 3.2).
const ENTRY_POINT: &str = "C_GetFunctionList";

/// In bytes: more than any table has, and any part of a universal file.
const LONGEST: u64 = 64 << 20;

/// This machine's processor; `None` for one that is left to the loader.
const MACHINE: Option<Architecture> = if cfg!(target_arch = "x86_64") {
    Some(Architecture::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(Architecture::Aarch64)
} else if cfg!(target_arch = "x86") {
    Some(Architecture::I386)
} else if cfg!(target_arch = "arm") {
    Some(Architecture::Arm)
} else {
    None
};

/// The formats of this system's libraries.
const READS_ELF: bool = cfg!(not(target_vendor = "apple"));
const READS_MACH_O: bool = cfg!(any(test, target_vendor = "apple"));

/// A file whose numbers aren't believed: nothing is allocated for a length that it can't have.
#[derive(Clone, Copy)]
struct Bounded<'d>(&'d ReadCache<File>);

impl<'d> ReadRef<'d> for Bounded<'d> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        if size > LONGEST {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

/// Why a file's exports aren't known.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
enum Defect {
    #[error("its tables are damaged")]
    Damaged,
    #[error("it is no {} file", if READS_ELF { "ELF" } else { "Mach-O" })]
    Format,
    /// A program, or a part of one.
    #[error("it is no shared library")]
    Kind,
    #[error("it is built for another kind of machine")]
    Machine,
}

impl From<object::Error> for Defect {
    fn from(_: object::Error) -> Self {
        Self::Damaged
    }
}

/// Checks that the file can be read, and is a library that exports an entry point.
///
/// # Errors
/// [`ModuleError::Load`] if it can't be read, [`ModuleError::NotAModule`] for any other file.
pub(super) fn check(path: &Path) -> Result<(), ModuleError> {
    let file = File::open(path)
        .map_err(|error| ModuleError::Load { path: path.to_owned(), reason: error.to_string() })?;
    let reason = match exports(Bounded(&ReadCache::new(file)), ENTRY_POINT) {
        Ok(true) => return Ok(()),
        Ok(false) => format!("it exports no {ENTRY_POINT}"),
        Err(defect) => defect.to_string(),
    };
    Err(ModuleError::NotAModule { path: path.to_owned(), reason })
}

/// Whether the library exports this name.
fn exports<'d, R: ReadRef<'d>>(data: R, name: &str) -> Result<bool, Defect> {
    match FileKind::parse(data).map_err(|_| Defect::Format)? {
        FileKind::MachOFat32 if READS_MACH_O => {
            exports_of_one(part(MachOFatFile32::parse(data)?.arches(), data)?, name)
        }
        FileKind::MachOFat64 if READS_MACH_O => {
            exports_of_one(part(MachOFatFile64::parse(data)?.arches(), data)?, name)
        }
        _ => exports_of_one(data, name),
    }
}

/// The same of a file that isn't a universal one.
fn exports_of_one<'d, R: ReadRef<'d>>(data: R, name: &str) -> Result<bool, Defect> {
    let is_elf = match FileKind::parse(data)? {
        FileKind::Elf32 | FileKind::Elf64 if READS_ELF => true,
        FileKind::MachO32 | FileKind::MachO64 if READS_MACH_O => false,
        _ => return Err(Defect::Format),
    };
    let file = object::File::parse(data)?;
    check_kind(&file, data)?;
    // Without section headers the crate finds no symbols; the loader does.
    if is_elf && file.sections().next().is_none() {
        return Ok(true);
    }
    // Mach-O has C's names with a prefix.
    let prefix: &[u8] = if is_elf { b"" } else { b"_" };
    Ok(file.exports()?.flatten().any(|export| {
        let NameOrOrdinal::Name(exported) = export.name() else {
            return false;
        };
        exported.strip_prefix(prefix) == Some(name.as_bytes())
    }))
}

/// The part of a universal file that is for this machine.
fn part<'d, R: ReadRef<'d>>(parts: &[impl FatArch], data: R) -> Result<&'d [u8], Defect> {
    let part = parts
        .iter()
        .find(|part| MACHINE.is_none_or(|machine| part.architecture() == machine))
        .ok_or(Defect::Machine)?;
    Ok(part.data(data)?)
}

/// Checks that it is a whole shared library for this machine.
fn check_kind<'d, R: ReadRef<'d>>(file: &object::File<'d, R>, data: R) -> Result<(), Defect> {
    if MACHINE.is_some_and(|machine| file.architecture() != machine)
        || file.is_64() != cfg!(target_pointer_width = "64")
        || file.is_little_endian() != cfg!(target_endian = "little")
    {
        return Err(Defect::Machine);
    }
    // A Mach-O bundle is of a kind that the crate doesn't know.
    if matches!(file.kind(), ObjectKind::Relocatable | ObjectKind::Executable | ObjectKind::Core) {
        return Err(Defect::Kind);
    }
    // Memory that is mapped beyond the end of the file would crash the program.
    let length = data.len().map_err(|()| Defect::Damaged)?;
    let is_whole = file.segments().all(|segment| {
        let (offset, size) = segment.file_range();
        offset.checked_add(size).is_some_and(|end| end <= length)
    });
    is_whole.then_some(()).ok_or(Defect::Damaged)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use object::macho;

    use super::*;

    const NAME: &str = "C_GetFunctionList";
    const LISTED: &str = "int C_GetFunctionList(void) { return 0; }";

    /// What the machine's own compiler makes of this.
    fn built(source: &str, options: &[&str]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        fs::write(file("library.c"), source).unwrap();
        let status = Command::new("cc")
            .args(["-nostdlib", "-fPIC", "-o"])
            .args([file("library.so"), file("library.c")])
            .args(options)
            .status()
            .unwrap();
        assert!(status.success());
        fs::read(file("library.so")).unwrap()
    }

    fn library(source: &str) -> Vec<u8> {
        built(source, &["-shared"])
    }

    fn found(file: &[u8], name: &str) -> Result<bool, Defect> {
        exports(file, name)
    }

    #[test]
    fn an_exported_name_is_found() {
        let file = library(LISTED);
        assert_eq!(found(&file, NAME), Ok(true));
        for other in ["C_GetFunctionLis", "C_GetFunctionListX", "", "C_Sign"] {
            assert_eq!(found(&file, other), Ok(false), "{other}");
        }
    }

    #[test]
    fn what_the_loader_would_not_find_is_not_exported() {
        for source in [
            "static int C_GetFunctionList(void) { return 0; } int (*it)(void) = C_GetFunctionList;",
            "__attribute__((visibility(\"hidden\"))) int C_GetFunctionList(void) { return 0; }",
            "int C_GetFunctionList(void); int user(void) { return C_GetFunctionList(); }",
            "char *text = \"C_GetFunctionList\";",
            "",
        ] {
            // macOS wants undefined symbols allowed.
            let options: &[&str] = if cfg!(target_vendor = "apple") {
                &["-shared", "-undefined", "dynamic_lookup"]
            } else {
                &["-shared"]
            };
            assert_eq!(found(&built(source, options), NAME), Ok(false), "{source}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_section_headers_is_left_to_the_loader() {
        let mut file = library(LISTED);
        // e_shoff; e_shnum and e_shstrndx
        file[0x28..0x30].fill(0);
        file[0x3c..0x40].fill(0);
        assert_eq!(found(&file, NAME), Ok(true));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_elf_file_that_is_no_library_for_this_machine_is_told_apart() {
        let file = library(LISTED);
        let with = |offset: usize, byte: u8| {
            let mut file = file.clone();
            file[offset] = byte;
            found(&file, NAME)
        };
        assert_eq!(with(0, 0), Err(Defect::Format));
        // e_machine, e_type
        assert_eq!(with(18, 0x2b), Err(Defect::Machine));
        assert_eq!(with(16, 2), Err(Defect::Kind));
        for text in ["", "\x7f", "\x7fEL", "#!/bin/sh\n", "INPUT ( libc.so )"] {
            assert_eq!(found(text.as_bytes(), NAME), Err(Defect::Format));
        }
        let linked = "void _start(void) {} int C_GetFunctionList(void) { return 0; }";
        let program = built(linked, &["-static", "-no-pie"]);
        assert_eq!(found(&program, NAME), Err(Defect::Kind));
        let object = built(LISTED, &["-c"]);
        assert_eq!(found(&object, NAME), Err(Defect::Kind));
    }

    #[test]
    fn damage_is_survived_wherever_it_is() {
        let file = library(LISTED);
        let mut damaged = file.clone();
        for place in 0..file.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff, file[place] ^ 4] {
                damaged[place] = byte;
                let _ = found(&damaged, NAME);
            }
            // A number's higher bytes, as well.
            let end = file.len().min(place + 8);
            damaged[place..end].fill(0xff);
            let _ = found(&damaged, NAME);
            damaged[place..end].copy_from_slice(&file[place..end]);
        }
        for length in 0..file.len() {
            let _ = found(&file[..length], NAME);
        }
        assert_eq!(found(&file[..100], NAME), Err(Defect::Damaged));
    }

    /// A Mach-O library for the machine, with the trie `_C_` and below it `GetFunctionList` and
    /// `Sign`; `_C_` itself is no export.
    fn mach_o(kind: macho::FileType, cpu: macho::CpuType) -> Vec<u8> {
        let mut trie = b"\0\x01_C_\0\x07".to_vec();
        trie.extend(b"\0\x02Sign\0\x24GetFunctionList\0\x28");
        trie.resize(0x24, 0);
        trie.extend(b"\x02\0\x10\0\x02\0\x20\0");
        let words = [
            macho::MH_MAGIC_64,
            cpu.0,
            0,
            kind.0,
            1,
            16,
            0,
            0,
            macho::LC_DYLD_EXPORTS_TRIE.0,
            16,
            48,
            u32::try_from(trie.len()).unwrap(),
        ];
        let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.extend(trie);
        file
    }

    const CPU: macho::CpuType =
        if cfg!(target_arch = "aarch64") { macho::CPU_TYPE_ARM64 } else { macho::CPU_TYPE_X86_64 };
    const OTHER_CPU: macho::CpuType = macho::CPU_TYPE_POWERPC64;

    #[test]
    fn mach_o_libraries_and_bundles_are_read() {
        for kind in [macho::MH_DYLIB, macho::MH_BUNDLE] {
            let file = mach_o(kind, CPU);
            assert_eq!(found(&file, NAME), Ok(true));
            assert_eq!(found(&file, "C_Sign"), Ok(true));
            for other in ["C_", "", "C_GetFunctionLis", "C_Login"] {
                assert_eq!(found(&file, other), Ok(false), "{other}");
            }
        }
        assert_eq!(found(&mach_o(macho::MH_EXECUTE, CPU), NAME), Err(Defect::Kind));
        let other = mach_o(macho::MH_DYLIB, macho::CPU_TYPE_ARM);
        assert_eq!(found(&other, NAME), Err(Defect::Machine));
    }

    #[test]
    fn a_universal_file_is_read_where_this_machines_part_is() {
        let part = mach_o(macho::MH_DYLIB, CPU);
        let universal = |cpu: macho::CpuType| {
            let size = u32::try_from(part.len()).unwrap();
            let other = OTHER_CPU.0;
            let words = [macho::FAT_MAGIC, 2, other, 0, 48, 4, 0, cpu.0, 3, 48, size, 0];
            let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            file.extend(&part);
            file
        };
        assert_eq!(found(&universal(CPU), NAME), Ok(true));
        assert_eq!(found(&universal(OTHER_CPU), NAME), Err(Defect::Machine));
    }
}
