//! What modules do differently, asked of each by `softhsm-tests/module-probe`, and the table of it in docs/tokens.md.
//!
//! A test fails where the table says something else than its module does, and leaves the page as it ought to be in
//! `target/tmp/tokens.md`, with all columns of this run.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Mutex, PoisonError};

use super::environment::Token;
use crate::fixture::*;

const PAGE: &str = "docs/tokens.md";
/// The table's first line, up to the first module.
const HEAD: &str = "| a module's answer | ";

/// A row of the table.
struct Question {
    /// For the program that asks.
    name: &'static str,
    /// In the table.
    title: &'static str,
}

const fn question(name: &'static str, title: &'static str) -> Question {
    Question { name, title }
}

/// Those that a token outlives. The forked child comes last: tpm2-pkcs11 doesn't recover from it.
const HARMLESS: [Question; 11] = [
    question("version", "C_GetInfo"),
    question("interfaces", "C_GetInterfaceList"),
    question("login again", "a wrong PIN while logged in"),
    question("salt", "PSS, a salt too long by a byte"),
    question("digest", "PSS with SHA-256 of 20 bytes"),
    question("mask", "PSS with SHA-256, MGF1 with SHA-1"),
    question("allowed mechanisms", "CKA_ALLOWED_MECHANISMS"),
    question("end date", "CKA_END_DATE"),
    question("point", "CKA_EC_POINT"),
    question("second process", "another process's new key"),
    question("fork", "C_Sign in a forked child"),
];

/// Those that lock the tokens whose tries they spend: each has a token of its own.
const HARMFUL: [Question; 2] =
    [question("null PIN", "a null PIN"), question("empty PIN", "an empty PIN")];

/// The program that asks, built when it is first wanted.
fn module_probe() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = at_target("fault-module");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(at_root("")).env_remove("CARGO_BUILD_TARGET");
        cargo.args(["build", "--quiet", "--package", "module-probe", "--target-dir"]);
        printed(cargo.arg(&target));
        target.join("debug/module-probe")
    });
    &PATH
}

/// What the module of this token answers.
fn answer(token: &Token<'_>, asked: &Question) -> String {
    let options = token.configuration.options();
    let store = &token.environment.store;
    let probe = store
        .with_pin(&options.iter().map(String::as_str).collect::<Vec<_>>())
        .argument(asked.name)
        .program(module_probe());
    let outcome = token.environment.enter(probe, token.variables).run();
    match outcome.status.signal() {
        Some(libc::SIGALRM) => "hangs".to_owned(),
        Some(signal) => format!("crashes (signal {signal})"),
        None => outcome.succeeded().shown().trim_end().to_owned(),
    }
}

/// Demands that the table's column of this module says what it does. `with_token` makes a token, each time another
/// one, and hands it on.
#[track_caller]
pub(super) fn assert_documented(module: &str, with_token: impl Fn(&dyn Fn(&Token<'_>))) {
    let measured = Mutex::new(Vec::new());
    let ask = |token: &Token<'_>, asked: &Question| {
        measured.lock().unwrap().push((asked.title, answer(token, asked)));
    };
    with_token(&|token| HARMLESS.iter().for_each(|asked| ask(token, asked)));
    for asked in &HARMFUL {
        with_token(&|token| ask(token, asked));
    }
    let measured = measured.into_inner().unwrap();
    let page = fs::read_to_string(at_root(PAGE)).unwrap();
    let column = column_of(&page, module);
    let differing: Vec<_> = measured
        .iter()
        .filter(|(title, does)| cell(&page, title, column) != Some(does))
        .map(|(title, does)| {
            format!("{title}: {does}, documented: {:?}", cell(&page, title, column))
        })
        .collect();
    if !differing.is_empty() {
        let corrected = correct(page, column, &measured);
        panic!(
            "{module} in {PAGE}:\n{}\ncorrected in {}",
            differing.join("\n"),
            corrected.display()
        );
    }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The column of the module whose name and version its head begins with.
fn column_of(page: &str, module: &str) -> usize {
    let head = page.lines().find(|line| line.starts_with(HEAD)).expect(HEAD);
    let column = cells(head).iter().position(|cell| cell.starts_with(module));
    column.unwrap_or_else(|| panic!("no column of {module} in {PAGE}"))
}

fn cell<'p>(page: &'p str, title: &str, column: usize) -> Option<&'p str> {
    let row = page.lines().find(|line| line.starts_with(&format!("| {title} |")))?;
    cells(row).get(column).copied()
}

/// Writes the page with this column as it was measured, and those that were corrected before it.
fn correct(page: String, column: usize, measured: &[(&str, String)]) -> PathBuf {
    static CORRECTED: Mutex<Option<String>> = Mutex::new(None);
    let mut corrected = CORRECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = corrected.take().unwrap_or(page);
    let lines = before.lines().map(|line| {
        let row = measured.iter().find(|(title, _)| line.starts_with(&format!("| {title} |")));
        let Some((_, does)) = row else { return format!("{line}\n") };
        let mut cells = cells(line);
        cells[column] = does;
        format!("| {} |\n", cells.join(" | "))
    });
    let path = at_target("tokens.md");
    fs::write(&path, corrected.insert(lines.collect())).unwrap();
    path
}
