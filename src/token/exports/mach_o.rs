//! Mach-O, as macOS's loader reads it: the exports trie, or for a library without one the symbol
//! table; in a universal file, the part for this machine.

use object::endian::{BigEndian, Endianness, U32};
use object::macho;
use object::pod;
use object::read::Bytes;
use object::read::macho::{FatArch, MachHeader as _, Nlist as _};

use super::{Defect, Pieces, place};

type Header = macho::MachHeader64<Endianness>;
type Symbol = macho::Nlist64<Endianness>;

/// This machine; `None` where it is left to the loader to say.
const MACHINE: Option<macho::CpuType> = if cfg!(target_arch = "x86_64") {
    Some(macho::CPU_TYPE_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(macho::CPU_TYPE_ARM64)
} else {
    None
};

/// More kinds of machine than a universal file is for.
const MOST_PARTS: u32 = 64;

/// Whether the library exports one of these names.
pub(super) fn exports<F: Pieces + ?Sized>(file: &F, names: &[&str]) -> Result<bool, Defect> {
    let magic: U32<BigEndian> = file.read(0).map_err(|()| Defect::Format)?;
    match magic.get(BigEndian) {
        macho::FAT_MAGIC => exports_at(file, part::<macho::FatArch32>(file)?, names),
        macho::FAT_MAGIC_64 => exports_at(file, part::<macho::FatArch64>(file)?, names),
        _ => exports_at(file, 0, names),
    }
}

/// Where a universal file has this machine's part.
fn part<A: FatArch>(file: &(impl Pieces + ?Sized)) -> Result<u64, Defect> {
    let header: macho::FatHeader = file.read(0)?;
    let parts = place(0, 1, size_of_val(&header))?;
    for index in 0..header.nfat_arch.get(BigEndian).min(MOST_PARTS) {
        let part: A = file.read(place(parts, index.into(), size_of::<A>())?)?;
        if MACHINE.is_none_or(|machine| part.cputype() == machine) {
            return Ok(part.offset().into());
        }
    }
    Err(Defect::Machine)
}

/// `start` is what all offsets count from.
fn exports_at<F: Pieces + ?Sized>(file: &F, start: u64, names: &[&str]) -> Result<bool, Defect> {
    let header: Header = file.read(start).map_err(|()| Defect::Format)?;
    if !header.is_supported() {
        return Err(Defect::Format);
    }
    let endian = header.endian().map_err(|_| Defect::Format)?;
    if MACHINE.is_some_and(|machine| header.cputype(endian) != machine) {
        return Err(Defect::Machine);
    }
    if !matches!(header.filetype(endian), macho::MH_DYLIB | macho::MH_BUNDLE) {
        return Err(Defect::Kind);
    }
    let length = place(header.sizeofcmds(endian).into(), 1, size_of::<Header>())?;
    let beginning = file.read_bytes(start, length)?;
    let mut commands = header
        .load_commands(endian, &*beginning, 0)
        .map_err(|_| Defect::Damaged)?;
    let mut symbols = None;
    while let Some(command) = commands.next().map_err(|_| Defect::Damaged)? {
        let trie = if let Ok(Some(trie)) = command.dyld_exports_trie() {
            (trie.dataoff, trie.datasize)
        } else if let Ok(Some(info)) = command.dyld_info() {
            (info.export_off, info.export_size)
        } else {
            if let Ok(Some(table)) = command.symtab() {
                symbols = Some(table);
            }
            continue;
        };
        let (offset, size) = (trie.0.get(endian), trie.1.get(endian));
        if size > 0 {
            let trie = file.read_bytes(place(start, offset.into(), 1)?, size.into())?;
            return any(names, |name| is_in_trie(&trie, name));
        }
    }
    let Some(table) = symbols else {
        return Ok(false);
    };
    let strings = file.read_bytes(
        place(start, table.stroff.get(endian).into(), 1)?,
        table.strsize.get(endian).into(),
    )?;
    let count = table.nsyms.get(endian);
    let symbols = file.read_bytes(
        place(start, table.symoff.get(endian).into(), 1)?,
        place(0, count.into(), size_of::<Symbol>())?,
    )?;
    let symbols = pod::slice_from_all_bytes::<Symbol>(&symbols)?;
    any(names, |name| {
        Ok(symbols.iter().any(|symbol| {
            let kind = symbol.n_type();
            let is_exported = kind.contains(macho::N_EXT) && !kind.contains(macho::N_PEXT);
            let found = usize::try_from(symbol.n_strx(endian))
                .ok()
                .and_then(|start| strings.get(start..));
            symbol.is_definition()
                && is_exported
                && found
                    .and_then(|found| found.strip_prefix(name))
                    .is_some_and(|rest| rest.first() == Some(&0))
        }))
    })
}

/// Names in the tables are C's with an underscore before them.
fn any(names: &[&str], is_there: impl Fn(&[u8]) -> Result<bool, ()>) -> Result<bool, Defect> {
    for name in names {
        if is_there(format!("_{name}").as_bytes())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Goes down from the root, along the edges that spell the name. A node is the length of what it
/// says of the name that ends there, that, and its edges: a part of a name, and where the next
/// node is.
fn is_in_trie(trie: &[u8], mut name: &[u8]) -> Result<bool, ()> {
    let mut node = 0;
    loop {
        let mut bytes = Bytes(trie.get(node..).ok_or(())?);
        let length = bytes.read_uleb128()?;
        if name.is_empty() {
            return Ok(length > 0);
        }
        bytes.skip(usize::try_from(length).map_err(drop)?)?;
        let mut next = None;
        for _ in 0..*bytes.read::<u8>()? {
            let edge = bytes.read_string()?;
            let child = bytes.read_uleb128()?;
            // An empty one would lead on for ever.
            if !edge.is_empty()
                && next.is_none()
                && let Some(rest) = name.strip_prefix(edge)
            {
                next = Some((child, rest));
            }
        }
        let Some((child, rest)) = next else {
            return Ok(false);
        };
        node = usize::try_from(child).map_err(drop)?;
        name = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "C_GetFunctionList";

    /// A library with these load commands, and what they point to behind them.
    fn library(kind: macho::FileType, commands: &[&[u32]], data: &[u8]) -> Vec<u8> {
        let commands_size: usize = commands.iter().map(|command| command.len() * 4).sum();
        let header = [
            macho::MH_MAGIC_64,
            MACHINE.unwrap().0,
            0,
            kind.0,
            u32::try_from(commands.len()).unwrap(),
            u32::try_from(commands_size).unwrap(),
            0,
            0,
        ];
        let words = header.iter().chain(commands.iter().copied().flatten());
        words
            .flat_map(|word| word.to_le_bytes())
            .chain(data.iter().copied())
            .collect()
    }

    /// Its data are at 48, behind one command of 16 bytes.
    fn with_trie(trie: &[u8]) -> Vec<u8> {
        let size = u32::try_from(trie.len()).unwrap();
        let command = [macho::LC_DYLD_EXPORTS_TRIE.0, 16, 48, size];
        library(macho::MH_DYLIB, &[&command], trie)
    }

    /// `_C_` and below it `GetFunctionList` and `Sign`; `_C_` itself is none.
    fn trie() -> Vec<u8> {
        let mut trie = b"\0\x01_C_\0\x07".to_vec();
        trie.extend(b"\0\x02Sign\0\x24GetFunctionList\0\x28");
        trie.resize(0x24, 0);
        trie.extend(b"\x02\0\x10\0\x02\0\x20\0");
        trie
    }

    /// One symbol of this type.
    fn with_symbol(name: &str, kind: u8) -> Vec<u8> {
        let strings = format!("\0_{name}\0");
        let size = u32::try_from(strings.len()).unwrap();
        let command = [macho::LC_SYMTAB.0, 24, 56, 1, 72, size];
        let mut data = vec![1, 0, 0, 0, kind, 1, 0, 0];
        data.extend([0; 8]);
        data.extend(strings.as_bytes());
        library(macho::MH_BUNDLE, &[&command], &data)
    }

    fn found(file: &[u8], names: &[&str]) -> Result<bool, Defect> {
        exports(file, names)
    }

    #[test]
    fn an_exported_name_is_found_in_the_trie() {
        let file = with_trie(&trie());
        assert_eq!(found(&file, &[NAME]), Ok(true));
        assert_eq!(found(&file, &["C_Sign"]), Ok(true));
        for other in [
            "C_",
            "",
            "C_GetFunctionLis",
            "C_GetFunctionListX",
            "C_Login",
        ] {
            assert_eq!(found(&file, &[other]), Ok(false), "{other}");
        }
    }

    #[test]
    fn without_a_trie_the_symbol_table_counts() {
        let exported = macho::N_SECT.0 | macho::N_EXT.0;
        let file = with_symbol(NAME, exported);
        assert_eq!(found(&file, &[NAME]), Ok(true));
        assert_eq!(found(&file, &["C_GetFunctionLis"]), Ok(false));
        for kind in [macho::N_SECT.0, exported | macho::N_PEXT.0, macho::N_EXT.0] {
            assert_eq!(found(&with_symbol(NAME, kind), &[NAME]), Ok(false));
        }
    }

    #[test]
    fn a_universal_file_is_read_where_this_machines_part_is() {
        let part = with_trie(&trie());
        let universal = |machine: u32| {
            let size = u32::try_from(part.len()).unwrap();
            let words = [
                macho::FAT_MAGIC,
                2,
                18,
                0,
                48,
                4,
                0,
                machine,
                3,
                48,
                size,
                0,
            ];
            let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            file.extend(&part);
            file
        };
        assert_eq!(found(&universal(MACHINE.unwrap().0), &[NAME]), Ok(true));
        assert_eq!(found(&universal(18), &[NAME]), Err(Defect::Machine));
    }

    #[test]
    fn what_is_no_library_for_this_machine_is_told_apart() {
        let program = library(macho::MH_EXECUTE, &[], &[]);
        assert_eq!(found(&program, &[NAME]), Err(Defect::Kind));
        let mut other = with_trie(&trie());
        other[4] ^= 1;
        assert_eq!(found(&other, &[NAME]), Err(Defect::Machine));
        for text in [&b""[..], b"\xcf", b"#!/bin/sh\n", b"\x7fELF\x02\x01"] {
            assert_eq!(found(text, &[NAME]), Err(Defect::Format));
        }
    }

    #[test]
    fn damage_is_survived_wherever_it_is() {
        let universal = {
            let mut file: Vec<u8> = [macho::FAT_MAGIC, 1, MACHINE.unwrap().0, 0, 28, 0, 0]
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect();
            file.extend(with_trie(&trie()));
            file
        };
        for file in [with_symbol(NAME, 0xf), with_trie(&trie()), universal] {
            let mut damaged = file.clone();
            for place in 0..file.len() {
                for byte in 0..=0xff {
                    damaged[place] = byte;
                    let _ = found(&damaged, &[NAME]);
                }
                let end = file.len().min(place + 4);
                damaged[place..end].fill(0xff);
                let _ = found(&damaged, &[NAME]);
                damaged[place..end].copy_from_slice(&file[place..end]);
            }
            for length in 0..file.len() {
                let _ = found(&file[..length], &[NAME]);
            }
        }
        // A node that leads to itself, by an empty edge.
        assert_eq!(found(&with_trie(b"\0\x01\0\0"), &[NAME]), Ok(false));
    }
}
