//! The token, and what is done with it: its keys, a new one, the signature of a request, a certificate.

use std::mem;
use std::path::{Path, PathBuf};

use super::EnrollArguments;
use crate::cli::issuance::{IssuedCertificate, attestation_from_file};
use crate::cli::key::options::KeyOptions;
use crate::cli::listing::{LibraryEntry, Listing, TokenEntry, token_configuration, token_options};
use crate::cli::question::{confirm, pick};
use crate::cli::session::{CommandOutput, CommandSession, Step};
use crate::enrollment::{
    Applicant, Installation, KeyAttestation, find_key, fingerprint, for_another,
    has_valid_certificate, in_groups, installation, intermediates, of_key, selector, sign_request,
};
use attestation::yubikey::TouchPolicy;
use config::pin::Pin;
use config::{Config, ObjectId, ObjectSelector};
use crypto::certificate::{Certificate, PublicKey, minute};
use keyring::library::{self, AskingUnlocked, LibraryLock};
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart};
use messages::printable::printable;
use messages::report;
use pin_entry::{Sources, ask};
use protocol::Configuration;
use system::clock::unix_time;
use system::environment::TakenVariables;
use system::limits;
use token::kind;
use token::{
    AcceptedPin, Candidate, KeyPurpose, KeyReference, NewKey, PivSlot, SessionAccess, SlotOptions,
    SlotPolicy, Token, id_in_use,
};

/// An enrollment on a token, with a session in which it can be changed.
pub(super) struct Enrollment<'a> {
    pub(super) arguments: &'a EnrollArguments,
    /// Acquired by what is done with the token, and released where this waits for people.
    pub(super) lock: LibraryLock,
    pub(super) token: Token,
    pub(super) config: Config,
    pins: AskingUnlocked<Sources>,
    /// The CKA_ID of the configuration is that of the slot that a YubiKey has for this.
    is_usual: bool,
    /// What the token shows after the login.
    candidates: Vec<Candidate>,
    /// What was found and done, and is not [shown](Self::show) yet.
    steps: Vec<Step>,
    /// What the token says of the key, for the request.
    attestation: Option<KeyAttestation>,
}

/// Where an issued certificate is to be.
struct Placement {
    /// Why in a file: the token doesn't take it, or not those of the CAs.
    why_in_file: Option<String>,
    /// It is on the token already.
    is_there: bool,
    /// Those on the token that it takes the place of.
    replaced: Vec<Certificate>,
}

impl Placement {
    fn in_file(reason: String) -> Self {
        Self { why_in_file: Some(reason), is_there: false, replaced: Vec::new() }
    }
}

/// The key that is enrolled.
pub(super) struct EnrolledKey {
    pub(super) key: KeyReference,
    /// It has a valid certificate, and another one wasn't asked for by the key's name.
    pub(super) is_certified: bool,
}

/// An enrollment while its token is left to others.
pub(super) struct PausedEnrollment<'a> {
    arguments: &'a EnrollArguments,
    config: Config,
    pins: Sources,
    is_usual: bool,
    accepted: Option<Pin>,
    attestation: Option<KeyAttestation>,
}

impl<'a> Enrollment<'a> {
    /// On the token of this configuration, after a login for this user.
    pub(super) fn open(
        arguments: &'a EnrollArguments,
        mut config: Config,
        user: &str,
        variables: &TakenVariables,
        session: &mut CommandSession,
    ) -> Result<Self, Error> {
        let pins = Sources::new(mem::take(&mut config.pin), variables);
        let (lock, token) = open_token(&config, session)?;
        let is_usual = match (token.state().is_yubikey(), arguments.of_yubikeys()) {
            (false, Some(option)) => return Err(is_no_yubikey(option, &token)),
            (true, _) if arguments.slot.is_some() || !config.object.is_given() => {
                let usual = match arguments.purpose.unwrap_or_default() {
                    KeyPurpose::Signing => PivSlot::AUTHENTICATION,
                    KeyPurpose::Unsealing => PivSlot::KEY_MANAGEMENT,
                };
                config.object.id = Some(arguments.slot.unwrap_or(usual).id());
                arguments.slot.is_none()
            }
            _ => false,
        };
        Self::begin(arguments, lock, token, config, pins, is_usual, user)
    }

    /// Logs in for this user.
    fn begin(
        arguments: &'a EnrollArguments,
        lock: LibraryLock,
        mut token: Token,
        config: Config,
        pins: Sources,
        is_usual: bool,
        user: &str,
    ) -> Result<Self, Error> {
        let mut pins = lock.asking_unlocked(&config.library, pins);
        token.log_in_if_required(&format!("to enroll {user}"), &mut pins)?;
        let candidates = token.candidates()?;
        Ok(Self {
            arguments,
            lock,
            token,
            config,
            pins,
            is_usual,
            candidates,
            steps: Vec::new(),
            attestation: None,
        })
    }

    /// Prints the steps that are done.
    pub(super) fn show(&mut self, output: &mut CommandOutput) -> Result<(), Error> {
        self.steps.drain(..).try_for_each(|step| output.step(&step))
    }

    fn lock(&self) -> Result<(), Error> {
        self.lock.acquire(&self.config.library, limits::LOCK, &mut library::note_wait)
    }

    /// Leaves the token.
    pub(super) fn pause(self) -> PausedEnrollment<'a> {
        let Self { arguments, token, config, pins, is_usual, attestation, .. } = self;
        let pins = pins.into_inner();
        let accepted = token.close().map(AcceptedPin::into_pin);
        PausedEnrollment { arguments, config, pins, is_usual, accepted, attestation }
    }

    /// The applicant's key, found or made.
    pub(super) fn key(&mut self, applicant: &Applicant) -> Result<EnrolledKey, Error> {
        let ObjectSelector { id, label } = self.config.object.clone();
        let label = label.unwrap_or_else(|| applicant.user().to_owned());
        if !self.arguments.replace
            && let Some(found) = self.present_key(id.as_ref(), &label)?
        {
            self.check_touch(&found.key.selector)?;
            self.describe_key(&found.key, "on");
            return Ok(found);
        }
        let key = self.make_key(id, &label)?;
        self.check_touch(&key.selector)?;
        self.describe_key(&key, "made on");
        Ok(EnrolledKey { key, is_certified: false })
    }

    /// The key of an applicant that was [found](Self::key) before, without a word.
    pub(super) fn key_again(&mut self, applicant: &Applicant) -> Result<KeyReference, Error> {
        let found = self.key(applicant)?;
        self.steps.clear();
        Ok(found.key)
    }

    /// The key with this CKA_ID or label that the token has; `None` if it has none.
    fn present_key(
        &mut self,
        id: Option<&ObjectId>,
        label: &str,
    ) -> Result<Option<EnrolledKey>, Error> {
        let EnrollArguments { key: kind, pin_policy, touch_policy, .. } = self.arguments;
        let now = unix_time();
        let Some(found) = find_key(&self.candidates, id, label, *kind, now)? else {
            return Ok(None);
        };
        let is_named = id.is_some() && !self.is_usual;
        let is_certified = !is_named && has_valid_certificate(found, now);
        let selector = selector(found);
        if !is_certified && (pin_policy.is_some() || touch_policy.is_some()) {
            let text = format!(
                "the key with {selector} is there, and its PIN and touch policies can't be changed"
            );
            return Err(Error::new(Exit::Object, text).help(
                "leave the policies out to use this key, name another slot with --slot, or have the key \
                 destroyed for a new one with --replace",
            ));
        }
        let key = self.token.bare_key(&selector, Some(&mut self.pins))?;
        Ok(Some(EnrolledKey { key, is_certified }))
    }

    /// Fails if the key is to want a touch, and the token says that it wants none.
    fn check_touch(&self, selector: &ObjectSelector) -> Result<(), Error> {
        if !self.arguments.writes_by_touch {
            return Ok(());
        }
        let token = self.token.name();
        let Some(known) = KeyAttestation::of(&self.token, selector) else {
            report::warning(&format!(
                "token {token} doesn't say whether it wants a touch for the key with {selector}"
            ));
            return Ok(());
        };
        if known.touch_policy() != Some(TouchPolicy::Never) {
            return Ok(());
        }
        let text = format!("token {token} wants no touch for the key with {selector}");
        Err(Error::new(Exit::Object, text).help(
            "name a slot that is free with --slot, or have this key destroyed with --replace",
        ))
    }

    /// Notes the key, which is `on` the token or `made on` it.
    fn describe_key(&mut self, key: &KeyReference, origin: &str) {
        let KeyReference { public_key, label, .. } = key;
        let id = key.selector.id.as_ref().map_or_else(|| "none".to_owned(), ObjectId::to_string);
        let token = self.token.name();
        let text =
            format!("{public_key}, {origin} token {token}, objectId {id}, label \"{label}\"");
        self.steps.push(Step { title: "key", text });
    }

    /// A new key under this CKA_ID, or a free one. What is there is lost only on a YubiKey, and after a typed yes.
    fn make_key(&mut self, id: Option<ObjectId>, label: &str) -> Result<KeyReference, Error> {
        let EnrollArguments { replace: replaces, pin_policy, touch_policy, .. } = *self.arguments;
        let (kind, purpose) =
            (self.arguments.key.unwrap_or_default(), self.arguments.purpose.unwrap_or_default());
        self.token.check_generation(kind, purpose)?;
        let id = match id {
            Some(id) => id,
            None => self.token.unused_id()?,
        };
        let is_in_use = self.token.is_in_use(&id)?;
        if is_in_use && !replaces {
            return Err(id_in_use(&id, &self.token.name()));
        }
        let slot = PivSlot::of_id(&id).filter(|_| self.token.state().is_yubikey());
        let in_slot = slot.map_or_else(String::new, |slot| format!(" in slot {}", slot.name()));
        if is_in_use {
            self.confirm_loss(&id, &in_slot)?;
        }
        let what = format!("for a new key{in_slot}");
        self.token.log_in_to_write(&what, &mut self.pins, &ask)?;
        let new = NewKey { kind, purpose, id: &id, label };
        let is_touched = self.arguments.writes_by_touch && self.token.state().is_yubikey();
        let usual_touch = if is_touched { SlotPolicy::of_touch("always") } else { None };
        let touch_policy = touch_policy.or(usual_touch);
        let options = SlotOptions { pin_policy, touch_policy, replaces };
        let made = self.token.generate(&new, options)?;
        for promise in &made.unconfirmed {
            report::warning(&format!("the token does not confirm of the new key that {promise}"));
        }
        Ok(made.key)
    }

    /// Has a person confirm that the key with this CKA_ID is lost, which is in this slot.
    fn confirm_loss(&self, id: &ObjectId, in_slot: &str) -> Result<(), Error> {
        let lost = self.candidates.iter().find(|candidate| candidate.id == id.as_bytes());
        let key = lost.and_then(|candidate| candidate.key.as_ref());
        let kind = key.map_or("", |key| &key.kind);
        let certificate = match lost.and_then(Candidate::certificate) {
            Some(certificate) => format!(", which has a certificate of {}", certificate.subject),
            None => String::new(),
        };
        let token = self.token.name();
        let what = format!("the {kind} key{in_slot} of token {token}{certificate}");
        confirm(&what, &printable(&format!("Destroy {what}")))
    }

    /// The certificate that was issued, beside its key, whose private key is there with it.
    pub(super) fn install_issued(&mut self, issued: &IssuedCertificate) -> Result<(), Error> {
        let user = issued.certificate.user.as_deref().unwrap_or_default();
        let public_key = issued.certificate.public_key();
        let key = self.token.key_of(public_key, &issued.origin, Some(&mut self.pins))?;
        self.token.key(key.clone(), &mut self.pins)?;
        // Whose the key is was chosen when it was made.
        let is_labelled = self.config.object.label.is_none() && !self.token.state().is_yubikey();
        if self.arguments.user.is_none() && key.label != user && is_labelled {
            let label = format!("\"{}\", as the key is labelled", key.label);
            return Err(for_another(&format!("user \"{user}\""), &label));
        }
        self.install(issued, &key).map(drop)
    }

    /// Has the token say of the key where it was made, for the request to a cluster, unless that isn't wanted. The
    /// applicant, in the groups that this opens if they are.
    pub(super) fn attest(
        &mut self,
        key: &KeyReference,
        applicant: &Applicant,
    ) -> Result<Applicant, Error> {
        if let Some(file) = &self.arguments.attestation {
            self.attestation = Some(attestation_from_file(file, &key.public_key)?);
        } else if !self.arguments.no_attestation {
            self.attestation = KeyAttestation::of(&self.token, &key.selector);
        }
        let Some(known) = &self.attestation else {
            if !self.arguments.hardware_groups {
                return Ok(applicant.clone());
            }
            let token = self.token.name();
            let text =
                format!("token {token} doesn't say that it has made the key with {}", key.selector);
            return Err(Error::new(Exit::Object, text).help(
                "leave --hardware-groups out, or have a YubiKey behind Yubico's library (libykcs11.so) make the key; behind \
                 another library, name with --attestation what `ykman piv keys attest` has written",
            ));
        };
        self.steps.push(Step { title: "attestation", text: known.disclosure() });
        if self.arguments.hardware_groups {
            Ok(applicant.also_in(&known.groups()))
        } else {
            Ok(applicant.clone())
        }
    }

    pub(super) fn sign_request(
        &mut self,
        applicant: &Applicant,
        key: &KeyReference,
    ) -> Result<String, Error> {
        self.lock()?;
        let (token, pins) = (&mut self.token, &mut self.pins);
        let open = token.key(key.clone(), pins)?;
        let schemes = token.tls_schemes(&key.public_key)?;
        let request = sign_request(
            self.arguments.purpose.unwrap_or_default(),
            self.attestation.as_ref().map(|known| &known.bundle),
            applicant,
            &key.public_key,
            &token.allowed_schemes(&open, &schemes)?,
            |scheme, digest| token.sign(&open, scheme, digest, pins),
        );
        self.lock.release();
        request
    }

    /// Writes the certificate beside its key, and removes those that it replaces then. The file that it is in, if the
    /// token doesn't take it, or not those of the CAs.
    pub(super) fn install(
        &mut self,
        issued: &IssuedCertificate,
        key: &KeyReference,
    ) -> Result<Option<PathBuf>, Error> {
        self.lock()?;
        let certificate = &issued.certificate;
        let mut placement = self.placement(certificate)?;
        if !placement.replaced.is_empty() {
            let what = replacement(&self.token.name(), key, &placement.replaced);
            confirm(&what, &printable(&format!("Replace {what}")))?;
        }
        if placement.why_in_file.is_none() && !placement.is_there {
            self.write(issued, key, &mut placement)?;
        }
        let mut location = "beside the key".to_owned();
        let mut kept = None;
        if let Some(reason) = &placement.why_in_file {
            let in_use = self.config.certificate_file.as_deref();
            let path = issued.keep(self.named_file().or(in_use))?;
            location = format!("in {}", path.display());
            report::note(&format!("{reason}; the issued one is {location}, with those above it"));
            kept = Some(path);
        }
        self.steps.push(describe(certificate, &location));
        if !placement.is_there && kept.is_none() {
            for authority in intermediates(certificate, &issued.chain) {
                let text = format!("of the CA {}, on the token, too", authority.subject);
                self.steps.push(Step { title: "certificate", text });
            }
        }
        // The new one is there and was read.
        for old in &placement.replaced {
            self.token.remove_certificate(old, certificate)?;
            let number = &old.serial_number;
            let text = format!("the certificate with serial number {number}");
            self.steps.push(Step { title: "removed", text });
        }
        Ok(kept)
    }

    /// The file that the options name for the certificate.
    fn named_file(&self) -> Option<&Path> {
        self.arguments.key_options.certificate_file.as_deref().map(Path::new)
    }

    /// Where the certificate is to be, as far as that is known before it is written.
    fn placement(&self, certificate: &Certificate) -> Result<Placement, Error> {
        if self.config.certificate_file.is_some() {
            return Ok(Placement::in_file("the context has its certificate in a file".to_owned()));
        }
        if self.token.state().is_piv_of_opensc() {
            let token = self.token.name();
            let reason = format!("OpenSC writes nothing to a PIV card such as token {token}");
            return Ok(Placement::in_file(reason));
        }
        let replaces = self.arguments.replace;
        match installation(&self.candidates, certificate, replaces, unix_time()) {
            Ok(Installation { is_there, replaced }) => {
                let replaced = replaced.into_iter().cloned().collect();
                Ok(Placement { why_in_file: None, is_there, replaced })
            }
            // Another cluster can want the other one: for this one it needn't go.
            Err(error) if self.arguments.certificate.is_none() => {
                Ok(Placement::in_file(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the certificate beside its key, or notes why it is to be in a file.
    fn write(
        &mut self,
        issued: &IssuedCertificate,
        key: &KeyReference,
        placement: &mut Placement,
    ) -> Result<(), Error> {
        match issued.write(&mut self.token, key, &mut self.pins) {
            Ok(true) => {}
            Ok(false) => {
                placement.why_in_file = Some(format!(
                    "token {} has no room for the certificates of CAs, which a server may need",
                    self.token.name()
                ));
            }
            Err(error) => {
                // A file that was named takes it whatever the token says of it.
                let may_be_kept = self.named_file().is_some() && error.exits_with(Exit::Object);
                if !may_be_kept && !error.is(&kind::CERTIFICATE_REFUSED) {
                    return Err(error);
                }
                *placement = Placement::in_file(error.to_string());
            }
        }
        Ok(())
    }

    /// The newest certificate of the key, for this user if one is given, as a line; or why nothing is left to do for the
    /// key.
    pub(super) fn installed(&self, key: &KeyReference, user: Option<&str>) -> Result<Step, Error> {
        // By the public key: ykcs11 labels the certificate and its key differently.
        let certificates = of_key(&self.candidates, &key.public_key).into_iter();
        let newest = certificates.max_by_key(|certificate| certificate.validity.not_after);
        let certified_user = newest.and_then(|certificate| certificate.user.as_deref());
        if let Some(newest) = newest
            && user.is_some()
            && certified_user == user
        {
            return Ok(describe(newest, "beside the key"));
        }
        let end = newest.map(|certificate| minute(certificate.validity.not_after));
        let text = format!(
            "the key with {} has a certificate for user \"{}\" that is valid until {}",
            key.selector,
            certified_user.unwrap_or_default(),
            end.unwrap_or_default()
        );
        let help = Help::from(format!("use it as it is, or have it renewed with `{PROGRAM} renew"))
            .and(HelpPart::Key)
            .and(
                "`; for another request for this key name the key with --object-id, for another key a free --object-id",
            );
        Err(Error::new(Exit::Object, text).help(help))
    }
}

impl<'a> PausedEnrollment<'a> {
    /// The PIN for the token's next session, if the token has accepted one.
    pub(super) fn accepted_pin(&self) -> Option<Pin> {
        self.accepted.as_ref().map(Pin::duplicate)
    }

    /// Takes the enrollment up again, with another login.
    pub(super) fn resume(
        self,
        user: &str,
        session: &mut CommandSession,
    ) -> Result<Enrollment<'a>, Error> {
        let Self { arguments, config, mut pins, is_usual, accepted, attestation } = self;
        pins.accepted(accepted);
        let (lock, token) = open_token(&config, session)?;
        let begun = Enrollment::begin(arguments, lock, token, config, pins, is_usual, user)?;
        Ok(Enrollment { attestation, ..begun })
    }
}

/// The token of this configuration, with a session in which it can be changed.
fn open_token(
    config: &Config,
    session: &mut CommandSession,
) -> Result<(LibraryLock, Token), Error> {
    let library = session.open(config)?;
    let found = library.module.find_token(&config.token)?;
    let token = Token::with_session(&library.module, found, SessionAccess::ReadWrite)?;
    Ok((library.lock.clone(), token))
}

fn is_no_yubikey(option: &str, token: &Token) -> Error {
    let token = token.name();
    let text = format!("{option} is for YubiKeys behind ykcs11, and token {token} is none");
    Error::new(Exit::Object, text)
        .help("leave it out, or name Yubico's library (libykcs11.so) with --module")
}

/// Fails if an option is for YubiKeys and the token is none. The library is closed again.
pub(super) fn check_options(
    arguments: &EnrollArguments,
    config: &Config,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let (_, token) = open_token(config, session)?;
    let option = arguments.of_yubikeys().filter(|_| !token.state().is_yubikey());
    let refused = option.map(|option| is_no_yubikey(option, &token));
    token.close();
    session.close_library();
    refused.map_or(Ok(()), Err)
}

/// What the options say of library, token and object, with the library or token that they don't name. A library that is
/// looked at alone stays open.
pub(super) fn choose(
    options: &KeyOptions,
    key: Option<&PublicKey>,
    session: &mut CommandSession,
) -> Result<Config, Error> {
    let (named, mut map) = (options.filter()?, options.configuration());
    if named.library.is_none() || !named.token.is_given() {
        // Whatever key.
        let listing = options.of_token().look(None, session)?;
        let found = found_token(&listing, key)?;
        map = found.pairs().chain(map.pairs()).collect();
    }
    // That of the new one, if the token doesn't take it.
    drop(map.take("certificateFile"));
    Config::of_token(&mut map)
}

/// The token that is found on this machine, shows this key, or is picked, with its library.
fn found_token(listing: &Listing, key: Option<&PublicKey>) -> Result<Configuration, Error> {
    let fingerprint = key.map(fingerprint).transpose()?;
    // One that takes no key, and has none, can't be meant.
    let is_of_use = |token: &TokenEntry| !(token.write_protected && token.is_bare());
    let readable =
        || listing.tokens().filter(|(_, token)| token.error.is_none() && is_of_use(token));
    let shows_key = |token: &TokenEntry| {
        key.is_some() && token.keys.iter().any(|shown| shown.fingerprint == fingerprint)
    };
    let mut tokens: Vec<_> = readable().filter(|(_, token)| shows_key(token)).collect();
    if tokens.is_empty() {
        // It may be the one that is meant.
        if let Some(busy) = listing.busy() {
            return Err(busy);
        }
        tokens = readable().collect();
    }
    let (library, token) = match tokens.as_slice() {
        [] => {
            let blank = listing.libraries.iter().find_map(LibraryEntry::blank);
            return Err(blank.unwrap_or_else(|| {
                Error::new(Exit::Token, "no token was found").help(
                    "insert it, or name its library with --module; `pkcs11-external-signer list` shows what was \
                     looked at",
                )
            }));
        }
        [only] => *only,
        several => {
            let options: Vec<_> = several
                .iter()
                .map(|(library, token)| token_options(library, token).trim_start().to_owned())
                .collect();
            let picked = pick("Which token?", &options).and_then(|index| several.get(index));
            *picked.ok_or_else(|| {
                Error::new(Exit::Token, format!("{} tokens can be meant", several.len()))
                    .help(Help::from("name one with these options:").with_candidates(&options))
            })?
        }
    };
    Ok(token_configuration(library, token))
}

/// What is asked for a yes.
fn replacement(token: &str, key: &KeyReference, replaced: &[Certificate]) -> String {
    let described: Vec<_> = replaced
        .iter()
        .map(|old| {
            let until = minute(old.validity.not_after);
            format!("{}, serial number {}, until {until}", old.subject, old.serial_number)
        })
        .collect();
    let key = &key.selector;
    format!("the certificate of the key with {key} on token {token} ({})", described.join("; "))
}

/// A certificate and where it is, in one line.
fn describe(certificate: &Certificate, location: &str) -> Step {
    let user = certificate.user.as_deref().unwrap_or_default();
    let text = format!(
        "user {user:?}, {}, expires {}, issued by {}, {location}",
        in_groups(&certificate.groups),
        minute(certificate.validity.not_after),
        certificate.issuer_text
    );
    Step { title: "certificate", text }
}
