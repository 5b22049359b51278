//! What is open in a library: tokens with one session and one login each, and their keys.

use std::collections::HashMap;
use std::ffi::CString;
use std::mem;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::ended;
use base::error::{Error, Exit};
use base::pin::PinProvider;
use base::process::{locked, unix_time};
use config::Config;
use crypto::certificate::Certificate;
use crypto::scheme::Scheme;
use crypto::verify::{VerifiedSignature, verify};
use pin_entry::show_after;
use signer::library::LibraryLock;
use token::{AcceptedPin, Module, PrivateKey, SessionAccess, Token, invalid_signature};

/// What a TLS client has to know of a key that is open.
#[derive(Debug, Deserialize, Serialize)]
pub struct OpenKey {
    /// The certificate and its issuers, in DER.
    pub chain: Vec<Vec<u8>>,
    pub subject: String,
    /// The schemes that the key and its token can make, those that TLS prefers first.
    pub schemes: Vec<Scheme>,
    /// Why servers refuse it or soon will, until it was reported.
    warnings: Mutex<Vec<String>>,
}

impl OpenKey {
    /// Whether it can make a signature of TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }

    /// What another process says to be a signature of it, if the certificate's public key accepts that.
    pub fn verified(
        &self,
        scheme: Scheme,
        digest: &[u8],
        signature: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let certificate = self.chain.first().map(Vec::as_slice).unwrap_or_default();
        let certificate = Certificate::from_der(certificate, "the token process")?;
        let verified = verify(certificate.public_key(), &scheme, digest, signature);
        verified.ok_or_else(|| invalid_signature(&self.subject, &scheme))
    }

    /// Why servers refuse it or will, now or soon; once.
    pub fn take_warnings(&self) -> Vec<String> {
        mem::take(&mut *locked(&self.warnings))
    }
}

/// What should not stay as it is, of a certificate and what its key can make.
fn warnings(certificate: &Certificate, schemes: &[Scheme]) -> Vec<String> {
    let subject = &certificate.subject;
    let mut warnings = certificate.warnings(unix_time());
    if !schemes.iter().any(Scheme::is_of_tls_1_3) {
        warnings.push(format!(
            "the key of {subject} can serve TLS 1.2 only, which not every server speaks: an RSA key \
             needs RSA-PSS for TLS 1.3, and its token has none"
        ));
    }
    warnings
}

#[derive(Default)]
pub(super) struct OpenLibrary {
    /// `None` while no key is open.
    pub(super) module: Option<Arc<Module>>,
    /// With which it was initialised.
    pub(super) init_args: Option<CString>,
    pub(super) lock: LibraryLock,
    pub(super) tokens: Vec<OpenToken>,
    /// For tokens that are opened again.
    pub(super) accepted: Vec<AcceptedPin>,
    pub(super) access: SessionAccess,
}

/// One session and one login for all keys of a token.
pub(super) struct OpenToken {
    pub(super) token: Token,
    /// By their indices among the library's.
    pub(super) keys: HashMap<usize, OpenedKey>,
}

pub(super) struct OpenedKey {
    pub(super) key: PrivateKey,
    pub(super) shown: Arc<OpenKey>,
}

impl OpenLibrary {
    /// Opens the key. If the client `logs_in`, it does so in a session of its own: a login is the process's, whichever
    /// key it was made for. Other keys are then opened again when they are used.
    pub(super) fn open(
        &mut self,
        number: usize,
        config: &Config,
        pins: &mut dyn PinProvider,
        logs_in: bool,
    ) -> Result<(), Error> {
        let module = self.module(config)?;
        let found = module.find_token(&config.token)?;
        let (tokens, accepted) = (&mut self.tokens, &mut self.accepted);
        let name = found.name.to_string();
        let known = tokens.iter().position(|open| open.token.name() == name);
        let index = match known {
            Some(index) if !logs_in => index,
            known => {
                accepted.extend(known.and_then(|index| tokens.swap_remove(index).token.close()));
                let mut token = Token::with_session(&module, found, self.access)?;
                match logs_in {
                    true => token.forget_tries(),
                    false => token.recall(accepted),
                }
                tokens.push(OpenToken { token, keys: HashMap::new() });
                tokens.len() - 1
            }
        };
        let open = tokens.get_mut(index).ok_or_else(ended)?;
        if known.is_some() && !logs_in {
            // Before a PIN is sent to it.
            open.token.check_session()?;
        }
        match open.key(config, pins) {
            Ok(key) => open.keys.insert(number, key),
            Err(error) if logs_in => {
                // The next to use another key of it recalls the PIN.
                tokens.swap_remove(index).token.close();
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        if logs_in {
            let name = &open.token.state().name;
            accepted.retain(|pin| !pin.token().is_same_token(name));
        }
        Ok(())
    }

    /// The library, initialised unless it is. Its lock is held.
    fn module(&mut self, config: &Config) -> Result<Arc<Module>, Error> {
        let Some(module) = &self.module else {
            let module = Module::open(&config.library, config.init_args.as_deref(), show_after)?;
            self.init_args = config.init_args.clone();
            return Ok(Arc::clone(self.module.insert(Arc::new(module))));
        };
        if config.init_args == self.init_args {
            return Ok(Arc::clone(module));
        }
        let path = module.path.display();
        let text = format!(
            "PKCS#11 library {path} runs with other initArgs already, those of another context"
        );
        Err(Error::new(Exit::Library, text).help(
            "one run can give a library one initArgs (--init-args): start another run with --context for the \
             context that needs these",
        ))
    }

    /// Finalises the library. The PINs that its tokens have accepted are kept.
    pub(super) fn close(&mut self) {
        let tokens = self.tokens.drain(..).map(|open| open.token);
        self.accepted.extend(tokens.filter_map(Token::into_accepted_pin));
        if let Some(module) = self.module.take() {
            module.close();
        }
    }
}

impl OpenToken {
    fn key(&mut self, config: &Config, pins: &mut dyn PinProvider) -> Result<OpenedKey, Error> {
        let token = &mut self.token;
        let identity = token.identity(config, Some(pins))?;
        let certificate = &identity.certificate;
        certificate.check_end(unix_time())?;
        let schemes = token.tls_schemes(certificate.public_key())?;
        let key = token.key(identity.key.clone(), pins)?;
        let shown = Arc::new(OpenKey {
            chain: identity.chain(token)?,
            subject: certificate.subject.clone(),
            warnings: Mutex::new(warnings(certificate, &schemes)),
            schemes,
        });
        Ok(OpenedKey { key, shown })
    }
}
