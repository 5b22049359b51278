//! ELF, as the dynamic loader reads it: the dynamic segment leads to a hash table of the exported
//! symbols. Section headers, which the loader doesn't look at, are not looked at here either.

use object::elf;
use object::endian::{Endianness, U32};
use object::pod;
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _, Sym as _};

use super::{Defect, Pieces, place};

#[cfg(target_pointer_width = "64")]
type Header = elf::FileHeader64<Endianness>;
#[cfg(not(target_pointer_width = "64"))]
type Header = elf::FileHeader32<Endianness>;

type ProgramHeader = <Header as FileHeader>::ProgramHeader;
type Dynamic = <Header as FileHeader>::Dyn;
type Symbol = <Header as FileHeader>::Sym;
type Word = <Header as FileHeader>::Word;

/// This machine; `None` where it is left to the loader to say.
const MACHINE: Option<elf::Machine> = if cfg!(target_arch = "x86_64") {
    Some(elf::EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(elf::EM_AARCH64)
} else if cfg!(target_arch = "x86") {
    Some(elf::EM_386)
} else if cfg!(target_arch = "arm") {
    Some(elf::EM_ARM)
} else {
    None
};

const CLASS: elf::FileClass = if cfg!(target_pointer_width = "64") {
    elf::ELFCLASS64
} else {
    elf::ELFCLASS32
};
const ENCODING: elf::DataEncoding = if cfg!(target_endian = "big") {
    elf::ELFDATA2MSB
} else {
    elf::ELFDATA2LSB
};
const ENDIAN: Endianness = if cfg!(target_endian = "big") {
    Endianness::Big
} else {
    Endianness::Little
};

/// More symbols than share a bucket of a hash table.
const LONGEST_CHAIN: u64 = 4096;

/// Whether the library exports one of these names.
pub(super) fn exports<F: Pieces + ?Sized>(file: &F, names: &[&str]) -> Result<bool, Defect> {
    let ident: [u8; 6] = file.read(0).map_err(|()| Defect::Format)?;
    match ident.strip_prefix(&elf::ELFMAG) {
        None => return Err(Defect::Format),
        Some(kind) if kind != [CLASS.0, ENCODING.0] => return Err(Defect::Machine),
        Some(_) => {}
    }
    let header: Header = file.read(0)?;
    if !header.is_supported() {
        return Err(Defect::Damaged);
    }
    if MACHINE.is_some_and(|machine| header.e_machine(ENDIAN) != machine) {
        return Err(Defect::Machine);
    }
    if header.e_type(ENDIAN) != elf::ET_DYN {
        return Err(Defect::Kind);
    }
    let library = Library::read(file, &header)?;
    for name in names {
        if library.exports(name.as_bytes())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the loader finds a symbol; all are offsets in the file.
struct Library<'f, F: ?Sized> {
    file: &'f F,
    hash: Hash,
    symbols: u64,
    strings: u64,
}

/// The loader prefers GNU's where there are both.
enum Hash {
    Gnu(u64),
    SystemV(u64),
}

impl<'f, F: Pieces + ?Sized> Library<'f, F> {
    fn read(file: &'f F, header: &Header) -> Result<Self, Defect> {
        if usize::from(header.e_phentsize(ENDIAN)) != size_of::<ProgramHeader>() {
            return Err(Defect::Damaged);
        }
        let count = header.e_phnum(ENDIAN);
        let length = place(0, count.into(), size_of::<ProgramHeader>())?;
        let segments = file.read_bytes(wide(header.e_phoff(ENDIAN)), length)?;
        let segments = pod::slice_from_all_bytes::<ProgramHeader>(&segments)?;
        // What is mapped and not there would crash whoever touches it.
        for segment in segments {
            let (offset, size) = segment.file_range(ENDIAN);
            if segment.p_type(ENDIAN) == elf::PT_LOAD && size > 0 {
                let _: u8 = file.read(place(offset, size - 1, 1)?)?;
            }
        }
        // A program without one is linked statically. Of several, here and below, the loader takes
        // the last.
        let dynamic = segments
            .iter()
            .rfind(|segment| segment.p_type(ENDIAN) == elf::PT_DYNAMIC)
            .ok_or(Defect::Kind)?;
        let start = in_file(segments, wide(dynamic.p_vaddr(ENDIAN)))?;
        let dynamic = file.read_bytes(start, wide(dynamic.p_filesz(ENDIAN)))?;
        let dynamic = pod::slice_from_all_bytes::<Dynamic>(&dynamic)?;
        let entry = |tag| {
            dynamic
                .iter()
                .take_while(|entry| entry.tag(ENDIAN) != elf::DT_NULL)
                .filter(|entry| entry.tag(ENDIAN) == tag)
                .last()
                .map(|entry| in_file(segments, entry.val(ENDIAN)))
                .transpose()
        };
        let hash = match entry(elf::DT_GNU_HASH)? {
            Some(table) => Hash::Gnu(table),
            None => Hash::SystemV(entry(elf::DT_HASH)?.ok_or(())?),
        };
        Ok(Self {
            file,
            hash,
            symbols: entry(elf::DT_SYMTAB)?.ok_or(())?,
            strings: entry(elf::DT_STRTAB)?.ok_or(())?,
        })
    }

    fn exports(&self, name: &[u8]) -> Result<bool, ()> {
        match self.hash {
            Hash::Gnu(table) => self.in_gnu_table(table, name),
            Hash::SystemV(table) => self.in_system_v_table(table, name),
        }
    }

    /// A bucket holds the index of its first symbol; the others follow that one, up to a value
    /// that is odd.
    fn in_gnu_table(&self, table: u64, name: &[u8]) -> Result<bool, ()> {
        let header: elf::GnuHashHeader<Endianness> = self.file.read(table)?;
        let filters = place(table, 1, size_of_val(&header))?;
        let filter_count = u64::from(header.bloom_count.get(ENDIAN));
        let buckets = place(filters, filter_count, size_of::<Word>())?;
        let bucket_count = header.bucket_count.get(ENDIAN);
        let values = place(buckets, bucket_count.into(), size_of::<u32>())?;
        let hash = elf::gnu_hash(name);
        let bucket = hash.checked_rem(bucket_count).ok_or(())?;
        let first = self.number(buckets, bucket.into())?;
        if first == 0 {
            return Ok(false);
        }
        let base = header.symbol_base.get(ENDIAN);
        let first_value = u64::from(first.checked_sub(base).ok_or(())?);
        for step in 0..LONGEST_CHAIN {
            let value = self.number(values, first_value + step)?;
            if value | 1 == hash | 1 && self.is_exported_as(u64::from(first) + step, name)? {
                return Ok(true);
            }
            if value & 1 == 1 {
                return Ok(false);
            }
        }
        Err(())
    }

    /// A bucket holds the index of its first symbol, and the chain that of each next one.
    fn in_system_v_table(&self, table: u64, name: &[u8]) -> Result<bool, ()> {
        let header: elf::HashHeader<Endianness> = self.file.read(table)?;
        let buckets = place(table, 1, size_of_val(&header))?;
        let bucket_count = header.bucket_count.get(ENDIAN);
        let chain = place(buckets, bucket_count.into(), size_of::<u32>())?;
        let bucket = elf::hash(name).checked_rem(bucket_count).ok_or(())?;
        let mut index = self.number(buckets, bucket.into())?;
        for _ in 0..LONGEST_CHAIN {
            if index == 0 {
                return Ok(false);
            }
            if self.is_exported_as(index.into(), name)? {
                return Ok(true);
            }
            index = self.number(chain, index.into())?;
        }
        Err(())
    }

    fn number(&self, table: u64, index: u64) -> Result<u32, ()> {
        let number: U32<Endianness> = self.file.read(place(table, index, size_of::<u32>())?)?;
        Ok(number.get(ENDIAN))
    }

    fn is_exported_as(&self, index: u64, name: &[u8]) -> Result<bool, ()> {
        let entry = place(self.symbols, index, size_of::<Symbol>())?;
        let symbol: Symbol = self.file.read(entry)?;
        let is_hidden = matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL);
        if symbol.is_undefined(ENDIAN) || symbol.st_bind() == elf::STB_LOCAL || is_hidden {
            return Ok(false);
        }
        let start = place(self.strings, symbol.st_name(ENDIAN).into(), 1)?;
        let length = u64::try_from(name.len()).map_err(drop)?;
        let found = self.file.read_bytes(start, length + 1)?;
        Ok(found.strip_suffix(b"\0") == Some(name))
    }
}

/// A number of this machine's width.
fn wide(word: impl Into<u64>) -> u64 {
    word.into()
}

/// Where in the file that is which the loader will find at this address.
fn in_file(segments: &[ProgramHeader], address: u64) -> Result<u64, ()> {
    segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == elf::PT_LOAD)
        .find_map(|segment| {
            let start = wide(segment.p_vaddr(ENDIAN));
            let (offset, size) = segment.file_range(ENDIAN);
            let inside = address.checked_sub(start).filter(|inside| *inside < size)?;
            offset.checked_add(inside)
        })
        .ok_or(())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

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

    fn found(file: &[u8], names: &[&str]) -> Result<bool, Defect> {
        exports(file, names)
    }

    #[test]
    fn an_exported_name_is_found_in_either_kind_of_table() {
        for style in ["gnu", "sysv", "both"] {
            let style = format!("-Wl,--hash-style={style}");
            let file = built(LISTED, &["-shared", &style]);
            assert_eq!(found(&file, &["C_GetFunctionList"]), Ok(true));
            assert_eq!(found(&file, &["no", "C_GetFunctionList"]), Ok(true));
            for other in ["C_GetFunctionLis", "C_GetFunctionListX", "", "C_Sign"] {
                assert_eq!(found(&file, &[other]), Ok(false), "{style}: {other}");
            }
        }
    }

    #[test]
    fn many_names_are_told_apart() {
        let source: String = (0..3000)
            .map(|number| format!("int f{number}(void) {{ return 0; }}\n"))
            .collect();
        for style in ["gnu", "sysv"] {
            let style = format!("-Wl,--hash-style={style}");
            let file = built(&source, &["-shared", &style]);
            for number in 0..3000 {
                assert_eq!(found(&file, &[&format!("f{number}")]), Ok(true));
                assert_eq!(found(&file, &[&format!("g{number}")]), Ok(false));
            }
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
            let file = library(source);
            assert_eq!(found(&file, &["C_GetFunctionList"]), Ok(false), "{source}");
        }
    }

    #[test]
    fn section_headers_are_not_needed() {
        let mut file = library(LISTED);
        // e_shoff; e_shnum and e_shstrndx
        file[0x28..0x30].fill(0);
        file[0x3c..0x40].fill(0);
        assert_eq!(found(&file, &["C_GetFunctionList"]), Ok(true));
    }

    #[test]
    fn what_is_no_library_for_this_machine_is_told_apart() {
        let names = ["C_GetFunctionList"];
        let file = library(LISTED);
        let with = |offset: usize, byte: u8| {
            let mut file = file.clone();
            file[offset] = byte;
            found(&file, &names)
        };
        assert_eq!(with(0, 0), Err(Defect::Format));
        // EI_CLASS, EI_DATA, e_machine, e_type
        assert_eq!(with(4, 3 - file[4]), Err(Defect::Machine));
        assert_eq!(with(5, 3 - file[5]), Err(Defect::Machine));
        assert_eq!(with(18, 0x2b), Err(Defect::Machine));
        assert_eq!(with(16, 2), Err(Defect::Kind));
        for text in ["", "\x7f", "\x7fEL", "#!/bin/sh\n", "INPUT ( libc.so )"] {
            assert_eq!(found(text.as_bytes(), &names), Err(Defect::Format));
        }
        let linked = "void _start(void) {} int C_GetFunctionList(void) { return 0; }";
        let program = built(linked, &["-static", "-no-pie"]);
        assert_eq!(found(&program, &names), Err(Defect::Kind));
        let object = built(LISTED, &["-c"]);
        assert_eq!(found(&object, &names), Err(Defect::Kind));
    }

    #[test]
    fn damage_is_survived_wherever_it_is() {
        let file = library(LISTED);
        let mut damaged = file.clone();
        for place in 0..file.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff, file[place] ^ 4] {
                damaged[place] = byte;
                let _ = found(&damaged, &["C_GetFunctionList"]);
            }
            // A number's higher bytes, as well.
            let end = file.len().min(place + 8);
            damaged[place..end].fill(0xff);
            let _ = found(&damaged, &["C_GetFunctionList"]);
            damaged[place..end].copy_from_slice(&file[place..end]);
        }
        for length in 0..file.len() {
            let _ = found(&file[..length], &["C_GetFunctionList"]);
        }
        assert_eq!(found(&file[..100], &["x"]), Err(Defect::Damaged));
    }
}
