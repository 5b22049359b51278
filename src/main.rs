//! Answers a request of the external signer protocol, or becomes the program of the commands.

#![no_main]
#![expect(unsafe_code, reason = "that there is one thread, and it starts here")]

use std::alloc::System;

use pkcs11_external_signer::start;
use system::environment::SingleThreaded;
use system::leave;
use system::memory::Wiping;

#[global_allocator]
static ALLOCATOR: Wiping<System> = Wiping(System);

/// What C's start calls. Rust's own, between the two, would read the process's memory map and set handlers for crashes,
/// which takes 2 % of a request; what else it does, `start::request` does.
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    // SAFETY: nothing has started a thread yet, and what takes the value starts none as long as it keeps it.
    let alone = unsafe { SingleThreaded::new() };
    leave(start::request(alone))
}
