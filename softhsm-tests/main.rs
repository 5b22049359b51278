//! The integration tests: the real executable, real modules, a real terminal, and openssl as the
//! judge of what comes out. Nothing is skipped: a tool that is missing fails the test that needs
//! it and says which package to install.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

/// What the tests are written in.
mod fixture;
