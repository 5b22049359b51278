//! What callers ask of an error of this crate.

use messages::error::Kind;

/// An API server doesn't let this user do it.
pub const FORBIDDEN: Kind = Kind::new("forbidden");

/// An API server has no such object.
pub const NOT_FOUND: Kind = Kind::new("not found");

/// An API server takes the bearer of the certificate for nobody.
pub const NOT_RECOGNISED: Kind = Kind::new("not recognised");
