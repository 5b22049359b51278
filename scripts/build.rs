//! Finds the commit and date of the source, for `version`.

#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "the environment and the output are cargo's"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=scripts/build.rs");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(["-C", &root]).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // A source within another repository, such as a vendored one, is not of its commit.
    let is_own = Path::new(&root).join(".git").exists();
    let (mut commit, mut date) = (None, None);
    if is_own {
        commit = git(&["rev-parse", "--short=12", "HEAD"]);
        date = git(&["show", "--no-patch", "--format=%ct", "HEAD"]);
        let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
        if let Some(log) = log {
            println!("cargo::rerun-if-changed={log}");
        }
    } else if let Ok(info) = std::fs::read_to_string(Path::new(&root).join(".cargo_vcs_info.json"))
    {
        // What cargo leaves of the repository in a package.
        commit = info
            .split_once("\"sha1\": \"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(commit, _)| commit.chars().take(12).collect());
    }
    if std::env::var_os("AWS_LC_SYS_NO_JITTER_ENTROPY").is_none() {
        println!(
            "cargo::warning=AWS_LC_SYS_NO_JITTER_ENTROPY=1, as in .cargo/config.toml, saves 15 ms at each start"
        );
    }
    let date = std::env::var("SOURCE_DATE_EPOCH").ok().or(date);
    for (name, value) in [
        ("SOURCE_COMMIT", commit),
        ("SOURCE_DATE", date),
        ("SOURCE_TARGET", std::env::var("TARGET").ok()),
    ] {
        println!("cargo::rustc-env={name}={}", value.unwrap_or_default());
    }
}
