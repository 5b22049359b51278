//! `renew --new-key`: a key that takes over from the present one, which stays until the cluster has let the new
//! one in and the context uses it.
//!
//! The new key's CKA_ID follows from the present certificate. So an interrupted call finds the key that it has made,
//! and never takes up one that an earlier renewal has left on the token.

use std::fs;
use std::path::PathBuf;

use super::context::{ContextUser, Successor};
use super::document::{NewKeyEntry, Report, step_of};
use super::error::NewKeyError;
use super::key_in_use::{KeyInUse, check_user};
use super::place::CertificatePlace;
use super::{RenewArguments, check_end};
use crate::certificate::{Certificate, ValidityState, day};
use crate::cli::enroll::{IssuedFile, removal};
use crate::cli::issuance::{Inquiry, Issued, WantedCertificate, obtain, request_name, standing};
use crate::cluster_api::self_subject_review;
use crate::config::{Config, ObjectId};
use crate::enrollment::{
    Applicant, Csr, EnrolledKey, KeyWish, NextStep, Plan, PlannedKey, of_key, sign_request,
    successor_id,
};
use crate::error::Error;
use crate::pin::PinProvider;
use crate::pipeline::{KeyReference, Pipeline};
use crate::printable::shell_word;
use crate::process::unix_time;
use crate::report;
use crate::start;
use crate::token::{
    Candidate, FoundKey, KeyKind, KeyPurpose, NewKey, ObjectError, PivSlot, Token, WritingError,
};

/// What a new key is made for.
pub(super) struct KeyChange<'a> {
    pub(super) arguments: &'a RenewArguments,
    pub(super) key: &'a KeyInUse<'a>,
    pub(super) present: &'a Certificate,
    pub(super) applicant: &'a Applicant,
    pub(super) asking: &'a Inquiry<'a>,
}

/// The new key, as far as the token has it.
enum FoundSuccessor {
    ToBeMade(KeyKind),
    There {
        key: FoundKey,
        /// An earlier call has written it.
        certificate: Option<Box<Certificate>>,
    },
}

/// Which key is wanted, as the token's thread needs to know it.
struct SuccessorWish {
    library: PathBuf,
    id: ObjectId,
    label: String,
    asked: Option<KeyKind>,
    usual: Option<KeyKind>,
    usual_words: String,
    makes: bool,
}

impl KeyChange<'_> {
    /// # Errors
    /// What can't be begun is said before anything is made; later those of the token and the cluster.
    pub(super) fn run(
        &self,
        place: &CertificatePlace,
        report: &mut Report<'_>,
    ) -> Result<(), Error> {
        let (key, present) = (self.key, self.present);
        let user = ContextUser::of(key, self.arguments.key.kubeconfig.as_deref())?;
        if let CertificatePlace::Slot = place {
            return Err(self.in_slot()?);
        }
        let own = key.found()?;
        // An earlier call may have been interrupted when the context used the new key.
        for (id, old) in self.predecessors(&own)? {
            if !user.others_with(key, &id).is_empty() {
                continue;
            }
            let entry = entry(&own, None);
            if self.arguments.dry_run {
                let id = ObjectId::from_bytes(id);
                let step = format!("remove the old certificate, of the key with objectId {id}");
                return report.plan(present, None, &[step], Some(&entry));
            }
            let known = self_subject_review(self.asking.api)?;
            check_user(&known, present)?;
            key.remove(&old, Some(self.present))?;
            let name = self.request_name(&own, &old)?;
            return report.renewed(key, &name, present, known, Some(&entry));
        }
        let id = successor_id(present);
        let (new, written) = match self.find_or_make(&own, id.clone())? {
            FoundSuccessor::ToBeMade(kind) => {
                return self.plan_key(kind, &id, place, &user, report);
            }
            FoundSuccessor::There { key, certificate } => (key, certificate),
        };
        let wanted = self.wanted(&new)?;
        if self.arguments.dry_run {
            let (name, first) = match &written {
                Some(_) => {
                    (wanted.name, "use the certificate that is beside the new key".to_owned())
                }
                None => {
                    let standing = standing(&wanted, self.asking)?;
                    let first = step_of(&standing, self.applicant.user());
                    (standing.name().to_owned(), first)
                }
            };
            let take_up = format!("go on with the key with {}, which is there", new.selector());
            let steps = [take_up, first, self.last_step(place, &user)];
            return report.plan(present, Some(&name), &steps, Some(&entry(&new, None)));
        }
        let is_written = written.is_some();
        let issued = match written {
            Some(certificate) => {
                Issued { certificate: *certificate, chain: Vec::new(), name: wanted.name.clone() }
            }
            None => obtain(&wanted, self.asking, || self.sign(&new))?,
        };
        check_end(&issued, present)?;
        let file = match (place, is_written) {
            (_, true) => None,
            (CertificatePlace::File(_), _) => Some(IssuedFile::of_cluster(&issued).keep(None)?),
            _ => self.write(&issued, &new)?,
        };
        let successor = Successor {
            id: &id,
            words: format!(
                "{}, {}, until {}",
                new.public_key,
                issued.certificate.subject,
                day(issued.certificate.validity.not_after)
            ),
            certificate_file: file.as_deref(),
        };
        let known = match key.proof(successor.in_place(key.map.clone()), &issued.certificate) {
            Ok(known) => known,
            Err(error) => {
                match &file {
                    Some(file) => drop(fs::remove_file(file)),
                    None => key.remove(&issued.certificate, None)?,
                }
                return Err(error);
            }
        };
        user.hand_over(&successor)?;
        self.retire(&own, place, &user)?;
        let entry = entry(&new, file);
        report.renewed(key, &issued.name, &issued.certificate, known, Some(&entry))
    }

    /// The certificates of other keys from which the present key has taken over, with their CKA_IDs.
    fn predecessors(&self, own: &FoundKey) -> Result<Vec<(Vec<u8>, Certificate)>, Error> {
        let (user, id, now) = (self.present.user.clone(), own.id.clone(), unix_time());
        self.key.with_token(move |token, _, _| {
            let candidates = token.candidates()?.into_iter();
            let certificates = candidates.filter_map(|it| Some((it.id, it.certificate?.ok()?)));
            let before = certificates.filter(|(_, it)| {
                it.user == user
                    && successor_id(it).as_bytes() == id
                    && it.validity.at(now) != ValidityState::Expired
            });
            Ok(before.collect())
        })
    }

    fn request_name(&self, new: &FoundKey, old: &Certificate) -> Result<String, Error> {
        request_name(self.applicant.user(), &new.public_key, Some(old))
    }

    fn wanted<'a>(&'a self, new: &'a FoundKey) -> Result<WantedCertificate<'a>, Error> {
        Ok(WantedCertificate {
            name: self.request_name(new, self.present)?,
            applicant: self.applicant,
            public_key: &new.public_key,
            duration: self.arguments.duration,
        })
    }

    /// The key that an earlier call has made, or unless nothing may be changed a new one.
    fn find_or_make(&self, own: &FoundKey, id: ObjectId) -> Result<FoundSuccessor, Error> {
        let label = match own.label.as_str() {
            "" => self.applicant.user(),
            label => label,
        };
        // A configuration that names the present key by its label alone would mean both.
        let config = Config::from_map(&mut self.key.map.clone())?;
        let is_by_label = config.object.id.is_none();
        let wanted = SuccessorWish {
            library: config.library.path().to_owned(),
            label: match is_by_label {
                true => format!("{label} {id}"),
                false => label.to_owned(),
            },
            id,
            asked: self.arguments.kind,
            usual: KeyKind::of(&own.public_key),
            usual_words: own.public_key.to_string(),
            makes: !self.arguments.dry_run,
        };
        self.key.with_token(move |token, _, pins| find_or_make(token, &wanted, pins))
    }

    /// The new key signs its request.
    fn sign(&self, new: &FoundKey) -> Result<Csr, Error> {
        let (applicant, new) = (self.applicant.clone(), new.clone());
        let config = Config::from_map(&mut self.key.map.clone())?;
        self.key.with_token(move |token, _, pins| {
            let (config, observer) = (&config, &mut ());
            let mut pipeline = Pipeline { config, observer };
            let open = pipeline.key(token, KeyReference::of_key(new.clone()), pins)?;
            sign_request(&applicant, &new.public_key, |scheme, digest| {
                pipeline.sign(token, &open, scheme, digest, pins)
            })
        })
    }

    /// Writes the certificate beside the new key; the file that it is in if the token takes none.
    fn write(&self, issued: &Issued, new: &FoundKey) -> Result<Option<PathBuf>, Error> {
        match self.key.write(issued, new.clone()) {
            Ok(()) => Ok(None),
            Err(error) => match error.downcast_ref() {
                Some(WritingError::Refused { .. }) => {
                    let path = IssuedFile::of_cluster(issued).keep(None)?;
                    report::note(&format!("{error}; it stays in {}", path.display()));
                    Ok(Some(path))
                }
                _ => Err(error),
            },
        }
    }

    /// Removes the present certificate, unless others use it, and says how the key can be removed.
    fn retire(
        &self,
        own: &FoundKey,
        place: &CertificatePlace,
        user: &ContextUser,
    ) -> Result<(), Error> {
        let others = user.others_with(self.key, &own.id);
        match place {
            CertificatePlace::File(file) => {
                report::note(&format!("the old certificate stays in {}", file.display()))
            }
            _ if others.is_empty() => self.key.remove(self.present, None)?,
            _ => {
                report::note(&format!(
                    "the old certificate stays, since it is used by the contexts {}; `{} kubeconfig --write \
                     --context NAME` gives each of them the new key",
                    others.join(", "),
                    start::called()
                ));
                return Ok(());
            }
        }
        let config = Config::from_map(&mut self.key.map.clone())?;
        let token = self.key.with_token(|token, _, _| Ok(token.state().name.clone()))?;
        let old = EnrolledKey::from(own);
        let removal = |kind: &str| removal(config.library.path(), &token, kind, &old);
        report::steps(
            &format!(
                "the old key stays on token {token} under {}; if nothing else uses it, this removes it:",
                own.selector()
            ),
            &["privkey", "pubkey"].map(removal),
        );
        Ok(())
    }

    /// What would be done when the cluster has let the new key in.
    fn last_step(&self, place: &CertificatePlace, user: &ContextUser) -> String {
        let context = &self.key.cluster.context.name;
        let old = match place {
            CertificatePlace::File(_) => "",
            _ => ", and then remove the present certificate",
        };
        format!(
            "have the context \"{context}\" (user \"{}\") use the new key, once the cluster has let it in{old}",
            user.name()
        )
    }

    fn plan_key(
        &self,
        kind: KeyKind,
        id: &ObjectId,
        place: &CertificatePlace,
        user: &ContextUser,
        report: &mut Report<'_>,
    ) -> Result<(), Error> {
        let kind = kind.words().to_owned();
        let steps = [
            format!("make a key, {kind}, with objectId {id}"),
            format!("make a request for user \"{}\"", self.applicant.user()),
            self.last_step(place, user),
        ];
        let entry = NewKeyEntry { object_id: id.to_string(), kind, certificate_file: None };
        report.plan(self.present, None, &steps, Some(&entry))
    }

    /// The error of a card, whose slots a person chooses.
    fn in_slot(&self) -> Result<Error, Error> {
        let config = Config::from_map(&mut self.key.map.clone())?;
        let kind = self.arguments.kind.or_else(|| KeyKind::of(self.present.public_key()));
        let (slot, token) = self.key.with_token(move |token, _, _| {
            let mut free = None;
            for slot in SLOTS.into_iter().filter_map(PivSlot::named) {
                if token.objects_with_id(&slot.id())?.is_empty() {
                    free = Some(slot);
                    break;
                }
            }
            let slot = free.unwrap_or(PivSlot::AUTHENTICATION);
            token.check_card(kind.unwrap_or_default(), Some(&slot.id()))?;
            Ok((slot, token.name()))
        })?;
        let module = config.library.path().to_string_lossy();
        let enroll = format!("{} enroll --module {}", start::called(), shell_word(&module));
        let user = shell_word(self.applicant.user());
        let groups = self.applicant.groups().iter();
        let groups: String = groups.map(|it| format!(" --group {}", shell_word(it))).collect();
        let context = shell_word(&self.key.cluster.context.name);
        Ok(NewKeyError::InSlot {
            token,
            lines: vec![
                format!("{enroll} --slot {} --user {user}{groups} --csr new.csr", slot.name()),
                format!("{enroll} --certificate new.pem"),
                format!(
                    "{} kubeconfig --write --context {context} --module {} --object-id {}",
                    start::called(),
                    shell_word(&module),
                    slot.id()
                ),
            ],
        }
        .into())
    }
}

/// A card's slots that a user's key is made in; that of 9e is used without a PIN.
const SLOTS: [&str; 8] = ["9a", "9c", "9d", "82", "83", "84", "85", "86"];

fn find_or_make(
    token: &mut Token<'_>,
    wanted: &SuccessorWish,
    pins: &mut dyn PinProvider,
) -> Result<FoundSuccessor, Error> {
    token.reveal("for a new key", pins)?;
    let candidates = token.candidates()?;
    let wish =
        KeyWish { label: &wanted.label, id: Some(&wanted.id), is_usual: true, kind: wanted.asked };
    let own = candidates.iter().find(|it| it.id == wanted.id.as_bytes());
    let own_key = own.and_then(|it| it.key.as_ref());
    if own_key.is_some_and(|key| !key.is_private) {
        return Err(half(token, wanted, ["public key", "pubkey"]));
    }
    let plan = Plan::for_request(&candidates, &wish, unix_time())?;
    if let PlannedKey::TakeUp(key) = plan.key {
        let found = token.bare_key(&key.selector(), Some(pins));
        let key = found.map_err(|error| match error.downcast_ref() {
            Some(ObjectError::NoPublicKey { .. }) => {
                half(token, wanted, ["private key", "privkey"])
            }
            _ => error,
        })?;
        let certificate = match plan.next {
            NextStep::Done => newest(&candidates, &key),
            _ => None,
        };
        return Ok(FoundSuccessor::There { key, certificate });
    }
    let kind = wanted.asked.or(wanted.usual);
    let kind = kind.ok_or_else(|| NewKeyError::NoSuchKind { kind: wanted.usual_words.clone() })?;
    token.check_generation(kind, KeyPurpose::Signing)?;
    if !wanted.makes {
        return Ok(FoundSuccessor::ToBeMade(kind));
    }
    let made = token.generate(&NewKey {
        kind,
        purpose: KeyPurpose::Signing,
        id: &wanted.id,
        label: &wanted.label,
    })?;
    for promise in &made.unconfirmed {
        report::warning(&format!("the token does not confirm of the new key that {promise}"));
    }
    report::note(&format!(
        "made a key on token {}: {}, objectId {}",
        token.name(),
        kind.words(),
        wanted.id
    ));
    Ok(FoundSuccessor::There { key: made.key, certificate: None })
}

/// The error of a key of which only this half is there; as people and as pkcs11-tool call it.
fn half(token: &Token<'_>, wanted: &SuccessorWish, [half, kind]: [&'static str; 2]) -> Error {
    let key = EnrolledKey {
        id: Some(wanted.id.clone()),
        label: wanted.label.clone(),
        kind: String::new(),
    };
    NewKeyError::Half {
        key: key.selector().to_string(),
        half,
        token: token.name(),
        removal: removal(&wanted.library, &token.state().name, kind, &key),
    }
    .into()
}

fn newest(candidates: &[Candidate], key: &FoundKey) -> Option<Box<Certificate>> {
    let own = of_key(candidates, &key.public_key).into_iter();
    let newest = own.max_by_key(|it| it.validity.not_after);
    newest.map(|it| Box::new(it.clone()))
}

fn entry(key: &FoundKey, file: Option<PathBuf>) -> NewKeyEntry {
    NewKeyEntry {
        object_id: ObjectId::from_bytes(key.id.clone()).to_string(),
        kind: key.public_key.to_string(),
        certificate_file: file.map(|it| it.to_string_lossy().into_owned()),
    }
}
