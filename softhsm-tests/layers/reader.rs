//! Reads the program's source files by their tokens: what each one uses, and the types it declares.
//! Code that only tests see is left out.

use std::collections::BTreeMap;
use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// The library's two crates by the names that other crates call them by.
pub(crate) const OWN_NAMES: [&str; 2] = ["pkcs11_external_signer", "pkcs11_external_signer_core"];
/// Their roots, the lower one first. The upper one has the modules of the lower one under their names.
pub(crate) const ROOTS: [&str; 2] = ["src/core/lib.rs", "src/lib.rs"];
const PROGRAM: &str = "src/main.rs";

/// The text of each source file, by its path from the repository's root.
pub(crate) type Texts = BTreeMap<String, String>;

/// One source file.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) file: String,
    /// The path of its module, without the crate: `["token", "login"]`. The program's own files, which
    /// are not the library's, begin with `main`; that of a root is empty.
    pub(crate) module: Vec<String>,
    /// The modules it declares, in their order.
    pub(crate) children: Vec<String>,
    /// The paths that it names and their lines, with its imports followed: `["std", "fs", "read"]` or
    /// `["crate", "token"]`. A method is `["", "name"]`, an unsafe block or function `["unsafe"]`, a text
    /// that names a device the text.
    pub(crate) uses: Vec<(Vec<String>, usize)>,
    /// Structs, enums, unions, traits and type aliases, and their lines.
    pub(crate) types: Vec<(String, usize)>,
    /// What the imports call their paths.
    imports: BTreeMap<String, Vec<String>>,
}

/// The library's files and the program's, from their roots down. Files that no module declaration leads
/// to are no part of the program.
pub(crate) fn read(texts: &Texts) -> Vec<Source> {
    let mut sources = Vec::new();
    for root in ROOTS {
        read_tree(texts, root, Vec::new(), &mut sources);
    }
    read_tree(texts, PROGRAM, vec!["main".to_owned()], &mut sources);
    sources
}

fn read_tree(texts: &Texts, file: &str, module: Vec<String>, sources: &mut Vec<Source>) {
    let text = texts.get(file).unwrap_or_else(|| panic!("{file}: missing"));
    let tokens = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut source = Source { file: file.to_owned(), module, ..Source::default() };
    source.scan(tokens, Place::Items);
    source.resolve();
    let (parent, name) = file.rsplit_once('/').unwrap_or_default();
    let folder = match name {
        "lib.rs" | "main.rs" | "mod.rs" => parent,
        _ => file.trim_end_matches(".rs"),
    };
    let (module, children) = (source.module.clone(), source.children.clone());
    sources.push(source);
    for child in children {
        let nested = format!("{folder}/{child}/mod.rs");
        let flat = format!("{folder}/{child}.rs");
        let file = if texts.contains_key(&nested) { &nested } else { &flat };
        read_tree(texts, file, [&module[..], &[child]].concat(), sources);
    }
}

/// Where tokens stand.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Items,
    /// In an `impl` or a trait, whose types are not the program's.
    Associated,
}

type Tokens = Peekable<IntoIter>;

impl Source {
    fn note(&mut self, path: Vec<String>, span: Span) {
        self.uses.push((absolute(path, &self.module), span.start().line));
    }

    fn scan(&mut self, tokens: TokenStream, place: Place) {
        let mut tokens = tokens.into_iter().peekable();
        // Whether the next block is that of an `impl` or a trait; the punctuation before.
        let (mut is_associated, mut before) = (false, ' ');
        while let Some(token) = tokens.next() {
            let last = std::mem::replace(&mut before, ' ');
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => self.attribute(&mut tokens),
                TokenTree::Punct(punct) if last == '.' && punct.as_char() == '.' => {}
                TokenTree::Punct(punct) => before = punct.as_char(),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    if let Some(text) = text.strip_prefix("\"/dev/") {
                        let text = format!("/dev/{}", text.trim_end_matches('"'));
                        self.note(vec![text], literal.span());
                    }
                }
                TokenTree::Group(group) => {
                    let is_block = group.delimiter() == Delimiter::Brace;
                    let inner = match is_block && std::mem::take(&mut is_associated) {
                        true => Place::Associated,
                        false => Place::Items,
                    };
                    self.scan(group.stream(), inner);
                }
                TokenTree::Ident(ident) => {
                    let (name, span) = (ident.to_string(), ident.span());
                    let next = tokens.peek().cloned();
                    match (&*name, next) {
                        ("impl", _) => is_associated = true,
                        ("unsafe", _) => self.note(vec![name], span),
                        ("use", Some(next)) if next.to_string() != "<" => {
                            self.import(&mut tokens, &[])
                        }
                        ("mod", Some(TokenTree::Ident(child))) => {
                            tokens.next();
                            match tokens.next() {
                                Some(TokenTree::Group(block)) => {
                                    self.module.push(child.to_string());
                                    self.scan(block.stream(), Place::Items);
                                    self.module.pop();
                                }
                                _ => self.children.push(child.to_string()),
                            }
                        }
                        ("enum" | "struct" | "trait" | "type" | "union", Some(declared))
                            if matches!(declared, TokenTree::Ident(_))
                                && (name != "type" || place == Place::Items) =>
                        {
                            is_associated |= name == "trait";
                            self.types.push((declared.to_string(), declared.span().start().line));
                        }
                        (_, next) if last == '.' => {
                            if next.is_some_and(|it| is_call(&it)) {
                                self.note(vec![String::new(), name], span);
                            }
                        }
                        _ => {
                            let path = path_from(name, &mut tokens);
                            if path.len() > 1 {
                                self.note(path, span);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Behind a `#`. What only tests are compiled with is passed over with its item.
    fn attribute(&mut self, tokens: &mut Tokens) {
        let _inner = tokens.next_if(|it| matches!(it, TokenTree::Punct(_)));
        let Some(TokenTree::Group(group)) = tokens.next() else { return };
        let text: String = group.stream().to_string().split_whitespace().collect();
        if text == "cfg(test)" || text.starts_with("cfg(all(test,") {
            skip_item(tokens);
        } else if !text.starts_with("doc=") {
            let is_exception = ["allow(", "expect(", "warn("].iter().any(|it| text.starts_with(it));
            if is_exception && text.contains("unsafe_code") {
                self.note(vec!["unsafe".to_owned()], group.span());
            }
            self.scan(group.stream(), Place::Items);
        }
    }

    /// The names behind `use` or a brace in it, up to the end of that.
    fn import(&mut self, tokens: &mut Tokens, prefix: &[String]) {
        let mut path = prefix.to_vec();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(name) => {
                    // `{self}` is the path before it.
                    if name != "self" || path.is_empty() {
                        path.push(name.to_string());
                    }
                    if matches!(tokens.peek(), Some(TokenTree::Punct(it)) if it.as_char() == ':') {
                        continue;
                    }
                    let renamed = tokens.next_if(|it| it.to_string() == "as");
                    let known = renamed.and_then(|_| tokens.next()).map(|it| it.to_string());
                    let known = known.or_else(|| path.last().cloned()).unwrap_or_default();
                    self.imports.insert(known, absolute(path.clone(), &self.module));
                    self.note(path.clone(), name.span());
                }
                TokenTree::Group(group) => {
                    let mut inner = group.stream().into_iter().peekable();
                    while inner.peek().is_some() {
                        self.import(&mut inner, &path);
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    path.push("*".to_owned());
                    self.note(path.clone(), punct.span());
                }
                TokenTree::Punct(punct) if [',', ';'].contains(&punct.as_char()) => return,
                _ => {}
            }
        }
    }

    /// Follows the imports.
    fn resolve(&mut self) {
        for (path, _) in &mut self.uses {
            // Imports may name imports; a few are enough, and `use time::…` must come to an end.
            for _ in 0..4 {
                let Some(import) = path.first().and_then(|first| self.imports.get(first)) else {
                    break;
                };
                if import.first() == path.first() {
                    break;
                }
                path.splice(..1, import.iter().cloned());
            }
        }
    }
}

/// `(…)` or `::<…>` behind a method's name.
fn is_call(next: &TokenTree) -> bool {
    match next {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
        TokenTree::Punct(punct) => punct.as_char() == ':',
        _ => false,
    }
}

fn path_from(first: String, tokens: &mut Tokens) -> Vec<String> {
    let mut path = vec![first];
    loop {
        let mut ahead = tokens.clone();
        let colons = [ahead.next(), ahead.next()];
        let is_colon = |it: &Option<TokenTree>| matches!(it, Some(TokenTree::Punct(it)) if it.as_char() == ':');
        match ahead.next() {
            Some(TokenTree::Ident(name)) if colons.iter().all(is_colon) => {
                path.push(name.to_string());
                *tokens = ahead;
            }
            _ => return path,
        }
    }
}

/// Goes behind an item, a field, an arm or a statement.
fn skip_item(tokens: &mut Tokens) {
    let (mut depth, mut before) = (0, ' ');
    for token in tokens.by_ref() {
        let last = std::mem::replace(&mut before, ' ');
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(punct) => match punct.as_char() {
                '<' => depth += 1,
                '>' if !['-', '='].contains(&last) => depth -= 1,
                ';' => return,
                ',' if depth == 0 => return,
                other => before = other,
            },
            _ => {}
        }
    }
}

/// A path that begins with `self` or `super`, from the crate's root.
fn absolute(path: Vec<String>, module: &[String]) -> Vec<String> {
    let first = path.first().map(String::as_str);
    if !matches!(first, Some("self" | "super")) {
        return path;
    }
    let up = path.iter().filter(|it| *it == "super").count();
    let base = &module[..module.len().saturating_sub(up)];
    let rest = path.into_iter().skip_while(|it| it == "self" || it == "super");
    std::iter::once("crate".to_owned()).chain(base.iter().cloned()).chain(rest).collect()
}
