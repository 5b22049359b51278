//! The start of every process: hardened, and then run for the request in its environment, or for its command line.
//!
//! It stands below the commands, so that a request touches no memory page of theirs.

#![forbid(unsafe_code)]

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use rustix::process::Rlimit;

use crate::error::{self, Call, Error, Exit, PLUGIN};
use crate::plugin::{self, KeptKeys};
use crate::process::environment::{self, SingleThreaded};
use crate::process::{harden, memory, signals};
use crate::report;

/// The variable that holds a request of the external signer protocol.
const REQUEST: &str = "EXTERNAL_SIGNER_PLUGIN_CONFIG";

/// The variable that asks for what `-v` asks for, where no option can be given.
const LOG: &str = "PKCS11_EXTERNAL_SIGNER_LOG";

/// A process that has no request to answer.
pub struct Started {
    /// The limit of core files that it was started with.
    pub core: Rlimit,
    pub alone: SingleThreaded,
}

/// Answers the request in the environment, or runs `commands` where there is none or there are arguments; the exit
/// code.
pub fn run(alone: SingleThreaded, kept: &mut dyn KeptKeys, commands: fn(Started) -> u8) -> u8 {
    let core = harden::harden();
    memory::share_heap();
    signals::install_handlers();
    // A panic's own message could show the value that caused it.
    panic::set_hook(Box::new(|info| {
        let location = info.location().map_or_else(String::new, |it| {
            format!("{}:{}:{}", in_its_crate(it.file()), it.line(), it.column())
        });
        report::error(&Error::internal(format!("panic at {location}")));
    }));
    let request = environment::take(REQUEST, &alone);
    let has_arguments = std::env::args_os().len() > 1;
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| match request {
        Some(request) if !has_arguments => {
            error::set_call(Call { program: Some(called()), ..Call::default() });
            report::log_steps(logged());
            plugin::run(request, alone, kept)
        }
        _ => commands(Started { core, alone }),
    }));
    outcome.unwrap_or(Exit::Internal as u8)
}

/// A source file's path from its crate on, such as `tokio-1.54.1/src/runtime/time/entry.rs`, without
/// the directories of the machine that it was built on.
fn in_its_crate(file: &str) -> &str {
    let before = file.rfind("/src/").and_then(|at| file.get(..at));
    let start = before.and_then(|it| it.rfind('/')).map_or(0, |at| at + 1);
    file.get(start..).unwrap_or_default()
}

/// What the user types to run this program.
pub fn called() -> &'static str {
    let called_as = std::env::args_os().next().map(PathBuf::from);
    let name = called_as.as_deref().and_then(Path::file_name);
    if name.is_some_and(|name| name == PLUGIN) { "kubectl pkcs11" } else { error::PROGRAM }
}

/// The verbosity that `PKCS11_EXTERNAL_SIGNER_LOG` asks for, as a number of `-v`.
pub fn logged() -> u8 {
    let Some(value) = std::env::var_os(LOG) else {
        return 0;
    };
    match value.to_str() {
        Some("" | "off") => 0,
        Some("info") => 1,
        Some("debug") => 2,
        _ => {
            report::warning(&format!("{LOG} is none of off, info and debug"));
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::in_its_crate;

    #[test]
    fn a_panics_place_is_not_the_builders() {
        for (file, shown) in [
            ("src/cli/mod.rs", "src/cli/mod.rs"),
            (
                "/home/jane/.cargo/registry/src/index.crates.io-1949cf/tokio-1.54.1/src/runtime/time/entry.rs",
                "tokio-1.54.1/src/runtime/time/entry.rs",
            ),
            ("/home/jane/code/signer/src/main.rs", "signer/src/main.rs"),
            ("/rustc/59807/library/core/src/option.rs", "core/src/option.rs"),
            ("/cargo/registry/src/index/a-1.0.0/lib.rs", "registry/src/index/a-1.0.0/lib.rs"),
            ("", ""),
        ] {
            assert_eq!(in_its_crate(file), shown);
        }
        assert!(!in_its_crate(std::panic::Location::caller().file()).starts_with('/'));
    }
}
