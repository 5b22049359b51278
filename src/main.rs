//! Answers a request of the external signer protocol, or becomes the program of the commands.

#![expect(unsafe_code, reason = "that there is one thread")]

use std::alloc::System;

use pkcs11_external_signer::start;
use system::environment::SingleThreaded;
use system::leave;
use system::memory::Wiping;

#[global_allocator]
static ALLOCATOR: Wiping<System> = Wiping(System);

fn main() {
    // SAFETY: nothing has started a thread yet, and what takes the value starts none as long as it keeps it.
    let alone = unsafe { SingleThreaded::new() };
    leave(start::request(alone))
}
