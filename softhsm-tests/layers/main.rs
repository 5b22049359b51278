//! Holds the modules of `src/` to their order and to what each may use of the outside world.
//!
//! `src/core/lib.rs` and then `src/lib.rs` list the modules from the bottom to the top: each may use those before
//! it in that list and none after it. [`MAY_USE`] says which of them touch files, the network, a terminal and the like; a module
//! that isn't in it is pure. Code that only tests see is left out. A type name is declared once in the
//! whole program.

mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use reader::{OWN_NAMES, ROOTS, Source, Texts};

/// What a module can touch, and the paths that show it. A path stands for those below it, except where a
/// longer one is listed; `::name` is a method, and `/dev/…` a text.
const CAPABILITIES: &str = "
files = std::fs std::os::unix::fs std::os::linux::fs rustix::fs tempfile tokio::fs ::canonicalize ::exists
files = ::is_dir ::is_file ::is_symlink ::read_dir ::read_link ::symlink_metadata ::try_exists
environment = std::env
network = std::net::TcpListener std::net::TcpStream std::net::ToSocketAddrs std::net::UdpSocket rustix::net
network = hyper hyper_util rustls rustls_native_certs tokio tokio_rustls
processes = std::process std::os::unix::process rustix::process signal_hook tokio::process
users = rustix::process::getegid rustix::process::geteuid rustix::process::getuid
threads = std::thread tokio::runtime tokio::task
clock = std::time::Instant std::time::SystemTime std::time::UNIX_EPOCH rustix::time std::thread::sleep
clock = time::OffsetDateTime::now_local time::OffsetDateTime::now_utc time::UtcDateTime::now tokio::time ::elapsed
randomness = aws_lc_rs::rand getrandom rand rand_core rcgen rustix::rand /dev/random /dev/urandom
PKCS#11 = cryptoki cryptoki_sys libloading
terminal = rustix::pty rustix::termios std::io::IsTerminal ::is_terminal /dev/tty
streams = rustix::stdio std::io::stderr std::io::stdin std::io::stdout
command-line = clap clap_complete
YAML = granit_parser saphyr_parser serde_saphyr yaml_edit
unsafe = unsafe
";

/// What each module may touch; a path stands for the modules below it, too.
const MAY_USE: &str = "
# Who can change the library, and which ones the administrator allows.
config::allowed = files
config::library = files users
config::trust = files
discovery = files environment
kubeconfig = YAML files clock environment threads users
process = files processes randomness streams clock environment threads users unsafe
token = PKCS#11 clock
# The salt of PSS where the token can't make it.
token::sign = randomness
token::raw = unsafe
pin_entry = files processes streams clock environment terminal threads users
# The content's key, and the ephemeral keys of EC recipients.
sealed::seal = randomness
keyring = threads
tunnel = randomness clock environment network threads
# kubectl is run with the person's credentials.
cluster_api = processes clock threads
tunnel_process = processes clock threads
# Gives up on a standard error that takes nothing for a second.
report = streams clock
# The program's name and its variables.
start = processes environment
cli = files processes streams clock command-line environment terminal threads
# The ids of what is handed out, and a key.
cli::credential = randomness
main = unsafe
";

/// The rows of one of these tables: what stands before the equals sign, and what behind it.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let rows = table.lines().filter_map(|line| line.split_once(" = "));
    rows.map(|(name, words)| (name, words.split(' ').collect()))
}

/// Pairs of which the first must not see the second, though it stands above it.
const APART: &[(&str, &str)] = &[
    // Only what answers a request or runs a command writes to standard error.
    ("cluster_api", "report"),
    ("discovery", "report"),
    ("keyring", "report"),
    ("kubeconfig", "report"),
    ("tunnel", "report"),
    // Nothing that a client sends reaches the token unread.
    ("token", "protocol"),
];

/// All that the program's files use against the rules: one line for each thing that a file must not use.
fn breaches(sources: &[Source]) -> Vec<String> {
    let roots = ROOTS.iter().filter_map(|root| sources.iter().find(|it| it.file == *root));
    let order: Vec<_> = roots.flat_map(|root| root.children.clone()).collect();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for source in sources {
        let (file, module) = (&source.file, source.module.first().map_or("lib", String::as_str));
        for (path, line) in &source.uses {
            let capabilities = wrong_capabilities(&source.module, path);
            for what in wrong_module(module, path, &order).into_iter().chain(capabilities) {
                if seen.insert((file, what.clone())) {
                    let path = path.join("::");
                    found.push(format!("{file}:{line}: {module} must not use {what} ({path})"));
                }
            }
        }
    }
    found
}

/// What is wrong with a path of this crate in `module`.
fn wrong_module(module: &str, path: &[String], order: &[String]) -> Option<String> {
    let first = path.first()?;
    if OWN_NAMES.contains(&first.as_str()) && !["lib", "main"].contains(&module) {
        return Some(format!("the crate's own name: say crate::{}", path[1..].join("::")));
    }
    if first != "crate" || module == "main" {
        return None;
    }
    let used = path.get(1)?;
    if used == "*" {
        return Some("everything of the crate at once".to_owned());
    }
    let place = |name: &str| order.iter().position(|it| it == name);
    if APART.contains(&(module, used)) {
        return Some(format!("{used}, which it must not see"));
    }
    match (place(module), place(used)) {
        (Some(own), Some(other)) if other > own => Some(format!("{used}, which is above it")),
        _ => None,
    }
}

/// What `module` touches with this path and may not.
fn wrong_capabilities(module: &[String], path: &[String]) -> Vec<String> {
    let shown = rows(CAPABILITIES).filter_map(|(capability, patterns)| {
        let lengths = patterns.iter().filter_map(|it| matched(it, path));
        Some((capability, lengths.max()?))
    });
    let shown: Vec<_> = shown.collect();
    let longest = shown.iter().map(|(_, length)| *length).max();
    let is_allowed = |capability| {
        rows(MAY_USE).any(|(holder, capabilities)| {
            let mut holder = holder.split("::").enumerate();
            let is_its = holder.all(|(at, name)| module.get(at).is_some_and(|it| it == name));
            is_its && capabilities.contains(&capability)
        })
    };
    let wrong =
        shown.into_iter().filter(|(it, length)| Some(*length) == longest && !is_allowed(it));
    wrong.map(|(capability, _)| capability.to_owned()).collect()
}

/// How many names a path has in common with a pattern, where it is the pattern's, or below it, or brings
/// it in with others (`use std::*`).
fn matched(pattern: &str, path: &[String]) -> Option<usize> {
    let mut length = 0;
    for name in pattern.split("::") {
        match path.get(length) {
            Some(found) if found == "*" && length > 0 => return Some(length),
            Some(found) if found == name => length += 1,
            _ => return None,
        }
    }
    Some(length)
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("two folders below the root").to_owned()
}

fn texts(root: &Path) -> Texts {
    let mut texts = Texts::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(root).expect("below it").display().to_string();
                texts.insert(name, fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    texts
}

#[test]
fn the_program_keeps_its_layers() {
    let wrong = breaches(&reader::read(&texts(&root())));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn each_kind_of_breach_is_found() {
    let files = [
        ("src/core/lib.rs", "pub mod hash;\npub mod protocol;\npub mod token;"),
        (
            "src/core/hash.rs",
            "use crate::token::Token;\nfn read() { std::fs::read(\"x\"); }\nuse ::std::env;",
        ),
        ("src/core/protocol.rs", ""),
        ("src/core/token.rs", "use crate::protocol::Request;\nfn dial() { unsafe { dialled() } }"),
        ("src/lib.rs", "pub mod cli;"),
        ("src/cli.rs", "#[cfg(test)]\nmod tests { use hyper::Client; }"),
        ("src/main.rs", ""),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(
        breaches(&reader::read(&Texts::from(files))),
        [
            "src/core/hash.rs:1: hash must not use token, which is above it (crate::token::Token)",
            "src/core/hash.rs:2: hash must not use files (std::fs::read)",
            "src/core/hash.rs:3: hash must not use environment (std::env)",
            "src/core/token.rs:1: token must not use protocol, which it must not see (crate::protocol::Request)",
            "src/core/token.rs:2: token must not use unsafe (unsafe)",
        ]
    );
}

#[test]
fn each_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in reader::read(&texts(&root())) {
        for (name, line) in source.types {
            places.entry(name).or_default().push(format!("{}:{line}", source.file));
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "declared more than once: {places:#?}");
}
