//! Exit code 6: a key that is made on the token, and a certificate that is written to it.

use super::{CallFailure, ObjectSummary};
use crate::error::{Failure, Help, PROGRAM, Setting, THIS_TOKEN, remedy};

#[derive(Debug, thiserror::Error)]
pub enum WritingError {
    #[error("{doing} on token {token} failed: {failure}{}", left_behind(.left))]
    Call {
        doing: &'static str,
        token: String,
        failure: CallFailure,
        /// What the failed call has made, and could not be removed.
        left: Vec<ObjectSummary>,
    },
    #[error("{doing}: token {token} has no room left: {failure}{}", left_behind(.left))]
    Full { doing: &'static str, token: String, failure: CallFailure, left: Vec<ObjectSummary> },
    #[error("objectId \"{id}\" is in use on token {token}")]
    IdInUse { id: String, token: String, present: Vec<ObjectSummary> },
    #[error("token {token} makes no {kind} key: it offers no {wanted}")]
    NoGeneration { token: String, kind: &'static str, wanted: &'static str },
    #[error("OpenSC makes no key on a PIV card such as token {token}")]
    NoGenerationOnPiv {
        token: String,
        slot: String,
        /// As `ykman` and `yubico-piv-tool` call it.
        algorithm: &'static str,
        /// As `piv-tool` numbers it.
        number: &'static str,
    },
    #[error("the library of token {token} knows no PIN and touch policies: {failure}")]
    NoPolicies { token: String, failure: CallFailure },
    #[error("{option} is for YubiKeys behind ykcs11, and token {token} is none")]
    NotAYubikey { option: &'static str, token: String },
    #[error("token {token} has not kept {what} as it was written{why}")]
    NotKept {
        token: String,
        what: String,
        /// The call by which it shows, behind a colon; or nothing.
        why: String,
    },
    #[error("token {token} takes no certificate: {failure}")]
    Refused { token: String, failure: CallFailure },
}

/// To append to a failure.
fn left_behind(left: &[ObjectSummary]) -> String {
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    match left.join("; ") {
        left if left.is_empty() => left,
        left => format!("; it has left an object behind: {left}"),
    }
}

impl Failure for WritingError {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Call { failure, .. }
                if ["CKR_ATTRIBUTE_VALUE_INVALID", "CKR_KEY_SIZE_RANGE"]
                    .contains(&failure.reason.as_str()) =>
            {
                remedy!("the token may not make keys of this kind or size: choose another with --key")
            }
            Self::Call { .. } => remedy!(
                "check that the token is still inserted and isn't write-protected, and run the command \
                 again: it goes on with what is on the token"
            ),
            Self::Full { .. } => remedy!(
                "remove what is not used any more (`",
                format!("{PROGRAM} list{THIS_TOKEN} --login"),
                "` shows what there is), and run the command again"
            ),
            Self::IdInUse { present, .. } => remedy!(
                "name another one with ",
                Setting("objectId"),
                " (a YubiKey: another slot with --slot), or leave it out where a free one can be chosen:"
            )
            .with_candidates(present),
            Self::NoGeneration { .. } => remedy!(
                "choose another kind with --key, or make the key with the token's own tool: \
                 docs/tokens.md#a-key-and-its-certificate"
            ),
            Self::NoGenerationOnPiv {
                slot,
                algorithm,
                number,
                ..
            } => remedy!(
                "make the key with one of these, which want the management key, and run the command again \
                 with --object-id to go on with it. OpenSC shows it once it has a certificate: ykman \
                 makes a stand-in, for the other tools see \
                 docs/tokens.md#a-yubikey-or-another-piv-card. On a YubiKey, --module libykcs11.so does it all:"
            )
            .with_candidates(&[
                format!(
                    "ykman piv keys generate -a {algorithm} {slot} public.pem && ykman piv certificates \
                     generate -s CN=stand-in {slot} public.pem"
                ),
                format!("yubico-piv-tool -a generate -s {slot} -A {algorithm} -o public.pem"),
                format!("PIV_EXT_AUTH_KEY=key.hex piv-tool -A A:9B:03 -G {}:{number} -o public.der", slot.to_uppercase()),
            ]),
            Self::NoPolicies { .. } => remedy!(
                "update the library (ykcs11 2.3 or later), leave the policies out, or make the key with \
                 `ykman piv keys generate --pin-policy … --touch-policy …` and name it with --object-id"
            ),
            Self::NotAYubikey { .. } => {
                remedy!("leave it out, or name Yubico's library (libykcs11.so) with --module")
            }
            Self::NotKept { .. } => {
                remedy!(
                    "make room where the library keeps its objects, such as on a full disk, or update the library, \
                     and run the command again"
                )
            }
            Self::Refused { .. } => remedy!(
                "write it with the token's own tool, or set ",
                Setting("certificateFile"),
                " to a file that holds it"
            ),
        }
    }
}
