//! A PKCS#11 library that passes every call on to a real one and misbehaves where the environment says so.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAULT_MODULE_REAL` | the library that does the work |
//! | `FAULT_MODULE` | what goes wrong, where and when: the grammar is in `plan` |
//! | `FAULT_MODULE_LOG` | a file that gets one line per call: the function and what it returned |
//! | `FAULT_MODULE_PIN` | the PIN that the make-believe PIN pad enters |
//!
//! A plan that can't be read ends the process at once: a test must not pass because its fault was misspelt.

mod calls;
mod faults;
pub mod lists;
mod log;
mod plan;
mod real;
mod spoil;

/// Runs when the library is loaded, before dlopen returns.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = {
    extern "C" fn on_load() {
        // SAFETY: `on_exit` has the type atexit wants and lives as long as the library.
        unsafe { libc::atexit(on_exit) };
        faults::happen("load");
    }
    on_load
};

/// Runs when the library is unloaded, or when the process ends through exit().
#[used]
#[unsafe(link_section = ".fini_array")]
static ON_UNLOAD: extern "C" fn() = {
    extern "C" fn on_unload() {
        faults::happen("unload");
    }
    on_unload
};

extern "C" fn on_exit() {
    faults::happen("exit");
}
