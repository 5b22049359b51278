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

/// What the library shows. It stays open in the session, to be finalised when the answer is out.
/// `path` is the library's path as it was given: links in it are not followed, since their targets
/// often have a version in their names. Without `pins`, private objects aren't seen, but in a token that is `open`.
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
    let nss = init_args.and_then(nss_directory);
    let chosen: Vec<_> = slots
        .iter()
        .filter(|slot| match &slot.token {
            Ok(state) => (state.initialized || nss.is_some()) && state.fits(&filter.token),
            Err(_) => true,
        })
        .collect();
    if let Some(pins) = &mut pins {
        keep_for_one(pins, &chosen)?;
    }
    // Among all tokens, even those that aren't looked at: TPMs have the same serial for each.
    let states = slots.iter().filter_map(|slot| slot.token.as_ref().ok());
    let states: Vec<_> = states.filter(|state| state.initialized).collect();
    let tokens = chosen.into_iter().map(|slot| match (&slot.token, &nss) {
        (Ok(state), Some(directory)) if !state.initialized => Ok(TokenEntry {
            name: state.name.clone(),
            login_required: state.login_required,
            error: Some(ErrorEntry::from(&without_password(&state.name, directory))),
            ..TokenEntry::default()
        }),
        (Ok(state), _) => {
            let shown = match open.filter(|it| it.state().name.slot == slot.slot) {
                Some(token) => Ok((token.candidates()?, None)),
                None => shown(library, trusted, state, pins.as_mut()),
            };
            Ok(entry(state, &states, shown, &filter.object, pins.is_some(), path))
        }
        (Err(error), _) => Ok(TokenEntry {
            name: TokenName { slot: slot.slot, ..TokenName::default() },
            error: Some(ErrorEntry::from(error)),
            ..TokenEntry::default()
        }),
    });
    let is_uninitialized = |slot: &OccupiedSlot| matches!(&slot.token, Ok(it) if !it.initialized);
    let has_no_usable_token = nss.is_none() && slots.iter().all(is_uninitialized);
    let uninitialized = slots.iter().filter(|_| has_no_usable_token);
    Ok(LibraryEntry {
        path_lib: path.to_owned(),
        init_args: init_args.map(|it| it.to_string_lossy().into_owned()),
        error: None,
        empty_slots: slots.is_empty().then(|| library.module.empty_slots()),
        uninitialized_slots: uninitialized.map(|slot| slot.slot).collect(),
        tokens: tokens.collect::<Result<_, Error>>()?,
    })
}

/// Refuses a stored PIN for several tokens: it belongs to one and would cost each of the others a
/// try. Without a person and a stored PIN, the error of each token says that there is none.
fn keep_for_one(pins: &mut Sources, chosen: &[&OccupiedSlot]) -> Result<(), Error> {
    let states = chosen.iter().filter_map(|slot| slot.token.as_ref().ok());
    let wants_pin = |state: &&TokenState| state.initialized && state.login_required;
    let found: Vec<_> = states.filter(wants_pin).map(|state| state.name.clone()).collect();
    match found.len() > 1 && !pins.origin().is_attended() {
        true => {
            let text = format!(
                "this PIN would be sent to {} tokens, and count as a wrong try on all but one",
                found.len()
            );
            let help =
                Help::from("name its token with --token-serial, --token-label or --slot-id:");
            Err(Error::new(Exit::Token, text).help(help.with_candidates(&found)))
        }
        false => Ok(()),
    }
}

/// What the token shows, and why that isn't everything.
fn shown(
    library: &Library,
    trusted: &TrustedLibrary,
    state: &TokenState,
    pins: Option<&mut Sources>,
) -> Result<(Vec<Candidate>, Option<Error>), Error> {
    let selector = TokenSelector { slot: Some(state.name.slot), ..TokenSelector::default() };
    let mut token = library.token(&selector)?;
    let logs_in = pins.is_some();
    let mut refused = None;
    if let Some(pins) = pins {
        let mut pins = library.lock.asking_unlocked(trusted, pins);
        refused = token.log_in_if_required("to see its private objects", &mut pins).err();
        // A person who gives up is done with all tokens, not with one.
        if let Some(error) = refused.take_if(|error| error.is(&CANCELLED)) {
            return Err(error);
        }
        library.lock.acquire(trusted, limits::LISTING_LOCK, &mut library::note_wait)?;
    }
    let candidates = token.candidates();
    // A login stays for whoever opens the token next; a read-only session keeps some libraries from writing.
    if !logs_in {
        token.close();
    }
    Ok((candidates?, refused))
}

/// The token with what names it among all of the library's, and the keys it shows.
fn entry(
    state: &TokenState,
    all: &[&TokenState],
    shown: Result<(Vec<Candidate>, Option<Error>), Error>,
    wanted: &ObjectSelector,
    is_logged_in: bool,
    path: &str,
) -> TokenEntry {
    let (candidates, error) = shown.unwrap_or_else(|error| (Vec::new(), Some(error)));
    let is_shut = matches!(state.pin, PinState::Locked | PinState::ToBeChanged);
    let sees_all = error.is_none() && (is_logged_in || !state.login_required);
    let same_serial = all.iter().filter(|it| it.name.serial == state.name.serial);
    let same_label = |it: &&&TokenState| it.name.label == state.name.label;
    let same_both = same_serial.clone().filter(same_label).count();
    let mut token = TokenEntry {
        name: state.name.clone(),
        login_required: state.login_required,
        write_protected: state.write_protected,
        needs_label: same_both < same_serial.count(),
        needs_slot_id: same_both > 1,
        pin: PinEntry::Read(state.pin),
        error: error.as_ref().map(ErrorEntry::from),
        ..TokenEntry::default()
    };
    for candidate in candidates {
        // A hidden key may belong to a CA's certificate, so one that is asked for is listed.
        if candidate.is_authority && !wanted.is_given() {
            token.ca_certificates += 1;
            continue;
        }
        let notes = notes(&candidate, sees_all);
        let usable = !is_shut && !notes.iter().any(KeyNote::is_grave);
        let uri = key_uri(&token, &candidate, path);
        let key = key_entry(candidate, uri, notes, usable);
        if key.fits(wanted) {
            token.keys.push(key);
        }
    }
    token
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

/// Whether it needs its label, and that can't be written down.
fn is_unnameable(candidate: &Candidate) -> bool {
    candidate.standing.needs_label() && nameable(&candidate.label).is_empty()
}

/// CKA_ID as `objectId` has it; `None` without one.
fn object_id(candidate: &Candidate) -> Option<String> {
    let id = ObjectId::from_bytes(candidate.id.clone());
    (!candidate.id.is_empty()).then(|| id.to_string())
}

/// The certificate and its key, or one of the two. `uri` names it, if anything does.
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

/// What there is to say of a certificate and its key. `sees_all`: a private key that isn't shown isn't there.
fn notes(candidate: &Candidate, sees_all: bool) -> Vec<KeyNote> {
    let mut notes = match &candidate.certificate {
        None => vec![KeyNote::NoCertificate],
        // As a sentence with the words of the error that a request would have.
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

/// What there is to say of the candidate's certificate, which can be used.
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
