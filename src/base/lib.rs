//! What every other crate rests on: text that is fit for a terminal, errors, the operating system, and a PIN.
//!
//! The modules are listed from the bottom to the top.

// The hashes that TLS signatures are made over.
pub mod hash;
// Makes text from elsewhere fit for a terminal.
pub mod printable;
// How long everything may take.
pub mod limits;
// An error: its exit code, its text and the remedy.
pub mod error;
// What to do about an error, with the commands as this call has them.
pub mod help;
// Writes messages to standard error.
pub mod report;
// The operating system: memory, environment, signals, locks, the end of the process.
pub mod process;
// A PIN, the request for one, and the trait of its provider.
pub mod pin;
