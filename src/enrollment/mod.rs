//! From a key to a certificate for it: the request (PKCS #10) that the key signs, what is checked of the
//! certificate that a CA has issued, and which key and certificates of a token are meant.
//!
//! Nothing here opens a library, asks a person or talks to a cluster.

mod attestation;
mod issued;
mod present;
mod request;

pub use self::attestation::{KeyAttestation, for_any_key};
pub use issued::{check_issued, for_another, in_groups, intermediates, outlasts, remark};
pub use present::{Installation, find_key, has_valid_certificate, installation, of_key, selector};
pub use request::{Applicant, RESERVED, asks_for, certificates_pem, fingerprint, sign_request};
