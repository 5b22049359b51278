//! One library, looked at in this process.

use std::time::Duration;

use super::{CertificateEntry, Fault, Key, Library, Note, Opened, PinState, Token};
use crate::certificate::{Certificate, ValidityState, rfc_3339};
use crate::cli::turn;
use crate::config::{
    Filter, ObjectId, ObjectSelector, PinSource, TokenSelector, TrustedLibrary, Uri,
};
use crate::error::Error;
use crate::pin::{PinError, PinProvider as _};
use crate::pin_entry::{self, Sources};
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::token::{
    self, Candidate, Candidates, Module, OccupiedSlot, Standing, TokenError, TokenState,
};

/// How long another process may keep the library: shorter than the look at it may take, so that
/// who waits for a PIN is named, and not taken for a library that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// How private objects are to be seen.
pub(super) enum Access<'a> {
    /// Not at all.
    Public,
    /// After a login with the PIN from here.
    Login(Option<PinSource>, &'a TakenVariables),
}

/// What the library shows. It stays open in `opened`, to be finalised when the answer is out.
/// `path` is how the library is called: links in it are not followed, since what they lead to has
/// a version in its name.
pub(super) fn look(
    path: &str,
    library: &TrustedLibrary,
    filter: &Filter,
    access: Access<'_>,
    opened: &mut Opened,
) -> Result<Library, Error> {
    let mut pins = match access {
        Access::Public => None,
        Access::Login(source, variables) => {
            Some(Sources::new(source.unwrap_or(PinSource::Prompt), variables))
        }
    };
    let init_args = filter.init_args.as_ref();
    let (module, _) = match opened {
        Some(open) => open,
        None => {
            let turn = turn::take_within(PATIENCE, library)?;
            let module =
                Module::open(library, init_args)?.with_wait_observer(pin_entry::show_after);
            opened.insert((module, turn))
        }
    };
    let slots = module.occupied_slots()?;
    let chosen: Vec<_> = slots
        .iter()
        .filter(|slot| match &slot.token {
            Ok(state) => state.initialized && state.fits(&filter.token),
            Err(_) => true,
        })
        .collect();
    if let Some(pins) = &mut pins {
        keep_for_one(pins, &chosen)?;
    }
    // Among all tokens, also those that aren't looked at: TPMs have the same serial for each.
    let tokens = slots.iter().filter_map(|slot| slot.token.as_ref().ok());
    let initialized: Vec<_> = tokens.filter(|token| token.initialized).collect();
    let same_serial = |state: &TokenState| {
        let same = |it: &&&TokenState| it.name.serial == state.name.serial;
        let labels = initialized
            .iter()
            .filter(same)
            .map(|it| it.name.label.clone());
        labels.collect::<Vec<_>>()
    };
    let tokens = chosen
        .into_iter()
        .map(|slot| match &slot.token {
            Ok(state) => {
                let labels = same_serial(state);
                let (same, others): (Vec<_>, Vec<_>) =
                    labels.iter().partition(|label| **label == state.name.label);
                let place = Place {
                    path,
                    state,
                    needs_label: !others.is_empty(),
                    needs_slot_id: same.len() > 1,
                };
                describe(&place, module, &filter.object, pins.as_mut())
            }
            Err(failure) => Token {
                error: Some(Fault::from(&Error::from(TokenError::Call {
                    doing: "reading the token's description",
                    failure: failure.clone(),
                }))),
                slot_id: slot.slot,
                token_label: String::new(),
                token_serial: String::new(),
                login_required: false,
                ca_certificates: 0,
                needs_label: false,
                needs_slot_id: false,
                pin: PinState::Unknown,
                keys: Vec::new(),
            },
        })
        .collect();
    Ok(Library {
        path_lib: path.to_owned(),
        init_args: init_args.map(|it| it.as_c_str().to_string_lossy().into_owned()),
        error: None,
        empty_slots: slots.is_empty().then(|| module.empty_slots()),
        uninitialized_slots: slots
            .iter()
            .filter(|_| slots.iter().all(OccupiedSlot::is_uninitialized))
            .map(|slot| slot.slot)
            .collect(),
        tokens,
    })
}

/// A stored PIN belongs to one token: sent to several, it would cost each of the others a try.
/// Where nobody can be asked and none is stored, each token says so, beside what it shows anyway.
fn keep_for_one(pins: &mut Sources, chosen: &[&OccupiedSlot]) -> Result<(), Error> {
    let found: Vec<_> = chosen
        .iter()
        .filter_map(|slot| slot.token.as_ref().ok())
        .filter(|state| state.login_required)
        .map(|state| state.name.clone())
        .collect();
    if found.len() > 1 {
        pins.leave_input();
        if !pins.origin().is_attended() {
            return Err(TokenError::SeveralForPin { found }.into());
        }
    }
    Ok(())
}

/// A token and what names it among the library's others.
struct Place<'a> {
    path: &'a str,
    state: &'a TokenState,
    needs_label: bool,
    needs_slot_id: bool,
}

fn describe(
    place: &Place<'_>,
    module: &Module,
    wanted: &ObjectSelector,
    pins: Option<&mut Sources>,
) -> Token {
    let state = place.state;
    let is_revealed = pins.is_some();
    let (candidates, error) = match open(module, state, pins) {
        Ok((candidates, refused)) => (candidates, refused),
        Err(error) => (Candidates::default(), Some(error)),
    };
    let keys = candidates.found;
    let pin = match state.pin {
        token::PinState::Good => PinState::Good,
        token::PinState::CountLow => PinState::CountLow,
        token::PinState::FinalTry => PinState::FinalTry,
        token::PinState::Locked => PinState::Locked,
        token::PinState::ToBeChanged => PinState::ToBeChanged,
    };
    let is_shut = matches!(pin, PinState::Locked | PinState::ToBeChanged);
    let sees_all = error.is_none() && (is_revealed || !state.login_required);
    // Hidden keys may be theirs, so one that is named is listed.
    let is_left_out = |it: &Candidate| it.is_authority && !wanted.is_given();
    let authorities = keys.iter().filter(|it| is_left_out(it)).count();
    let named = |candidate: Candidate| {
        let needs_label = match candidate.standing {
            Standing::ById => false,
            Standing::ByLabel | Standing::Ambiguous => true,
            Standing::Superseded { needs_label } => needs_label,
        };
        let uri = Uri {
            token: text(&state.name.label),
            serial: text(&state.name.serial),
            slot_id: place.needs_slot_id.then_some(state.name.slot),
            id: (!candidate.id.is_empty()).then(|| ObjectId::from_bytes(candidate.id.clone())),
            object: text(&candidate.label).filter(|_| needs_label),
            module_path: text(place.path),
            ..Uri::default()
        };
        Key {
            uri: uri.to_string(),
            needs_label,
            ..key(candidate, sees_all, !is_shut)
        }
    };
    Token {
        slot_id: state.name.slot,
        token_label: state.name.label.clone(),
        token_serial: state.name.serial.clone(),
        login_required: state.login_required,
        needs_label: place.needs_label,
        needs_slot_id: place.needs_slot_id,
        pin,
        error: error.as_ref().map(Fault::from),
        ca_certificates: authorities,
        keys: keys
            .into_iter()
            .filter(|it| !is_left_out(it))
            .map(named)
            .filter(|key| key.fits(wanted))
            .collect(),
    }
}

/// What the token shows, and why that isn't all.
fn open(
    module: &Module,
    state: &TokenState,
    pins: Option<&mut Sources>,
) -> Result<(Candidates, Option<Error>), Error> {
    let selector = TokenSelector {
        slot: Some(state.name.slot),
        ..TokenSelector::default()
    };
    let mut token = token::Token::open(module, &selector)?;
    let refused = match pins.map(|pins| token.reveal("to see its private objects", pins)) {
        // A person who gives up is done with all tokens, not with one.
        Some(Err(error)) if matches!(error.downcast_ref(), Some(PinError::Cancelled { .. })) => {
            return Err(error);
        }
        Some(Err(error)) => Some(error),
        Some(Ok(())) | None => None,
    };
    Ok((token.candidates()?, refused))
}

/// `sees_all`: a private key that isn't shown isn't there.
fn key(candidate: Candidate, sees_all: bool, is_open: bool) -> Key {
    let mut notes = Vec::new();
    let mut kind = candidate
        .key
        .as_ref()
        .map_or_else(String::new, |key| key.kind.clone());
    let certificate = match candidate.certificate {
        None => {
            notes.push(Note::NoCertificate);
            None
        }
        Some(Err(error)) => {
            notes.push(Note::UnusableCertificate(Error::from(error).to_string()));
            None
        }
        Some(Ok(certificate)) => {
            kind = certificate.public_key().to_string();
            notes.extend(certificate_notes(&certificate));
            notes.extend(candidate.is_contradicted.then_some(Note::OtherKey));
            notes.extend(match candidate.standing {
                Standing::ById | Standing::ByLabel => None,
                Standing::Superseded { .. } => Some(Note::Superseded),
                Standing::Ambiguous => Some(Note::Ambiguous),
            });
            Some(CertificateEntry::from(&certificate))
        }
    };
    if candidate
        .key
        .as_ref()
        .is_some_and(|key| key.always_authenticate)
    {
        notes.push(Note::PinPerSignature);
    }
    match &candidate.key {
        Some(key) if key.is_private => {
            notes.extend((!key.can_sign).then_some(Note::NotForSigning));
        }
        _ if sees_all => notes.push(Note::NoPrivateKey),
        _ => {}
    }
    Key {
        object_id: (!candidate.id.is_empty())
            .then(|| ObjectId::from_bytes(candidate.id).to_string()),
        object_label: candidate.label,
        kind,
        usable: is_open && !notes.iter().any(Note::is_grave),
        certificate,
        notes,
        uri: String::new(),
        needs_label: false,
    }
}

/// What a URI can say of it.
fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn certificate_notes(certificate: &Certificate) -> impl Iterator<Item = Note> {
    let validity = match certificate.validity().at(unix_time()) {
        ValidityState::NotYetValid => Some(Note::NotYetValid),
        ValidityState::Valid => None,
        ValidityState::ExpiresSoon => Some(Note::ExpiresSoon),
        ValidityState::Expired => Some(Note::Expired),
    };
    let usage = (!certificate.is_for_clients()).then_some(Note::NotForClients);
    let user = certificate.user().is_none().then_some(Note::NoUser);
    validity.into_iter().chain(usage).chain(user)
}

impl From<&Certificate> for CertificateEntry {
    fn from(certificate: &Certificate) -> Self {
        let validity = certificate.validity();
        Self {
            subject: certificate.subject().to_owned(),
            user: certificate.user().map(str::to_owned),
            groups: certificate.groups().to_vec(),
            issuer: certificate.issuer_text().to_owned(),
            serial_number: certificate.serial_number().to_owned(),
            not_before: rfc_3339(validity.not_before),
            not_after: rfc_3339(validity.not_after),
            expires: validity.expiry(unix_time()),
        }
    }
}
