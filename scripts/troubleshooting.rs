//! Writes docs/troubleshooting.md: `cargo run --example troubleshooting`.
//!
//! The page is scripts/troubleshooting.md, with the errors of the sources in place of its markers: the
//! message, as `#[error(…)]` has it, and the doc comment of the variant, which says why the error comes.
//! `As above.` joins the entry before it. An error without a doc comment says all there is to say, and
//! has no entry.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Pat, Type};

/// Relative to the repository.
const PAGE: &str = "docs/troubleshooting.md";
const TEMPLATE: &str = "scripts/troubleshooting.md";

/// In the template, what the errors with an exit code replace.
const MARKER: &str = "<!-- errors -->";
/// The section of errors whose exit code is computed: 128 and a signal's number.
const COMPUTED: u8 = 130;

#[allow(dead_code, reason = "the test of the page has this file as a module")]
fn main() -> io::Result<()> {
    fs::write(root().join(PAGE), page()?)
}

/// The page as it should be.
///
/// # Errors
///
/// A file can't be read or parsed, or no section is for an error's exit code.
pub(crate) fn page() -> io::Result<String> {
    let template = fs::read_to_string(root().join(TEMPLATE))?;
    let mut errors = errors()?;
    let mut page = String::new();
    let mut code = None;
    for line in template.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let number = title.strip_prefix("Exit code ").unwrap_or_default();
            code = number.split(':').next().and_then(|it| it.parse().ok());
        }
        if line == MARKER {
            let entries = code.and_then(|code: u8| errors.remove(&code));
            page += &entries.ok_or_else(|| wrong("a marker in a section without errors"))?;
        } else {
            page = page + line + "\n";
        }
    }
    match errors.keys().next() {
        None => Ok(page),
        Some(code) => Err(wrong(format!("{TEMPLATE} has no marker for exit code {code}"))),
    }
}

/// The page as it is.
///
/// # Errors
///
/// The file can't be read.
#[allow(dead_code, reason = "for the test of the page")]
pub(crate) fn written() -> io::Result<String> {
    fs::read_to_string(root().join(PAGE))
}

/// The entries of all errors by their exit codes, in the order of the sources.
fn errors() -> io::Result<BTreeMap<u8, String>> {
    let mut entries = BTreeMap::<u8, String>::new();
    for path in sources(&root().join("src"))? {
        let file = syn::parse_file(&fs::read_to_string(&path)?)
            .map_err(|error| wrong(format!("{}: {error}", path.display())))?;
        for said in said_in(&file) {
            let section = entries.entry(said.code).or_default();
            match said.reason.as_str() {
                // What it says is all there is to say.
                "" => {}
                "As above." => join_last(section, &said.text),
                reason => *section += &format!("- `{}`: {reason}\n", said.text),
            }
        }
    }
    Ok(entries)
}

/// Adds a message to those of the last entry.
fn join_last(section: &mut String, text: &str) {
    let start = section.rfind("\n- ").map_or(0, |at| at + 1);
    let end = section[start..].find("`: ").map(|at| start + at);
    section.insert_str(end.unwrap_or(start), &format!("`, `{text}"));
}

/// An error.
struct Said {
    code: u8,
    text: String,
    reason: String,
}

/// The errors of a file. A type that is only a part of an error has the exit code of that.
fn said_in(file: &syn::File) -> Vec<Said> {
    let mut codes = BTreeMap::new();
    for item in &file.items {
        if let Item::Impl(item) = item {
            codes.extend(exit_codes(item));
        }
    }
    let mut found = Vec::new();
    for item in &file.items {
        let (name, parts) = match item {
            Item::Struct(item) => (&item.ident, vec![(String::new(), &item.attrs)]),
            Item::Enum(item) => {
                let variants = item.variants.iter();
                let parts = variants.map(|it| (it.ident.to_string(), &it.attrs));
                (&item.ident, parts.collect())
            }
            _ => continue,
        };
        for (variant, attributes) in parts {
            let Some(text) = message(attributes) else {
                continue;
            };
            let of = |variant: &str| codes.get(&(name.to_string(), variant.to_owned()));
            let code = of(&variant).or_else(|| of(""));
            // Without an exit code in this file, it ends up in the text of another error.
            let Some(code) = code.or_else(|| codes.values().next()) else {
                continue;
            };
            found.push(Said {
                code: *code,
                text: placeholders(&text),
                reason: documentation(attributes),
            });
        }
    }
    found
}

/// The exit codes in an `impl Failure`, by type and variant; for all variants under `""`.
fn exit_codes(item: &syn::ItemImpl) -> Vec<((String, String), u8)> {
    let is_failure = item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Failure"));
    let (true, Some(name)) = (is_failure, name(&item.self_ty)) else {
        return Vec::new();
    };
    let body = item.items.iter().find_map(|item| match item {
        ImplItem::Fn(function) if function.sig.ident == "exit_code" => {
            match function.block.stmts.as_slice() {
                [syn::Stmt::Expr(body, None)] => Some(body),
                _ => None,
            }
        }
        _ => None,
    });
    let mut codes = Vec::new();
    match body {
        Some(Expr::Match(body)) => {
            for arm in &body.arms {
                let code = number(&arm.body).unwrap_or(COMPUTED);
                let names = variants(&arm.pat);
                codes.extend(names.into_iter().map(|it| ((name.clone(), it), code)));
            }
        }
        Some(body) => codes.extend(number(body).map(|code| ((name, String::new()), code))),
        None => {}
    }
    codes
}

fn number(expression: &Expr) -> Option<u8> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The variants that a pattern names.
fn variants(pattern: &Pat) -> Vec<String> {
    let last = |path: &syn::Path| path.segments.last().map(|it| it.ident.to_string());
    match pattern {
        Pat::Or(several) => several.cases.iter().flat_map(variants).collect(),
        Pat::Struct(it) => last(&it.path).into_iter().collect(),
        Pat::TupleStruct(it) => last(&it.path).into_iter().collect(),
        Pat::Path(it) => last(&it.path).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn name(it: &Type) -> Option<String> {
    match it {
        Type::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

/// The text of `#[error("…")]`.
fn message(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident("error"))?;
    let text = |input: syn::parse::ParseStream<'_>| {
        let text: syn::LitStr = input.parse()?;
        // The values of the placeholders may follow.
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(text.value())
    };
    attribute.parse_args_with(text).ok()
}

/// With `…` for each value.
fn placeholders(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        shown = shown + before + "…";
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    (shown + rest).replace("……", "…")
}

/// The doc comment in one line.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|it| match &it.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(line) => match &line.lit {
                Lit::Str(line) => Some(line.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<_> = lines.map(|line| line.trim().to_owned()).collect();
    lines.join(" ")
}

fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}
