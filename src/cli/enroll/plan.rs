//! What a call of `enroll` is to do: its arguments, read once, so that each step gets no more than it needs.

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
    /// A key, and the request for any CA.
    Request(RequestPlan),
    /// The certificate that a CA has issued, beside its key.
    Install(InstallPlan),
    /// A key, the certificate that the cluster issues for it, and the context that uses both.
    Certify(CertifyPlan),
    /// The same with a second key and user for what changes something, and kubectl's preferences for that.
    CertifyWrites(WritesPlan),
}

/// Which token is meant, and which of its keys.
#[derive(Clone)]
pub(super) struct TokenPlan {
    pub(super) options: KeyOptions,
    /// Instead of a CKA_ID among the options.
    pub(super) slot: Option<PivSlot>,
    pub(super) purpose: KeyPurpose,
    /// One that was given of the options that are for a YubiKey.
    pub(super) of_yubikeys: Option<&'static str>,
}

/// Which key is taken or made, and what a new one is like.
#[derive(Clone)]
pub(super) struct KeyPlan {
    pub(super) intent: KeyIntent,
    /// A key that is found has to be of it; a new one is of the usual kind without.
    pub(super) kind: Option<KeyKind>,
    pub(super) pin_policy: Option<SlotPolicy>,
    pub(super) touch_policy: Option<SlotPolicy>,
    pub(super) touch: TouchDemand,
}

/// What becomes of a key that is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KeyIntent {
    /// It is taken; one is made only where there is none.
    FindOrMake,
    /// It is destroyed, after a typed yes, for a new one.
    Replace,
}

/// Whether a key has to want a touch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TouchDemand {
    AsItIs,
    /// For each signature, unless a policy says otherwise. A token that tells that it wants none is refused.
    Wanted,
}

/// What becomes of another certificate of the key that is still valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OtherCertificate {
    /// The new one is refused.
    Refuses,
    /// The new one is kept in a file: another cluster can want the other one.
    SendsToFile,
    /// It is removed, after a typed yes, once the new one is there.
    IsReplaced,
}

/// `--csr`
pub(super) struct RequestPlan {
    pub(super) token: TokenPlan,
    pub(super) key: KeyPlan,
    pub(super) applicant: Applicant,
    /// `-` for standard output.
    pub(super) file: PathBuf,
}

/// `--certificate`
pub(super) struct InstallPlan {
    pub(super) token: TokenPlan,
    /// Whom the certificate has to be for; without, whom the key's label names.
    pub(super) user: Option<String>,
    pub(super) file: PathBuf,
    pub(super) other: OtherCertificate,
}

/// With the cluster's own CA.
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

/// `--writes-by-touch`
pub(super) struct WritesPlan {
    /// The context among its options is the one that reads, and whom the certificate is for follows from that.
    pub(super) certify: CertifyPlan,
    pub(super) preferences: Preferences,
}

/// What becomes of kubectl's preferences (kuberc).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Preferences {
    /// They are changed.
    Change,
    /// The commands that change them are printed.
    Print,
}

/// Whom the certificate is for.
#[derive(Clone)]
pub(super) struct CertifiedUser {
    /// The name that an option gives.
    pub(super) named: Option<String>,
    /// Who it is where no name is given.
    pub(super) usual: UsualUser,
    /// Those that options name; none for those of before.
    pub(super) groups: Vec<String>,
}

/// Whom a certificate is for where no option names a user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum UsualUser {
    /// The one that asks.
    Requester,
    /// A second one beside the one that asks, for what changes something.
    SecondOfRequester,
}

/// What the request says of where the key was made.
#[derive(Clone)]
pub(super) struct AttestationPlan {
    pub(super) source: AttestationSource,
    /// Whether the groups that it opens are asked for, too.
    pub(super) asks_for_groups: bool,
}

/// Where the attestation comes from.
#[derive(Clone)]
pub(super) enum AttestationSource {
    LeftOut,
    Token,
    /// In PEM.
    File(PathBuf),
}

impl Plan {
    /// What these arguments ask for; an error if they don't go together.
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
    /// The second key: in slot 9c, unless the options name one, and open for one command.
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
