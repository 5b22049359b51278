//! Runs what the arguments and the environment ask for: a command, a request or completions.

mod approve;
mod attestation;
mod check;
mod completions;
mod connection;
mod context_key;
mod credential;
mod enroll;
mod issuance;
mod jwks;
mod key_choice;
mod key_options;
mod kubeconfig;
mod list;
mod listing;
mod opening;
mod question;
mod renew;
mod run;
mod sealed;
mod session;
mod status;
mod version;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use self::session::{CommandOutput, CommandSession};
use crate::error::{PLUGIN, PROGRAM};
use crate::printable::PrintableLines;
use crate::process::environment::SingleThreaded;
use crate::start::{self, Started};
use crate::{report, tunnel_process};

// In lines of 80 columns, which help doesn't break again.
const ABOUT: &str = "\
pkcs11-external-signer signs TLS handshakes for Kubernetes clients with a key
that stays in a PKCS#11 token (YubiKey, smart card, TPM, HSM). Stock kubectl,
helm and k9s use such a key in a context that `kubeconfig --write` has changed,
or below `run` without a change. A client that speaks the external signer
protocol runs the program itself: a kubeconfig user with the auth-provider
externalSigner names it in `pathExec`, and the client hands it a request in the
environment variable EXTERNAL_SIGNER_PLUGIN_CONFIG.
";

const HELP: &str = "\
Without arguments it answers the request in EXTERNAL_SIGNER_PLUGIN_CONFIG: one
JSON document on standard output, everything else on standard error. A PIN is
asked on the terminal.

In the kubeconfig:
  users:
  - name: jane
    user:
      auth-provider:
        name: externalSigner
        config:
          pathExec: /usr/local/bin/pkcs11-external-signer
          pathLib: /usr/lib/softhsm/libsofthsm2.so   # the token's PKCS#11 library
          slotId: \"0\"                                # or tokenLabel, tokenSerial
          objectId: \"2\"                              # or objectLabel

Exit codes, and the other keys (pinSource, certificateFile, uri …), are in the
manual page, in docs/errors.md and docs/configuration.md.
";

/// The program's commands. Without one it is the external signer.
#[derive(Debug, clap::Parser)]
#[command(
    name = "pkcs11-external-signer",
    version = version::TEXT,
    about = ABOUT,
    after_help = HELP
)]
struct Arguments {
    /// Report each step; twice, with details
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 998)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

// In the order of a key's life, as the help lists them. A call makes the options of its own command alone.
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
enum Command {
    /// Make a key on a token, request a certificate for it, and put that beside it
    Enroll(enroll::EnrollArguments),
    /// Test each step up to a signature: what works, what doesn't, and what to do about it
    Check(check::CheckArguments),
    /// Show the tokens, keys and certificates that could authenticate
    List(list::ListArguments),
    /// Have a context of the kubeconfig use a key, or print what that takes
    Kubeconfig(kubeconfig::KubeconfigArguments),
    /// Run a command, such as stock kubectl, helm or k9s, with keys that stay in their tokens
    Run(run::RunArguments),
    /// Show the tunnel process: keys, who uses them until when, and clusters
    Status(status::StatusArguments),
    /// End the tunnel process: its connections, and the logins to the tokens
    #[command(after_help = "\
Examples:
  pkcs11-external-signer stop

Connections that are open end, and the next command asks for the PIN again. A process that doesn't answer \
is ended by signals. Without a tunnel process there is nothing to do.")]
    Stop,
    /// Have the cluster issue a new certificate for the key, before the present one expires
    Renew(renew::RenewArguments),
    /// Print the certificate by which a YubiKey says that it made a key itself
    Attestation(attestation::AttestationArguments),
    /// Show a CertificateSigningRequest, compare it with who made it, and approve it
    Approve(approve::ApproveArguments),
    /// Answer a client's request for a credential, as kubectl's credential plugin
    Credential(credential::CredentialArguments),
    /// Print the key set (JWKS) by which a cluster verifies tokens that a key signs (`credential --as jwt`)
    Jwks(jwks::JwksArguments),
    /// Seal registry passwords to nodes' certificates, for kubelet-credential-provider
    Seal(sealed::SealArguments),
    /// Answer kubelet's request for a registry login, from a sealed file that the node's token opens
    KubeletCredentialProvider(sealed::ProviderArguments),
    /// Print what is in a sealed file, after a PIN typed at the terminal
    Unseal(sealed::UnsealArguments),
    /// Print the completions of a shell
    Completions(completions::CompletionsArguments),
    /// What the credential plugin starts
    #[command(hide = true, name = tunnel_process::ARGUMENT)]
    TunnelProcess,
    /// What the tunnel process starts
    #[command(hide = true, name = tunnel_process::TOKEN_ARGUMENT)]
    TokenProcess,
    /// Print the version, and what it was built from
    #[command(after_help = "\
Examples:
  pkcs11-external-signer version")]
    Version,
}

/// Runs what the command line asks for; the exit code.
pub fn main(alone: SingleThreaded) -> u8 {
    start::run(alone, run)
}

fn run(Started { core, alone, .. }: Started) -> u8 {
    if let Some(code) = completions::complete() {
        return code;
    }
    let logged = report::logged();
    if std::env::args_os().len() <= 1 {
        report::lines(ABOUT);
        report::lines(&format!("help: {} --help shows the commands\n", start::called()));
        return 2;
    }
    let parsed = command().try_get_matches().and_then(|it| Arguments::from_arg_matches(&it));
    let Arguments { verbose, command } = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return not_a_command(error),
    };
    report::log_steps(verbose.max(logged));
    let show = match command {
        // Their clients log a line.
        Command::Credential(_) | Command::KubeletCredentialProvider(_) => report::error_in_one_line,
        _ => report::error,
    };
    match command {
        Command::Run(it) => run::run(&it, core, alone),
        Command::TokenProcess => tunnel_process::serve_token(),
        Command::TunnelProcess => tunnel_process::serve(),
        command => CommandSession::run(alone, show, |session| match command {
            Command::Approve(it) => approve::run(&it, session),
            Command::Attestation(it) => attestation::run(&it, session),
            Command::Check(it) => check::run(&it, session),
            Command::Completions(it) => completions::run(&it, session),
            Command::Credential(it) => credential::run(&it, session),
            Command::Enroll(it) => enroll::run(&it, session),
            Command::Jwks(it) => jwks::run(&it, session),
            Command::Kubeconfig(it) => kubeconfig::run(&it, session),
            Command::KubeletCredentialProvider(it) => sealed::provide(&it, session),
            Command::List(it) => list::run(&it, session),
            Command::Renew(it) => renew::run(&it, session),
            Command::Seal(it) => sealed::seal(&it, session),
            Command::Status(it) => status::run(&it, session),
            Command::Stop => status::stop(),
            Command::Unseal(it) => sealed::unseal(&it, session),
            Command::Version => session.output.print(&PrintableLines::of(version::text().lines())),
            // Without a session.
            Command::Run(_) | Command::TokenProcess | Command::TunnelProcess => Ok(()),
        }),
    }
}

/// The commands and options, as kubectl's plugin `kubectl-pkcs11` where kubectl has run it.
pub fn command() -> clap::Command {
    let command = Arguments::command();
    match start::called() {
        PROGRAM => command,
        called => command.name(PLUGIN).bin_name(called),
    }
}

/// Prints the help or version that was asked for, or clap's own error; the exit code.
fn not_a_command(mut error: clap::Error) -> u8 {
    let text = match error.kind() {
        // Its examples begin with the name that it was called by.
        ErrorKind::DisplayHelp => {
            let begins = |name| format!("\n  {name} ");
            Some(error.to_string().replace(&begins(PROGRAM), &begins(start::called())))
        }
        ErrorKind::DisplayVersion => Some(version::text()),
        _ => None,
    };
    if let Some(text) = text {
        let printed = CommandOutput::open().and_then(|mut output| output.print_painted(&text));
        return printed.map_or_else(|error| report::error(&error), |()| 0);
    }
    let word = unknown_command(&error);
    // A stray word is not repeated, since it could be a PIN, unless it is one of ours but for a letter or so, or a
    // command's name.
    let likely = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .map(|kind| error.get(kind).map_or_else(String::new, ToString::to_string));
    let is_typo = |word: &str| {
        let is_lower = word.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
        // The likeliest is the last one.
        let mut likely = likely.iter().filter_map(|words| words.rsplit(", ").next());
        is_lower && likely.any(|it| !it.is_empty() && it.len().abs_diff(word.len()) < 2)
    };
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue]
    {
        let is_kept = match error.get(kind) {
            Some(ContextValue::String(word)) => {
                let is_own = kind == ContextKind::InvalidArg && word.starts_with(['-', '<']);
                let is_name = kind == ContextKind::InvalidSubcommand && is_command_name(word);
                is_own && !word.contains('=') || word.is_empty() || is_typo(word) || is_name
            }
            _ => true,
        };
        if !is_kept && error.kind() != ErrorKind::MissingSubcommand {
            error.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
    error.remove(ContextKind::Suggested);
    if let Some(client) = word.filter(|word| is_in_path(word)) {
        let program = start::called();
        let tip =
            format!("'{program} run -- {client} …' runs it with keys that stay in their tokens");
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    report::lines(&format!("{PROGRAM}: {error}"));
    2
}

/// The word that stands where a command would, and is none.
fn unknown_command(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    }
}

/// Whether it looks like a command's name, and not like a PIN: letters alone, or a program's name.
fn is_command_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase()) || is_in_path(word)
}

fn is_in_path(word: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    !word.contains('/') && std::env::split_paths(&folders).any(|folder| folder.join(word).is_file())
}
