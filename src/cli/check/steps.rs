//! The steps of a check that concern the key. They are those of a request, and made by the same [token]. A step that
//! fails ends the check only if later ones need what it was to find: an expired certificate is reported, and its key is
//! tried all the same.

use std::sync::Arc;

use super::Checklist;
use crate::cli::issuance::ShortLived;
use config::Config;
use config::pin::{PinOrigin, PinProvider};
use crypto::certificate::{Certificate, minute, of_subject, renewal_remedy};
use crypto::scheme::Scheme;
use keyring::library::AskingUnlocked;
use messages::error::{Error, Exit};
use messages::printable::quoted;
use pin_entry::Sources;
use system::clock::unix_time;
use token::kind;
use token::{AcceptedPin, Identity, PinState, PrivateKey, Token};

const MISSING_SCHEMES: &str = "servers that want what is missing can't be reached with this key";

/// The token that is checked, and where a PIN for it comes from.
struct TokenInCheck<'a> {
    token: Token,
    pins: AskingUnlocked<&'a mut Sources>,
    /// Where the PIN comes from; `None` with `--no-login`.
    origin: Option<PinOrigin>,
    /// Whether a PIN may be sent: the check makes a login, and the token takes a PIN in its state.
    can_log_in: bool,
}

impl Checklist<'_> {
    /// Makes the steps from the library, which stays open, to the signatures. Returns the PIN that the token has
    /// accepted, if all signatures could be made.
    pub(super) fn check_key(&mut self, config: &Config, pins: &mut Sources) -> Option<AcceptedPin> {
        let mut checked = self.open_token(config, pins)?;
        let identity = self.check_identity(config, &mut checked)?;
        let schemes = self.check_mechanisms(&checked.token, &identity)?;
        if !checked.can_log_in {
            self.tls_versions(&schemes, "the token offers what is needed for");
            return None;
        }
        let made = self.check_private_key(&mut checked, identity, &schemes)?;
        self.tls_versions(&made, "this key can serve");
        checked.token.into_accepted_pin()
    }

    /// Makes the steps of the library, the token and the state of its PIN.
    fn open_token<'a>(
        &mut self,
        config: &Config,
        pins: &'a mut Sources,
    ) -> Option<TokenInCheck<'a>> {
        let with_login = !self.arguments.no_login;
        let origin = with_login.then(|| pins.origin());
        let library = self.session.open(config);
        let opened = library.map(|library| {
            let pins = library.lock.asking_unlocked(&config.library, pins);
            (Arc::clone(&library.module), library.token(&config.token), pins)
        });
        let (module, token, pins) = self.keep("library", opened)?;
        let description = module.description().map(|text| format!(": {text}")).unwrap_or_default();
        let path = module.path.display();
        self.good("library", format!("{path} is trusted and loaded{description}"));
        let mut token = self.keep("token", token)?;
        self.good("token", token.name());
        self.pin_tries(&token);
        if self.arguments.despite_refusal {
            token.disregard_refusals();
        }
        let can_log_in = with_login && token.check_pin_state().is_ok();
        Some(TokenInCheck { token, pins, origin, can_log_in })
    }

    /// Makes the steps of the certificate and the public key.
    fn check_identity(
        &mut self,
        config: &Config,
        checked: &mut TokenInCheck<'_>,
    ) -> Option<Identity> {
        let TokenInCheck { token, pins, origin, can_log_in } = checked;
        let provider = can_log_in.then_some(pins as &mut dyn PinProvider);
        let identity = token.identity(config, provider);
        if token.is_logged_in() {
            self.logged_in(origin.as_ref(), token);
        }
        if !*can_log_in
            && let Err(error) = &identity
            && error.is(&kind::CERTIFICATE_UNSEEN)
        {
            // It has been reported already if no PIN can be tried.
            if self.arguments.no_login {
                self.concern(
                    "certificate",
                    format!("no certificate with {} can be seen without a login", config.object),
                    "run check without --no-login, to look at private objects, too",
                );
            }
            return None;
        }
        let identity = self.keep("certificate", identity)?;
        self.identity(&identity);
        self.public_key(token, &identity, *can_log_in);
        Some(identity)
    }

    /// Makes the step of what the token can do with such a key. Returns the schemes of TLS that it offers.
    fn check_mechanisms(&mut self, token: &Token, identity: &Identity) -> Option<Vec<Scheme>> {
        let public_key = identity.certificate.public_key();
        let schemes = self.keep("mechanisms", token.tls_schemes(public_key))?;
        self.mechanisms(&schemes, &Scheme::of_tls(public_key));
        if self.arguments.kind == Some(ShortLived::Jwt) {
            self.check_jwt(token, public_key);
        }
        Some(schemes)
    }

    /// Makes the steps of the private key and its signatures with these schemes. Returns the schemes with which it has
    /// signed.
    fn check_private_key(
        &mut self,
        checked: &mut TokenInCheck<'_>,
        identity: Identity,
        schemes: &[Scheme],
    ) -> Option<Vec<Scheme>> {
        let TokenInCheck { token, pins, origin, .. } = checked;
        let was_logged_in = token.is_logged_in();
        let key = token.key(identity.key, pins);
        if token.is_logged_in() && !was_logged_in {
            self.logged_in(origin.as_ref(), token);
        }
        let key = self.keep("private-key", key)?;
        self.key(token, &key);
        let allowed = token.allowed_schemes(&key, schemes);
        let allowed = self.keep("private-key", allowed)?;
        self.restriction(&allowed, schemes);
        Some(self.signatures(token, &key, allowed, pins))
    }

    /// Has the key sign with each of the schemes. Returns those with which it has signed.
    fn signatures(
        &mut self,
        token: &mut Token,
        key: &PrivateKey,
        schemes: Vec<Scheme>,
        pins: &mut dyn PinProvider,
    ) -> Vec<Scheme> {
        let mut made = Vec::new();
        for scheme in schemes {
            let digest = vec![0x5a; scheme.digest_length()];
            match token.sign(key, scheme, &digest, pins) {
                Ok(_) => {
                    self.good("signature", format!("{scheme}: signed and verified"));
                    made.push(scheme);
                }
                Err(error) => {
                    self.bad("signature", &error);
                    // Another signature could cost a PIN try or another prompt; and a key that isn't the certificate's
                    // makes none either.
                    if error.exits_with(Exit::Login) || error.exits_with(Exit::Object) {
                        break;
                    }
                }
            }
        }
        made
    }

    fn pin_tries(&mut self, token: &Token) {
        let step = "pin-tries";
        if let Err(refused) = token.check_pin_state() {
            return self.bad(step, &refused);
        }
        match token.state().pin {
            PinState::FinalTry => {
                let help = "find out which PIN it wants, and type that yourself";
                self.concern(step, "one PIN try is left before the token locks", help);
            }
            PinState::CountLow => {
                let text = "the token has counted a wrong PIN since the last right one";
                let help = "the right PIN clears this; if nobody mistyped it, look for a kubeconfig with a \
                            wrong one";
                self.concern(step, text, help);
            }
            _ if token.state().login_required => self.good(step, "the token reports no wrong PIN"),
            _ => self.good(step, "the token wants no login"),
        }
    }

    fn validity(&mut self, certificate: &Certificate) {
        let now = unix_time();
        let concerns = certificate.concerns(now);
        if !concerns.is_empty() {
            self.invalid("validity", certificate, &concerns.join("; "));
        } else if let Some(expiry) = certificate.renewal(now) {
            self.concern("validity", expiry, renewal_remedy());
        } else {
            let expiry = minute(certificate.validity.not_after);
            self.good("validity", format!("valid for TLS clients; it expires {expiry}"));
        }
    }

    fn invalid(&mut self, step: &'static str, certificate: &Certificate, reason: &str) {
        let error = certificate.check_end(unix_time()).err().unwrap_or_else(|| {
            Error::new(Exit::Object, of_subject(&certificate.subject, reason)).help(
                "have the cluster's CA issue one for this key that is valid now, names the user in CN and allows \
                 TLS clients (extended key usage clientAuth), and write it to the token in place of this one",
            )
        });
        self.bad(step, &error);
    }

    fn public_key(&mut self, token: &Token, identity: &Identity, tries_key: bool) {
        let step = "public-key";
        match identity.check_public_key(token) {
            Ok(()) => {
                self.good(step, "the token shows no public key that contradicts the certificate")
            }
            // Requests don't look at the public key; the signature decides, if there is one.
            Err(_) if tries_key => self.concern(
                step,
                "the token holds another public key under this id or label",
                "it is ignored; if the signature below is right, it is out of date: remove it",
            ),
            Err(error) => self.bad(step, &error),
        }
    }

    fn tls_versions(&mut self, schemes: &[Scheme], verb: &str) {
        let step = "tls-versions";
        let serves = |version: fn(&Scheme) -> bool| schemes.iter().any(version);
        if serves(Scheme::is_of_tls_1_3) && !serves(Scheme::is_of_tls_1_2) {
            let help = "an older server wants an ECDSA key: Kubernetes takes ML-DSA from 1.38 on";
            self.concern(step, format!("{verb} TLS 1.3, not TLS 1.2"), help);
        } else if serves(Scheme::is_of_tls_1_3) {
            self.good(step, format!("{verb} TLS 1.3 and TLS 1.2"));
        } else if !schemes.is_empty() {
            let help = "TLS 1.3 needs RSA-PSS of an RSA key: use an ECDSA key, or a newer token or library";
            self.concern(step, format!("{verb} TLS 1.2, not TLS 1.3"), help);
        }
    }

    /// Reports the login. `origin` is where the PIN comes from, if one may be asked for.
    fn logged_in(&mut self, origin: Option<&PinOrigin>, token: &Token) {
        let at_reader = token.state().own_keypad;
        let origin = match origin {
            Some(origin) if !(at_reader && origin.is_attended()) => origin,
            _ => &PinOrigin::Reader,
        };
        self.good("login", format!("the PIN {origin} was accepted"));
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
                self.good("certificate", text);
            }
            None => self.invalid("certificate", certificate, "it names no user (CN)"),
        }
        let id = certificate.credential_id();
        self.good("credential-id", format!("{id} in the API server's audit log"));
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
            return self.good("mechanisms", text);
        }
        self.concern("mechanisms", format!("{text}; it lacks {missing}"), MISSING_SCHEMES);
    }

    /// Reports what the key may not be used for, although the token could do it.
    fn restriction(&mut self, allowed: &[Scheme], offered: &[Scheme]) {
        let missing = offered.iter().filter(|scheme| !allowed.contains(scheme));
        let missing: Vec<_> = missing.map(Scheme::to_string).collect();
        if !missing.is_empty() {
            let text =
                format!("the key may not make {} (CKA_ALLOWED_MECHANISMS)", missing.join("; "));
            self.concern("private-key", text, MISSING_SCHEMES);
        }
    }

    fn key(&mut self, token: &Token, key: &PrivateKey) {
        if !token.is_logged_in() {
            let for_key = if token.state().login_required { " for this key" } else { "" };
            self.good("login", format!("not needed{for_key}"));
        }
        let each_time =
            if key.always_authenticate { "; it wants the PIN for every signature" } else { "" };
        self.good("private-key", format!("{} is there{each_time}", key.reference.describe()));
    }
}
