//! What modules do differently, asked of each by `softhsm-tests/module-probe`, and the two tables of it in
//! docs/tokens.md: one by which a module's version is known, and one with a column for all versions that do the same.
//!
//! A test fails where the tables say something else than its module does, and leaves the page as it ought to be in
//! `target/tmp/tokens.md`, with all modules of this run. What is not known of a new version there is its name, a `?`.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Mutex, PoisonError};

use super::environment::Token;
use crate::fixture::*;

const PAGE: &str = "docs/tokens.md";
/// The first lines of the tables, the second one's up to the first module.
const VERSIONS: &str = "| module | C_GetInfo | C_GetInterfaceList |";
const ANSWERS: &str = "| a module's answer | ";

/// A row of the table of answers.
struct Question {
    /// For the program that asks.
    name: &'static str,
    /// In the table.
    title: &'static str,
}

const fn question(name: &'static str, title: &'static str) -> Question {
    Question { name, title }
}

/// By their answers a module's version is known.
const VERSION: [&str; 2] = ["version", "interfaces"];

/// Those that a token outlives. The forked child comes last: tpm2-pkcs11 doesn't recover from it.
const HARMLESS: [Question; 9] = [
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
fn answer(token: &Token<'_>, question: &str) -> String {
    let options = token.configuration.options();
    let store = &token.environment.store;
    let probe = store
        .with_pin(&options.iter().map(String::as_str).collect::<Vec<_>>())
        .argument(question)
        .program(module_probe());
    let outcome = token.environment.enter(probe, token.variables).run();
    match outcome.status.signal() {
        Some(libc::SIGALRM) => "hangs".to_owned(),
        Some(signal) => format!("crashes (signal {signal})"),
        None => outcome.succeeded().shown().trim_end().to_owned(),
    }
}

/// Major and minor version of the token's module, as it tells them.
pub(super) fn library_version(token: &Token<'_>) -> [u32; 2] {
    let told = answer(token, VERSION[0]);
    let (_, version) = told.split_once("library ").expect(&told);
    let (major, minor) = version.split_once('.').expect(&told);
    [major, minor].map(|number| number.parse().unwrap())
}

/// What a module does.
#[derive(Default)]
struct Measured {
    /// The answers by which its version is known.
    version: Vec<String>,
    /// The others, by the titles of their rows.
    answers: Vec<(&'static str, String)>,
}

/// Demands that the tables know the version of this module that is here, and say what it does. `with_token` makes a token,
/// each time another one, and hands it on.
#[track_caller]
pub(super) fn assert_documented(module: &str, with_token: impl Fn(&dyn Fn(&Token<'_>))) {
    let measured = Mutex::new(Measured::default());
    let ask = |token: &Token<'_>, asked: &Question| {
        measured.lock().unwrap().answers.push((asked.title, answer(token, asked.name)));
    };
    with_token(&|token| {
        measured.lock().unwrap().version = VERSION.map(|name| answer(token, name)).into();
        HARMLESS.iter().for_each(|asked| ask(token, asked));
    });
    for asked in &HARMFUL {
        with_token(&|token| ask(token, asked));
    }
    let measured = measured.into_inner().unwrap();
    let page = fs::read_to_string(at_root(PAGE)).unwrap();
    let Some(version) = version_in(&page, module, &measured) else {
        let corrected = correct(page, module, UNKNOWN, &measured).display().to_string();
        panic!("no {module} in {PAGE} that says {:?}; added in {corrected}", measured.version);
    };
    let table = Table::of(&page, ANSWERS);
    let Some(column) = table.column(module, &version) else {
        let corrected = correct(page, module, &version, &measured).display().to_string();
        panic!("no column of {module} {version} in {PAGE}; added in {corrected}");
    };
    let differing = table.differing(column, &measured);
    if !differing.is_empty() {
        let corrected = correct(page, module, &version, &measured).display().to_string();
        let differing = differing.join("\n");
        panic!("{module} {version} in {PAGE}:\n{differing}\ncorrected in {corrected}");
    }
}

const UNKNOWN: &str = "?";

/// The version of the module that says this of itself, or several, separated by commas.
fn version_in(page: &str, module: &str, measured: &Measured) -> Option<String> {
    let rows = Table::of(page, VERSIONS).rows;
    let row = rows.iter().find(|row| row[1..] == measured.version && is_of(module, &row[0]))?;
    Some(row[0][module.len()..].trim().to_owned())
}

/// Whether this cell names the module, before its versions.
fn is_of(module: &str, cell: &str) -> bool {
    cell.strip_prefix(module).is_some_and(|versions| versions.starts_with(' '))
}

/// Writes the page with what was measured of this version, and with what was corrected before it.
fn correct(page: String, module: &str, version: &str, measured: &Measured) -> PathBuf {
    static CORRECTED: Mutex<Option<String>> = Mutex::new(None);
    let mut corrected = CORRECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let page = corrected.get_or_insert(page);
    let name = format!("{module} {version}");
    if version == UNKNOWN {
        let mut versions = Table::of(page, VERSIONS);
        let last = versions.rows.iter().rposition(|row| is_of(module, &row[0]));
        let row = [std::slice::from_ref(&name), &measured.version].concat();
        versions.rows.insert(last.map_or(versions.rows.len(), |last| last + 1), row);
        *page = versions.page();
    }
    let mut answers = Table::of(page, ANSWERS);
    let column = answers.column(module, version);
    let column = column.unwrap_or_else(|| answers.add_column(module, name));
    for (title, does) in &measured.answers {
        if let Some(row) = answers.rows.iter_mut().find(|row| row[0] == *title) {
            row[column].clone_from(does);
        }
    }
    *page = answers.page();
    let path = at_target("tokens.md");
    fs::write(&path, page).unwrap();
    path
}

/// One of the page's tables, with what stands before and behind it.
struct Table<'p> {
    before: &'p str,
    /// Their cells, the head's first.
    rows: Vec<Vec<String>>,
    after: &'p str,
}

impl<'p> Table<'p> {
    /// The one that begins so.
    fn of(page: &'p str, beginning: &str) -> Self {
        let (before, rest) = page.split_at(page.find(beginning).expect(beginning));
        let (table, after) = rest.split_at(rest.find("\n\n").unwrap());
        let cells =
            |line: &str| line.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
        let is_line = |line: &&str| line.starts_with("|---");
        let rows = table.lines().filter(|line| !is_line(line)).map(cells).collect();
        Self { before, rows, after }
    }

    /// The page with this table.
    fn page(&self) -> String {
        let mut lines: Vec<_> =
            self.rows.iter().map(|row| format!("| {} |", row.join(" | "))).collect();
        lines.insert(1, format!("|{}", "---|".repeat(self.rows[0].len())));
        format!("{}{}{}", self.before, lines.join("\n"), self.after)
    }

    /// The column of the module in these versions.
    fn column(&self, module: &str, versions: &str) -> Option<usize> {
        let has_all = |head: &String| {
            let known: Vec<_> = head[module.len()..].trim().split(", ").collect();
            versions.split(", ").all(|version| known.contains(&version))
        };
        self.rows[0].iter().position(|head| is_of(module, head) && has_all(head))
    }

    fn differing(&self, column: usize, measured: &Measured) -> Vec<String> {
        let documented = |title: &str| Some(&self.rows.iter().find(|row| row[0] == title)?[column]);
        let differing =
            measured.answers.iter().filter(|(title, does)| documented(title) != Some(does));
        differing
            .map(|(title, does)| format!("{title}: {does}, documented: {:?}", documented(title)))
            .collect()
    }

    /// An empty one behind the module's others.
    fn add_column(&mut self, module: &str, head: String) -> usize {
        let last = self.rows[0].iter().rposition(|head| is_of(module, head));
        let column = last.map_or(self.rows[0].len(), |last| last + 1);
        self.rows.iter_mut().for_each(|row| row.insert(column, String::new()));
        self.rows[0][column] = head;
        column
    }
}
