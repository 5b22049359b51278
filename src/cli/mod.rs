//! Runs what the arguments and the environment ask for: a command, a request or completions.

// The commands, each with its arguments and what it prints.
mod approve;
mod attestation;
mod check;
mod completions;
mod credential;
mod enroll;
mod jwks;
mod kubeconfig;
mod list;
mod renew;
mod revoke;
mod run;
mod sealed;
mod service_account_signer;
mod status;
mod version;

// Parts that several commands share.
mod connection;
mod issuance;
mod key;
mod listing;
mod question;
mod session;
mod table;
mod usage;

use clap::{CommandFactory as _, FromArgMatches as _};

pub use self::sealed::provider::KubeletCall;
use self::session::{CommandSession, StartingSession};
use crate::start::{self, Started};
use messages::error::{Error, PLUGIN, PROGRAM};
use messages::folding::{folded, terminal_width};
use messages::printable::PrintableLines;
use messages::report;
use system::environment::SingleThreaded;
use tunnel_process;

const ABOUT: &str = "\
Lets kubectl, helm, k9s and other Kubernetes clients use a key that stays in a PKCS#11 token: a YubiKey, smart card, TPM \
or HSM. Set up a context of your kubeconfig for this with `enroll --context` or, if the token has a key already, with \
`kubeconfig --write`. With `run`, a single command uses the key.
";

const HELP: &str = "\
Without a command, the program is an external signer: clients that speak that protocol run it with a request in the \
environment variable EXTERNAL_SIGNER_PLUGIN_CONFIG, and read one JSON document from its standard output. Their \
kubeconfig has a user with `auth-provider: {name: externalSigner}`, which names this program (pathExec), the library \
(pathLib), the token (slotId) and the key (objectId).

Exit codes and all settings of the kubeconfig (tokenLabel, pinSource, certificateFile, uri …) are in the manual page, in \
docs/errors.md and in docs/configuration.md.
";

/// The program's commands. Without one it is the external signer.
#[derive(Debug, clap::Parser)]
#[command(
    name = "pkcs11-external-signer",
    version = version::TEXT,
    about = ABOUT,
    after_long_help = HELP
)]
struct Arguments {
    /// Show each step; -vv: with details
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = 998)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

// The variants are in the order of a key's life, as the help lists them. Only the options of the command that is called
// are made.
#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
enum Command {
    /// Make a key and get a certificate for it
    Enroll(enroll::EnrollArguments),
    /// Test step by step whether a key works
    Check(check::CheckArguments),
    /// List tokens, keys and certificates
    List(list::ListArguments),
    /// Configure a context to use a key
    Kubeconfig(kubeconfig::KubeconfigArguments),
    /// Run kubectl, helm or k9s with keys in tokens
    Run(run::RunArguments),
    /// Show which keys are open, and who uses them
    Status(status::StatusArguments),
    /// Close all keys and their connections
    #[command(after_help = "\
Examples:
  pkcs11-external-signer stop

Open connections end, and the next command asks for the PIN again.")]
    Stop,
    /// Get a new certificate for the same key
    Renew(renew::RenewArguments),
    /// Print a YubiKey's attestation of a key
    Attestation(attestation::AttestationArguments),
    /// Approve a request, after seeing who made it
    Approve(approve::ApproveArguments),
    /// Take away a lost token's rights
    Revoke(revoke::RevokeArguments),
    /// Print a credential (kubectl runs this)
    Credential(credential::CredentialArguments),
    /// Print the public key (JWKS) for --as jwt
    Jwks(jwks::JwksArguments),
    /// Seal registry passwords for nodes
    Seal(sealed::seal::SealArguments),
    /// Answer kubelet from a sealed file
    KubeletCredentialProvider(sealed::provider::ProviderArguments),
    /// Print what is in a sealed file
    Unseal(sealed::unseal::UnsealArguments),
    /// Sign service account tokens for an API server
    ServiceAccountSigner(service_account_signer::SignerArguments),
    /// Print a shell's completions
    Completions(completions::CompletionsArguments),
    /// What the credential plugin starts
    #[command(hide = true, name = tunnel_process::ARGUMENT)]
    TunnelProcess,
    /// What the tunnel process starts
    #[command(hide = true, name = tunnel_process::TOKEN_ARGUMENT)]
    TokenProcess,
    /// What the signer of service account tokens starts
    #[command(hide = true, name = service_account::TOKEN_ARGUMENT)]
    ServiceAccountTokenProcess,
    /// Print the version and what it was built from
    #[command(after_help = "\
Examples:
  pkcs11-external-signer version")]
    Version,
}

/// Runs what the command line asks for, and returns the exit code.
pub fn main(alone: SingleThreaded) -> u8 {
    start::run(alone, run)
}

fn run(Started { core, alone, .. }: Started) -> u8 {
    if let Some(code) = completions::complete() {
        return code;
    }
    let logged = report::logged();
    if std::env::args_os().len() <= 1 {
        let width = terminal_width(std::io::stderr()).or(Some(80));
        for text in [ABOUT, HELP] {
            for paragraph in text.lines() {
                report::lines(&(folded(paragraph, width, 0, 0) + "\n"));
            }
        }
        report::lines(&format!("help: {} --help shows the commands\n", start::called()));
        return 2;
    }
    let parsed =
        command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { verbose, command } = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return usage::not_a_command(error),
    };
    report::log_steps(verbose.max(logged));
    let show = match command {
        // Clients of this command log each error as one line.
        Command::Credential(_) => report::error_in_one_line,
        _ => report::error,
    };
    match command {
        Command::KubeletCredentialProvider(arguments) => arguments.answer(alone),
        Command::Run(arguments) => run::run(&arguments, core, alone),
        Command::ServiceAccountSigner(arguments) if arguments.serves() => {
            service_account_signer::serve(&arguments, alone)
        }
        Command::ServiceAccountTokenProcess => service_account::serve_token(),
        Command::TokenProcess => tunnel_process::serve_token(),
        Command::TunnelProcess => tunnel_process::serve(),
        command => CommandSession::run(alone, show, |session| run_in_session(&command, session)),
    }
}

/// Runs a command that needs no more than a session.
fn run_in_session(command: &Command, session: StartingSession<'_>) -> Result<(), Error> {
    match command {
        Command::Approve(arguments) => approve::run(arguments, session.ready()),
        Command::Attestation(arguments) => attestation::run(arguments, session),
        Command::Check(arguments) => check::run(arguments, session),
        Command::Completions(arguments) => completions::run(arguments, session.ready()),
        Command::Credential(arguments) => credential::run(arguments, session),
        Command::Enroll(arguments) => enroll::run(arguments, session),
        Command::Jwks(arguments) => jwks::run(arguments, session),
        Command::Kubeconfig(arguments) => kubeconfig::run(arguments, session),
        Command::List(arguments) => list::run(arguments, session),
        Command::Renew(arguments) => renew::run(arguments, session),
        Command::Revoke(arguments) => revoke::run(arguments, session.ready()),
        Command::Seal(arguments) => sealed::seal::run(arguments, session.ready()),
        Command::ServiceAccountSigner(arguments) => {
            service_account_signer::status(arguments, session.ready())
        }
        Command::Status(arguments) => status::run(arguments, session.ready()),
        Command::Stop => status::stop(),
        Command::Unseal(arguments) => sealed::unseal::run(arguments, session.ready()),
        Command::Version => {
            session.ready().output.print(&PrintableLines::of(version::text().lines()))
        }
        // These commands run without a session.
        Command::KubeletCredentialProvider(_)
        | Command::Run(_)
        | Command::ServiceAccountTokenProcess
        | Command::TokenProcess
        | Command::TunnelProcess => Err(Error::internal("a command without a session")),
    }
}

/// The commands and options. If kubectl has run this program, they belong to its plugin `kubectl-pkcs11`.
pub fn command() -> clap::Command {
    let command = Arguments::command();
    match start::called() {
        PROGRAM => command,
        called => command.name(PLUGIN).bin_name(called),
    }
}
