//! Asks a PKCS#11 module one question about what modules do differently, and prints the answer on one line:
//!
//!     module-probe --module=LIBRARY [--init-args=TEXT] --token-label=LABEL|--token-serial=SERIAL QUESTION
//!
//! The user PIN is in `TOKEN_PIN`. The token is one for tests: keys are made on it, and the questions about PINs may lock
//! it. A module that crashes ends this process, and so does one that hangs, with SIGALRM after a minute.

mod codes;
mod module;
mod questions;

use std::env;
use std::process::ExitCode;

use module::{Module, Target};

/// After so many seconds a module hangs.
const PATIENCE: u32 = 60;

fn main() -> ExitCode {
    module::end_after(PATIENCE);
    let mut target = Target::default();
    let mut question = None;
    for argument in env::args().skip(1) {
        match argument.split_once('=') {
            Some(("--module", library)) => target.library = library.to_owned(),
            Some(("--init-args", text)) => target.init_args = Some(text.to_owned()),
            Some(("--token-label", label)) => target.label = Some(label.to_owned()),
            Some(("--token-serial", serial)) => target.serial = Some(serial.to_owned()),
            _ => question = Some(argument),
        }
    }
    let Some(question) = question else {
        eprintln!("no question");
        return ExitCode::from(2);
    };
    let answer = Module::load(target).and_then(|module| questions::ask(&module, &question));
    println!("{}", answer.unwrap_or_else(|refused| refused.to_string()));
    ExitCode::SUCCESS
}
