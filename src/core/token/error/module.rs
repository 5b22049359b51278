//! Exit code 4: the PKCS#11 library.

use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Help, Setting, remedy};

#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    #[error("PKCS#11 library {} crashed the process ({cause})", .path.display())]
    Crashed { path: PathBuf, cause: &'static str },
    #[error("PKCS#11 library {} hangs: {doing} has taken {seconds} s", .path.display())]
    Hangs { path: PathBuf, doing: &'static str, seconds: u64 },
    #[error("PKCS#11 library {} does not initialise: {failure}", .path.display())]
    Initialize { path: PathBuf, failure: CallFailure },
    #[error("PKCS#11 library {} does not load: {reason}", .path.display())]
    Load { path: PathBuf, reason: String },
    #[error("PKCS#11 library {} does not list its tokens: {reason}", .path.display())]
    NoAnswer { path: PathBuf, reason: String },
    #[error("PKCS#11 library {} does not give its functions: {failure}", .path.display())]
    NoFunctions { path: PathBuf, failure: CallFailure },
    #[error("no PKCS#11 library was found on this machine")]
    NoneFound,
    #[error("{} is not a PKCS#11 library: {reason}", .path.display())]
    NotAModule { path: PathBuf, reason: String },
    #[error(
        "PKCS#11 library {} runs with other initArgs already, those of another context",
        .path.display()
    )]
    OtherInitArgs { path: PathBuf },
}

impl Failure for ModuleError {
    fn exit_code(&self) -> u8 {
        4
    }

    fn remedy(&self) -> Help {
        const INIT_ARGS: Setting = Setting("initArgs");
        const PATH_LIB: Setting = Setting("pathLib");
        match self {
            Self::Crashed { .. } => remedy!(
                "update the library, or use another one for this token; what it printed itself stands \
                 above"
            ),
            Self::Hangs { .. } => remedy!(
                "check that the token is still inserted (touch it if it blinks), restart the \
                 library's service (pcscd, tpm2-abrmd) or the connection to its HSM, then try again"
            ),
            Self::Initialize { failure, .. } if failure.reason == "CKR_ARGUMENTS_BAD" => remedy!(
                "set ",
                INIT_ARGS,
                " to what this library needs at its start (NSS: configDir='sql:/path' \
                 certPrefix='' keyPrefix='' secmod='' flags=readOnly); leave ",
                INIT_ARGS,
                " out for one that needs nothing, as most do"
            ),
            Self::Initialize { .. } => remedy!(
                "check the library's own set-up: its configuration file (SOFTHSM2_CONF, \
                 OPENSC_CONF, YUBIHSM_PKCS11_CONF …), its service (pcscd, tpm2-abrmd) and your \
                 right to use them"
            ),
            Self::Load { .. } => remedy!(
                "check that ",
                PATH_LIB,
                " names an installed PKCS#11 library built for this machine, and that the \
                 libraries it needs are installed too"
            ),
            Self::NoAnswer { .. } => remedy!(
                "look at it alone with `list -v --module`; restart its service (pcscd, tpm2-abrmd), or \
                 update the library"
            ),
            Self::NoFunctions { .. } => remedy!(
                "the library is broken, or not made for this machine: update it, or name another \
                 one for this token (opensc-pkcs11.so for most smart cards)"
            ),
            Self::NoneFound => remedy!(
                "install the token's library (ykcs11 or opensc-pkcs11 for a YubiKey or smart card, \
                 libtpm2-pkcs11-1 for a TPM, softhsm2 for trying out), or name it with --module"
            ),
            Self::NotAModule { .. } => remedy!(
                PATH_LIB,
                " must name a PKCS#11 library built for this machine, such as \
                 /usr/lib/softhsm/libsofthsm2.so, opensc-pkcs11.so or libykcs11.so"
            ),
            Self::OtherInitArgs { .. } => remedy!(
                "one run can give a library one ",
                INIT_ARGS,
                ": start another run with --context for the context that needs these"
            ),
        }
    }
}
