//! Values taken out of the environment, and wiped where they stood.
//!
//! Removing a variable leaves its bytes in the block that `/proc/PID/environ` shows; they have to
//! be overwritten in place.

use std::ffi::{CStr, c_char};

use zeroize::{Zeroize, Zeroizing};

/// The value is no UTF-8 text.
#[derive(Debug)]
pub struct NotUtf8;

/// The variable's value, removed from the environment and overwritten there, every occurrence of
/// it. To be called before the process has a second thread.
pub fn take(name: &str) -> Option<Result<Zeroizing<String>, NotUtf8>> {
    let mut first = None;
    for entry in entries() {
        // SAFETY: an entry of the environment block is a NUL-terminated string.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        let Some((key, value)) = split(text) else {
            continue;
        };
        if key != name.as_bytes() {
            continue;
        }
        let (offset, length) = (key.len() + 1, value.len());
        if first.is_none() {
            first = Some(Zeroizing::new(value.to_vec()));
        }
        // SAFETY: the offset stays inside the entry, whose length it was computed from.
        let start = unsafe { entry.add(offset) };
        // SAFETY: these are the entry's own bytes, and there is no other thread to read them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), length) };
        bytes.zeroize();
    }
    let bytes = first?;
    // SAFETY: there is no other thread that could read the environment meanwhile.
    unsafe { std::env::remove_var(name) };
    Some(match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(_) => Err(NotUtf8),
    })
}

fn split(entry: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = entry.iter().position(|byte| *byte == b'=')?;
    Some((entry.get(..equals)?, entry.get(equals + 1..)?))
}

/// The entries of the environment block, as the C library has them.
fn entries() -> Vec<*mut c_char> {
    let mut entries = Vec::new();
    let mut place = block();
    if place.is_null() {
        return entries;
    }
    loop {
        // SAFETY: the block is an array of pointers that ends with a null one.
        let entry = unsafe { place.read() };
        if entry.is_null() {
            return entries;
        }
        entries.push(entry);
        // SAFETY: not at the end yet.
        place = unsafe { place.add(1) };
    }
}

#[cfg(not(target_os = "macos"))]
fn block() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: the C library's own variable, read while there is one thread.
    unsafe { environ }
}

#[cfg(target_os = "macos")]
fn block() -> *mut *mut c_char {
    // SAFETY: has no preconditions.
    let place = unsafe { libc::_NSGetEnviron() };
    // SAFETY: it points to the C library's own variable.
    unsafe { place.read() }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs `name` in a process of its own: the tests' process has several threads.
    fn in_a_child(name: &str, variable: &str, value: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                name,
                "--nocapture",
                "--include-ignored",
                "--test-threads=1",
            ])
            .env(variable, value)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_taken_value_is_gone_from_the_environment_block() {
        let output = in_a_child(
            "process::environment::tests::child_takes_its_secret",
            "TAKEN_BY_THE_TEST",
            "a-secret-of-the-test",
        );
        assert!(output.contains("taken and gone"), "{output}");
    }

    #[test]
    #[ignore = "run by a_taken_value_is_gone_from_the_environment_block in a process of its own"]
    fn child_takes_its_secret() {
        let secret = take("TAKEN_BY_THE_TEST").unwrap().unwrap();
        assert_eq!(secret.as_str(), "a-secret-of-the-test");
        let block = std::fs::read("/proc/self/environ").unwrap();
        assert!(
            !block
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
        assert!(std::env::var_os("TAKEN_BY_THE_TEST").is_none());
        let _ = std::io::Write::write_all(&mut std::io::stdout(), b"taken and gone\n");
    }

    #[test]
    fn what_is_not_there_is_not_taken() {
        assert!(take("NOBODY_SETS_THIS_VARIABLE").is_none());
    }
}
