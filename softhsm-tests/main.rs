//! The integration tests: real modules, real TLS peers, a real terminal.
