//! Exit code 2: arguments that don't go together.

use crate::error::{Failure, Remedy};

/// An argument that goes with another one only.
#[derive(Debug, thiserror::Error)]
#[error("missing argument: {argument} needs {other}")]
pub(crate) struct ArgumentNeeds {
    pub(crate) argument: &'static str,
    pub(crate) other: &'static str,
}

impl Failure for ArgumentNeeds {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Remedy {
        Remedy::new("pkcs11-external-signer --help tells what goes with what")
    }
}
