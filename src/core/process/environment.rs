//! Values taken out of the environment, so that no program that is started from here inherits them.
//!
//! Other processes of this user can't read the block itself ([`harden`](super::harden)).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

/// Proof that the process has one thread: another one could be reading the environment while it is
/// changed.
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// For `main`.
    ///
    /// # Safety
    /// The process has one thread, and starts no other one before this value is dropped.
    pub unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// The value of the variable, which is gone from the environment afterwards, whatever it was.
pub fn take(name: &str, _alone: &SingleThreaded) -> Option<OsString> {
    // No variable has such a name, and removing one panics.
    if name.is_empty() || name.contains(['=', '\0']) {
        return None;
    }
    let value = std::env::var_os(name)?;
    // SAFETY: with one thread nothing reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

#[derive(Default)]
pub struct TakenVariables(BTreeMap<String, OsString>);

impl TakenVariables {
    /// [Takes](take) all of these, after which the process may start threads.
    pub fn take<'a>(names: impl IntoIterator<Item = &'a str>, alone: SingleThreaded) -> Self {
        let taken = |name: &str| Some((name.to_owned(), take(name, &alone)?));
        Self(names.into_iter().filter_map(taken).collect())
    }

    /// `None` for a variable that was not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::super::{child, leave};
    use super::*;

    const NAME: &str = "TAKEN_BY_A_TEST";

    fn alone() -> SingleThreaded {
        // SAFETY: nothing runs beside a test in a child; elsewhere nothing is found to be changed.
        unsafe { SingleThreaded::new() }
    }

    #[test]
    fn what_is_taken_is_gone_whatever_it_is() {
        if child::is_this() {
            let expected = std::env::var_os(NAME).unwrap();
            assert_eq!(take(NAME, &alone()), Some(expected));
            assert!(std::env::var_os(NAME).is_none() && take(NAME, &alone()).is_none());
            leave(23);
        }
        for value in [&b"1234"[..], b"", b"1234\xff"] {
            let test = "process::environment::tests::what_is_taken_is_gone_whatever_it_is";
            let value = OsStr::from_bytes(value);
            let output = child::command(test).env(NAME, value).output().unwrap();
            assert_eq!(output.status.code(), Some(23), "{output:?}");
        }
    }

    #[test]
    fn a_name_that_no_variable_has_is_not_found() {
        for name in ["", "=", "PATH=", "PATH\0", "NOBODY_SETS_THIS_VARIABLE"] {
            assert!(take(name, &alone()).is_none(), "{name:?}");
        }
    }
}
