//! `completions`: the script that lets a shell complete this program's commands and options.

#![forbid(unsafe_code)]

use clap_complete::{Shell, generate};

use crate::error::Error;
use crate::process::answer::AnswerChannel;
use crate::report;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer completions bash \\
      > ~/.local/share/bash-completion/completions/pkcs11-external-signer
  pkcs11-external-signer completions zsh \\
      > \"${fpath[1]}/_pkcs11-external-signer\"
  pkcs11-external-signer completions fish \\
      > ~/.config/fish/completions/pkcs11-external-signer.fish

The packages install those of bash, zsh and fish.")]
pub(super) struct Arguments {
    shell: Shell,
}

/// Prints the script; the exit code.
#[cold]
pub(super) fn run(arguments: &Arguments) -> u8 {
    let mut script = Vec::new();
    generate(
        arguments.shell,
        &mut super::command(),
        "pkcs11-external-signer",
        &mut script,
    );
    let sent = AnswerChannel::open()
        .and_then(|channel| channel.send(String::from_utf8_lossy(&script).trim_end()));
    match sent.map_err(Error::from) {
        Ok(()) => 0,
        Err(error) => {
            report::error(&error);
            error.exit_code()
        }
    }
}
