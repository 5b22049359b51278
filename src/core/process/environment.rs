//! Values taken out of the environment, and wiped where they stood.
//!
//! Removing a variable only removes the pointer to it: its bytes stay in the block that
//! `/proc/PID/environ` shows to every process of the same user. They are overwritten in place.
//! The client's own environment is out of reach.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::{ptr, slice, str};

use zeroize::optimization_barrier;

/// The value is not UTF-8 text.
#[derive(Clone, Copy, Debug)]
pub struct NotUtf8;

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

/// The value of the variable, which is gone from the environment afterwards: every entry of that
/// name is overwritten and removed, and the first one's value returned. `None` if there is none.
pub fn take(name: &str, _alone: &SingleThreaded) -> Option<Result<String, NotUtf8>> {
    // No variable has such a name, and removing one panics.
    if name.is_empty() || name.contains(['=', '\0']) {
        return None;
    }
    let mut first = None;
    let mut place = block();
    while let Some(entry) = entry_at(place) {
        // SAFETY: the entry is the C library's, and with one thread nothing else uses it now.
        if let Some(value) = unsafe { value_of(entry, name) } {
            first.get_or_insert_with(|| match str::from_utf8(value) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => Err(NotUtf8),
            });
            value.fill(0);
            optimization_barrier(value);
        }
        place = place.wrapping_add(1);
    }
    let first = first?;
    // SAFETY: with one thread nothing reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Some(first)
}

/// Variables that were taken out of the environment, by name.
#[derive(Default)]
pub struct TakenVariables(BTreeMap<String, Result<String, NotUtf8>>);

impl TakenVariables {
    /// [Takes](take) all of these, after which the process may start threads.
    pub fn take<'a>(names: impl IntoIterator<Item = &'a str>, alone: SingleThreaded) -> Self {
        let mut taken = BTreeMap::new();
        for name in names {
            if let Some(value) = take(name, &alone) {
                taken.insert(name.to_owned(), value);
            }
        }
        Self(taken)
    }

    /// `None` for a variable that was not set.
    pub fn get(&self, name: &str) -> Option<Result<&str, NotUtf8>> {
        let value = self.0.get(name)?;
        Some(value.as_deref().map_err(|error| *error))
    }
}

/// The entry at a place in the block; `None` at the block's end.
fn entry_at(place: *mut *mut c_char) -> Option<ptr::NonNull<c_char>> {
    // clearenv(3) leaves no block at all.
    if place.is_null() {
        return None;
    }
    // SAFETY: `take` goes through the block in order and stops at the null pointer that ends it.
    ptr::NonNull::new(unsafe { place.read() })
}

/// What follows `NAME=`, if the entry begins with it.
///
/// # Safety
/// The entry must be a NUL-terminated string that nothing else reads or writes during `'entry`.
unsafe fn value_of<'entry>(entry: ptr::NonNull<c_char>, name: &str) -> Option<&'entry mut [u8]> {
    // SAFETY: the caller promises a NUL-terminated string.
    let length = unsafe { CStr::from_ptr(entry.as_ptr()) }.count_bytes();
    // SAFETY: these are the string's own bytes, and the caller promises that they are ours alone.
    let entry = unsafe { slice::from_raw_parts_mut(entry.as_ptr().cast::<u8>(), length) };
    let (key, rest) = entry.split_at_mut_checked(name.len())?;
    let (equals, value) = rest.split_first_mut()?;
    (key == name.as_bytes() && *equals == b'=').then_some(value)
}

/// The environment block: an array of entries that a null pointer ends.
#[cfg(not(target_os = "macos"))]
fn block() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: the C library's own variable (environ(7)); with one thread nothing writes it now.
    unsafe { environ }
}

#[cfg(target_os = "macos")]
fn block() -> *mut *mut c_char {
    // SAFETY: it has no preconditions.
    let variable = unsafe { libc::_NSGetEnviron() };
    // SAFETY: it points to the C library's own variable; with one thread nothing writes it now.
    unsafe { variable.read() }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::super::{child, leave};
    use super::*;

    const NAME: &str = "TAKEN_BY_A_TEST";
    const SECRET: &str = "a-secret-of-this-test";
    const DONE: u8 = 23;

    fn alone() -> SingleThreaded {
        // SAFETY: nothing runs beside a test in a child; elsewhere nothing is found to be changed.
        unsafe { SingleThreaded::new() }
    }

    /// Whether the kernel still shows these bytes as part of the process's environment.
    #[cfg(target_os = "linux")]
    fn is_shown(bytes: &[u8]) -> bool {
        let block = std::fs::read("/proc/self/environ").unwrap();
        assert!(block.windows(NAME.len()).any(|part| part == NAME.as_bytes()));
        block.windows(bytes.len()).any(|part| part == bytes)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_taken_value_is_gone_from_the_block() {
        if child::is_this() {
            assert!(is_shown(SECRET.as_bytes()));
            assert_eq!(take(NAME, &alone()).unwrap().unwrap(), SECRET);
            assert!(!is_shown(SECRET.as_bytes()));
            assert!(std::env::var_os(NAME).is_none());
            assert!(take(NAME, &alone()).is_none());
            // Nothing else was touched.
            assert!(child::is_this());
            leave(DONE);
        }
        let output =
            child::command("process::environment::tests::a_taken_value_is_gone_from_the_block")
                .env(NAME, SECRET)
                .env("TAKEN_BY_A_TEST_NOT", "another")
                .output()
                .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(DONE)), "{output:?}");
    }

    /// Gives the variable another name of the same length, as no `setenv` would: execve(2) passes
    /// on two entries of one name, and a shell or `Command` can't be made to.
    #[cfg(target_os = "linux")]
    fn rename(from: &str, to: &str) {
        let mut place = block();
        while let Some(entry) = entry_at(place) {
            // SAFETY: nothing runs beside this test, so nothing else uses the entry.
            if unsafe { value_of(entry, from) }.is_some() {
                let name = entry.as_ptr().cast::<u8>();
                // SAFETY: the entry begins with a name of this length.
                unsafe { name.copy_from_nonoverlapping(to.as_ptr(), to.len()) };
            }
            place = place.wrapping_add(1);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn every_occurrence_is_wiped() {
        const TWIN: &str = "TAKEN_BY_A_TWIN";
        if child::is_this() {
            rename(TWIN, NAME);
            assert!(is_shown(b"=one-secret") && is_shown(b"=two-secret"));
            assert!(take(NAME, &alone()).unwrap().unwrap().ends_with("-secret"));
            assert!(!is_shown(b"secret"));
            assert!(std::env::var_os(NAME).is_none());
            leave(DONE);
        }
        let output = child::command("process::environment::tests::every_occurrence_is_wiped")
            .env(NAME, "one-secret")
            .env(TWIN, "two-secret")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(DONE)), "{output:?}");
    }

    #[test]
    fn an_empty_value_is_a_value() {
        if child::is_this() {
            assert_eq!(take(NAME, &alone()).unwrap().unwrap(), "");
            leave(DONE);
        }
        let output = child::command("process::environment::tests::an_empty_value_is_a_value")
            .env(NAME, "")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(DONE)), "{output:?}");
    }

    #[test]
    fn bytes_that_are_no_text_are_told_and_taken_all_the_same() {
        if child::is_this() {
            assert!(take(NAME, &alone()).unwrap().is_err());
            assert!(std::env::var_os(NAME).is_none());
            leave(DONE);
        }
        let output = child::command(
            "process::environment::tests::bytes_that_are_no_text_are_told_and_taken_all_the_same",
        )
        .env(NAME, OsStr::from_bytes(b"1234\xff"))
        .output()
        .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(DONE)), "{output:?}");
    }

    #[test]
    fn a_name_that_no_variable_has_is_not_found() {
        for name in ["", "=", "PATH=", "PATH\0", "NOBODY_SETS_THIS_VARIABLE"] {
            assert!(take(name, &alone()).is_none(), "{name:?}");
        }
    }
}
