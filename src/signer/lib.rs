//! What every command and request rests on that uses a library or says something.
//!
//! The modules are listed from the bottom to the top.

#![forbid(unsafe_code)]

// Writes messages to standard error.
pub mod report;
// A library under its lock; reports what it waits for.
pub mod library;
