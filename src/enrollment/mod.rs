//! From a key to a certificate for it: the request (PKCS #10) that the key signs, what is checked of the
//! certificate that a CA has issued, and what is still to be done, as data.
//!
//! Nothing here opens a library, asks a person or talks to a cluster; `cli::enroll` does.

mod applicant;
mod error;
mod issued;
mod plan;
mod request;

pub use applicant::Applicant;
pub use error::EnrollmentError;
pub use issued::{ExpectedCertificate, check_issued, intermediates};
pub use plan::{
    EnrolledKey, Installation, KeyWish, NextStep, Plan, PlannedKey, install, lone_public_keys,
    of_key, successor_id,
};
pub use request::{Csr, certificates_pem, fingerprint, sign_request, sign_request_for};
