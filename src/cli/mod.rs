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
mod run;
mod sealed;
mod status;
mod version;

// What several of them share.
mod connection;
mod issuance;
mod key;
mod listing;
mod question;
mod session;
mod usage;

use clap::{CommandFactory as _, FromArgMatches as _};

use self::session::CommandSession;
use crate::start::{self, Started};
use messages::error::{Error, PLUGIN, PROGRAM};
use messages::printable::PrintableLines;
use messages::report;
use system::environment::SingleThreaded;
use tunnel_process;

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
    Seal(sealed::seal::SealArguments),
    /// Answer kubelet's request for a registry login, from a sealed file that the node's token opens
    KubeletCredentialProvider(sealed::provider::ProviderArguments),
    /// Print what is in a sealed file, after a PIN typed at the terminal
    Unseal(sealed::unseal::UnsealArguments),
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
    let parsed =
        command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { verbose, command } = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return usage::not_a_command(error),
    };
    report::log_steps(verbose.max(logged));
    let show = match command {
        // Their clients log a line.
        Command::Credential(_) | Command::KubeletCredentialProvider(_) => report::error_in_one_line,
        _ => report::error,
    };
    match command {
        Command::Run(arguments) => run::run(&arguments, core, alone),
        Command::TokenProcess => tunnel_process::serve_token(),
        Command::TunnelProcess => tunnel_process::serve(),
        command => CommandSession::run(alone, show, |session| run_in_session(&command, session)),
    }
}

/// Runs a command that needs no more than a session.
fn run_in_session(command: &Command, session: &mut CommandSession) -> Result<(), Error> {
    match command {
        Command::Approve(arguments) => approve::run(arguments, session),
        Command::Attestation(arguments) => attestation::run(arguments, session),
        Command::Check(arguments) => check::run(arguments, session),
        Command::Completions(arguments) => completions::run(arguments, session),
        Command::Credential(arguments) => credential::run(arguments, session),
        Command::Enroll(arguments) => enroll::run(arguments, session),
        Command::Jwks(arguments) => jwks::run(arguments, session),
        Command::Kubeconfig(arguments) => kubeconfig::run(arguments, session),
        Command::KubeletCredentialProvider(arguments) => sealed::provider::run(arguments, session),
        Command::List(arguments) => list::run(arguments, session),
        Command::Renew(arguments) => renew::run(arguments, session),
        Command::Seal(arguments) => sealed::seal::run(arguments, session),
        Command::Status(arguments) => status::run(arguments, session),
        Command::Stop => status::stop(),
        Command::Unseal(arguments) => sealed::unseal::run(arguments, session),
        Command::Version => session.output.print(&PrintableLines::of(version::text().lines())),
        // They run without one.
        Command::Run(_) | Command::TokenProcess | Command::TunnelProcess => {
            Err(Error::internal("a command without a session"))
        }
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
