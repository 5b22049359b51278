//! The PKCS#11 library: loaded and initialised, and finalised without trusting it to come back.

use std::any::Any;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cryptoki::error::{Error as CryptokiError, RvError};

use super::ckr;
use super::raw::{self, Functions};
use base::error::{Error, Exit, PROGRAM};
use base::printable::printable;
use base::process::exit_guard;
use config::TrustedLibrary;

/// How long C_Finalize may take before the process ends without it.
const FINALIZE_LIMIT: Duration = Duration::from_secs(2);

/// A loaded and initialised library. It is never unloaded: some crash when they are.
#[derive(Debug)]
pub struct Module {
    pub(super) functions: &'static Functions,
    pub path: PathBuf,
    /// The library was initialised in this process before, and is not finalised here.
    borrowed: bool,
    on_wait: WaitObserver,
}

/// Called when a token waits for a person to touch it or to use the reader's keypad, with the time
/// after which to show the text, and the text. The wait ends when the result is dropped.
pub(super) type WaitObserver = fn(Duration, &str) -> Box<dyn Any>;

impl Module {
    /// Loads and initialises the library (C_GetFunctionList, C_Initialize). A library is initialised
    /// once in a process: the parameters of a second module of it are ignored.
    pub fn open(
        library: &TrustedLibrary,
        init_args: Option<&CStr>,
        on_wait: WaitObserver,
    ) -> Result<Self, Error> {
        let Some(path) = library.file().map(Path::to_owned) else {
            let reason = std::io::Error::from(rustix::io::Errno::NOENT);
            return Err(raw::not_loaded(library.path(), &reason));
        };
        // A signal handler can't format a line.
        let crashed =
            format!("{PROGRAM}: error: PKCS#11 library {} crashed the process (", path.display());
        let help = ")\nhelp: update the library, or use another one for this token\n";
        exit_guard::report_crashes(&printable(&crashed), help);
        let functions = Functions::load(&path)?;
        let borrowed = match functions.initialize(init_args) {
            Ok(()) => false,
            Err(CryptokiError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => true,
            Err(error) => return Err(not_initialised(&path, &error)),
        };
        let module = Self { functions, path, borrowed, on_wait };
        if log::log_enabled!(log::Level::Info) {
            let description = module.description().unwrap_or_default();
            log::info!("library {}: {description}", module.path.display());
        }
        Ok(module)
    }

    /// Its maker, name and version (C_GetInfo); `None` if it doesn't say.
    pub fn description(&self) -> Option<String> {
        self.functions.description()
    }

    pub(super) fn waiting(&self, delay: Duration, text: &str) -> Box<dyn Any> {
        (self.on_wait)(delay, text)
    }

    /// Finalises the library (C_Finalize): some see only then that a token was put back.
    pub fn close(&self) {
        if !self.borrowed {
            let _ = self.functions.finalize();
        }
    }

    /// Finalises the library (C_Finalize, which closes its sessions) when the answer is out. The
    /// process ends with `code` even if the library hangs or crashes meanwhile.
    pub fn finalize(&self, code: u8) {
        exit_guard::arm(FINALIZE_LIMIT, code);
        self.close();
    }
}

fn not_initialised(path: &Path, error: &CryptokiError) -> Error {
    let failure = ckr::failure(error);
    let text = format!("PKCS#11 library {} does not initialise: {failure}", path.display());
    Error::new(Exit::Library, text).help(match ckr::code(error) {
        Some(RvError::ArgumentsBad) => {
            "set initArgs (--init-args) to what this library needs (NSS: configDir='sql:/path' certPrefix='' \
             keyPrefix='' secmod='' flags=readOnly), or leave it out for one that needs nothing, as most do"
        }
        _ => {
            "check the library's own set-up: its configuration file (SOFTHSM2_CONF), its service (pcscd, tpm2-abrmd)"
        }
    })
}
