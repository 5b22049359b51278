//! The doors: which one was knocked at, by the arguments and the environment.

#![forbid(unsafe_code)]

mod plugin;

use std::ffi::OsString;
use std::panic;

use crate::error::{Error, RequestError};
use crate::process::{environment, harden, signals};
use crate::report;

/// The variable that holds a request of the external signer protocol.
const REQUEST: &str = "EXTERNAL_SIGNER_PLUGIN_CONFIG";

const ABOUT: &str = "\
pkcs11-external-signer signs TLS handshakes for Kubernetes clients with a key that stays in a
PKCS#11 token (YubiKey, smart card, TPM, HSM). It is run by the client, not by hand: a kubeconfig
user with `auth-provider: {name: externalSigner}` names it in `pathExec`, and the client hands it
a request in the environment variable EXTERNAL_SIGNER_PLUGIN_CONFIG.
";

const HELP: &str = "\
Usage: pkcs11-external-signer [--help | --version]

Without arguments it answers the request in EXTERNAL_SIGNER_PLUGIN_CONFIG: one JSON document on
standard output, everything else on standard error. A PIN is asked on the terminal.

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

Further keys: certificateFile, pin, pinSource (prompt, stdin, file:/path, env:NAME).

Exit codes: 0 answered, 2 request, 3 configuration, 4 library, 5 token, 6 certificate or key,
7 login, 8 signing, 70 a bug in this program.
";

/// Runs the program; its exit code.
pub fn main() -> u8 {
    harden::harden();
    signals::announce();
    // A panic's own message could show what it stumbled over.
    panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map_or_else(String::new, ToString::to_string);
        report::error(&Error::Internal(format!("panic at {place}")));
    }));
    let request = environment::take(REQUEST);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = panic::catch_unwind(|| match (arguments.as_slice(), request) {
        ([], Some(request)) => plugin::run(request),
        ([], None) => {
            report::lines(ABOUT);
            report::lines(
                "help: pkcs11-external-signer --help shows what to write into the kubeconfig\n",
            );
            2
        }
        ([option], _) if option == "--help" || option == "-h" => {
            report::answer_text(&format!("{ABOUT}\n{HELP}"));
            0
        }
        ([option], _) if option == "--version" || option == "-V" => {
            report::answer_text(concat!(
                "pkcs11-external-signer ",
                env!("CARGO_PKG_VERSION"),
                "\n"
            ));
            0
        }
        (unknown, _) => {
            // What follows could be a PIN that somebody put here.
            let first = unknown
                .first()
                .map(|word| word.to_string_lossy())
                .unwrap_or_default();
            let name = first.split('=').next().unwrap_or_default();
            let error = Error::from(RequestError::Arguments(name.to_owned()));
            report::error(&error);
            error.exit_code()
        }
    });
    outcome.unwrap_or(70)
}
