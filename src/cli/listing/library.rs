//! One library, looked at in this process.

use super::document::{PinEntry, nameable};
use super::{CertificateEntry, ErrorEntry, KeyEntry, KeyNote, LibraryEntry, TokenEntry};
use crate::cli::session::CommandSession;
use crate::enrollment::fingerprint;
use config::pin::CANCELLED;
use config::pin::PinProvider as _;
use config::{Filter, ObjectId, ObjectSelector, TokenName, TokenSelector, TrustedLibrary, Uri};
use crypto::certificate::{Certificate, ValidityState, minute, rfc_3339};
use keyring::library::{self, Library};
use messages::error::{Error, Exit};
use messages::help::Help;
use pin_entry::Sources;
use system::clock::unix_time;
use system::limits;
use token::{
    Candidate, OccupiedSlot, PinState, Standing, Token, TokenState, nss_directory, without_password,
};

/// Lists what the library shows. It stays open in the session, to be finalised when the answer is out. `path` is the
/// library's path as it was given: links in it are not followed, since their targets often have a version in their
/// names. Without `pins`, private objects aren't seen, except in a token that is `open`.
pub(in crate::cli) fn list_library(
    path: &str,
    trusted: &TrustedLibrary,
    filter: &Filter,
    mut pins: Option<Sources>,
    open: Option<&Token>,
    session: &mut CommandSession,
) -> Result<LibraryEntry, Error> {
    let init_args = filter.init_args.as_deref();
    let library = session.open_within(limits::LISTING_LOCK, trusted, init_args)?;
    let slots = library.module.occupied_slots()?;
    let nss_directory = init_args.and_then(nss_directory);
    let chosen = meant_slots(&slots, filter, nss_directory.is_some());
    if let Some(pins) = &mut pins {
        keep_for_one(pins, &chosen)?;
    }
    let states = slots.iter().filter_map(|slot| slot.token.as_ref().ok());
    let look = LibraryLook {
        path,
        library,
        trusted,
        wanted: &filter.object,
        nss_directory: nss_directory.as_deref(),
        initialized: states.filter(|state| state.initialized).collect(),
        open,
    };
    let mut tokens = Vec::new();
    for slot in chosen {
        tokens.push(look.slot(slot, pins.as_mut())?);
    }
    Ok(LibraryEntry {
        path_lib: path.to_owned(),
        init_args: init_args.map(|text| text.to_string_lossy().into_owned()),
        error: None,
        empty_slots: slots.is_empty().then(|| library.module.empty_slots()),
        uninitialized_slots: look.slots_without_use(&slots),
        tokens,
    })
}

/// The slots whose token is meant and can be used, and those that can't be read. NSS's tokens can be used without being
/// initialised.
fn meant_slots<'a>(
    slots: &'a [OccupiedSlot],
    filter: &Filter,
    is_nss: bool,
) -> Vec<&'a OccupiedSlot> {
    let is_meant = |slot: &&OccupiedSlot| match &slot.token {
        Ok(state) => (state.initialized || is_nss) && state.fits(&filter.token),
        Err(_) => true,
    };
    slots.iter().filter(is_meant).collect()
}

/// Refuses a stored PIN for several tokens: it belongs to one, and would cost each of the others a try. If there is
/// neither a person nor a stored PIN, each token has that as its error.
fn keep_for_one(pins: &mut Sources, chosen: &[&OccupiedSlot]) -> Result<(), Error> {
    let states = chosen.iter().filter_map(|slot| slot.token.as_ref().ok());
    let wants_pin = |state: &&TokenState| state.initialized && state.login_required;
    let found: Vec<_> = states.filter(wants_pin).map(|state| state.name.clone()).collect();
    if found.len() < 2 || pins.origin().is_attended() {
        return Ok(());
    }
    let text = format!(
        "this PIN would be sent to {} tokens, and count as a wrong try on all but one",
        found.len()
    );
    let help = Help::from("name its token with --token-serial, --token-label or --slot-id:");
    Err(Error::new(Exit::Token, text).help(help.with_candidates(&found)))
}

/// A library that is looked at, and what is needed to list its tokens.
struct LibraryLook<'a> {
    /// The library's path as it was given.
    path: &'a str,
    library: &'a Library,
    trusted: &'a TrustedLibrary,
    /// The objects that are to be listed.
    wanted: &'a ObjectSelector,
    /// The directory of NSS's databases, if the library is NSS. One without a password is a token that isn't initialised.
    nss_directory: Option<&'a str>,
    /// All initialised tokens, even those that aren't looked at: all tokens of a TPM have the same serial number.
    initialized: Vec<&'a TokenState>,
    /// A token that is open already, and may be logged in.
    open: Option<&'a Token>,
}

/// What was seen of a token's objects.
struct SeenObjects {
    candidates: Vec<Candidate>,
    /// Why some objects were not seen, if that is so.
    error: Option<Error>,
}

impl SeenObjects {
    /// Nothing was seen of a token that couldn't be looked at.
    fn none(error: Error) -> Self {
        Self { candidates: Vec::new(), error: Some(error) }
    }
}

impl LibraryLook<'_> {
    /// The entry of the token in the slot. What can't be seen of it is noted there. An error only if the token that is
    /// open can't be read.
    fn slot(&self, slot: &OccupiedSlot, pins: Option<&mut Sources>) -> Result<TokenEntry, Error> {
        let state = match &slot.token {
            Ok(state) => state,
            Err(error) => {
                return Ok(TokenEntry {
                    name: TokenName { slot: slot.slot, ..TokenName::default() },
                    error: Some(ErrorEntry::from(error)),
                    ..TokenEntry::default()
                });
            }
        };
        if let Some(directory) = self.nss_directory
            && !state.initialized
        {
            return Ok(TokenEntry {
                name: state.name.clone(),
                login_required: state.login_required,
                error: Some(ErrorEntry::from(&without_password(&state.name, directory))),
                ..TokenEntry::default()
            });
        }
        let is_logged_in = pins.is_some();
        let seen = match self.open.filter(|open| open.state().name.slot == slot.slot) {
            Some(open) => SeenObjects { candidates: open.candidates()?, error: None },
            None => self.see(state, pins).unwrap_or_else(SeenObjects::none),
        };
        Ok(self.token(state, seen, is_logged_in))
    }

    /// Reads what the token shows, after a login if there are `pins`.
    fn see(&self, state: &TokenState, pins: Option<&mut Sources>) -> Result<SeenObjects, Error> {
        let selector = TokenSelector { slot: Some(state.name.slot), ..TokenSelector::default() };
        let mut token = self.library.token(&selector)?;
        let Some(pins) = pins else {
            let candidates = token.candidates();
            // A login would stay for whoever opens the token next, and a read-only session keeps some libraries from
            // writing.
            token.close();
            return Ok(SeenObjects { candidates: candidates?, error: None });
        };
        let lock = &self.library.lock;
        let mut pins = lock.asking_unlocked(self.trusted, pins);
        let error = match token.log_in_if_required("to see its private objects", &mut pins) {
            Err(error) if error.is(&CANCELLED) => {
                // The lock is needed for the tokens that are still to be looked at.
                lock.acquire(self.trusted, limits::LISTING_LOCK, &mut library::note_wait)?;
                return Err(error);
            }
            login => login.err(),
        };
        lock.acquire(self.trusted, limits::LISTING_LOCK, &mut library::note_wait)?;
        Ok(SeenObjects { candidates: token.candidates()?, error })
    }

    /// The token's entry, with what tells it from the library's other tokens, and with the keys that were seen.
    fn token(&self, state: &TokenState, seen: SeenObjects, is_logged_in: bool) -> TokenEntry {
        let SeenObjects { candidates, error } = seen;
        let is_shut = matches!(state.pin, PinState::Locked | PinState::ToBeChanged);
        let sees_all = error.is_none() && (is_logged_in || !state.login_required);
        let mut token = self.token_without_keys(state, error.as_ref());
        for candidate in candidates {
            // A CA's certificate may belong to a hidden key, so it is listed if it is asked for.
            if candidate.is_authority && !self.wanted.is_given() {
                token.ca_certificates += 1;
                continue;
            }
            let notes = notes(&candidate, sees_all);
            let usable = !is_shut && !notes.iter().any(KeyNote::is_grave);
            let uri = key_uri(&token, &candidate, self.path);
            let key = key_entry(candidate, uri, notes, usable);
            if key.fits(self.wanted) {
                token.keys.push(key);
            }
        }
        token
    }

    /// The token's entry, with what tells it from the library's other tokens.
    fn token_without_keys(&self, state: &TokenState, error: Option<&Error>) -> TokenEntry {
        let TokenName { serial, label, .. } = &state.name;
        let of_serial: Vec<_> =
            self.initialized.iter().filter(|other| other.name.serial == *serial).collect();
        let of_both = of_serial.iter().filter(|other| other.name.label == *label).count();
        TokenEntry {
            name: state.name.clone(),
            login_required: state.login_required,
            write_protected: state.write_protected,
            needs_label: of_both < of_serial.len(),
            needs_slot_id: of_both > 1,
            pin: PinEntry::Read(state.pin),
            error: error.map(ErrorEntry::from),
            ..TokenEntry::default()
        }
    }

    /// The slots of the tokens if none is initialised, so that none can be used. NSS's tokens can be used without that.
    fn slots_without_use(&self, slots: &[OccupiedSlot]) -> Vec<u64> {
        let is_uninitialized =
            |slot: &OccupiedSlot| matches!(&slot.token, Ok(state) if !state.initialized);
        if self.nss_directory.is_none() && slots.iter().all(is_uninitialized) {
            slots.iter().map(|slot| slot.slot).collect()
        } else {
            Vec::new()
        }
    }
}

/// The URI that names the key and no other one; `None` if none can.
fn key_uri(token: &TokenEntry, candidate: &Candidate, path: &str) -> Option<String> {
    if is_unnameable(candidate) {
        return None;
    }
    let [label, serial] = [&token.name.label, &token.name.serial].map(|text| nameable(text));
    let uri = Uri::of([
        ("token", Some(label.to_owned())),
        ("serial", Some(serial.to_owned())),
        ("slot-id", token.needs_slot(label, serial).then(|| token.name.slot.to_string())),
        ("id", object_id(candidate)),
        ("object", candidate.standing.needs_label().then(|| candidate.label.clone())),
        ("module-path", Some(path.to_owned())),
    ]);
    Some(uri.to_string())
}

/// Whether only the label could name the object, and can't be written down.
fn is_unnameable(candidate: &Candidate) -> bool {
    candidate.standing.needs_label() && nameable(&candidate.label).is_empty()
}

/// The CKA_ID in the form of `objectId`; `None` if there is none.
fn object_id(candidate: &Candidate) -> Option<String> {
    let id = ObjectId::from_bytes(candidate.id.clone());
    (!candidate.id.is_empty()).then(|| id.to_string())
}

/// The entry of a certificate and its key, or of one of the two. `uri` names it, if anything does.
fn key_entry(
    candidate: Candidate,
    uri: Option<String>,
    notes: Vec<KeyNote>,
    usable: bool,
) -> KeyEntry {
    let object_id = object_id(&candidate);
    let needs_label = candidate.standing.needs_label();
    let certificate = candidate.certificate.and_then(Result::ok);
    let kind = match (&certificate, candidate.key) {
        (Some(certificate), _) => certificate.public_key().to_string(),
        (None, Some(key)) => key.kind,
        (None, None) => String::new(),
    };
    KeyEntry {
        object_id,
        object_label: candidate.label,
        kind,
        fingerprint: candidate.public_key.and_then(|key| fingerprint(&key).ok()),
        certificate: certificate.as_ref().map(CertificateEntry::from),
        usable,
        notes,
        uri: uri.unwrap_or_default(),
        needs_label,
    }
}

/// What there is to say of a certificate and its key. With `sees_all`, a private key that isn't shown doesn't exist.
fn notes(candidate: &Candidate, sees_all: bool) -> Vec<KeyNote> {
    let mut notes = match &candidate.certificate {
        None => vec![KeyNote::NoCertificate],
        // The text is the one that a request would have as its error.
        Some(Err(error)) => vec![KeyNote::UnusableCertificate(error.to_string())],
        Some(Ok(certificate)) => certificate_notes(certificate, candidate),
    };
    let key = candidate.key.as_ref();
    if key.is_some_and(|key| key.always_authenticate) {
        notes.push(KeyNote::PinPerSignature);
    }
    if key.is_some_and(|key| key.is_private && !key.can_sign) {
        notes.push(KeyNote::NotForSigning);
    }
    if sees_all && !key.is_some_and(|key| key.is_private) {
        notes.push(KeyNote::NoPrivateKey);
    }
    if is_unnameable(candidate) {
        notes.push(KeyNote::Unnameable);
    }
    notes
}

/// What there is to say of the candidate's certificate, if that can be used.
fn certificate_notes(certificate: &Certificate, candidate: &Candidate) -> Vec<KeyNote> {
    let mut notes = Vec::new();
    match certificate.validity.at(unix_time()) {
        ValidityState::NotYetValid => notes.push(KeyNote::NotYetValid),
        ValidityState::RenewalDue => notes.push(KeyNote::RenewalDue),
        ValidityState::Expired => notes.push(KeyNote::Expired),
        ValidityState::Valid => {}
    }
    if !certificate.is_for_clients {
        notes.push(KeyNote::NotForClients);
    }
    if certificate.user.is_none() {
        notes.push(KeyNote::NoUser);
    }
    if candidate.is_contradicted {
        notes.push(KeyNote::OtherKey);
    }
    match candidate.standing {
        Standing::Superseded { .. } => notes.push(KeyNote::Superseded),
        Standing::Ambiguous => notes.push(KeyNote::Ambiguous),
        Standing::ById | Standing::ByLabel => {}
    }
    notes
}

impl From<&Certificate> for CertificateEntry {
    fn from(certificate: &Certificate) -> Self {
        let validity = certificate.validity;
        Self {
            subject: certificate.subject.clone(),
            user: certificate.user.clone(),
            groups: certificate.groups.clone(),
            issuer: certificate.issuer_text.clone(),
            serial_number: certificate.serial_number.clone(),
            credential_id: certificate.credential_id(),
            not_before: rfc_3339(validity.not_before),
            not_after: rfc_3339(validity.not_after),
            expires: minute(validity.not_after),
        }
    }
}
