//! The whole way from a configuration to a verified signature, one step at a time, for somebody
//! who wants to know where it ends.
//!
//! The steps are those of a request, in its order, made by the same parts. A step that fails ends
//! the way only if those after it need it: an expired certificate is told, and its key is tried
//! all the same.

#![forbid(unsafe_code)]

use crate::certificate::ValidityState;
use crate::config::Config;
use crate::error::Error;
use crate::pin::PinError;
use crate::pin::PinProvider;
use crate::pin_entry;
use crate::process::lock::Lock;
use crate::process::unix_time;
use crate::scheme::Scheme;
use crate::signer::Identity;
use crate::token::{AcceptedPin, Module, PinState, Token};
use crate::token::{LoginError, ObjectError};

/// A step of the way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    Configuration,
    Library,
    Token,
    PinTries,
    Object,
    Validity,
    PublicKey,
    Mechanisms,
    Login,
    PrivateKey,
    Signature,
    TlsVersions,
    Server,
}

impl Step {
    /// For people, who see it at the beginning of a line.
    pub fn title(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Library => "library",
            Self::Token => "token",
            Self::PinTries => "PIN tries",
            Self::Object => "certificate",
            Self::Validity => "validity",
            Self::PublicKey => "public key",
            Self::Mechanisms => "mechanisms",
            Self::Login => "PIN",
            Self::PrivateKey => "private key",
            Self::Signature => "signature",
            Self::TlsVersions => "TLS",
            Self::Server => "cluster",
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Library => "library",
            Self::Token => "token",
            Self::PinTries => "pin-tries",
            Self::Object => "certificate",
            Self::Validity => "validity",
            Self::PublicKey => "public-key",
            Self::Mechanisms => "mechanisms",
            Self::Login => "login",
            Self::PrivateKey => "private-key",
            Self::Signature => "signature",
            Self::TlsVersions => "tls-versions",
            Self::Server => "server",
        }
    }
}

/// What came of a step.
pub enum Finding {
    Good(String),
    /// It works, but not for long or not everywhere; the second text says what to do.
    Concern(String, String),
    Bad(Error),
}

/// Told each finding as it is made.
pub trait Observer {
    fn found(&mut self, step: Step, finding: Finding);
}

/// The library that was opened on the way, and the turn at it.
pub type Opened = Option<(Module, Option<Lock>)>;

/// What is to be walked.
pub struct Way<'a> {
    pub config: &'a Config,
    /// A stored PIN is sent although the token has refused one.
    pub disregards_refusals: bool,
}

/// Walks the way; the PIN that the token has accepted, if the walk got to its end.
pub fn examine(
    way: &Way<'_>,
    turn: Option<Lock>,
    pins: Option<&mut dyn PinProvider>,
    opened: &mut Opened,
    observer: &mut dyn Observer,
) -> Option<AcceptedPin> {
    let config = way.config;
    let library = match Module::open(&config.library, config.init_args.as_ref()) {
        Ok(module) => {
            let path = config.library.path().display().to_string();
            let text = match module.description() {
                Some(description) => format!("{path} is trusted and loaded: {description}"),
                None => format!("{path} is trusted and loaded"),
            };
            observer.found(Step::Library, Finding::Good(text));
            module.with_wait_observer(pin_entry::show_after)
        }
        Err(error) => {
            observer.found(Step::Library, Finding::Bad(error.into()));
            return None;
        }
    };
    let (module, _) = opened.insert((library, turn));
    let mut token = match Token::open(module, &config.token) {
        Ok(token) => token,
        Err(error) => {
            observer.found(Step::Token, Finding::Bad(error));
            return None;
        }
    };
    observer.found(Step::Token, Finding::Good(token.name()));
    if way.disregards_refusals {
        token.disregard_refusals();
    }
    let mut walk = Walk {
        token: &mut token,
        observer,
    };
    walk.go(config, pins)?;
    token.into_accepted_pin()
}

struct Walk<'a, 'm> {
    token: &'a mut Token<'m>,
    observer: &'a mut dyn Observer,
}

impl Walk<'_, '_> {
    /// `None` where the way ended early.
    fn go(&mut self, config: &Config, mut pins: Option<&mut dyn PinProvider>) -> Option<()> {
        let is_open = self.pin_tries();
        let file = config.certificate_file.as_deref();
        let mut is_logged_in = false;
        let mut identity = Identity::find(self.token, config.object.clone(), file, None);
        let is_hidden = |error: &Error| {
            let error = error.downcast_ref::<ObjectError>();
            error.is_some_and(ObjectError::may_be_hidden)
        };
        if identity.as_ref().is_err_and(is_hidden) {
            if !is_open {
                // Why it can't be looked for was said.
                return None;
            }
            let Some(pins) = pins.as_deref_mut() else {
                self.concern(
                    Step::Object,
                    format!(
                        "no certificate with {} is seen without a login",
                        config.object
                    ),
                    "run check without --no-login to look at the private objects too",
                );
                return None;
            };
            self.login(&config.object.to_string(), pins)?;
            is_logged_in = true;
            identity = Identity::find(self.token, config.object.clone(), file, Some(pins));
        }
        let identity = keep(self.observer, Step::Object, identity)?;
        self.object(&identity);
        self.validity(&identity);
        match identity.check_public_key(self.token) {
            Ok(()) => self.good(
                Step::PublicKey,
                "nothing on the token contradicts the certificate",
            ),
            // The private key decides, if it is looked at; requests don't look at this one.
            Err(_) if is_open && pins.is_some() => self.concern(
                Step::PublicKey,
                "the token holds another public key under this id or label".to_owned(),
                "requests pass over it; if the signature below is right, it is stale: remove it",
            ),
            Err(error) => self.bad(Step::PublicKey, error),
        }
        let schemes = self.mechanisms(&identity)?;
        let Some(pins) = pins.filter(|_| is_open) else {
            self.tls_versions(&schemes, "the token offers what is needed for");
            return None;
        };
        if identity.wants_no_login(self.token) {
            self.good(Step::Login, "not needed for this key");
        } else if !is_logged_in {
            self.login(&identity.words(), pins)?;
        }
        let schemes = self.signatures(&identity, schemes, pins)?;
        self.tls_versions(&schemes, "this key can serve");
        Some(())
    }

    /// Whether a PIN may be tried.
    fn pin_tries(&mut self) -> bool {
        if let Err(refused) = self.token.check_pin_state() {
            self.bad(Step::PinTries, refused.into());
            return false;
        }
        match self.token.state().pin {
            PinState::FinalTry => {
                self.concern(
                    Step::PinTries,
                    "one PIN try is left before the token locks".to_owned(),
                    "make sure which PIN it wants, and type it yourself",
                );
            }
            PinState::CountLow => {
                self.concern(
                    Step::PinTries,
                    "the token has counted a wrong PIN since the last right one".to_owned(),
                    "the right PIN clears it; if nobody mistyped, look for a kubeconfig with a \
                     wrong one",
                );
            }
            _ if self.token.state().login_required => {
                self.good(Step::PinTries, "the token reports no wrong PIN");
            }
            _ => self.good(Step::PinTries, "the token wants no login"),
        }
        true
    }

    fn object(&mut self, identity: &Identity) {
        let certificate = &identity.certificate;
        let groups = match certificate.groups() {
            [] => "no groups".to_owned(),
            groups => format!("groups {}", quoted(groups)),
        };
        let Some(user) = certificate.user() else {
            return self.bad(
                Step::Object,
                ObjectError::Invalid {
                    subject: certificate.subject().to_owned(),
                    reason: "it names no user (CN)".to_owned(),
                }
                .into(),
            );
        };
        let key = certificate.public_key();
        let issuer = certificate.issuer_text();
        self.good(
            Step::Object,
            format!("user \"{user}\", {groups}; {key}, issued by {issuer}"),
        );
    }

    fn validity(&mut self, identity: &Identity) {
        let certificate = &identity.certificate;
        let now = unix_time();
        let expiry = certificate.validity().expiry(now);
        let concerns = certificate.concerns(now);
        let state = certificate.validity().at(now);
        let is_fatal = matches!(state, ValidityState::NotYetValid | ValidityState::Expired)
            || !certificate.is_for_clients();
        match concerns.is_empty() {
            true => self.good(
                Step::Validity,
                format!("valid for TLS clients; it expires {expiry}"),
            ),
            false if is_fatal => {
                let subject = certificate.subject().to_owned();
                let reason = concerns.join("; ");
                self.bad(
                    Step::Validity,
                    ObjectError::Invalid { subject, reason }.into(),
                );
            }
            false => self.concern(
                Step::Validity,
                concerns.join("; "),
                "have it issued anew for the same key before then",
            ),
        }
    }

    /// The schemes that the token has mechanisms for.
    fn mechanisms(&mut self, identity: &Identity) -> Option<Vec<Scheme>> {
        let mut offered = Vec::new();
        let mut missing = Vec::new();
        let mut refusal = None;
        for scheme in Scheme::of_tls(identity.certificate.public_key()) {
            match self.token.check_mechanism(&scheme) {
                Ok(()) => offered.push(scheme),
                Err(error) => {
                    missing.push(scheme.to_string());
                    refusal.get_or_insert(error);
                }
            }
        }
        let words: Vec<_> = offered.iter().map(Scheme::to_string).collect();
        match refusal {
            Some(error) if offered.is_empty() => {
                self.bad(Step::Mechanisms, error);
                return None;
            }
            Some(_) => self.concern(
                Step::Mechanisms,
                format!(
                    "the token offers {}; it lacks {}",
                    words.join("; "),
                    missing.join("; ")
                ),
                "servers that want what is missing can't be reached with this key",
            ),
            None => self.good(
                Step::Mechanisms,
                format!("the token offers {}", words.join("; ")),
            ),
        }
        Some(offered)
    }

    fn login(&mut self, what: &str, pins: &mut dyn PinProvider) -> Option<()> {
        let origin = pins.origin();
        let outcome = self.token.reveal(what, pins);
        keep(self.observer, Step::Login, outcome)?;
        let state = self.token.state();
        if !state.login_required {
            self.good(Step::Login, "not needed");
        } else if !state.own_keypad {
            self.good(Step::Login, format!("the PIN {origin} was accepted"));
        } else if origin.is_attended() {
            self.good(Step::Login, "the PIN entered at the reader was accepted");
        } else {
            self.concern(
                Step::Login,
                format!("the PIN entered at the reader was accepted; the one {origin} is not used"),
                "leave pin and pinSource out: this reader asks for the PIN itself",
            );
        }
        Some(())
    }

    /// The schemes in which the key has made a signature that its certificate accepts.
    fn signatures(
        &mut self,
        identity: &Identity,
        schemes: Vec<Scheme>,
        pins: &mut dyn PinProvider,
    ) -> Option<Vec<Scheme>> {
        let key = identity.key(self.token, pins);
        let key = keep(self.observer, Step::PrivateKey, key)?;
        let words = identity.words();
        if key.wants_pin_each_time() {
            self.good(
                Step::PrivateKey,
                format!("{words} is there; it wants the PIN for every signature"),
            );
        } else {
            self.good(Step::PrivateKey, format!("{words} is there"));
        }
        let mut made = Vec::new();
        for scheme in schemes {
            let digest = vec![0x5a; scheme.digest_length()];
            match identity.sign_with(self.token, &key, scheme, &digest, pins) {
                Ok(_) => {
                    self.good(Step::Signature, format!("{scheme}: signed and verified"));
                    made.push(scheme);
                }
                Err(error) => {
                    // Each further try could cost a PIN, or a person another prompt.
                    // A key that isn't the certificate's makes no other one either.
                    let is_last = error.is::<LoginError>()
                        || error.is::<PinError>()
                        || error.is::<ObjectError>();
                    self.bad(Step::Signature, error);
                    if is_last {
                        break;
                    }
                }
            }
        }
        Some(made)
    }

    fn tls_versions(&mut self, schemes: &[Scheme], verb: &str) {
        if schemes.iter().any(Scheme::is_of_tls_1_3) {
            self.good(Step::TlsVersions, format!("{verb} TLS 1.3 and TLS 1.2"));
        } else if !schemes.is_empty() {
            self.concern(
                Step::TlsVersions,
                format!("{verb} TLS 1.2, not TLS 1.3"),
                "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library",
            );
        }
    }

    fn good(&mut self, step: Step, text: impl Into<String>) {
        self.observer.found(step, Finding::Good(text.into()));
    }

    fn concern(&mut self, step: Step, text: String, remedy: &str) {
        self.observer
            .found(step, Finding::Concern(text, remedy.to_owned()));
    }

    fn bad(&mut self, step: Step, error: Error) {
        self.observer.found(step, Finding::Bad(error));
    }
}

/// What came of a step, if anything good did; else the observer is told of it.
pub fn keep<T, E: Into<Error>>(
    observer: &mut dyn Observer,
    step: Step,
    outcome: Result<T, E>,
) -> Option<T> {
    outcome
        .map_err(|error| observer.found(step, Finding::Bad(error.into())))
        .ok()
}

/// `"a", "b"`: an item with a comma in it stays one.
pub fn quoted(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("\"{text}\"")).collect();
    quoted.join(", ")
}
