//! Values that are taken out of the environment, so that no program that this process starts inherits them.
//!
//! Other processes of this user can't read the block itself ([`harden`](super::memory::harden)).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

/// Proof that the process has only one thread, so that no other one reads the environment while it is changed.
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// The proof, which `main` gives.
    ///
    /// # Safety
    /// The process has only one thread, and starts no other one before this value is dropped.
    pub unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// Takes the variable out of the environment, and returns its value; `None` if it was not set.
pub fn take(name: &str, _alone: &SingleThreaded) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: with one thread nothing reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Variables that were taken out of the environment, with their values.
#[derive(Default)]
pub struct TakenVariables(BTreeMap<String, OsString>);

impl TakenVariables {
    /// [Takes](take) all these variables. After that, the process may start threads.
    pub fn take<'a>(names: impl IntoIterator<Item = &'a str>, alone: SingleThreaded) -> Self {
        let taken = |name: &str| Some((name.to_owned(), take(name, &alone)?));
        Self(names.into_iter().filter_map(taken).collect())
    }

    /// The value that the variable had; `None` for one that was not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }
}
