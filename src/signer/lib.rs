//! The external signer: one request, one answer; and the start of every process.
//!
//! The modules are listed from the bottom to the top.

#![forbid(unsafe_code)]

// Writes messages to standard error.
pub mod report;
// A library under its lock; reports what it waits for.
pub mod library;
// The external signer: one request, and the one document that answers it.
pub mod plugin;
// The start of every process; whether it answers a request or runs a command.
pub mod start;
