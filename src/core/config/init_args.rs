//! `initArgs`: the text that a library without a configuration file of its own, such as NSS, is
//! initialised with.

use std::ffi::{CStr, CString};

use super::error::Problem;
use crate::error::{Setting, remedy};

/// In bytes; a longer text is no library's parameters.
const LONGEST: usize = 4096;

/// The text for C_Initialize (CK_C_INITIALIZE_ARGS, pReserved).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InitArgs(CString);

impl InitArgs {
    /// Parses the value of `initArgs`. A library that it names is refused: it may come with a
    /// stranger's kubeconfig, and only `pathLib` is checked.
    pub(super) fn parse(value: &str) -> Result<Self, Problem> {
        if value.to_ascii_lowercase().contains("library=") {
            return Err(Problem::new(
                "initArgs names a library",
                remedy!(
                    "take library= out of ",
                    Setting("initArgs"),
                    ": ",
                    Setting("pathLib"),
                    " says which library is loaded"
                ),
            ));
        }
        let is_line = value.len() <= LONGEST && !value.chars().any(char::is_control);
        let text = CString::new(value).ok().filter(|_| is_line);
        text.map(Self).ok_or_else(|| {
            Problem::new(
                "initArgs is too long, or not one line",
                remedy!(
                    "write into ",
                    Setting("initArgs"),
                    " what the library wants, as in configDir='sql:/home/jane/nssdb' flags=readOnly"
                ),
            )
        })
    }

    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_wants_is_taken_as_it_is() {
        let nss = "configDir='sql:/home/jane/nssdb' certPrefix='' secmod='' flags=readOnly";
        let taken = InitArgs::parse(nss).unwrap();
        assert_eq!(taken.as_c_str().to_str(), Ok(nss));
    }

    #[test]
    fn what_names_a_library_or_is_no_line_is_refused() {
        for (value, what) in [
            ("Library='/home/jane/evil.so'", "initArgs names a library"),
            ("a\nb", "initArgs is too long, or not one line"),
            ("a\0b", "initArgs is too long, or not one line"),
            (&*"x".repeat(4097), "initArgs is too long, or not one line"),
        ] {
            let problem = InitArgs::parse(value).unwrap_err();
            assert!(problem.what.starts_with(what), "{}", problem.what);
            assert!(problem.remedy.to_string().contains("initArgs"), "{}", problem.remedy);
        }
    }
}
