//! The key that a command is about: the options that name it, its choice among several, and the context that uses it.

pub(super) mod choice;
pub(super) mod context;
pub(super) mod options;
