//! What the documents say of the tests, and of each other.

use std::collections::BTreeSet;

use crate::fixture::*;

fn read(path: impl AsRef<Path>) -> String {
    let path = at_root(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The modules of tests that each row of the security page's tables names, between parentheses at its end.
fn tests_named(text: &str) -> Vec<Vec<&str>> {
    let cells = text.lines().filter_map(|line| line.strip_suffix("`) |"));
    let named = cells.filter_map(|row| row.rsplit_once("(`"));
    named.map(|(_, names)| names.split("`, `").collect()).collect()
}

/// Where the program's modules are.
const MODULES: &[&str] = &[
    "src",
    "src/messages",
    "src/system",
    "src/files",
    "src/crypto",
    "src/kubeconfig",
    "src/sealed",
    "src/keyring",
];

/// An attacker who is stopped by words alone is not stopped.
#[test]
fn each_attacker_is_stopped_by_what_a_test_shows() {
    let text = read("docs/security.md");
    let (_, section) = text.split_once("\n## Who attacks, and what stops them\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).collect();
    let attackers = &rows[1..];
    assert!(attackers.len() >= 10, "{attackers:#?}");
    for row in attackers {
        let who = row.split(" | ").next().unwrap();
        let tests = tests_named(row).concat();
        assert!(who == "| root" || !tests.is_empty(), "no test for {who}");
        for name in tests {
            let path = name.replace("::", "/");
            let is_in = |folder: &str| {
                let module = at_root(folder).join(&path);
                module.is_dir() || module.with_extension("rs").exists()
            };
            let is_there = ["softhsm-tests"].iter().chain(MODULES).copied().any(is_in);
            assert!(is_there, "{who}: no module {name}");
        }
    }
}

/// All pages.
fn documents() -> Vec<PathBuf> {
    let mut documents = vec![at_root("README.md"), at_root("SECURITY.md")];
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(at_root(folder)).unwrap();
        documents.extend(entries.map(|entry| entry.unwrap().path()));
    }
    documents.retain(|path| path.extension().is_some_and(|it| it == "md"));
    assert!(documents.len() > 10);
    documents
}

/// The files and folders of this repository, and in architecture.md the modules.
#[test]
fn each_file_that_a_document_names_is_there() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = read(&document);
        let code = text.split('`').skip(1).step_by(2);
        for name in code.filter_map(|it| it.split_whitespace().next()) {
            let is_path = ["docs/", "scripts/", "softhsm-tests/", "src/"]
                .iter()
                .any(|it| name.starts_with(it));
            let is_module = document.ends_with("architecture.md") && name.contains("::");
            let module = name.split("::").take_while(|it| !it.starts_with(char::is_uppercase));
            let module: PathBuf = module.collect();
            let is_in = |crate_root: &str| {
                let path = at_root(crate_root).join(&module);
                path.is_dir() || path.with_extension("rs").exists()
            };
            let is_there = if is_path {
                at_root(name).exists()
            } else {
                !is_module || MODULES.iter().any(|it| is_in(it))
            };
            if !is_there {
                missing.push(format!("{}: {name}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in &documents() {
        for link in read(document).split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                document.clone()
            } else {
                document.with_file_name("").join(file)
            };
            let is_there = if heading.is_empty() {
                target.exists()
            } else {
                headings(&target).iter().any(|it| it == heading)
            };
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_clients_of_the_table_are_those_that_are_tested() {
    let page = read("docs/credential.md");
    let tested = printed(Command::new(at_root("scripts/test-clients")).arg("versions"));
    assert_eq!(tested.lines().count(), 10, "{tested}");
    for client in tested.lines() {
        assert!(page.contains(&format!("\n| {client} |")), "no {client} in docs/credential.md");
    }
}

#[test]
fn the_readmes_evidence_is_what_can_be_counted_and_what_was_measured() {
    printed(Command::new(at_root("scripts/evidence")).arg("--check"));
}

/// The names by which a page's headings are linked to.
fn headings(document: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(document) else {
        return Vec::new();
    };
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|it| it.is_alphanumeric() || " -_".contains(*it))
                .map(|it| if it == ' ' { '-' } else { it })
                .collect()
        })
        .collect()
}

/// The sources of the program, without what its own tests have.
fn sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if !["tests.rs", "child.rs"].iter().any(|name| path.ends_with(name)) {
            let code = fs::read_to_string(&path).unwrap();
            found.push(code.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned());
        }
    }
    found
}

/// The texts in a piece of code that could be the names of variables, and don't stand for an option's value.
fn capitals(code: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        let small = text.strip_suffix("_proxy").is_some_and(|it| !it.contains('_'));
        let all = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_';
        text.len() > 2 && (small || text.chars().all(all))
    };
    let quotes = code.match_indices('"').map(|(at, _)| code.split_at(at));
    let quotes = quotes.filter(|(before, _)| !before.ends_with("value_name = "));
    quotes.filter_map(|(_, rest)| Some(rest[1..].split_once('"')?.0)).filter(is_name)
}

/// The variables that this file may read, if it reads any: what it has in capitals, but for what is said to pinentry.
fn variables(code: &str) -> Vec<String> {
    let reads = ["env::var", "environment::take"].iter().any(|it| code.contains(it));
    let others = ["CONFIRM", "ERR", "GETPIN", "OPTION", "PIN"];
    let names = capitals(code).filter(|it| reads && !it.starts_with("SET") && !others.contains(it));
    names.map(str::to_owned).collect()
}

#[test]
fn each_variable_that_is_read_is_in_the_table() {
    let page = read("docs/commands.md");
    let (_, section) = page.split_once("\n## Environment\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let documented: BTreeSet<_> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    let sources = sources(&at_root("src"));
    let mut read: BTreeSet<_> = sources.iter().flat_map(|code| variables(code)).collect();
    // By the compiler.
    read.retain(|name| !name.starts_with("CARGO_"));
    assert!(read.contains("KUBECONFIG") && read.contains("GPG_TTY"), "{read:#?}");
    let missing: Vec<_> = read.difference(&documented).collect();
    assert!(missing.is_empty(), "in no row of docs/commands.md: {missing:#?}");
    // By what folds the help; and not in capitals.
    let by_others = ["COLUMNS", "ChrystokiConfigurationPath"];
    let unread: Vec<_> =
        documented.difference(&read).filter(|name| !by_others.contains(&name.as_str())).collect();
    assert!(unread.is_empty(), "nothing reads {unread:#?}");
}
