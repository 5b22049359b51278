//! The kinds of error of this crate that callers react to.

use messages::error::Kind;

/// A call on the token failed or was refused, as it does when the token is gone.
pub const CALL_FAILED: Kind = Kind::new("call failed");

/// The token doesn't take such a certificate.
pub const CERTIFICATE_REFUSED: Kind = Kind::new("certificate refused");

/// No certificate was seen, because nobody was logged in.
pub const CERTIFICATE_UNSEEN: Kind = Kind::new("certificate unseen");

/// The token doesn't have the certificate that is meant.
pub const NO_CERTIFICATE: Kind = Kind::new("no certificate");

/// The token doesn't have the key that is meant.
pub const NO_KEY: Kind = Kind::new("no key");

/// The token has no PIN yet.
pub const PIN_NOT_SET: Kind = Kind::new("pin not set");
