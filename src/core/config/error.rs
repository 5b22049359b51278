//! Exit code 3: the configuration, with everything that is wrong with it.

use std::fmt;

use crate::error::{Failure, Help};

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
    pub remedy: Help,
}

impl Problem {
    pub fn new(what: impl Into<String>, remedy: impl Into<Help>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "configuration: {}", only.what),
            many => {
                let problems: Vec<_> = many.iter().map(|it| it.what.as_str()).collect();
                let problems = problems.join("; ");
                write!(f, "configuration, {} problems: {problems}", many.len())
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Failure for ConfigError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Help {
        match self.problems.as_slice() {
            [only] => only.remedy.clone(),
            many => {
                let remedies: Vec<_> = many.iter().map(|it| &it.remedy).collect();
                Help::from("correct each of them:").with_candidates(&remedies)
            }
        }
    }
}
