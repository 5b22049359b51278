//! Exit code 2 for what is asked for, 6 for keys and certificates that don't fit.

use std::path::PathBuf;

use crate::error::{Failure, Help, PROGRAM, Setting, THIS_TOKEN, remedy};

#[derive(Debug, thiserror::Error)]
pub enum EnrollmentError {
    /// `renew` asks for the next one; `enroll --object-id 2 --csr FILE` makes another request for this key.
    #[error("the key with {key} has a certificate for user \"{user}\" that is valid until {until}")]
    AlreadyEnrolled { key: String, user: String, until: String },
    #[error("the {what}'s name can't be used: {reason}")]
    BadName { what: &'static str, reason: &'static str },
    #[error("{}: {reason}", .path.display())]
    File { path: PathBuf, reason: String },
    /// It is a certificate of its CA, or one for servers.
    #[error("the certificate of {subject} is of no use here: {reason}")]
    NotAccepted { subject: String, reason: String },
    /// The token has a certificate of this key that is valid, and nothing is overwritten.
    #[error("the key with {key} has another certificate already: {present}")]
    CertificatePresent { key: String, present: String },
    #[error("an Ed25519 key only signs, and opens no sealed file")]
    OnlySigns,
    /// `list` shows the keys and what they are.
    #[error("the key with {key} is {found}, not {wanted}")]
    OtherKind { key: String, found: String, wanted: &'static str },
    /// Nothing can be verified without the public key. A call that was killed while the token made the key
    /// can leave it so.
    #[error("the private key with {key} can't be used: its public key is not on token {token}")]
    LonePrivateKey {
        key: String,
        token: String,
        /// The command for it.
        removal: String,
    },
    #[error("no token was found")]
    NoToken,
    /// A certificate that was issued for the wrong person, or the wrong file.
    #[error("the certificate is for {issued}, not for {asked}")]
    OtherApplicant { issued: String, asked: String },
    /// A key has its policies from the moment it is made.
    #[error("the key with {key} is there, and its PIN and touch policies can't be changed")]
    PolicyOfOldKey { key: String },
    /// Kubernetes' signer refuses `system:masters`; the other groups of that prefix are what the API server
    /// adds itself.
    #[error("the group {group} is the cluster's own")]
    ReservedGroup { group: String },
    #[error("{} keys of the token can be meant", .found.len())]
    SeveralKeys { found: Vec<String> },
    #[error("{} tokens can be meant", .found.len())]
    SeveralTokens { found: Vec<String> },
    #[error("what is under {key} can't be taken up: {reason}")]
    Unfit { key: String, reason: String },
}

impl Failure for EnrollmentError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::BadName { .. } | Self::OnlySigns | Self::ReservedGroup { .. } => 2,
            Self::NoToken | Self::SeveralTokens { .. } => 5,
            Self::AlreadyEnrolled { .. }
            | Self::CertificatePresent { .. }
            | Self::File { .. }
            | Self::LonePrivateKey { .. }
            | Self::NotAccepted { .. }
            | Self::OtherApplicant { .. }
            | Self::OtherKind { .. }
            | Self::PolicyOfOldKey { .. }
            | Self::SeveralKeys { .. }
            | Self::Unfit { .. } => 6,
        }
    }

    fn remedy(&self) -> Help {
        match self {
            Self::AlreadyEnrolled { .. } => remedy!(
                "use it as it is; for another request for this key name the key with --object-id, for \
                 another key a free --object-id"
            ),
            Self::BadName { .. } => {
                remedy!("give the name as the cluster knows it, with --user and --group")
            }
            Self::File { .. } => remedy!("name a file that can be used"),
            Self::NotAccepted { .. } => remedy!(
                "have the CA issue one from the request: valid now, with extended key usage clientAuth, \
                 and the user as common name"
            ),
            Self::CertificatePresent { .. } => remedy!(
                "leave it as it is, or put the new one in its place with --replace, at a terminal"
            ),
            Self::NoToken => remedy!(
                "insert it, or name its library with --module; `list` shows what was looked at"
            ),
            Self::LonePrivateKey { removal, .. } => remedy!(
                "have another key made with a free --object-id, or, if nothing uses this one, remove it and \
                 run the command again:"
            )
            .with_candidates(std::slice::from_ref(removal)),
            Self::OnlySigns => remedy!("leave --key out, or name another kind with it"),
            Self::OtherKind { .. } => remedy!(
                "leave --key out to use this key, or name a free --object-id for another one"
            ),
            Self::OtherApplicant { .. } => remedy!(
                "have the CA issue one for the right name and groups, or give those of the certificate \
                 with --user and --group"
            ),
            Self::PolicyOfOldKey { .. } => remedy!(
                "leave the policies out to use this key, name another slot with --slot, or have the key \
                 destroyed for a new one with --replace"
            ),
            Self::ReservedGroup { .. } => remedy!(
                "leave it out: have a role bound to the user or to a group of your own instead"
            ),
            Self::SeveralKeys { found } => {
                remedy!("name one with ", Setting("objectId"), ":").with_candidates(found)
            }
            Self::SeveralTokens { found } => {
                remedy!("name one with these options:").with_candidates(found)
            }
            Self::Unfit { .. } => remedy!(
                "name a key that can sign, or a free --object-id to have one made; `",
                format!("{PROGRAM} list{THIS_TOKEN} --login"),
                "` shows what there is"
            ),
        }
    }
}
