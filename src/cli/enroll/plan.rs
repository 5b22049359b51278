//! What a call of `enroll` is to do. The arguments are read once, into plans that give each step only what it needs.

use std::path::PathBuf;

use super::EnrollArguments;
use super::policies::KeyPolicies;
use crate::cli::issuance::IssuanceOptions;
use crate::cli::key::options::KeyOptions;
use crate::enrollment::Applicant;
use ::token::{KeyKind, KeyPurpose, PivSlot, SlotPolicy};
use config::Keep;
use messages::error::{Error, Exit};
use messages::help::{Help, command};

/// What a call of `enroll` is to do.
pub(super) enum Plan {
    /// Find or make a key, and write the request for any CA.
    Request(RequestPlan),
    /// Store the certificate that a CA has issued beside its key.
    Install(InstallPlan),
    /// Find or make a key, have the cluster issue its certificate, and have the context use both.
    Certify(CertifyPlan),
    /// Do the same with a second key and user for commands that change something, and set kubectl's preferences for
    /// them.
    CertifyWrites(WritesPlan),
}

/// Which token is meant, and which key on it.
#[derive(Clone)]
pub(super) struct TokenPlan {
    pub(super) options: KeyOptions,
    /// The slot that an option names, in place of a CKA_ID.
    pub(super) slot: Option<PivSlot>,
    pub(super) purpose: KeyPurpose,
    /// An option that was given and is only for YubiKeys.
    pub(super) of_yubikeys: Option<&'static str>,
}

/// Whether a key is found or made, and what a new one is like.
#[derive(Clone)]
pub(super) struct KeyPlan {
    pub(super) intent: KeyIntent,
    /// The kind that a key has to have. Without one, a new key is of the usual kind.
    pub(super) kind: Option<KeyKind>,
    pub(super) pin_policy: Option<SlotPolicy>,
    pub(super) touch_policy: Option<SlotPolicy>,
    pub(super) touch: TouchDemand,
}

/// What becomes of a key that the token has already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyIntent {
    /// The key is used. One is made only if there is none.
    FindOrMake,
    /// The key is destroyed for a new one, after a typed yes.
    Replace,
}

/// Whether a key has to want a touch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TouchDemand {
    AsItIs,
    /// The key has to want a touch for each signature, unless a policy says otherwise. A token that says that the key
    /// wants none is refused.
    Wanted,
}

/// What another certificate of the key, which is still valid, does to the new certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OtherCertificate {
    /// The new certificate is refused.
    Refuses,
    /// The new certificate is kept in a file, since another cluster may want the other one.
    SendsToFile,
    /// The other certificate is removed after a typed yes, once the new one is there.
    IsReplaced,
}

/// The plan for `--csr`.
pub(super) struct RequestPlan {
    pub(super) token: TokenPlan,
    pub(super) key: KeyPlan,
    pub(super) applicant: Applicant,
    /// The file for the request; `-` is standard output.
    pub(super) file: PathBuf,
}

/// The plan for `--certificate`.
pub(super) struct InstallPlan {
    pub(super) token: TokenPlan,
    /// The user that the certificate has to be for; `None` for the one that the key's label names.
    pub(super) user: Option<String>,
    pub(super) file: PathBuf,
    pub(super) other: OtherCertificate,
}

/// The plan for a certificate of the cluster's own CA.
#[derive(Clone)]
pub(super) struct CertifyPlan {
    pub(super) token: TokenPlan,
    pub(super) key: KeyPlan,
    pub(super) whom: CertifiedUser,
    pub(super) attestation: AttestationPlan,
    pub(super) other: OtherCertificate,
    /// How long the key stays open for kubectl.
    pub(super) keep: Option<Keep>,
    pub(super) issuance: IssuanceOptions,
}

/// The plan for `--writes-by-touch`.
pub(super) struct WritesPlan {
    /// How the second key is enrolled. The context among its options is the one that reads; the user follows from that.
    pub(super) certify: CertifyPlan,
    pub(super) preferences: Preferences,
}

/// What becomes of kubectl's preferences (kuberc).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Preferences {
    /// The preferences are changed.
    Change,
    /// The commands that change them are printed.
    Print,
}

/// The user and the groups that the certificate is for.
#[derive(Clone)]
pub(super) struct CertifiedUser {
    /// The name that an option gives.
    pub(super) named: Option<String>,
    /// The user if no option names one.
    pub(super) usual: UsualUser,
    /// The groups that options name. If there are none, the user's present ones are meant.
    pub(super) groups: Vec<String>,
}

/// The user that a certificate is for if no option names one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UsualUser {
    /// The user who asks the cluster.
    Requester,
    /// A second user beside the one who asks, for commands that change something.
    SecondOfRequester,
}

/// What the request says of where the key was made.
#[derive(Clone)]
pub(super) struct AttestationPlan {
    pub(super) source: AttestationSource,
    /// Whether the groups that the attestation opens are asked for, too.
    pub(super) asks_for_groups: bool,
}

/// Where the attestation comes from.
#[derive(Clone)]
pub(super) enum AttestationSource {
    LeftOut,
    Token,
    /// A file in PEM.
    File(PathBuf),
}

impl Plan {
    /// The plan that these arguments ask for. An error if they don't go together.
    pub(super) fn of(arguments: &EnrollArguments) -> Result<Self, Error> {
        let purpose = arguments.purpose.unwrap_or_default();
        if let Some(kind) = arguments.key
            && purpose == KeyPurpose::Unsealing
            && !kind.can_unseal()
        {
            let name = kind.name();
            let text = format!("a key of the kind {name} only signs, and opens no sealed file");
            return Err(
                Error::new(Exit::Request, text).help("leave --key out, or name another kind")
            );
        }
        if let Some(file) = &arguments.csr {
            return RequestPlan::of(arguments, file.clone()).map(Self::Request);
        }
        if let Some(file) = &arguments.certificate {
            return Ok(Self::Install(InstallPlan::of(arguments, file.clone())));
        }
        let certify = CertifyPlan::of(arguments);
        if arguments.writes_by_touch {
            return WritesPlan::of(arguments, certify).map(Self::CertifyWrites);
        }
        Ok(Self::Certify(certify))
    }
}

impl TokenPlan {
    fn of(arguments: &EnrollArguments) -> Self {
        let replaces_key = arguments.replace && arguments.certificate.is_none();
        let given = [
            (arguments.slot.is_some(), "--slot"),
            (arguments.pin_policy.is_some(), "--pin-policy"),
            (arguments.touch_policy.is_some(), "--touch-policy"),
            (replaces_key, "--replace without --certificate"),
        ];
        let of_yubikeys = given.into_iter().find(|(is_given, _)| *is_given);
        Self {
            options: arguments.key_options.clone(),
            slot: arguments.slot,
            purpose: arguments.purpose.unwrap_or_default(),
            of_yubikeys: of_yubikeys.map(|(_, option)| option),
        }
    }
}

impl KeyPlan {
    fn of(arguments: &EnrollArguments) -> Self {
        Self {
            intent: if arguments.replace { KeyIntent::Replace } else { KeyIntent::FindOrMake },
            kind: arguments.key,
            pin_policy: arguments.pin_policy,
            touch_policy: arguments.touch_policy,
            touch: TouchDemand::AsItIs,
        }
    }

    /// The policies that options give.
    pub(super) fn given_policies(&self) -> KeyPolicies {
        KeyPolicies { pin: self.pin_policy, touch: self.touch_policy }
    }
}

impl RequestPlan {
    fn of(arguments: &EnrollArguments, file: PathBuf) -> Result<Self, Error> {
        let user = arguments.user.clone().ok_or_else(|| {
            Error::new(Exit::Request, "missing argument: --csr needs --user <NAME>")
                .help(Help::from(command("enroll --help")).and(" shows what goes with what"))
        })?;
        Ok(Self {
            token: TokenPlan::of(arguments),
            key: KeyPlan::of(arguments),
            applicant: Applicant::new(user, arguments.groups.clone())?,
            file,
        })
    }
}

impl InstallPlan {
    fn of(arguments: &EnrollArguments, file: PathBuf) -> Self {
        let other = if arguments.replace {
            OtherCertificate::IsReplaced
        } else {
            OtherCertificate::Refuses
        };
        Self { token: TokenPlan::of(arguments), user: arguments.user.clone(), file, other }
    }
}

impl CertifyPlan {
    fn of(arguments: &EnrollArguments) -> Self {
        let source = match &arguments.attestation {
            Some(file) => AttestationSource::File(file.clone()),
            None if arguments.no_attestation => AttestationSource::LeftOut,
            None => AttestationSource::Token,
        };
        let other = if arguments.replace {
            OtherCertificate::IsReplaced
        } else {
            OtherCertificate::SendsToFile
        };
        Self {
            token: TokenPlan::of(arguments),
            key: KeyPlan::of(arguments),
            whom: CertifiedUser {
                named: arguments.user.clone(),
                usual: UsualUser::Requester,
                groups: arguments.groups.clone(),
            },
            attestation: AttestationPlan { source, asks_for_groups: arguments.hardware_groups },
            other,
            keep: arguments.keep,
            issuance: arguments.issuance.clone(),
        }
    }
}

impl WritesPlan {
    /// Plans the second key. It is in slot 9c, unless the options name another place, and stays open for one command.
    fn of(arguments: &EnrollArguments, mut certify: CertifyPlan) -> Result<Self, Error> {
        if !certify.token.options.filter()?.object.is_given() {
            certify.token.slot = certify.token.slot.or_else(|| PivSlot::named("9c"));
        }
        if certify.token.slot.is_some() {
            certify.token.of_yubikeys = Some("--writes-by-touch without --object-id");
        }
        certify.key.touch = TouchDemand::Wanted;
        certify.keep = certify.keep.or(Some(Keep::Command));
        let preferences = if arguments.kuberc { Preferences::Change } else { Preferences::Print };
        Ok(Self { certify, preferences })
    }
}
