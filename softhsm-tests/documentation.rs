//! What the documents say of the tests, and of each other.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tests that a text names, as `module::test` between backticks.
fn tests_named(text: &str) -> Vec<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| {
            let is_path =
                |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || "_:".contains(it);
            name.contains("::") && name.chars().all(is_path)
        })
        .collect()
}

/// Whether there is such a test, here or beside the code.
fn is_test(name: &str) -> bool {
    let (module, function) = name.rsplit_once("::").unwrap();
    let module = module.replace("::", "/");
    let head = format!("fn {function}(");
    ["softhsm-tests", "src"]
        .iter()
        .flat_map(|place| {
            [
                format!("{place}/{module}.rs"),
                format!("{place}/{module}/mod.rs"),
            ]
        })
        .filter_map(|file| fs::read_to_string(root().join(file)).ok())
        .any(|code| {
            // Attributes may stand between.
            code.split("#[test]\n").skip(1).any(|rest| {
                let next = rest.find("fn ").map_or("", |at| &rest[at..]);
                next.starts_with(&head)
            })
        })
}

#[test]
fn each_test_that_the_security_page_names_is_there() {
    let text = read("docs/security.md");
    let named = tests_named(&text);
    assert!(named.len() > 30, "only {} tests are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|name| !is_test(name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(!is_test("documentation::no_such_test"));
    assert!(!is_test("documentation::read"), "it is no test");
}

/// An attacker who is stopped by words alone is not stopped.
#[test]
fn each_attacker_is_stopped_by_what_a_test_shows() {
    let text = read("docs/security.md");
    let (_, section) = text
        .split_once("\n## Who attacks, and what stops them\n")
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    let attackers = &rows[1..];
    assert!(attackers.len() >= 10, "{attackers:#?}");
    for row in attackers {
        let who = row.split(" | ").next().unwrap();
        assert!(
            who == "| root" || !tests_named(row).is_empty(),
            "no test for {who}"
        );
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = vec![root().join("README.md"), root().join("SECURITY.md")];
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        documents.extend(entries.map(|entry| entry.unwrap().path()));
    }
    documents.retain(|path| path.extension().is_some_and(|it| it == "md"));
    let mut broken = Vec::new();
    for document in &documents {
        let text = read(document);
        for link in text.split("](").skip(1) {
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
    assert!(documents.len() > 10);
    assert!(broken.is_empty(), "{broken:#?}");
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
