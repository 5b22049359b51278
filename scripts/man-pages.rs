//! Writes the manual pages of all commands: `cargo run --example man-pages DIRECTORY`.

use std::fs;
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| std::io::Error::other("say which directory to write to"))?;
    fs::create_dir_all(&directory)?;
    clap_mangen::generate_to(pkcs11_external_signer::cli::command(), &directory)?;
    for page in fs::read_dir(&directory)? {
        let page = page?.path();
        let text = fs::read_to_string(&page)?;
        fs::write(&page, with_examples_as_they_stand(&text))?;
    }
    Ok(())
}

/// What is indented is there to be copied: its lines aren't filled, which would break and hyphenate
/// them, and their tildes and carets are the keyboard's.
fn with_examples_as_they_stand(page: &str) -> String {
    let mut text = String::new();
    let mut is_example = false;
    for line in page.lines() {
        if line.starts_with("  ") != is_example {
            text.push_str(if is_example { ".fi\n" } else { ".nf\n" });
            is_example = !is_example;
        }
        if is_example {
            text.push_str(&line.replace('~', r"\(ti").replace('^', r"\(ha"));
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    text
}
