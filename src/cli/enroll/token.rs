//! What is done with the token: its keys, a new one, the signature of a request, a certificate.

use std::path::{Path, PathBuf};

use super::EnrollArguments;
use super::piv::PivOptions;
use crate::certificate::{Certificate, minute};
use crate::cli::issuance::IssuedCertificate;
use crate::cli::question::confirm;
use crate::config::{Config, ObjectId, TokenName};
use crate::enrollment::{
    Applicant, KeyWish, find_key, fingerprint, has_valid_certificate, installation, of_key,
    selector, sign_request,
};
use crate::error::{Error, Exit, Kind, PROGRAM, THIS_KEY};
use crate::library::{self, Library, LibraryLock};
use crate::pin_entry::{Sources, ask_hidden};
use crate::printable::{printable, quoted};
use crate::process::{lock, unix_time};
use crate::report;
use crate::token::{
    AcceptedPin, Candidate, KeyPurpose, KeyReference, NewKey, PivSlot, SessionAccess, Token,
    id_in_use,
};

/// The token that a key is enrolled on, with a session in which it can be changed.
pub(super) struct EnrollmentToken {
    lock: LibraryLock,
    token: Token,
    config: Config,
    pins: Sources,
    piv: PivOptions,
    purpose: KeyPurpose,
    /// The CKA_ID of the configuration is that of the slot that a YubiKey has for this.
    is_usual: bool,
}

impl EnrollmentToken {
    pub(super) fn open(
        library: &Library,
        mut config: Config,
        pins: Sources,
        piv: &PivOptions,
        purpose: KeyPurpose,
    ) -> Result<Self, Error> {
        let found = library.module.find_token(&config.token)?;
        let token = Token::with_session(&library.module, found, SessionAccess::ReadWrite)?;
        let is_usual = match (token.state().is_yubikey(), piv.given()) {
            (false, Some(option)) => {
                return Err(not_a_yubikey(option, &token));
            }
            (true, _) if piv.slot.is_some() || !config.object.is_given() => {
                let usual = match purpose {
                    KeyPurpose::Signing => PivSlot::AUTHENTICATION,
                    KeyPurpose::Unsealing => PivSlot::KEY_MANAGEMENT,
                };
                config.object.id = Some(piv.slot.unwrap_or(usual).id());
                piv.slot.is_none()
            }
            _ => false,
        };
        let piv = piv.clone();
        Ok(Self { lock: library.lock.clone(), token, config, pins, piv, purpose, is_usual })
    }

    pub(super) fn name(&self) -> &TokenName {
        &self.token.state().name
    }

    /// Lets others use the library during a wait.
    pub(super) fn unlock(&self) {
        self.lock.release();
    }

    pub(super) fn lock(&self) -> Result<(), Error> {
        self.lock.acquire(&self.config.library, lock::LIMIT, &mut library::note_wait)
    }

    /// The end, and the PIN for the next session.
    pub(super) fn close(self) -> Option<AcceptedPin> {
        self.token.close()
    }

    /// The label of the key, which the options name or the user gives.
    fn label<'a>(&'a self, applicant: &'a Applicant) -> &'a str {
        self.config.object.label.as_deref().unwrap_or_else(|| applicant.user())
    }

    /// The keys and certificates on the token, after a login for this user.
    fn candidates(&mut self, user: &str) -> Result<Vec<Candidate>, Error> {
        self.token.log_in_if_required(&format!("to enroll {user}"), &mut self.pins)?;
        self.token.candidates()
    }

    /// The applicant's key, found or made, and what the token shows; also whether it has a valid certificate and
    /// another one wasn't asked for by its name.
    pub(super) fn key(
        &mut self,
        arguments: &EnrollArguments,
        applicant: &Applicant,
        lines: &mut Vec<String>,
    ) -> Result<(KeyReference, Vec<Candidate>, bool), Error> {
        if arguments.replace && !self.token.state().is_yubikey() {
            return Err(not_a_yubikey("--replace without --certificate", &self.token));
        }
        let candidates = self.candidates(applicant.user())?;
        let label = self.label(applicant).to_owned();
        let id = self.config.object.id.clone();
        let wish = KeyWish { label: &label, id: id.as_ref(), kind: arguments.key };
        let now = unix_time();
        let found = match arguments.replace {
            true => None,
            false => find_key(&candidates, &wish, now)?,
        };
        let (key, is_done, origin) = match found {
            Some(found) => {
                let is_named = id.is_some() && !self.is_usual;
                let is_done = !is_named && has_valid_certificate(found, now);
                let selector = selector(found);
                if !is_done && self.piv.has_policy() {
                    let text = format!(
                        "the key with {selector} is there, and its PIN and touch policies can't be changed"
                    );
                    return Err(Error::new(Exit::Object, text).help(
                        "leave the policies out to use this key, name another slot with --slot, or have the key \
                         destroyed for a new one with --replace",
                    ));
                }
                (self.token.bare_key(&selector, Some(&mut self.pins))?, is_done, "on")
            }
            None => (self.make_key(arguments, id, &label, &candidates)?, false, "made on"),
        };
        let object =
            key.selector.id.as_ref().map_or_else(|| "none".to_owned(), |id| id.to_string());
        lines.push(format!(
            "key: {}, objectId {object}, label \"{}\", {origin} token {}",
            key.public_key,
            key.label,
            self.name()
        ));
        lines.push(format!("fingerprint: SHA-256 {}", fingerprint(&key.public_key)?));
        Ok((key, candidates, is_done))
    }

    /// A new key under this CKA_ID, or a free one. What is there is lost only on a YubiKey, and after a typed yes.
    fn make_key(
        &mut self,
        arguments: &EnrollArguments,
        id: Option<ObjectId>,
        label: &str,
        candidates: &[Candidate],
    ) -> Result<KeyReference, Error> {
        let kind = arguments.key.unwrap_or_default();
        self.token.check_generation(kind, self.purpose)?;
        let id = match id {
            Some(id) => id,
            None => self.token.unused_id()?,
        };
        let is_in_use = self.token.is_in_use(&id)?;
        if is_in_use && !arguments.replace {
            return Err(id_in_use(&id, &self.token.name()));
        }
        let slot = PivSlot::of_id(&id).filter(|_| self.token.state().is_yubikey());
        let in_slot = slot.map_or_else(String::new, |slot| format!(" in slot {}", slot.name()));
        if is_in_use {
            let lost = candidates.iter().find(|it| it.id == id.as_bytes());
            let kind = lost.and_then(|it| it.key.as_ref()).map_or("", |key| &key.kind);
            let certificate = lost.and_then(|it| it.certificate.as_ref()?.as_ref().ok());
            let certificate = certificate
                .map(|it| format!(", which has a certificate of {}", it.subject))
                .unwrap_or_default();
            let token = self.name();
            let what = format!("the {kind} key{in_slot} of token {token}{certificate}");
            confirm(&what, &printable(&format!("Destroy {what}")))?;
        }
        let what = format!("for a new key{in_slot}");
        self.token.log_in_to_write(&what, &mut self.pins, &ask_hidden)?;
        let new = NewKey { kind, purpose: self.purpose, id: &id, label };
        let made = self.token.generate(&new, self.piv.of_new_key(arguments.replace))?;
        for promise in &made.unconfirmed {
            report::warning(&format!("the token does not confirm of the new key that {promise}"));
        }
        Ok(made.key)
    }

    /// The key of a certificate, whose private key is there with it, and what the token shows.
    pub(super) fn key_of(
        &mut self,
        issued: &IssuedCertificate,
    ) -> Result<(KeyReference, Vec<Candidate>), Error> {
        let certificate = &issued.certificate;
        let candidates = self.candidates(certificate.user.as_deref().unwrap_or_default())?;
        let public_key = certificate.public_key();
        let found = self.token.key_of(public_key, &issued.origin, Some(&mut self.pins))?;
        self.token.key(found.clone(), &mut self.pins)?;
        Ok((found, candidates))
    }

    /// Whether the key's label says whose it is: it was chosen when the key was made.
    pub(super) fn is_labelled_by_user(&self) -> bool {
        self.config.object.label.is_none() && !self.token.state().is_yubikey()
    }

    pub(super) fn sign_request(
        &mut self,
        applicant: &Applicant,
        key: &KeyReference,
    ) -> Result<String, Error> {
        let (token, pins) = (&mut self.token, &mut self.pins);
        let open = token.key(key.clone(), pins)?;
        sign_request(self.purpose, applicant, &key.public_key, |scheme, digest| {
            token.sign(&open, scheme, digest, pins)
        })
    }

    /// Writes the certificate beside its key, and removes those that it replaces then. The file that it is in, if the
    /// token doesn't take it, or not those of the CAs.
    pub(super) fn install(
        &mut self,
        arguments: &EnrollArguments,
        issued: &IssuedCertificate,
        key: &KeyReference,
        candidates: &[Candidate],
        lines: &mut Vec<String>,
    ) -> Result<Option<PathBuf>, Error> {
        let certificate = &issued.certificate;
        let in_use = self.config.certificate_file.as_deref();
        let is_opensc = self.token.state().is_piv_of_opensc();
        let mut is_on_token = in_use.is_none() && !is_opensc;
        let (is_there, replaced) = match is_on_token {
            true => installation(candidates, certificate, arguments.replace, unix_time())?,
            false => (false, Vec::new()),
        };
        if !replaced.is_empty() {
            let what = self.replacement(key, &replaced);
            confirm(&what, &printable(&format!("Replace {what}")))?;
        }
        let why_kept = match in_use {
            Some(_) => Some("the context has its certificate in a file".to_owned()),
            None if is_opensc => Some(format!(
                "OpenSC writes nothing to a PIV card such as token {}",
                self.token.name()
            )),
            None if is_there => None,
            None => match issued.write(&mut self.token, key, &mut self.pins) {
                Ok(true) => None,
                Ok(false) => Some(format!(
                    "token {} has no room for the certificates of CAs, which a server may need",
                    self.token.name()
                )),
                Err(error) if error.is(Kind::CertificateRefused) => {
                    is_on_token = false;
                    Some(error.to_string())
                }
                Err(error) => return Err(error),
            },
        };
        let mut location = "beside the key".to_owned();
        let mut kept = None;
        if let Some(reason) = why_kept {
            let file = arguments.key_options.certificate_file.as_deref().map(Path::new);
            let path = issued.keep(file.or(in_use))?;
            location = format!("in {}", path.display());
            report::note(&format!("{reason}; it is {location}, with those above it"));
            kept = Some(path);
        }
        lines.push(describe(certificate, &location));
        if !is_there && kept.is_none() {
            let authorities = issued.authorities().into_iter();
            lines.extend(
                authorities.map(|it| format!("CA certificate: {}, on the token", it.subject)),
            );
        }
        // The new one is there and was read.
        for old in replaced.into_iter().filter(|_| is_on_token) {
            self.token.remove_certificate(old, certificate)?;
            lines.push(format!("removed: certificate with serial number {}", old.serial_number));
        }
        Ok(kept)
    }

    /// What is asked for a yes.
    fn replacement(&self, key: &KeyReference, old: &[&Certificate]) -> String {
        let old = old.iter().map(|it| {
            let until = minute(it.validity.not_after);
            format!("{}, serial number {}, until {until}", it.subject, it.serial_number)
        });
        let (old, key) = (old.collect::<Vec<_>>().join("; "), &key.selector);
        format!("the certificate of the key with {key} on token {} ({old})", self.name())
    }
}

/// The newest certificate of the key.
pub(super) fn newest<'a>(
    candidates: &'a [Candidate],
    key: &KeyReference,
) -> Option<&'a Certificate> {
    // By the public key: ykcs11 labels the certificate and its key differently.
    let certificates = of_key(candidates, &key.public_key).into_iter();
    certificates.max_by_key(|it| it.validity.not_after)
}

/// Why nothing is left to do for this key.
pub(super) fn already_enrolled(candidates: &[Candidate], key: &KeyReference) -> Error {
    let newest = newest(candidates, key);
    let text = format!(
        "the key with {} has a certificate for user \"{}\" that is valid until {}",
        &key.selector,
        newest.and_then(|it| it.user.as_deref()).unwrap_or_default(),
        newest.map_or_else(String::new, |it| minute(it.validity.not_after))
    );
    Error::new(Exit::Object, text).help(format!(
        "use it as it is, or have it renewed with `{PROGRAM} renew{THIS_KEY}`; for another request for this key \
         name the key with --object-id, for another key a free --object-id"
    ))
}

/// A certificate and where it is, in one line.
pub(super) fn describe(certificate: &Certificate, location: &str) -> String {
    let user = certificate.user.as_deref().unwrap_or_default();
    format!(
        "certificate: {}, expires {}, issued by {}, {location}",
        subject_text(user, &certificate.groups),
        minute(certificate.validity.not_after),
        certificate.issuer_text
    )
}

/// As in `user "jane", groups "dev", "ops"`.
pub(super) fn subject_text(user: &str, groups: &[String]) -> String {
    match groups {
        [] => format!("user {user:?}, no groups"),
        [only] => format!("user {user:?}, group {only:?}"),
        several => format!("user {user:?}, groups {}", quoted(several)),
    }
}

/// `option` would do nothing on this token.
fn not_a_yubikey(option: &str, token: &Token) -> Error {
    let token = token.name();
    let text = format!("{option} is for YubiKeys behind ykcs11, and token {token} is none");
    Error::new(Exit::Object, text)
        .help("leave it out, or name Yubico's library (libykcs11.so) with --module")
}
