//! Reads the program's source files by their tokens: what each one uses, and the types it declares.
//! Code that only tests see is left out.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The library's two crates by the names that other crates call them by.
pub(crate) const OWN_NAMES: [&str; 2] = ["pkcs11_external_signer", "pkcs11_external_signer_core"];
/// Their roots, the lower one first. The upper one has the modules of the lower one under their names.
pub(crate) const ROOTS: [&str; 2] = ["src/core/lib.rs", "src/lib.rs"];

/// The text of each source file, by its path from the repository's root.
pub(crate) type Texts = BTreeMap<String, String>;

/// One source file.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) file: String,
    /// The path of its module, without the crate: `["token", "login"]`. That of the program is `["main"]`, and that of a
    /// root is empty.
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

/// All files but those that are tests alone.
pub(crate) fn read(texts: &Texts) -> Vec<Source> {
    let sources = texts.iter().filter_map(|(file, text)| {
        let path = file.strip_prefix("src/").unwrap_or(file);
        let path = path.strip_prefix("core/").unwrap_or(path).trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").trim_end_matches("lib");
        let module: Vec<_> =
            path.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let tested = module.last().map(|it| format!("#[cfg(test)]\nmod {it};\n"));
        if tested.is_some_and(|it| texts.values().any(|text| text.contains(&it))) {
            return None;
        }
        let mut source = Source { file: file.clone(), module, ..Source::default() };
        let tokens = text.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut flat = Vec::new();
        flatten(tokens, &mut flat);
        source.scan(&flat);
        source.find_types(text);
        Some(source)
    });
    sources.collect()
}

/// A name, a literal or punctuation, and its line.
type Token = (String, usize);

/// What stands there one after the other, but for what only tests are compiled with, and documentation.
fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    let mut tokens = stream.into_iter();
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        match &token {
            TokenTree::Group(group) => {
                let [open, close] = match group.delimiter() {
                    Delimiter::Brace => ["{", "}"],
                    Delimiter::Bracket => ["[", "]"],
                    _ => ["(", ")"],
                };
                let text: String = group.stream().to_string().split_whitespace().collect();
                let is_attribute = flat.last().is_some_and(|(it, _)| ["#", "!"].contains(&&**it));
                if is_attribute && (text == "cfg(test)" || text.starts_with("cfg(all(test,")) {
                    flat.pop();
                    let is_end = |it: &TokenTree| match it {
                        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                        other => other.to_string() == ";",
                    };
                    tokens.find(is_end);
                } else if !(is_attribute && text.starts_with("doc=")) {
                    flat.push((open.to_owned(), line));
                    flatten(group.stream(), flat);
                    flat.push((close.to_owned(), line));
                }
            }
            other => flat.push((other.to_string(), line)),
        }
    }
}

impl Source {
    fn note(&mut self, path: Vec<String>, line: usize) {
        self.uses.push((absolute(path, &self.module), line));
    }

    fn scan(&mut self, tokens: &[Token]) {
        let text = |at: usize| tokens.get(at).map_or("", |(text, _)| text.as_str());
        let is_name = |it: &str| it.starts_with(|it: char| it.is_alphabetic() || it == '_');
        let is_separator = |at| text(at) == ":" && text(at + 1) == ":";
        let mut at = 0;
        while let Some((first, line)) = tokens.get(at) {
            let before = at.checked_sub(1).map_or("", text);
            at += 1;
            if let Some(device) = first.strip_prefix("\"/dev/") {
                self.note(vec![format!("/dev/{}", device.trim_end_matches('"'))], *line);
            } else if first == "unsafe" {
                self.note(vec![first.clone()], *line);
            } else if first == "mod" && text(at + 1) == ";" {
                self.children.push(text(at).to_owned());
            } else if first == "use" && text(at) != "<" {
                let end = tokens[at..].iter().position(|(it, _)| it == ";").unwrap_or_default();
                self.import(&tokens[at..=at + end]);
                at += end;
            } else if is_name(first) && before == "." && text(at.wrapping_sub(3)) != "." {
                if text(at) == "(" || is_separator(at) {
                    self.note(vec![String::new(), first.clone()], *line);
                }
            } else if is_name(first) {
                let mut path = vec![first.clone()];
                while is_separator(at) && is_name(text(at + 2)) {
                    path.push(text(at + 2).to_owned());
                    at += 3;
                }
                if path.len() > 1 {
                    self.note(path, *line);
                }
            }
        }
        self.resolve();
    }

    /// What stands between `use` and its end, which is there too.
    fn import(&mut self, tokens: &[Token]) {
        let (mut outer, mut path) = (vec![Vec::new()], Vec::new());
        let (mut known, mut is_whole) = (None, false);
        for (at, (token, line)) in tokens.iter().enumerate() {
            match token.as_str() {
                ":" | "as" | "$" => {}
                "{" => outer.push(path.clone()),
                // `{self}` is the path before it.
                "self" if !path.is_empty() => is_whole = true,
                "}" | "," | ";" => {
                    let base: &Vec<String> = outer.last().unwrap_or(&path);
                    if is_whole || path.len() > base.len() {
                        let name =
                            known.take().or_else(|| path.last().cloned()).unwrap_or_default();
                        self.imports.insert(name, absolute(path.clone(), &self.module));
                        self.note(path.clone(), *line);
                    }
                    is_whole = false;
                    if token == "}" {
                        outer.pop();
                    }
                    path = outer.last().cloned().unwrap_or_default();
                }
                name if at > 0 && tokens[at - 1].0 == "as" => known = Some(name.to_owned()),
                name => path.push(name.to_owned()),
            }
        }
    }

    /// Follows the imports.
    fn resolve(&mut self) {
        for (path, _) in &mut self.uses {
            // Imports may name imports; a few are enough, and `use time::…` must come to an end.
            for _ in 0..4 {
                match path.first().and_then(|first| self.imports.get(first)) {
                    Some(import) if import.first() != path.first() => {
                        path.splice(..1, import.iter().cloned());
                    }
                    _ => break,
                }
            }
        }
    }

    /// Those of the module itself: rustfmt lets nothing else begin a line.
    fn find_types(&mut self, text: &str) {
        let kinds = ["enum", "struct", "trait", "type", "union"];
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = text.split([' ', '<', '(', ';', ':', '{', '=']);
            let first = words.clone().next().unwrap_or_default();
            let is_declared = first == "pub" || first == "unsafe" || kinds.contains(&first);
            if is_declared && words.any(|it| kinds.contains(&it)) {
                self.types.push((words.next().unwrap_or_default().to_owned(), line));
            }
        }
    }
}

/// A path that begins with `self` or `super`, from the crate's root.
fn absolute(path: Vec<String>, module: &[String]) -> Vec<String> {
    if !matches!(path.first().map(String::as_str), Some("self" | "super")) {
        return path;
    }
    let up = path.iter().filter(|it| *it == "super").count();
    let base = &module[..module.len().saturating_sub(up)];
    let rest = path.into_iter().skip_while(|it| it == "self" || it == "super");
    std::iter::once("crate".to_owned()).chain(base.iter().cloned()).chain(rest).collect()
}
