//! Breaches put into a small program on purpose: each has to be found.

use crate::reader::{self, Texts};
use crate::{breaches, declared_twice};

const CORE: &[&str] = &[
    "hash",
    "printable",
    "error",
    "process",
    "pin",
    "protocol",
    "config",
    "certificate",
    "scheme",
    "verify",
    "token",
    "pin_entry",
    "pipeline",
    "report",
    "library",
    "plugin",
    "start",
];
const ABOVE: &[&str] = &["discovery", "kubeconfig", "keyring", "tunnel", "cli"];

/// Where a module is.
fn folder(module: &str) -> String {
    let core = if CORE.contains(&module) { "core/" } else { "" };
    format!("src/{core}{module}")
}

/// A program that has each module, with `code` in one of its files.
fn program(file: &str, code: &str) -> Texts {
    let declarations =
        |modules: &[&str]| modules.iter().map(|it| format!("pub mod {it};\n")).collect();
    let mut texts = Texts::from([
        ("src/core/lib.rs".to_owned(), declarations(CORE)),
        ("src/lib.rs".to_owned(), declarations(ABOVE)),
        ("src/main.rs".to_owned(), "fn main() {}\n".to_owned()),
    ]);
    for module in CORE.iter().chain(ABOVE).map(|it| folder(it)) {
        let inner = "#[cfg(test)]\nmod tests;\nmod inner;\n".to_owned();
        texts.insert(format!("{module}/mod.rs"), inner);
        texts.insert(format!("{module}/inner.rs"), String::new());
        texts.insert(format!("{module}/tests.rs"), "use std::fs;\n".to_owned());
    }
    for name in ["allowed", "library", "trust"] {
        texts.insert(format!("src/core/config/{name}.rs"), String::new());
        let config = texts.get_mut("src/core/config/mod.rs").expect("it is there");
        config.push_str(&format!("mod {name};\n"));
    }
    texts.insert("src/core/token/raw.rs".to_owned(), String::new());
    texts.get_mut("src/core/token/mod.rs").expect("it is there").push_str("mod raw;\n");
    texts.entry(file.to_owned()).or_default().push_str(code);
    texts
}

/// The breaches of a program with `code` in `file`, as they are reported.
fn found(file: &str, code: &str) -> Vec<String> {
    let sources = reader::read(&program(file, code)).unwrap_or_else(|error| panic!("{error}"));
    breaches(&sources).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_caught(file: &str, code: &str, message: &str) {
    let found = found(file, code);
    assert!(
        found.iter().any(|it| it.starts_with(file) && it.ends_with(message)),
        "{code} in {file} must be caught as {message:?}: {found:#?}"
    );
}

#[track_caller]
fn assert_allowed(file: &str, code: &str) {
    assert_eq!(found(file, code), [""; 0], "{code} in {file}");
}

#[test]
fn a_module_above() {
    for (module, above) in [
        ("process", "token"),
        ("pin", "token"),
        ("certificate", "verify"),
        ("report", "cli"),
        ("token", "cli"),
        ("token", "keyring"),
        ("verify", "token"),
        ("keyring", "cli"),
        ("error", "process"),
        ("token", "pin_entry"),
        ("pipeline", "keyring"),
    ] {
        let message = format!("{module} must not use {above}, which is above it");
        let file = format!("{}/mod.rs", folder(module));
        let inner = format!("{}/inner.rs", folder(module));
        assert_caught(&file, &format!("use crate::{above};"), &message);
        assert_caught(&inner, &format!("use crate::{above}::Thing;"), &message);
        assert_caught(&inner, &format!("use crate::{{hash, {above}::{{self, Thing}}}};"), &message);
        assert_caught(&inner, &format!("use crate::{above} as other;"), &message);
        assert_caught(&inner, &format!("pub use crate::{above}::Thing;"), &message);
        assert_caught(&file, &format!("use super::{above};"), &message);
        assert_caught(&inner, &format!("use super::super::{above};"), &message);
        assert_caught(&inner, &format!("fn f() {{ crate::{above}::f(); }}"), &message);
        assert_caught(&inner, &format!("fn f(_: &crate::{above}::Thing) {{}}"), &message);
        assert_caught(
            &inner,
            &format!("use crate as root;\nfn f() {{ root::{above}::f(); }}"),
            &message,
        );
        assert_caught(
            &inner,
            &format!("mod deep {{ use super::super::super::{above}; }}"),
            &message,
        );
        assert_caught(
            &inner,
            &format!("fn f() {{ format!(\"{{}}\", crate::{above}::f()); }}"),
            &message,
        );
        assert_caught(
            &inner,
            &format!("macro_rules! m {{ () => {{ $crate::{above}::f() }} }}"),
            &message,
        );
    }
}

#[test]
fn the_crate_by_its_own_name_or_at_once() {
    let file = "src/keyring/inner.rs";
    assert_caught(
        file,
        "use pkcs11_external_signer::cli;",
        "keyring must not use the crate's own name: say crate::cli",
    );
    assert_caught(file, "use crate::*;", "everything of the crate at once");
    assert_caught("src/core/hash/mod.rs", "use super::*;", "everything of the crate at once");
}

#[test]
fn what_a_module_must_not_see_below_it() {
    assert_caught(
        "src/core/token/inner.rs",
        "use crate::protocol::Request;",
        "token must not use protocol, which it must not see",
    );
    assert_caught(
        "src/tunnel/inner.rs",
        "use crate::report;",
        "tunnel must not use report, which it must not see",
    );
}

#[test]
fn files_and_the_like_in_a_pure_module() {
    for module in [
        "hash",
        "printable",
        "error",
        "protocol",
        "config",
        "certificate",
        "scheme",
        "verify",
        "pin",
    ] {
        let file = format!("{}/inner.rs", folder(module));
        for (code, what) in [
            ("use std::fs;", "files (std::fs)"),
            ("use std::{fs, io};", "files (std::fs)"),
            ("use std::{io, fs::{self, File}};", "files (std::fs)"),
            ("use std::*;", "(std::*)"),
            ("fn f() { std::fs::read(\"x\"); }", "files (std::fs::read)"),
            ("fn f(path: &std::path::Path) { path.exists(); }", "files (::exists)"),
            ("use std::{env};", "the environment (std::env)"),
            (
                "fn f() { println!(\"{:?}\", std::env::args()); }",
                "the environment (std::env::args)",
            ),
            ("use std::net::TcpStream;", "the network (std::net::TcpStream)"),
            ("use std::process::Command;", "processes (std::process::Command)"),
            ("use std::thread;", "threads (std::thread)"),
            ("use std::time::SystemTime;", "the clock (std::time::SystemTime)"),
            ("use std::time::*;", "the clock (std::time::*)"),
            (
                "use std::time;\nfn f() { time::Instant::now(); }",
                "the clock (std::time::Instant::now)",
            ),
            (
                "fn f() { time::OffsetDateTime::now_utc(); }",
                "the clock (time::OffsetDateTime::now_utc)",
            ),
            ("fn f() { getrandom::fill(&mut []); }", "randomness (getrandom::fill)"),
            ("use rustix::fs::OFlags;", "files (rustix::fs::OFlags)"),
            ("use std::io;\nfn f() { io::stdout(); }", "standard streams (std::io::stdout)"),
            ("fn f() { unsafe {} }", "unsafe code (unsafe)"),
            ("#[expect(unsafe_code)]\nfn f() {}", "unsafe code (unsafe)"),
            ("unsafe fn f() {}", "unsafe code (unsafe)"),
            ("unsafe impl Send for Thing {}", "unsafe code (unsafe)"),
        ] {
            assert_caught(&file, code, what);
        }
    }
}

#[test]
fn pkcs11_outside_the_token() {
    for module in CORE.iter().chain(ABOVE).filter(|it| **it != "token") {
        let file = format!("{}/inner.rs", folder(module));
        assert_caught(
            &file,
            "use cryptoki::object::Attribute;",
            "PKCS#11 (cryptoki::object::Attribute)",
        );
        assert_caught(&file, "fn f(_: cryptoki_sys::CK_RV) {}", "PKCS#11 (cryptoki_sys::CK_RV)");
    }
}

#[test]
fn the_terminal_outside_those_who_ask() {
    for module in ["token", "pin", "process", "keyring", "tunnel", "pipeline"] {
        let file = format!("{}/inner.rs", folder(module));
        assert_caught(&file, "use rustix::termios;", "the terminal (rustix::termios)");
        assert_caught(&file, "const TERMINAL: &str = \"/dev/tty\";", "the terminal (/dev/tty)");
    }
}

#[test]
fn unsafe_code_elsewhere() {
    for file in ["src/core/token/inner.rs", "src/tunnel/inner.rs", "src/cli/inner.rs"] {
        assert_caught(file, "fn f() { unsafe {} }", "unsafe code (unsafe)");
    }
}

#[test]
fn the_line_is_named() {
    let found = found("src/core/scheme/inner.rs", "\n\nuse std::{\n    io,\n    fs,\n};\n");
    assert_eq!(found, ["src/core/scheme/inner.rs:5: scheme must not use files (std::fs)"]);
}

#[test]
fn what_is_allowed() {
    assert_allowed(
        "src/core/token/inner.rs",
        "use crate::{config::Config, error::Error};\nuse cryptoki::slot::Slot;",
    );
    assert_allowed("src/core/token/raw.rs", "#[expect(unsafe_code)]\nfn f() { unsafe {} }");
    assert_allowed("src/core/config/library.rs", "use std::fs;");
    assert_allowed("src/core/config/allowed.rs", "use std::fs;");
    assert_allowed("src/core/config/trust.rs", "use std::fs;");
    assert_allowed("src/core/pin_entry/inner.rs", "use rustix::termios;");
    assert_allowed("src/main.rs", "use pkcs11_external_signer::cli;");
    assert_allowed("src/core/scheme/inner.rs", "//! See `std::fs` and crate::token.\n");
    assert_allowed(
        "src/core/scheme/inner.rs",
        "use std::time::Duration;\nuse std::net::IpAddr;\nuse std::io;",
    );
    assert_allowed("src/core/scheme/inner.rs", "use super::tests;\nuse self::inner::Thing;");
}

#[test]
fn code_that_only_tests_see() {
    let file = "src/core/scheme/inner.rs";
    for code in [
        "#[cfg(test)]\nuse std::fs;",
        "#[cfg(test)]\nmod tests { use crate::cli; }",
        "#[cfg(all(test, target_os = \"linux\"))]\nfn f() { std::fs::read(\"x\"); }",
        "impl Thing { #[cfg(test)] fn f() { std::fs::read(\"x\"); } }",
    ] {
        assert_allowed(file, code);
    }
    for code in [
        "#[cfg(any(test, target_vendor = \"apple\"))]\nuse std::fs;",
        "#[cfg(not(test))]\nuse std::fs;",
        "#[cfg(feature = \"test\")]\nuse std::fs;",
    ] {
        assert_caught(file, code, "files (std::fs)");
    }
}

#[test]
fn a_type_name_that_is_declared_twice() {
    for code in [
        "struct Thing;",
        "enum Thing {}",
        "trait Thing {}",
        "type Thing = u8;",
        "fn f() { struct Thing; }",
    ] {
        let mut texts = program("src/core/token/inner.rs", "pub struct Thing;");
        texts.insert("src/cli/inner.rs".to_owned(), code.to_owned());
        let sources = reader::read(&texts).unwrap_or_else(|error| panic!("{error}"));
        let places = declared_twice(&sources);
        assert_eq!(places["Thing"].len(), 2, "{code}");
    }
    // An associated type is its trait's.
    let mut texts = program("src/core/token/inner.rs", "pub struct Output;");
    texts.insert("src/cli/inner.rs".to_owned(), "impl Add for X { type Output = X; }".to_owned());
    let sources = reader::read(&texts).unwrap_or_else(|error| panic!("{error}"));
    assert!(declared_twice(&sources).is_empty());
}
