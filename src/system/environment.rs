//! Values taken out of the environment, so that no program that is started from here inherits them.
//!
//! Other processes of this user can't read the block itself ([`harden`](super::memory::harden)).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

/// Proof that the process has one thread: no other one reads the environment meanwhile.
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// A proof that `main` gives.
    ///
    /// # Safety
    /// The process has one thread, and starts no other one before this value is dropped.
    pub unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// The value of the variable, which is gone from the environment afterwards, whatever it was.
pub fn take(name: &str, _alone: &SingleThreaded) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: with one thread nothing reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Variables and their values, which are gone from the environment.
#[derive(Default)]
pub struct TakenVariables(BTreeMap<String, OsString>);

impl TakenVariables {
    /// [Takes](take) all of these, after which the process may start threads.
    pub fn take<'a>(names: impl IntoIterator<Item = &'a str>, alone: SingleThreaded) -> Self {
        let taken = |name: &str| Some((name.to_owned(), take(name, &alone)?));
        Self(names.into_iter().filter_map(taken).collect())
    }

    /// The value that the variable had; `None` for one that was not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }
}
