//! What people read: errors with what to do about them, and everything that is written to standard error.
//!
//! [`error`] and [`help`] make a message, [`printable`] makes what comes from elsewhere fit for a terminal, [`folding`]
//! breaks lines there, and [`report`] alone writes to standard error.

#![forbid(unsafe_code)]

pub mod error;
pub mod folding;
pub mod help;
pub mod printable;
pub mod report;
