//! The steps of a check that concern the key: those of a request, made by the same
//! [token](crate::token). A step that fails ends the check only if later ones need what it
//! was to find: an expired certificate is reported, and its key is tried all the same.

use super::CheckArguments;
use super::checklist::{CheckStep, Checklist};
use crate::certificate::{Certificate, minute, of_subject, renewal_remedy};
use crate::cli::credential_kind::ShortLived;
use crate::config::Config;
use crate::error::{Error, Exit, Kind, PROGRAM, THIS_KEY};
use crate::jose;
use crate::library::{self, Library};
use crate::pin::{PinOrigin, PinProvider};
use crate::pin_entry::Sources;
use crate::printable::quoted;
use crate::process::unix_time;
use crate::scheme::Scheme;
use crate::token::{AcceptedPin, Identity, PinState, PrivateKey, Token};

/// Makes the steps from the library, which stays open in `opened`, to the signatures. Returns the
/// PIN that the token has accepted if all of them could be made.
pub(super) fn check_key(
    config: &Config,
    arguments: &CheckArguments,
    pins: &mut Sources,
    opened: &mut Option<Library>,
    checklist: &mut Checklist<'_>,
) -> Option<AcceptedPin> {
    let with_login = !arguments.no_login;
    let origin = with_login.then(|| pins.origin());
    let library = library::open_in(opened, config);
    let step = match &library {
        Err(error) if error.exit_code() == Exit::Token as u8 => CheckStep::TOKEN,
        _ => CheckStep::LIBRARY,
    };
    let library = checklist.keep_of_key(step, library)?;
    checklist.library(library);
    let mut token = checklist.keep_of_key(CheckStep::TOKEN, library.token(&config.token))?;
    checklist.good(CheckStep::TOKEN, token.name());
    checklist.pin_tries(&token);
    if arguments.despite_refusal {
        token.disregard_refusals();
    }
    let can_log_in = with_login && token.check_pin_state().is_ok();
    let provider: Option<&mut dyn PinProvider> = match can_log_in {
        true => Some(pins),
        false => None,
    };
    let identity = token.identity(config, provider);
    let has_logged_in = token.is_logged_in();
    if has_logged_in {
        checklist.logged_in(origin.as_ref(), &token);
    }
    let identity = match identity {
        Err(error) if !can_log_in && error.is(Kind::CertificateUnseen) => {
            // That no PIN can be tried has been reported.
            if !with_login {
                checklist.concern(
                    CheckStep::CERTIFICATE,
                    format!("no certificate with {} is seen without a login", config.object),
                    "run check without --no-login to look at the private objects too",
                );
            }
            return None;
        }
        identity => checklist.keep_of_key(CheckStep::CERTIFICATE, identity)?,
    };
    checklist.identity(&identity);
    checklist.public_key(&token, &identity, can_log_in);
    let public_key = identity.certificate.public_key();
    let schemes = checklist.keep_of_key(CheckStep::MECHANISMS, token.tls_schemes(public_key))?;
    checklist.mechanisms(&schemes, &Scheme::of_tls(public_key));
    if arguments.kind == Some(ShortLived::Jwt) {
        let algorithm = jose::algorithm(public_key);
        checklist
            .jwt(algorithm.and_then(|(name, _, it)| token.check_mechanism(&it).map(|()| name)));
    }
    if !can_log_in {
        checklist.tls_versions(&schemes, "the token offers what is needed for");
        return None;
    }
    let key = token.key(identity.key, pins);
    if token.is_logged_in() && !has_logged_in {
        checklist.logged_in(origin.as_ref(), &token);
    }
    let key = checklist.keep_of_key(CheckStep::PRIVATE_KEY, key)?;
    checklist.key(&token, &key);
    let mut made = Vec::new();
    for scheme in schemes {
        let digest = vec![0x5a; scheme.digest_length()];
        match token.sign(&key, scheme, &digest, pins) {
            Ok(_) => {
                let text = format!("{scheme}: signed and verified");
                checklist.good(CheckStep::SIGNATURE, text);
                made.push(scheme);
            }
            Err(error) => {
                // Another try could cost a PIN try or another prompt; and a key that isn't the
                // certificate's makes no other signature either.
                let is_last = is_of_login(&error) || error.exit_code() == Exit::Object as u8;
                checklist.bad(CheckStep::SIGNATURE, &error);
                if is_last {
                    break;
                }
            }
        }
    }
    checklist.tls_versions(&made, "this key can serve");
    token.into_accepted_pin()
}

fn is_of_login(error: &Error) -> bool {
    error.exit_code() == Exit::Login as u8
}

/// What the steps find.
impl Checklist<'_> {
    /// Which algorithm tokens are signed with, and what no look from here shows.
    fn jwt(&mut self, algorithm: Result<&str, Error>) {
        if let Some(algorithm) = self.keep_of_key(CheckStep::MECHANISMS, algorithm) {
            self.good(CheckStep::MECHANISMS, format!("tokens are signed with {algorithm}"));
            let text =
                "whether the API server takes them depends on its AuthenticationConfiguration";
            let help = format!(
                "have an administrator apply the configuration in docs/short-lived.md, with the key set that \
                 `{PROGRAM} jwks{THIS_KEY}` prints"
            );
            self.concern(CheckStep::MECHANISMS, text, help);
        }
    }

    /// Reports an error: of the step, or of the login in it.
    fn keep_of_key<T>(&mut self, step: CheckStep, outcome: Result<T, Error>) -> Option<T> {
        let is_login = outcome.as_ref().is_err_and(is_of_login);
        self.keep(if is_login { CheckStep::LOGIN } else { step }, outcome)
    }

    fn pin_tries(&mut self, token: &Token) {
        let step = CheckStep::PIN_TRIES;
        if let Err(refused) = token.check_pin_state() {
            return self.bad(step, &refused);
        }
        match token.state().pin {
            PinState::FinalTry => {
                let help = "make sure which PIN it wants, and type it yourself";
                self.concern(step, "one PIN try is left before the token locks", help);
            }
            PinState::CountLow => {
                let text = "the token has counted a wrong PIN since the last right one";
                let help = "the right PIN clears it; if it wasn't a typing mistake, look for a kubeconfig with a \
                            wrong one";
                self.concern(step, text, help);
            }
            _ if token.state().login_required => {
                self.good(step, "the token reports no wrong PIN");
            }
            _ => self.good(step, "the token wants no login"),
        }
    }

    fn validity(&mut self, certificate: &Certificate) {
        let now = unix_time();
        let concerns = certificate.concerns(now);
        if !concerns.is_empty() {
            self.invalid(CheckStep::VALIDITY, certificate, &concerns.join("; "));
        } else if let Some(expiry) = certificate.renewal(now) {
            self.concern(CheckStep::VALIDITY, expiry, renewal_remedy());
        } else {
            let expiry = minute(certificate.validity.not_after);
            let text = format!("valid for TLS clients; it expires {expiry}");
            self.good(CheckStep::VALIDITY, text);
        }
    }

    fn invalid(&mut self, step: CheckStep, certificate: &Certificate, reason: &str) {
        let error = certificate.check_end(unix_time()).err().unwrap_or_else(|| {
            Error::new(Exit::Object, of_subject(&certificate.subject, reason)).help(
                "have the cluster's CA issue one for this key that is valid now, names the user in CN and allows \
                 TLS clients (extended key usage clientAuth), and write it to the token in place of this one",
            )
        });
        self.bad(step, &error);
    }

    fn public_key(&mut self, token: &Token, identity: &Identity, tries_key: bool) {
        let step = CheckStep::PUBLIC_KEY;
        match identity.check_public_key(token) {
            Ok(()) => {
                self.good(step, "nothing on the token contradicts the certificate");
            }
            // Requests don't look at the public key; the signature decides, if there is one.
            Err(_) if tries_key => self.concern(
                step,
                "the token holds another public key under this id or label",
                "requests pass over it; if the signature below is right, it is stale: remove it",
            ),
            Err(error) => self.bad(step, &error),
        }
    }

    fn tls_versions(&mut self, schemes: &[Scheme], verb: &str) {
        let step = CheckStep::TLS_VERSIONS;
        if schemes.iter().any(Scheme::is_of_tls_1_3) {
            self.good(step, format!("{verb} TLS 1.3 and TLS 1.2"));
        } else if !schemes.is_empty() {
            let help = "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library";
            self.concern(step, format!("{verb} TLS 1.2, not TLS 1.3"), help);
        }
    }

    fn library(&mut self, library: &Library) {
        let path = library.module.path().display();
        let description = library.module.description();
        let description = description.map(|text| format!(": {text}")).unwrap_or_default();
        self.good(CheckStep::LIBRARY, format!("{path} is trusted and loaded{description}"));
    }

    /// `origin`: where the PIN comes from, if one may be asked for.
    fn logged_in(&mut self, origin: Option<&PinOrigin>, token: &Token) {
        let at_reader = token.state().own_keypad;
        let origin = match origin {
            Some(origin) if !(at_reader && origin.is_attended()) => origin,
            _ => &PinOrigin::Reader,
        };
        self.good(CheckStep::LOGIN, format!("the PIN {origin} was accepted"));
    }

    fn identity(&mut self, identity: &Identity) {
        let certificate = &identity.certificate;
        match &certificate.user {
            Some(user) => {
                let groups = match &*certificate.groups {
                    [] => "no groups".to_owned(),
                    groups => format!("groups {}", quoted(groups)),
                };
                let (key, issuer) = (certificate.public_key(), &certificate.issuer_text);
                let text = format!("user {user:?}, {groups}; {key}, issued by {issuer}");
                self.good(CheckStep::CERTIFICATE, text);
            }
            None => {
                self.invalid(CheckStep::CERTIFICATE, certificate, "it names no user (CN)");
            }
        }
        let id = certificate.credential_id();
        self.good(CheckStep::CREDENTIAL_ID, format!("{id} in the API server's audit log"));
        self.validity(certificate);
    }

    fn mechanisms(&mut self, offered: &[Scheme], all: &[Scheme]) {
        let names = |is_offered| {
            let schemes = all.iter().filter(|scheme| offered.contains(scheme) == is_offered);
            schemes.map(Scheme::to_string).collect::<Vec<_>>().join("; ")
        };
        let [offered, missing] = [true, false].map(names);
        let text = format!("the token offers {offered}");
        if missing.is_empty() {
            return self.good(CheckStep::MECHANISMS, text);
        }
        let help = "servers that want what is missing can't be reached with this key";
        self.concern(CheckStep::MECHANISMS, format!("{text}; it lacks {missing}"), help);
    }

    fn key(&mut self, token: &Token, key: &PrivateKey) {
        if !token.is_logged_in() {
            let for_key = if token.state().login_required { " for this key" } else { "" };
            self.good(CheckStep::LOGIN, format!("not needed{for_key}"));
        }
        let each_time = match key.always_authenticate {
            true => "; it wants the PIN for every signature",
            false => "",
        };
        let text = format!("{} is there{each_time}", key.reference.describe());
        self.good(CheckStep::PRIVATE_KEY, text);
    }
}
