//! What an approver has to compare: what a CertificateSigningRequest asks for, with who made it. The cluster's
//! signer compares neither.

use std::fmt;

use super::signing_request::{SIGNER, SigningRequest};
use crate::certificate::CertificationRequest;
use crate::error::listed;
use crate::verify::is_signed_by_its_key;

/// What a client certificate of the signer can be for; the first is a must.
const ALLOWED: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// Why a request should not be approved. Its `Display` follows `the request `.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Objection {
    /// For alternative names, for instance, which the signer copies.
    Extensions,
    /// The requester isn't in these.
    Groups(Vec<String>),
    /// A name that isn't the requester's.
    Name(Option<String>),
    /// The subject has attributes that are neither a user nor groups.
    Subject,
    Signer(String),
    /// Whoever made it need not have the key.
    Unsigned,
    Usages(Vec<String>),
}

/// All that speaks against this request, whose PKCS#10 is `asked`.
pub fn objections(request: &SigningRequest, asked: &CertificationRequest) -> Vec<Objection> {
    let mut found = Vec::new();
    if asked.user.as_deref() != Some(request.requester()) {
        found.push(Objection::Name(asked.user.clone()));
    }
    let groups = asked.groups.iter();
    let foreign: Vec<_> =
        groups.filter(|group| !request.requester_groups().contains(group)).cloned().collect();
    if !foreign.is_empty() {
        found.push(Objection::Groups(foreign));
    }
    if !asked.is_plain {
        found.push(Objection::Subject);
    }
    if asked.wants_extensions {
        found.push(Objection::Extensions);
    }
    if !is_signed_by_its_key(asked) {
        found.push(Objection::Unsigned);
    }
    if request.signer() != SIGNER {
        found.push(Objection::Signer(request.signer().to_owned()));
    }
    let usages = request.usages();
    let are_allowed = usages.iter().all(|usage| ALLOWED.contains(&usage.as_str()));
    if !are_allowed || !usages.iter().any(|usage| usage == ALLOWED[0]) {
        found.push(Objection::Usages(usages.to_vec()));
    }
    found
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Extensions => f.write_str("asks for extensions, such as alternative names"),
            Self::Groups(groups) => {
                let groups: Vec<_> = groups.iter().map(|it| format!("{it:?}")).collect();
                write!(f, "names groups that the requester isn't in: {}", groups.join(", "))
            }
            Self::Name(Some(name)) => write!(f, "is for {name:?}, who is not the requester"),
            Self::Name(None) => f.write_str("names no user (CN)"),
            Self::Subject => {
                f.write_str("has a subject with more than one CN, or more than CN and O")
            }
            Self::Signer(signer) => write!(f, "is for the signer {signer:?}, not {SIGNER}"),
            Self::Unsigned => f.write_str("is not signed with the key that it is for"),
            Self::Usages(usages) if usages.is_empty() => f.write_str("names no usage"),
            Self::Usages(usages) => {
                write!(f, "is for the usages {}, not for client auth alone", listed(usages, "and"))
            }
        }
    }
}
