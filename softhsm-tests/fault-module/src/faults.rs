//! What a fault does to the process: noise, time, death.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::{env, process, ptr, thread, time::Duration};

use cryptoki_sys::CK_RV;

use crate::plan::{Action, Plan, has};
use crate::real;

/// Lets happen what is planned for a place that is no call.
pub(crate) fn happen(place: &str) {
    for action in Plan::of_this_process().at(place, 1) {
        // Only calls have an answer that could be replaced.
        let _ = suffer(action, place);
    }
}

/// Lets happen what is planned for this call before the real library sees it. Gives the actions
/// back for those that spoil the answer; fails where the call's own failure is planned.
pub(crate) fn before(function: &'static str) -> Result<Vec<&'static Action>, CK_RV> {
    let actions = Plan::of_this_process().at(function, count(function));
    for action in &actions {
        suffer(action, function)?;
    }
    Ok(actions)
}

/// What happens when the real library has done its work, and what the call returns.
pub(crate) fn after(actions: &[&Action]) -> Result<(), CK_RV> {
    for action in actions {
        match action.name.as_str() {
            "then-return" => return Err(action.number().unwrap_or_default()),
            "then-signal" => send(signal(action)),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the function is left out of the list.
pub(crate) fn lacks(function: &'static str) -> bool {
    has(&Plan::of_this_process().at(function, 1), "absent")
}

/// The number of this call among those of its function; 1 is the first.
fn count(function: &'static str) -> u64 {
    static CALLS: Mutex<Option<HashMap<&'static str, u64>>> = Mutex::new(None);
    let mut calls = CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let calls = calls.get_or_insert_default().entry(function).or_default();
    *calls += 1;
    *calls
}

/// What changes the answer is passed over.
fn suffer(action: &Action, place: &str) -> Result<(), CK_RV> {
    let number = || action.number().unwrap_or_default();
    match (action.name.as_str(), action.value.as_str()) {
        ("crash", "abort") => process::abort(),
        ("crash", "exit") => process::exit(0),
        // SAFETY: not safe at all, and meant so: nothing is mapped in the first page.
        ("crash", _) => unsafe { ptr::without_provenance_mut::<u8>(8).write_volatile(0) },
        ("delay", _) => thread::sleep(Duration::from_millis(number())),
        ("hang", _) => loop {
            thread::park();
        },
        ("chdir", _) => drop(env::set_current_dir("/")),
        ("print", "error") => eprintln!("complaint from the module at {place}"),
        ("print", _) => print(place),
        ("handlers", _) => handle_signals(),
        // SAFETY: the literal ends in a NUL.
        ("leak", _) => drop(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) }),
        ("lose-sessions", _) => real::close_all_sessions(),
        ("return", _) => return Err(number()),
        ("signal", _) => send(signal(action)),
        ("stop", _) => send(libc::SIGSTOP),
        ("threads", _) => {
            for _ in 0..number() {
                thread::spawn(|| {
                    loop {
                        thread::park();
                    }
                });
            }
        }
        ("until", path) => {
            while !Path::new(path).exists() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        _ => {}
    }
    Ok(())
}

fn signal(action: &Action) -> libc::c_int {
    if action.value == "int" { libc::SIGINT } else { libc::SIGKILL }
}

/// To this thread, which waits for its effect.
fn send(signal: libc::c_int) {
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(signal) };
}

/// Takes over signals that are not its own, as language runtimes in libraries do.
fn handle_signals() {
    extern "C" fn end(_signal: libc::c_int) {
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(98) };
    }
    for signal in [libc::SIGSEGV, libc::SIGTERM, libc::SIGALRM] {
        // SAFETY: the handler makes one system call.
        unsafe { libc::signal(signal, end as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Writes to standard output as C libraries do it: past stdio, and through stdio's buffer, which
/// is not flushed here and so reaches the descriptor whenever the process flushes it.
fn print(place: &str) {
    let line = format!("noise from the module at {place}\n");
    // SAFETY: pointer and length are those of a live buffer.
    unsafe { libc::write(libc::STDOUT_FILENO, line.as_ptr().cast(), line.len()) };
    // SAFETY: the literal ends in a NUL.
    unsafe { libc::puts(c"buffered noise from the module".as_ptr()) };
}
