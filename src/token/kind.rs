//! What callers ask of an error of this crate.

use messages::error::Kind;

/// A call on the token failed or was refused, as it does when the token is gone.
pub const CALL_FAILED: Kind = Kind::new("call failed");

/// The token takes no such certificate.
pub const CERTIFICATE_REFUSED: Kind = Kind::new("certificate refused");

/// No certificate was seen, for want of a login.
pub const CERTIFICATE_UNSEEN: Kind = Kind::new("certificate unseen");

/// The token has no certificate that is meant.
pub const NO_CERTIFICATE: Kind = Kind::new("no certificate");

/// The token has no key that is meant.
pub const NO_KEY: Kind = Kind::new("no key");

/// The token has no PIN yet.
pub const PIN_NOT_SET: Kind = Kind::new("pin not set");
