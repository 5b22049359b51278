//! What can go wrong with a library, the token in it, an object of that, a login, a signature, or what is
//! written to the token.

mod login;
mod module;
mod object;
mod opening;
mod signing;
mod token;
mod writing;

pub use login::LoginError;
pub use module::ModuleError;
pub use object::{ObjectError, ObjectSummary};
pub use opening::OpeningError;
pub use signing::SigningError;
pub use token::{TokenError, UnusableSlot, WhyUnusable};
pub use writing::WritingError;

use std::fmt;

/// A PKCS#11 call that failed, in the words people search for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallFailure {
    /// The function, such as `C_Sign`; empty where the failure is not one call's.
    pub function: String,
    /// The return value's name, such as `CKR_DEVICE_ERROR`, or what was wrong with the answer.
    pub reason: String,
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.function.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.function, self.reason)
        }
    }
}
