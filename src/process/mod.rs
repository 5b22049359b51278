//! What makes the process fit to hold a PIN, and safe from the library it loads.
//!
//! In this order, while there is one thread and no library: [`harden`] (no core file, no reader),
//! [`signals`] (an end that is told), [`environment`] (the request taken out and wiped),
//! [`answer`] (standard output out of the library's reach). Then [`lock`] and [`marker`], which
//! other processes see, [`watchdog`], and when the answer is out [`ending`]. [`memory`] works all
//! the while, and [`descriptors`] for every program that is started. A run has a [`command`]
//! besides, and a [`run_directory`] for what the command must find. System calls make this one of
//! the two places where `unsafe` is allowed.

#![allow(unsafe_code, reason = "system calls and the environment block")]

pub mod answer;
#[cfg(test)]
mod child;
pub mod command;
pub mod descriptors;
pub mod ending;
pub mod environment;
pub mod harden;
pub mod lock;
pub mod marker;
pub mod memory;
pub mod run_directory;
mod runtime;
pub mod signals;
pub mod watchdog;

/// The number of this process's session, which has one terminal at most; 0 where its leader can't
/// be seen from here.
pub fn session() -> i32 {
    // SAFETY: getsid has no preconditions.
    unsafe { libc::getsid(0) }
}

/// Ends the process at once: no destructor of a library runs, and nothing it left in its buffers
/// is written.
pub fn leave(code: u8) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code.into()) }
}
