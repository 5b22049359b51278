//! Exit code 3: the configuration, with everything that is wrong with it.

use std::fmt;

use crate::error::{Failure, Remedy};

/// At least one problem.
#[derive(Debug)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub struct Problem {
    /// The whole statement, key included: `slotId "x" is not a number`.
    pub what: String,
    /// What to write instead, as a sentence without its period.
    pub remedy: String,
}

impl Problem {
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "configuration: {}", only.what),
            many => {
                write!(f, "configuration, {} problems: ", many.len())?;
                for (index, problem) in many.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{}", problem.what)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Failure for ConfigError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Remedy {
        match self.problems.as_slice() {
            [only] => Remedy::new(only.remedy.clone()),
            many => Remedy::with_candidates(
                "in the kubeconfig, under auth-provider.config:",
                &many
                    .iter()
                    .map(|problem| problem.remedy.as_str())
                    .collect::<Vec<_>>(),
            ),
        }
    }
}
