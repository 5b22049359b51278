//! Exit code 2: arguments that don't go together.

use crate::error::{Failure, OwnCommand, Remedy, remedy};

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
        remedy!(OwnCommand::Help, " shows what goes with what")
    }
}
