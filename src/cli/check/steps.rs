//! The steps of a check that concern the key: those of a request, made by the same
//! [`pipeline`](crate::pipeline). A step that fails ends the check only if later ones need what it
//! was to find: an expired certificate is reported, and its key is tried all the same.

use super::CheckArguments;
use super::checklist::{CheckStep, Checklist, quoted};
use crate::certificate::renewal_remedy;
use crate::cli::credential::{ShortLived, choice};
use crate::config::Config;
use crate::error::Error;
use crate::jose::Algorithm;
use crate::library;
use crate::pin::{PinError, PinOrigin, PinProvider};
use crate::pin_entry::Sources;
use crate::pipeline::{Identity, Library, Pipeline, SigningKey, StageObserver};
use crate::process::{lock, unix_time};
use crate::scheme::Scheme;
use crate::token::{AcceptedPin, LoginError, ObjectError, PinState, Token, TokenError};

/// Makes the steps from the library, which stays open in `opened`, to the signatures. Returns the
/// PIN that the token has accepted if all of them could be made.
pub(super) fn check_key(
    config: &Config,
    arguments: &CheckArguments,
    pins: &mut Sources,
    opened: &mut Option<Library>,
    checklist: &mut Checklist,
) -> Option<AcceptedPin> {
    let with_login = !arguments.no_login;
    let origin = with_login.then(|| pins.origin());
    let mut steps = KeyCheck { checklist, origin };
    let init_args = config.init_args.as_ref();
    let library = library::open(&config.library, init_args, lock::LIMIT, &mut steps);
    let step = match &library {
        Err(error) if error.is::<TokenError>() => CheckStep::Token,
        _ => CheckStep::Library,
    };
    let library = opened.insert(steps.keep(step, library)?);
    let token = library.token(&config.token, None, &mut steps);
    let mut token = steps.keep(CheckStep::Token, token)?;
    if arguments.despite_refusal {
        token.disregard_refusals();
    }
    let can_log_in = with_login && token.check_pin_state().is_ok();
    let asked: Option<&mut dyn PinProvider> = match can_log_in {
        true => Some(pins),
        false => None,
    };
    let identity = steps.pipeline(config).identity(&mut token, asked);
    let identity = match identity {
        Err(error) if !can_log_in && is_hidden(&error) => {
            // That no PIN can be tried has been reported.
            if !with_login {
                steps.checklist.concern(
                    CheckStep::Certificate,
                    format!("no certificate with {} is seen without a login", config.object),
                    "run check without --no-login to look at the private objects too",
                );
            }
            return None;
        }
        identity => steps.keep(CheckStep::Certificate, identity)?,
    };
    steps.public_key(&token, &identity, can_log_in);
    let public_key = identity.certificate.public_key();
    let schemes = steps.pipeline(config).tls_schemes(&token, public_key);
    let schemes = steps.keep(CheckStep::Mechanisms, schemes)?;
    if arguments.kind == Some(ShortLived::Jwt) {
        steps.jwt(choice(None, public_key, &token));
    }
    if !can_log_in {
        steps.tls_versions(&schemes, "the token offers what is needed for");
        return None;
    }
    let key = steps.pipeline(config).key(&mut token, identity.into_key(), pins);
    let key = steps.keep(CheckStep::PrivateKey, key)?;
    let mut made = Vec::new();
    for scheme in schemes {
        let digest = vec![0x5a; scheme.digest_length()];
        let mut pipeline = steps.pipeline(config);
        match pipeline.sign(&mut token, &key, scheme, &digest, pins) {
            Ok(_) => made.push(scheme),
            Err(error) => {
                // Another try could cost a PIN try or another prompt; and a key that isn't the
                // certificate's makes no other signature either.
                let is_last = is_of_login(&error) || error.is::<ObjectError>();
                steps.checklist.bad(CheckStep::Signature, &error);
                if is_last {
                    break;
                }
            }
        }
    }
    steps.tls_versions(&made, "this key can serve");
    token.into_accepted_pin()
}

fn is_hidden(error: &Error) -> bool {
    let error = error.downcast_ref();
    error.is_some_and(ObjectError::may_be_hidden)
}

fn is_of_login(error: &Error) -> bool {
    error.is::<LoginError>() || error.is::<PinError>()
}

/// Reports what the stages of the pipeline find.
struct KeyCheck<'a> {
    checklist: &'a mut Checklist,
    /// Where the PIN comes from, if one may be asked for.
    origin: Option<PinOrigin>,
}

impl KeyCheck<'_> {
    fn pipeline<'a>(&'a mut self, config: &'a Config) -> Pipeline<'a> {
        Pipeline { config, observer: self }
    }

    /// Which algorithm tokens are signed with, and what no look from here shows.
    fn jwt(&mut self, choice: Result<(Algorithm, Scheme), Error>) {
        let Some((algorithm, _)) = self.keep(CheckStep::Mechanisms, choice) else {
            return;
        };
        let text = format!("tokens are signed with {algorithm}");
        self.checklist.good(CheckStep::Mechanisms, text);
        self.checklist.concern(
            CheckStep::Mechanisms,
            "whether the API server takes them depends on its AuthenticationConfiguration",
            "have an administrator apply the configuration in docs/short-lived.md, with the key set that `pkcs11-external-signer jwks` prints",
        );
    }

    /// Reports an error: of the step, or of the login in it.
    fn keep<T>(&mut self, step: CheckStep, outcome: Result<T, Error>) -> Option<T> {
        let step = match &outcome {
            Err(error) if is_of_login(error) => CheckStep::Login,
            _ => step,
        };
        self.checklist.keep(step, outcome)
    }

    fn pin_tries(&mut self, token: &Token<'_>) {
        if let Err(refused) = token.check_pin_state() {
            return self.checklist.bad(CheckStep::PinTries, &refused);
        }
        match token.state().pin {
            PinState::FinalTry => self.checklist.concern(
                CheckStep::PinTries,
                "one PIN try is left before the token locks",
                "make sure which PIN it wants, and type it yourself",
            ),
            PinState::CountLow => self.checklist.concern(
                CheckStep::PinTries,
                "the token has counted a wrong PIN since the last right one",
                "the right PIN clears it; if it wasn't a typing mistake, look for a kubeconfig with a \
                 wrong one",
            ),
            _ if token.state().login_required => self
                .checklist
                .good(CheckStep::PinTries, "the token reports no wrong PIN"),
            _ => self
                .checklist
                .good(CheckStep::PinTries, "the token wants no login"),
        }
    }

    fn validity(&mut self, identity: &Identity) {
        let certificate = &identity.certificate;
        let now = unix_time();
        let concerns = certificate.concerns(now);
        if !concerns.is_empty() {
            let subject = certificate.subject.clone();
            let reason = concerns.join("; ");
            let error = ObjectError::Invalid { subject, reason };
            self.checklist.bad(CheckStep::Validity, &error.into());
        } else if let Some(expiry) = certificate.renewal(now) {
            self.checklist.concern(CheckStep::Validity, expiry, renewal_remedy());
        } else {
            let expiry = certificate.validity.expiry(now);
            let text = format!("valid for TLS clients; it expires {expiry}");
            self.checklist.good(CheckStep::Validity, text);
        }
    }

    fn public_key(&mut self, token: &Token<'_>, identity: &Identity, tries_key: bool) {
        match identity.check_public_key(token) {
            Ok(()) => self
                .checklist
                .good(CheckStep::PublicKey, "nothing on the token contradicts the certificate"),
            // Requests don't look at the public key; the signature decides, if there is one.
            Err(_) if tries_key => self.checklist.concern(
                CheckStep::PublicKey,
                "the token holds another public key under this id or label",
                "requests pass over it; if the signature below is right, it is stale: remove it",
            ),
            Err(error) => self.checklist.bad(CheckStep::PublicKey, &error),
        }
    }

    fn tls_versions(&mut self, schemes: &[Scheme], verb: &str) {
        if schemes.iter().any(Scheme::is_of_tls_1_3) {
            let text = format!("{verb} TLS 1.3 and TLS 1.2");
            self.checklist.good(CheckStep::TlsVersions, text);
        } else if !schemes.is_empty() {
            self.checklist.concern(
                CheckStep::TlsVersions,
                format!("{verb} TLS 1.2, not TLS 1.3"),
                "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library",
            );
        }
    }
}

impl StageObserver for KeyCheck<'_> {
    fn waiting(&mut self, holder: Option<u32>) {
        library::note_wait(holder);
    }

    fn unlocked(&mut self, reason: &str) {
        library::warn_of_no_lock(reason);
    }

    fn library(&mut self, library: &Library) {
        let path = library.module.path().display();
        let text = match library.module.description() {
            Some(description) => format!("{path} is trusted and loaded: {description}"),
            None => format!("{path} is trusted and loaded"),
        };
        self.checklist.good(CheckStep::Library, text);
    }

    fn token(&mut self, token: &Token<'_>) {
        self.checklist.good(CheckStep::Token, token.name());
        self.pin_tries(token);
    }

    fn logged_in(&mut self, token: &Token<'_>) {
        let at_reader = token.state().own_keypad;
        let origin = match &self.origin {
            Some(origin) if !(at_reader && origin.leaves_it_to_a_reader()) => origin,
            _ => &PinOrigin::Reader,
        };
        let text = format!("the PIN {origin} was accepted");
        self.checklist.good(CheckStep::Login, text);
    }

    fn identity(&mut self, identity: &Identity) {
        let certificate = &identity.certificate;
        let groups = match certificate.groups.as_slice() {
            [] => "no groups".to_owned(),
            groups => format!("groups {}", quoted(groups)),
        };
        match &certificate.user {
            Some(user) => {
                let (key, issuer) = (certificate.public_key(), &certificate.issuer_text);
                let text = format!("user {user:?}, {groups}; {key}, issued by {issuer}");
                self.checklist.good(CheckStep::Certificate, text);
            }
            None => {
                let error = ObjectError::Invalid {
                    subject: certificate.subject.clone(),
                    reason: "it names no user (CN)".to_owned(),
                };
                self.checklist.bad(CheckStep::Certificate, &error.into());
            }
        }
        self.checklist.good(
            CheckStep::CredentialId,
            format!("{} in the API server's audit log", certificate.credential_id()),
        );
        self.validity(identity);
    }

    fn tls_schemes(&mut self, offered: &[Scheme], missing: &[Scheme]) {
        let [offered, missing] = [offered, missing].map(|schemes| {
            let names: Vec<_> = schemes.iter().map(Scheme::to_string).collect();
            names.join("; ")
        });
        if missing.is_empty() {
            let text = format!("the token offers {offered}");
            return self.checklist.good(CheckStep::Mechanisms, text);
        }
        self.checklist.concern(
            CheckStep::Mechanisms,
            format!("the token offers {offered}; it lacks {missing}"),
            "servers that want what is missing can't be reached with this key",
        );
    }

    fn key(&mut self, token: &Token<'_>, key: &SigningKey) {
        if !token.is_logged_in() {
            let text = match token.state().login_required {
                true => "not needed for this key",
                false => "not needed",
            };
            self.checklist.good(CheckStep::Login, text);
        }
        let what = key.reference.describe();
        let text = match key.wants_pin_each_time() {
            true => format!("{what} is there; it wants the PIN for every signature"),
            false => format!("{what} is there"),
        };
        self.checklist.good(CheckStep::PrivateKey, text);
    }

    fn signature(&mut self, scheme: Scheme) {
        let text = format!("{scheme}: signed and verified");
        self.checklist.good(CheckStep::Signature, text);
    }
}
