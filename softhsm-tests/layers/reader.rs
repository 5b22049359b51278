//! Reads the program's source files: what each one uses, and the types it declares. Code that only
//! tests see is left out.

use std::collections::BTreeMap;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Meta, Stmt, Token, UseTree};

/// The library's two crates by the names that other crates call them by.
pub(crate) const OWN_NAMES: [&str; 2] = ["pkcs11_external_signer", "pkcs11_external_signer_core"];
/// Their roots, the lower one first. The upper one has the modules of the lower one under their names.
pub(crate) const ROOTS: [&str; 2] = ["src/core/lib.rs", "src/lib.rs"];
const PROGRAM: &str = "src/main.rs";

/// The text of each source file, by its path from the repository's root.
pub(crate) type Texts = BTreeMap<String, String>;

/// One source file.
pub(crate) struct Source {
    pub(crate) file: String,
    /// The path of its module, without the crate: `["token", "login"]`. The program's own files, which
    /// are not the library's, begin with `main`; that of a root is empty.
    pub(crate) module: Vec<String>,
    /// The modules it declares, in their order.
    pub(crate) children: Vec<String>,
    pub(crate) uses: Vec<Use>,
    pub(crate) types: Vec<Declared>,
}

/// A path that a file names, with the file's imports followed: `["std", "fs", "read"]` or
/// `["crate", "token"]`. A method is `["", "name"]`, an unsafe block or function `["unsafe"]`, a text
/// that names a device the text.
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// A struct, enum, union, trait or type alias.
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// The library's files and the program's, from their roots down. Files that no module declaration leads
/// to are no part of the program.
///
/// # Errors
///
/// The file that is missing, or the place where one is not Rust.
pub(crate) fn read(texts: &Texts) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for root in ROOTS {
        read_tree(texts, root, Vec::new(), &mut sources)?;
    }
    read_tree(texts, PROGRAM, vec!["main".to_owned()], &mut sources)?;
    Ok(sources)
}

fn read_tree(
    texts: &Texts,
    file: &str,
    module: Vec<String>,
    sources: &mut Vec<Source>,
) -> Result<(), String> {
    let text = texts.get(file).ok_or_else(|| format!("{file}: missing"))?;
    let parsed = syn::parse_file(text)
        .map_err(|error| format!("{file}:{}: {error}", error.span().start().line))?;
    let mut reader = Reader { module: module.clone(), ..Reader::default() };
    reader.visit_file(&parsed);
    let (parent, name) = file.rsplit_once('/').unwrap_or_default();
    let folder = match name {
        "lib.rs" | "main.rs" | "mod.rs" => parent,
        _ => file.trim_end_matches(".rs"),
    };
    let children = reader.children.clone();
    sources.push(reader.finish(file));
    for child in children {
        let mut path = module.clone();
        path.push(child.clone());
        let nested = format!("{folder}/{child}/mod.rs");
        let file =
            if texts.contains_key(&nested) { nested } else { format!("{folder}/{child}.rs") };
        read_tree(texts, &file, path, sources)?;
    }
    Ok(())
}

#[derive(Default)]
struct Reader {
    module: Vec<String>,
    children: Vec<String>,
    /// Paths as they are written, with the module that they are written in.
    found: Vec<(Vec<String>, Vec<String>, usize)>,
    /// What the imports call their paths.
    imports: BTreeMap<String, Vec<String>>,
    types: Vec<Declared>,
}

impl Reader {
    fn note(&mut self, path: Vec<String>, span: Span) {
        let line = span.start().line;
        self.found.push((path, self.module.clone(), line));
    }

    fn declare(&mut self, name: &syn::Ident) {
        self.types.push(Declared { name: name.to_string(), line: name.span().start().line });
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: String| {
            let mut path = prefix.to_vec();
            // `{self}` is the path before it.
            if name != "self" || prefix.is_empty() {
                path.push(name);
            }
            path
        };
        match tree {
            UseTree::Path(tree_path) => {
                let path = with(tree_path.ident.to_string());
                self.import(&tree_path.tree, &path);
            }
            UseTree::Name(name) => {
                let path = with(name.ident.to_string());
                let known = path.last().cloned().unwrap_or_default();
                self.imports.insert(known, path.clone());
                self.note(path, name.ident.span());
            }
            UseTree::Rename(rename) => {
                let path = with(rename.ident.to_string());
                self.imports.insert(rename.rename.to_string(), path.clone());
                self.note(path, rename.ident.span());
            }
            UseTree::Glob(glob) => self.note(with("*".to_owned()), glob.span()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix);
                }
            }
        }
    }

    /// Paths in what is not parsed: the tokens of a macro or an attribute.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut start = Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.note_scanned(&mut path, start);
                        start = ident.span();
                    }
                    path.push(ident.to_string());
                }
                TokenTree::Group(group) => {
                    self.note_scanned(&mut path, start);
                    self.scan(group.stream());
                }
                _ => self.note_scanned(&mut path, start),
            }
            colons = 0;
        }
        self.note_scanned(&mut path, start);
    }

    fn note_scanned(&mut self, path: &mut Vec<String>, start: Span) {
        if path.len() > 1 || path.first().is_some_and(|it| it == "unsafe") {
            self.note(std::mem::take(path), start);
        }
        path.clear();
    }

    fn finish(self, file: &str) -> Source {
        let resolve = |path: &Vec<String>, module: &[String]| {
            let mut path = path.clone();
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
            absolute(path, module)
        };
        let uses = self
            .found
            .iter()
            .map(|(path, module, line)| Use { path: resolve(path, module), line: *line })
            .collect();
        Source {
            file: file.to_owned(),
            module: self.module,
            children: self.children,
            uses,
            types: self.types,
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
    let base = base.iter().cloned();
    std::iter::once("crate".to_owned()).chain(base).chain(rest).collect()
}

/// Whether only tests are compiled with these attributes.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Meta>().is_ok_and(|predicate| wants_test(&predicate))
    })
}

fn wants_test(predicate: &Meta) -> bool {
    let Meta::List(list) = predicate else {
        return predicate.path().is_ident("test");
    };
    let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
    let Ok(parts) = parser.parse2(list.tokens.clone()) else {
        return false;
    };
    if list.path.is_ident("all") {
        parts.iter().any(wants_test)
    } else {
        list.path.is_ident("any") && parts.iter().all(wants_test)
    }
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn impl_item_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(it) => &it.attrs,
        ImplItem::Fn(it) => &it.attrs,
        ImplItem::Macro(it) => &it.attrs,
        ImplItem::Type(it) => &it.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(item_attributes(item)) {
            return;
        }
        match item {
            Item::Enum(it) => self.declare(&it.ident),
            Item::Struct(it) => self.declare(&it.ident),
            Item::Trait(it) => self.declare(&it.ident),
            Item::Type(it) => self.declare(&it.ident),
            Item::Union(it) => self.declare(&it.ident),
            Item::ExternCrate(it) => {
                self.note(vec![it.ident.to_string(), "*".to_owned()], it.span());
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            self.children.push(item.ident.to_string());
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(keyword) = &item.unsafety {
            self.note(vec!["unsafe".to_owned()], keyword.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !is_for_tests(impl_item_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Local(local) if is_for_tests(&local.attrs) => {}
            _ => visit::visit_stmt(self, statement),
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let syn::Safety::Unsafe(keyword) = &signature.safety {
            self.note(vec!["unsafe".to_owned()], keyword.span());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.note(vec!["unsafe".to_owned()], block.unsafe_token.span());
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.note(vec![String::new(), call.method.to_string()], call.method.span());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        if names.len() > 1 {
            self.note(names, path.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        if text.value().starts_with("/dev/") {
            self.note(vec![text.value()], text.span());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        match parser.parse2(call.tokens.clone()) {
            Ok(arguments) => arguments.iter().for_each(|it| self.visit_expr(it)),
            Err(_) => self.scan(call.tokens.clone()),
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        let is_exception =
            ["allow", "expect", "warn"].iter().any(|it| attribute.path().is_ident(it));
        if let Meta::List(list) = &attribute.meta {
            let names_it =
                |it: &TokenTree| matches!(it, TokenTree::Ident(it) if it == "unsafe_code");
            if is_exception && list.tokens.clone().into_iter().any(|it| names_it(&it)) {
                self.note(vec!["unsafe".to_owned()], attribute.span());
            }
            self.scan(list.tokens.clone());
        }
    }
}
