//! The kinds of this crate's errors that callers tell apart.

use messages::error::Kind;

/// An API server doesn't let this user do what was asked for.
pub const FORBIDDEN: Kind = Kind::new("forbidden");

/// An API server doesn't have the object that was asked for.
pub const NOT_FOUND: Kind = Kind::new("not found");

/// An API server takes the bearer of the certificate for nobody.
pub const NOT_RECOGNISED: Kind = Kind::new("not recognised");
