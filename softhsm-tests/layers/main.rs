//! Holds the modules of `src/` to their order and to what each may use of the outside world.
//!
//! `src/core/lib.rs` and then `src/lib.rs` list the modules from the bottom to the top: each may use those before
//! it in that list and none after it. [`MAY_USE`] says which of them touch files, the network, a terminal and the like; a module
//! that isn't in it is pure. Code that only tests see is left out. A type name is declared once in the
//! whole program.

mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::{Path, PathBuf};

use reader::{OWN_NAMES, ROOTS, Source, Texts};

/// What a module can touch, and the paths that show it. A path stands for those below it, except where a
/// longer one is listed; `::name` is a method, and `/dev/…` a text.
const CAPABILITIES: &[(&str, &[&str])] = &[
    (
        "files",
        &[
            "std::fs",
            "std::os::unix::fs",
            "std::os::linux::fs",
            "rustix::fs",
            "tempfile",
            "tokio::fs",
            "::canonicalize",
            "::exists",
            "::is_dir",
            "::is_file",
            "::is_symlink",
            "::read_dir",
            "::read_link",
            "::symlink_metadata",
            "::try_exists",
        ],
    ),
    ("the environment", &["std::env"]),
    (
        "the network",
        &[
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::ToSocketAddrs",
            "std::net::UdpSocket",
            "rustix::net",
            "hyper",
            "hyper_util",
            "rustls",
            "rustls_native_certs",
            "tokio",
            "tokio_rustls",
        ],
    ),
    (
        "processes",
        &[
            "std::process",
            "std::os::unix::process",
            "rustix::process",
            "signal_hook",
            "tokio::process",
        ],
    ),
    ("users", &["rustix::process::getegid", "rustix::process::geteuid", "rustix::process::getuid"]),
    ("threads", &["std::thread", "tokio::runtime", "tokio::task"]),
    (
        "the clock",
        &[
            "std::time::Instant",
            "std::time::SystemTime",
            "std::time::UNIX_EPOCH",
            "rustix::time",
            "std::thread::sleep",
            "time::OffsetDateTime::now_local",
            "time::OffsetDateTime::now_utc",
            "time::UtcDateTime::now",
            "tokio::time",
            "::elapsed",
        ],
    ),
    (
        "randomness",
        &[
            "aws_lc_rs::rand",
            "getrandom",
            "rand",
            "rand_core",
            "rcgen",
            "rustix::rand",
            "/dev/random",
            "/dev/urandom",
        ],
    ),
    ("PKCS#11", &["cryptoki", "cryptoki_sys", "libloading"]),
    (
        "the terminal",
        &["rustix::pty", "rustix::termios", "std::io::IsTerminal", "::is_terminal", "/dev/tty"],
    ),
    (
        "standard streams",
        &["rustix::stdio", "std::io::stderr", "std::io::stdin", "std::io::stdout"],
    ),
    ("the command line", &["clap", "clap_complete"]),
    ("YAML", &["granit_parser", "saphyr_parser", "serde_saphyr", "yaml_edit"]),
    ("unsafe code", &["unsafe"]),
];

/// What each module may touch; a path stands for the modules below it, too.
const MAY_USE: &[(&str, &[&str])] = &[
    // Who can change the library, and which ones the administrator allows.
    ("config::allowed", &["files"]),
    ("config::library", &["files", "users"]),
    ("config::trust", &["files"]),
    ("discovery", &["files", "the environment"]),
    (
        "kubeconfig",
        &["YAML", "files", "randomness", "the clock", "the environment", "threads", "users"],
    ),
    (
        "process",
        &[
            "files",
            "processes",
            "randomness",
            "standard streams",
            "the clock",
            "the environment",
            "threads",
            "users",
            "unsafe code",
        ],
    ),
    ("token", &["PKCS#11", "files", "the clock"]),
    // The salt of PSS where the token can't make it.
    ("token::sign", &["randomness"]),
    ("token::raw", &["unsafe code"]),
    (
        "pin_entry",
        &[
            "files",
            "processes",
            "standard streams",
            "the clock",
            "the environment",
            "the terminal",
            "threads",
            "users",
        ],
    ),
    // The content's key, and the ephemeral keys of EC recipients.
    ("sealed::seal", &["randomness"]),
    ("keyring", &["the clock", "threads"]),
    ("tunnel", &["randomness", "the clock", "the environment", "the network", "threads"]),
    // kubectl is run with the person's credentials.
    ("cluster_api", &["processes", "the clock", "threads"]),
    ("tunnel_process", &["processes", "the clock", "threads"]),
    // Keeps messages back while a run's command draws on the whole terminal, and looks whether it has ended.
    ("report", &["standard streams", "the clock", "the terminal", "threads"]),
    // The program's name and its variables.
    ("start", &["processes", "the command line", "the environment"]),
    (
        "cli",
        &[
            "files",
            "processes",
            "standard streams",
            "the clock",
            "the command line",
            "the environment",
            "the terminal",
            "threads",
            "users",
        ],
    ),
    // The ids of what is handed out, and a key.
    ("cli::credential", &["randomness"]),
    ("main", &["processes", "unsafe code"]),
];

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

/// A module that uses something it must not.
struct Breach {
    file: String,
    line: usize,
    /// The module at the crate's root.
    module: String,
    what: String,
    /// The path that shows it, where the name of a module doesn't.
    path: Option<String>,
}

impl Display for Breach {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { file, line, module, what, path } = self;
        write!(formatter, "{file}:{line}: {module} must not use {what}")?;
        match path {
            Some(path) => write!(formatter, " ({path})"),
            None => Ok(()),
        }
    }
}

/// All that the program's files use against the rules.
fn breaches(sources: &[Source]) -> Vec<Breach> {
    let order: Vec<_> = ROOTS
        .iter()
        .filter_map(|root| sources.iter().find(|it| it.file == *root))
        .flat_map(|root| root.children.clone())
        .collect();
    let mut found = Vec::new();
    for source in sources {
        let module = source.module.first().map_or("lib", String::as_str);
        for used in &source.uses {
            let mut add = |what: String, path: Option<String>| {
                found.push(Breach {
                    file: source.file.clone(),
                    line: used.line,
                    module: module.to_owned(),
                    what,
                    path,
                });
            };
            if let Some(what) = wrong_module(module, &used.path, &order) {
                add(what, None);
            }
            for capability in wrong_capabilities(&source.module, &used.path) {
                add(capability.to_owned(), Some(used.path.join("::")));
            }
        }
    }
    found.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    // One line for each thing that a file must not use: its first.
    let mut seen = BTreeSet::new();
    found.retain(|it| seen.insert((it.file.clone(), it.what.clone())));
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
fn wrong_capabilities(module: &[String], path: &[String]) -> impl Iterator<Item = &'static str> {
    let shown = CAPABILITIES.iter().filter_map(|(capability, patterns)| {
        let lengths = patterns.iter().filter_map(|it| matched(it, path));
        Some((*capability, lengths.max()?))
    });
    let shown: Vec<_> = shown.collect();
    let longest = shown.iter().map(|(_, length)| *length).max();
    shown.into_iter().filter_map(move |(capability, length)| {
        let is_allowed = MAY_USE.iter().any(|(holder, capabilities)| {
            let mut holder = holder.split("::").enumerate();
            let is_its = holder.all(|(at, name)| module.get(at).is_some_and(|it| it == name));
            is_its && capabilities.contains(&capability)
        });
        (Some(length) == longest && !is_allowed).then_some(capability)
    })
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

/// The types whose name another one has, too.
fn declared_twice(sources: &[Source]) -> BTreeMap<&str, Vec<String>> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources {
        for declared in &source.types {
            let place = format!("{}:{}", source.file, declared.line);
            places.entry(&declared.name).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
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
    let sources = reader::read(&texts(&root())).unwrap_or_else(|error| panic!("{error}"));
    let wrong: Vec<_> = breaches(&sources).iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn each_type_has_a_name_of_its_own() {
    let sources = reader::read(&texts(&root())).unwrap_or_else(|error| panic!("{error}"));
    let twice = declared_twice(&sources);
    assert!(twice.is_empty(), "declared more than once: {twice:#?}");
}
