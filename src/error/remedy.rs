//! What to do about a failure.

use std::fmt;

/// More candidates than this are no help: a trust module's token holds hundreds of certificates.
const MOST_CANDIDATES: usize = 20;

/// A sentence, and the candidates it speaks of, one a line.
#[derive(Debug)]
pub struct Remedy {
    pub text: String,
    pub candidates: Vec<String>,
}

impl Remedy {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            candidates: Vec::new(),
        }
    }

    pub fn with_candidates<T: fmt::Display>(text: impl Into<String>, candidates: &[T]) -> Self {
        let mut lines: Vec<_> = candidates.iter().map(T::to_string).collect();
        if lines.len() > MOST_CANDIDATES {
            let more = lines.split_off(MOST_CANDIDATES).len();
            lines.push(format!("and {more} more"));
        }
        Self {
            text: text.into(),
            candidates: lines,
        }
    }
}

impl From<String> for Remedy {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// In one line.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (place, candidate) in self.candidates.iter().enumerate() {
            let separator = if place == 0 { " " } else { "; " };
            write!(f, "{separator}{candidate}")?;
        }
        Ok(())
    }
}
