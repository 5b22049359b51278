//! Which variables the tunnel process and token processes keep of their environment: those that PKCS#11 libraries read.
//! These processes outlive the client that has started them. The variables are listed by name, so that nothing else is
//! kept, such as other programs' secrets.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

/// Names and values.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// Variables that lead a library to its tokens. If one has another value, the key is another one, with a token process and
/// a PIN of its own.
const OF_TOKENS: [&str; 37] = [
    // Thales Luna
    "ChrystokiConfigurationPath",
    // nShield, which reads the others of its variables in cknfastrc, too
    "CKNFAST_HSM_POOL",
    "CKNFAST_LOADSHARING",
    "NFAST_HOME",
    "NFAST_KMDATA",
    "NFAST_KMLOCAL",
    "NFAST_SERVER",
    "NFAST_SERVER_PORT",
    // Utimaco
    "CS_PKCS11_R2_CFG",
    "CS_PKCS11_R3_CFG",
    // Thales ProtectServer
    "ET_HSM_NETCLIENT_SERVERLIST",
    // scute
    "GNUPGHOME",
    // Google's KMS
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KMS_PKCS11_CONFIG",
    // Configurations of all kinds
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    // Kryoptic
    "KRYOPTIC_CONF",
    // NSS
    "NSS_DEFAULT_DB_TYPE",
    // OpenSC, and its pkcs11-spy
    "OPENSC_CONF",
    "PKCS11SPY",
    "PKCS11SPY_OUTPUT",
    // OpenSSL in a library, whose engines and providers it may load
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    // p11-kit
    "P11_KIT_SERVER_ADDRESS",
    // pcsc-lite
    "PCSCLITE_CSOCK_NAME",
    // SoftHSM
    "SOFTHSM2_CONF",
    "SOFTHSM_CONF",
    // tpm2-pkcs11
    "TPM2_PKCS11_BACKEND",
    "TPM2_PKCS11_STORE",
    "TPM2_PKCS11_TCTI",
    "TSS2_FAPICONF",
    // wolfPKCS11
    "WOLFPKCS11_TOKEN_PATH",
    // YubiHSM
    "YUBIHSM_PKCS11_CONF",
];

/// Variables that libraries and the tunnel process read for other purposes: where this user's services and the machine's
/// CAs are, proxies, languages, logs.
const OF_THE_SYSTEM: [&str; 31] = [
    "CKNFAST_DEBUG",
    "CKNFAST_DEBUGFILE",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LOGNAME",
    "NO_PROXY",
    "OPENCRYPTOKI_TRACE_LEVEL",
    "OPENSC_DEBUG",
    "P11_KIT_DEBUG",
    "P11_KIT_SERVER_PID",
    "P11_KIT_STRICT",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TPM2_PKCS11_LOG_LEVEL",
    "TSS2_LOG",
    "TSS2_LOGFILE",
    "USER",
    "XDG_RUNTIME_DIR",
    "YKCS11_DBG",
    "YUBIHSM_PKCS11_DBG",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// The variable that names more of them, separated by commas, for a library that reads others.
const FURTHER: &str = "PKCS11_EXTERNAL_SIGNER_ENV_KEEP";

/// What is kept of this process's environment.
pub(super) fn kept() -> Environment {
    let further = std::env::var_os(FURTHER).unwrap_or_default();
    let further = names(further.to_str().unwrap_or_default());
    std::env::vars_os().filter(|(name, _)| is_kept(name, &further)).collect()
}

/// The names in a list with commas.
fn names(list: &str) -> BTreeSet<&str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Whether the variable of this name is kept, with these beside the known ones. A name that isn't UTF-8 can be none of them.
fn is_kept(name: &OsStr, further: &BTreeSet<&str>) -> bool {
    let Some(name) = name.to_str() else { return false };
    OF_TOKENS.contains(&name) || OF_THE_SYSTEM.contains(&name) || further.contains(name)
}

/// The variables among these that lead a library to its tokens.
pub(super) fn of_tokens(environment: &Environment) -> BTreeSet<&(OsString, OsString)> {
    let is_of_tokens = |name: &OsStr| name.to_str().is_some_and(|name| OF_TOKENS.contains(&name));
    environment.iter().filter(|(name, _)| is_of_tokens(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn what_is_kept_is_named_and_nothing_else_is() {
        for (list, name, kept) in [
            ("", &b"SOFTHSM2_CONF"[..], true),
            ("", b"AWS_SECRET_ACCESS_KEY", false),
            ("MY_HSM, MY_OTHER", b"MY_OTHER", true),
            ("MY_HSM,", b"", false),
            ("", b"", false),
            ("", b"\xff_SECRET", false),
        ] {
            assert_eq!(is_kept(OsStr::from_bytes(name), &names(list)), kept, "{list:?} {name:?}");
        }
    }

    #[test]
    fn a_terminals_own_variables_make_no_other_process() {
        let named = |name: &str| vec![(OsString::from(name), OsString::from("value"))];
        for (name, counts) in [
            ("SOFTHSM2_CONF", true),
            ("TPM2_PKCS11_STORE", true),
            ("P11_KIT_SERVER_ADDRESS", true),
            ("ChrystokiConfigurationPath", true),
            ("HOME", true),
            ("OPENSSL_CONF", true),
            ("MY_OPENSSL_CONF", false),
            ("LANG", false),
            ("PKCS11_EXTERNAL_SIGNER_RUN", false),
            ("TERM", false),
            ("SSH_TTY", false),
            ("PWD", false),
        ] {
            assert_eq!(!of_tokens(&named(name)).is_empty(), counts, "{name}");
        }
    }
}
