//! Exit code 4: the PKCS#11 library.

use std::fmt;
use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Remedy};

#[derive(Debug)]
pub enum ModuleError {
    /// Told by a handler of the signal.
    Crashed {
        path: PathBuf,
        signal: &'static str,
    },
    /// A step has taken too long.
    Hangs {
        path: PathBuf,
        doing: &'static str,
        seconds: u64,
    },
    Initialize {
        path: PathBuf,
        failure: CallFailure,
    },
    /// The loader's own words.
    Load {
        path: PathBuf,
        reason: String,
    },
    /// The process that looked at it had to be ended, or ended by itself.
    NoAnswer {
        path: PathBuf,
        reason: String,
    },
    /// It doesn't give the list of its functions, without which none can be called.
    NoFunctions {
        path: PathBuf,
        failure: CallFailure,
    },
    /// No library was named, and none is installed where they usually are.
    NoneFound,
    NotAModule {
        path: PathBuf,
        reason: String,
    },
    /// Another key of the run has it initialised otherwise.
    OtherInitArgs {
        path: PathBuf,
    },
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed { path, signal } => write!(
                f,
                "PKCS#11 library {} crashed the process ({signal})",
                path.display()
            ),
            Self::Hangs {
                path,
                doing,
                seconds,
            } => write!(
                f,
                "PKCS#11 library {} hangs: {doing} has taken {seconds} s",
                path.display()
            ),
            Self::Initialize { path, failure } => {
                write!(
                    f,
                    "PKCS#11 library {} does not initialise: {failure}",
                    path.display()
                )
            }
            Self::Load { path, reason } => {
                write!(
                    f,
                    "PKCS#11 library {} does not load: {reason}",
                    path.display()
                )
            }
            Self::NoAnswer { path, reason } => write!(
                f,
                "PKCS#11 library {} does not tell its tokens: {reason}",
                path.display()
            ),
            Self::NoFunctions { path, failure } => write!(
                f,
                "PKCS#11 library {} does not give its functions: {failure}",
                path.display()
            ),
            Self::NoneFound => f.write_str("no PKCS#11 library was found on this machine"),
            Self::NotAModule { path, reason } => {
                write!(f, "{} is not a PKCS#11 library: {reason}", path.display())
            }
            Self::OtherInitArgs { path } => write!(
                f,
                "PKCS#11 library {} runs with other initArgs already, those of another context",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ModuleError {}

impl Failure for ModuleError {
    fn exit_code(&self) -> u8 {
        4
    }

    fn remedy(&self) -> Remedy {
        Remedy::new(match self {
            Self::Crashed { .. } => {
                "update the library, or use another one for this token; what it printed itself stands \
                 above"
            }
            Self::Hangs { .. } => {
                "check that the token is still inserted (touch it if it blinks), restart the \
                 library's service (pcscd, tpm2-abrmd) or the connection to its HSM, then try again"
            }
            Self::Initialize { failure, .. } if failure.reason == "CKR_ARGUMENTS_BAD" => {
                "set initArgs to what this library wants to be told at its start (NSS: \
                 configDir='sql:/path' certPrefix='' keyPrefix='' secmod='' flags=readOnly); leave \
                 initArgs out for one that wants nothing, as most do"
            }
            Self::OtherInitArgs { .. } => {
                "one run can give a library one initArgs: start another run with --context for the \
                 context that needs these"
            }
            Self::Initialize { .. } => {
                "check the library's own set-up: its configuration file (SOFTHSM2_CONF, \
                 OPENSC_CONF, YUBIHSM_PKCS11_CONF …), its service (pcscd, tpm2-abrmd) and your \
                 right to use them"
            }
            Self::Load { .. } => {
                "check that pathLib names an installed PKCS#11 library built for this machine, \
                 and that the libraries it needs are installed too"
            }
            Self::NoAnswer { .. } => {
                "look at it alone with `list -v --module`; restart its service (pcscd, tpm2-abrmd), or \
                 update the library"
            }
            Self::NoFunctions { .. } => {
                "the library is broken, or not made for this machine: update it, or name another \
                 one for this token (opensc-pkcs11.so for most smart cards)"
            }
            Self::NoneFound => {
                "install the token's library (ykcs11 or opensc-pkcs11 for a YubiKey or smart card, \
                 libtpm2-pkcs11-1 for a TPM, softhsm2 for trying out), or name it with --module"
            }
            Self::NotAModule { .. } => {
                "pathLib must name a PKCS#11 library built for this machine, such as \
                 /usr/lib/softhsm/libsofthsm2.so, opensc-pkcs11.so or libykcs11.so"
            }
        })
    }
}
