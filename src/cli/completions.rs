//! `completions`: the script that lets a shell complete this program's commands, options and contexts.

use std::io::{self, Write as _};

use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use super::session::CommandSession;
use messages::error::{Error, PROGRAM};

/// The variable that the script sets when it asks for what may stand at the cursor.
const VARIABLE: &str = "PKCS11_EXTERNAL_SIGNER_COMPLETE";

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
pub(super) struct CompletionsArguments {
    shell: Shell,
}

pub(super) fn run(
    CompletionsArguments { shell }: &CompletionsArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let (name, mut script) = (PROGRAM, Vec::new());
    let shells = Shells::builtins();
    if let Some(shell) = shells.completer(&shell.to_string()) {
        shell
            .write_registration(VARIABLE, name, name, name, &mut script)
            .map_err(|error| Error::internal(error.to_string()))?;
    }
    session.output.print_document(&String::from_utf8_lossy(&script))
}

/// Answers the script of a shell, and returns the exit code; `None` if no script asks. Nothing is written to standard
/// error, since it would end up in the middle of the line that a person types.
pub(super) fn complete() -> Option<u8> {
    let arguments = std::env::args_os();
    let directory = std::env::current_dir().ok();
    let environment = CompleteEnv::with_factory(super::command).var(VARIABLE);
    match environment.try_complete(arguments, directory.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(if io::stdout().flush().is_ok() { 0 } else { 2 }),
        Err(_) => Some(2),
    }
}
