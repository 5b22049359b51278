//! Starts the program and ends with its exit code. What concerns a whole process stands here and not
//! in the library: the allocator, and what runs before `main`.

#![expect(unsafe_code, reason = "a section of the executable, and that there is one thread")]

use std::alloc::System;

use pkcs11_external_signer::cli;
use pkcs11_external_signer::process::environment::SingleThreaded;
use pkcs11_external_signer::process::memory::Wiping;
use pkcs11_external_signer::process::{leave, output};

#[global_allocator]
static ALLOCATOR: Wiping<System> = Wiping(System);

/// The C library calls what this section lists, before Rust's runtime opens /dev/null in the place
/// of a standard output that is closed.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = output::look_at_standard_output;

fn main() {
    // SAFETY: nothing has started a thread yet, and what takes the value starts none as long as it
    // keeps it.
    let alone = unsafe { SingleThreaded::new() };
    leave(cli::main(alone))
}
