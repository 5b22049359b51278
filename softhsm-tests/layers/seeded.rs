//! Breaches put into a small program on purpose: each has to be found, and nothing else.

use crate::reader::{self, Source, Texts};
use crate::{breaches, declared_twice};

const CORE: &str = "hash printable error process pin protocol config certificate scheme verify token \
                    pin_entry report library plugin start";
const ABOVE: &str = "discovery kubeconfig keyring tunnel cli";

/// Where a module is.
fn folder(module: &str) -> String {
    let core = if CORE.split(' ').any(|it| it == module) { "core/" } else { "" };
    format!("src/{core}{module}")
}

/// A program that has each module, with each code in its file.
fn program(codes: &[(&str, &str)]) -> Vec<Source> {
    let declarations =
        |modules: &str| modules.split(' ').map(|it| format!("pub mod {it};\n")).collect();
    let mut texts = Texts::from([
        ("src/core/lib.rs".to_owned(), declarations(CORE)),
        ("src/lib.rs".to_owned(), declarations(ABOVE)),
        ("src/main.rs".to_owned(), "fn main() {}\n".to_owned()),
    ]);
    for module in CORE.split(' ').chain(ABOVE.split(' ')) {
        let inner = match module {
            "config" => "mod allowed;\nmod library;\nmod trust;\n",
            "token" => "mod raw;\n",
            _ => "",
        };
        let inner = format!("#[cfg(test)]\nmod tests;\nmod inner;\n{inner}");
        let names = inner.lines().filter_map(|it| it.strip_prefix("mod ")?.strip_suffix(';'));
        for name in names {
            let code = if name == "tests" { "use std::fs;\n" } else { "" };
            texts.insert(format!("{}/{name}.rs", folder(module)), code.to_owned());
        }
        texts.insert(format!("{}/mod.rs", folder(module)), inner);
    }
    for (file, code) in codes {
        texts.get_mut(*file).expect("a file of the program").push_str(code);
    }
    reader::read(&texts).unwrap_or_else(|error| panic!("{error}"))
}

/// The breaches of a program with `code` in `file`, as they are reported.
fn found(file: &str, code: &str) -> Vec<String> {
    breaches(&program(&[(file, code)])).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_caught(file: &str, code: &str, message: &str) {
    let found = found(file, code);
    let is_it = |it: &String| it.starts_with(file) && it.ends_with(message);
    assert!(found.iter().any(is_it), "{code} in {file} is not {message:?}: {found:#?}");
}

#[test]
fn a_module_above_is_found_however_it_is_named() {
    for (module, above) in [
        ("process", "token"),
        ("pin", "token"),
        ("certificate", "verify"),
        ("report", "cli"),
        ("token", "keyring"),
        ("verify", "token"),
        ("keyring", "cli"),
        ("error", "process"),
        ("token", "pin_entry"),
        ("token", "cli"),
    ] {
        let message = format!("{module} must not use {above}, which is above it");
        let [file, inner] = ["mod", "inner"].map(|it| format!("{}/{it}.rs", folder(module)));
        assert_caught(&file, &format!("use super::{above};"), &message);
        for code in [
            "use crate::ABOVE;",
            "use crate::ABOVE::Thing;",
            "use crate::{hash, ABOVE::{self, Thing}};",
            "use crate::ABOVE as other;",
            "pub use crate::ABOVE::Thing;",
            "use super::super::ABOVE;",
            "fn f() { crate::ABOVE::f(); }",
            "fn f(_: &crate::ABOVE::Thing) {}",
            "use crate as root;\nfn f() { root::ABOVE::f(); }",
            "mod deep { use super::super::super::ABOVE; }",
            "fn f() { format!(\"{}\", crate::ABOVE::f()); }",
            "macro_rules! m { () => { $crate::ABOVE::f() } }",
        ] {
            assert_caught(&inner, &code.replace("ABOVE", above), &message);
        }
    }
}

/// Of a module that may touch nothing.
const PURE: &str = "src/core/scheme/inner.rs";

#[test]
fn what_a_module_must_not_touch_is_found() {
    for (code, message) in [
        ("use std::fs;", "files (std::fs)"),
        ("use std::{fs, io};", "files (std::fs)"),
        ("use std::{io, fs::{self, File}};", "files (std::fs)"),
        ("use std::*;", "(std::*)"),
        ("fn f() { std::fs::read(\"x\"); }", "files (std::fs::read)"),
        ("fn f(path: &std::path::Path) { path.exists(); }", "files (::exists)"),
        ("use rustix::fs::OFlags;", "files (rustix::fs::OFlags)"),
        ("use std::{env};", "the environment (std::env)"),
        ("fn f() { println!(\"{:?}\", std::env::args()); }", "the environment (std::env::args)"),
        ("use std::net::TcpStream;", "the network (std::net::TcpStream)"),
        ("use std::process::Command;", "processes (std::process::Command)"),
        ("use std::thread;", "threads (std::thread)"),
        ("use std::time::SystemTime;", "the clock (std::time::SystemTime)"),
        ("use std::time::*;", "the clock (std::time::*)"),
        ("use std::time;\nfn f() { time::Instant::now(); }", "(std::time::Instant::now)"),
        ("fn f() { time::OffsetDateTime::now_utc(); }", "(time::OffsetDateTime::now_utc)"),
        ("fn f() { getrandom::fill(&mut []); }", "randomness (getrandom::fill)"),
        ("use std::io;\nfn f() { io::stdout(); }", "standard streams (std::io::stdout)"),
        ("fn f() { unsafe {} }", "unsafe code (unsafe)"),
        ("#[expect(unsafe_code)]\nfn f() {}", "unsafe code (unsafe)"),
        ("unsafe fn f() {}", "unsafe code (unsafe)"),
        ("unsafe impl Send for Thing {}", "unsafe code (unsafe)"),
        ("use cryptoki::object::Attribute;", "PKCS#11 (cryptoki::object::Attribute)"),
        ("fn f(_: cryptoki_sys::CK_RV) {}", "PKCS#11 (cryptoki_sys::CK_RV)"),
        ("use rustix::termios;", "the terminal (rustix::termios)"),
        ("const TERMINAL: &str = \"/dev/tty\";", "the terminal (/dev/tty)"),
        ("use super::super::*;", "everything of the crate at once"),
        ("use crate::*;", "everything of the crate at once"),
        // Code that not only tests see.
        ("#[cfg(any(test, target_vendor = \"apple\"))]\nuse std::fs;", "files (std::fs)"),
        ("#[cfg(not(test))]\nuse std::fs;", "files (std::fs)"),
        ("#[cfg(feature = \"test\")]\nuse std::fs;", "files (std::fs)"),
    ] {
        assert_caught(PURE, code, message);
    }
    // What most, or some, may touch.
    let may_not = |modules: &str, code: &str, message: &str| {
        for module in modules.split(' ') {
            assert_caught(&format!("{}/inner.rs", folder(module)), code, message);
        }
    };
    let pure = "hash printable error protocol config certificate scheme verify pin";
    may_not(pure, "use std::fs;", "files (std::fs)");
    may_not(pure, "use std::time::Instant;", "the clock (std::time::Instant)");
    let no_token = format!("{CORE} {ABOVE}").replace(" token ", " ");
    may_not(&no_token, "use cryptoki::slot::Slot;", "PKCS#11 (cryptoki::slot::Slot)");
    let silent = "token pin process keyring tunnel";
    may_not(silent, "use rustix::termios;", "the terminal (rustix::termios)");
    may_not("token tunnel cli", "fn f() { unsafe {} }", "unsafe code (unsafe)");
    may_not("token", "use crate::protocol::Request;", "protocol, which it must not see");
    may_not("tunnel", "use crate::report;", "report, which it must not see");
    let own_name = "the crate's own name: say crate::cli";
    may_not("keyring", "use pkcs11_external_signer::cli;", own_name);
    // With its line.
    let found = found(PURE, "\n\nuse std::{\n    io,\n    fs,\n};\n");
    assert_eq!(found, ["src/core/scheme/inner.rs:5: scheme must not use files (std::fs)"]);
}

#[test]
fn what_is_allowed_is_not_found() {
    for (file, code) in [
        ("src/core/token/inner.rs", "use crate::{config::Config, error::Error};"),
        ("src/core/token/inner.rs", "use cryptoki::slot::Slot;"),
        ("src/core/token/raw.rs", "#[expect(unsafe_code)]\nfn f() { unsafe {} }"),
        ("src/core/config/library.rs", "use std::fs;"),
        ("src/core/config/allowed.rs", "use std::fs;"),
        ("src/core/config/trust.rs", "use std::fs;"),
        ("src/core/pin_entry/inner.rs", "use rustix::termios;"),
        ("src/main.rs", "use pkcs11_external_signer::cli;"),
        (PURE, "//! See `std::fs` and crate::token.\n"),
        (PURE, "use std::time::Duration;\nuse std::net::IpAddr;\nuse std::io;"),
        (PURE, "use super::tests;\nuse self::inner::Thing;"),
        // Code that only tests see.
        (PURE, "#[cfg(test)]\nuse std::fs;"),
        (PURE, "#[cfg(test)]\nmod tests { use crate::cli; }"),
        (PURE, "#[cfg(all(test, target_os = \"linux\"))]\nfn f() { std::fs::read(\"x\"); }"),
        (PURE, "impl Thing { #[cfg(test)] fn f() { std::fs::read(\"x\"); } }"),
    ] {
        assert_eq!(found(file, code), [""; 0], "{code} in {file}");
    }
}

#[test]
fn a_type_name_that_is_declared_twice_is_found() {
    let twice = |one: &str, other: &str| {
        let sources = program(&[("src/core/token/inner.rs", one), ("src/cli/inner.rs", other)]);
        declared_twice(&sources)
            .into_iter()
            .map(|(name, places)| (name.to_owned(), places.len()))
            .collect::<Vec<_>>()
    };
    for code in [
        "struct Thing;",
        "enum Thing {}",
        "trait Thing {}",
        "type Thing = u8;",
        "fn f() { struct Thing; }",
    ] {
        assert_eq!(twice("pub struct Thing;", code), [("Thing".to_owned(), 2)], "{code}");
    }
    // An associated type is its trait's.
    assert_eq!(twice("pub struct Output;", "impl Add for X { type Output = X; }"), []);
}
