//! Writes the manual pages of all commands: `cargo run --example man-pages DIRECTORY`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| std::io::Error::other("say which directory to write to"))?;
    std::fs::create_dir_all(&directory)?;
    clap_mangen::generate_to(pkcs11_external_signer::cli::command(), directory)
}
