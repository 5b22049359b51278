//! How a key signs: choosing the mechanism, C_SignInit, the login that some keys want for each signature, C_Sign, and the
//! verification of the result.
//!
//! If a token lacks the padded RSA mechanism, or refuses its parameters, the padding is done here and the token is
//! asked for the bare RSA operation (CKM_RSA_X_509).

use std::any::Any;
use std::time::Instant;

use cryptoki::error::{Error as CryptokiError, RvError};
use cryptoki::mechanism::dsa::{HedgeType, SignAdditionalContext};
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsPssParams};
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::session::UserType;

use super::key::PrivateKey;
use super::raw::{CallResult, KeyOperation, Session};
use super::{Token, ckr};
use crate::kind;
use config::pin::PinProvider;
use crypto::certificate::PublicKey;
use crypto::scheme::{Scheme, ecdsa, pkcs1, pss};
use crypto::verify::{VerifiedSignature, verify};
use messages::error::{Error, Exit, listed};
use messages::help::{Help, command};
use protocol::hash::Hash;
use system::limits;

/// The notice for a token that may be waiting for a touch.
pub const TOUCH_NOTICE: &str = "touch the token if it blinks";

/// Who makes the padded block that an RSA key is applied to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Padding {
    Ours,
    /// The token makes it, or the scheme has no padding.
    Tokens,
}

/// The ways in which the padding for a signature can be made with a token.
struct Paddings {
    /// The better way.
    first: Padding,
    /// Another way, if it has both.
    second: Option<Padding>,
}

/// The outcome of an operation: the inner result is that of its calls. The outer error is that of the login between them.
pub(super) type OperationOutcome = Result<CallResult<Vec<u8>>, Error>;

impl Token {
    /// The schemes of TLS for which the token can make signatures with such a key, in the order in which TLS prefers them.
    /// An error if there is none.
    pub fn tls_schemes(&self, public_key: &PublicKey) -> Result<Vec<Scheme>, Error> {
        let mut schemes = Scheme::of_tls(public_key);
        let best = schemes.first().copied();
        schemes.retain(|scheme| self.check_mechanism(scheme).is_ok());
        match best {
            Some(best) if schemes.is_empty() => self.check_mechanism(&best).map(|()| schemes),
            _ => Ok(schemes),
        }
    }

    /// Returns those of the schemes that this key may be used for (CKA_ALLOWED_MECHANISMS). If the key doesn't say, as
    /// most keys don't, these are all of them. An error if there is none.
    pub fn allowed_schemes(
        &self,
        key: &PrivateKey,
        schemes: &[Scheme],
    ) -> Result<Vec<Scheme>, Error> {
        let Some(allowed) = self.allowed_mechanisms(key.object) else {
            return Ok(schemes.to_owned());
        };
        let is_allowed = |scheme: &&Scheme| {
            mechanisms(scheme)
                .iter()
                .any(|mechanism| allowed.contains(mechanism) && self.offers(*mechanism))
        };
        let left: Vec<_> = schemes.iter().filter(is_allowed).copied().collect();
        match schemes.first() {
            Some(best) if left.is_empty() => {
                let key = key.reference.describe();
                let missing = named(mechanisms(best), "or");
                let allowed = match allowed.as_slice() {
                    [] => "unknown here".to_owned(),
                    some => named(some, "and"),
                };
                let text = format!(
                    "{key} may not make {best} signatures: its CKA_ALLOWED_MECHANISMS are {allowed}, without {missing}"
                );
                let help = Help::from("use a key without such a list, as ")
                    .and(command("enroll"))
                    .and(format!(" makes it, or have one made whose list has {missing}"));
                Err(Error::new(Exit::Signing, text).help(help))
            }
            _ => Ok(left),
        }
    }

    /// Checks that the token has a mechanism for the scheme (C_GetMechanismList).
    pub fn check_mechanism(&self, scheme: &Scheme) -> Result<(), Error> {
        self.paddings(scheme).map(drop)
    }

    /// The ways in which the padding for such a signature can be made with this token. An error if the token can't make
    /// such a signature.
    fn paddings(&self, scheme: &Scheme) -> Result<Paddings, Error> {
        let mechanisms = mechanisms(scheme);
        let has_bare =
            mechanisms.contains(&MechanismType::RSA_X_509) && self.offers(MechanismType::RSA_X_509);
        if mechanisms.first().is_some_and(|mechanism| self.offers(*mechanism)) {
            let second = has_bare.then_some(Padding::Ours);
            return Ok(Paddings { first: Padding::Tokens, second });
        }
        if has_bare {
            return Ok(Paddings { first: Padding::Ours, second: None });
        }
        let text = format!(
            "token {} can't make {scheme} signatures: it offers no {}",
            self.name(),
            named(mechanisms, "or")
        );
        Err(Error::new(Exit::Signing, text).help(other_token(scheme)))
    }

    /// Signs (C_SignInit, C_Sign) and verifies the signature. For Ed25519 and ML-DSA, `digest` is the whole message.
    pub fn sign(
        &mut self,
        key: &PrivateKey,
        scheme: Scheme,
        digest: &[u8],
        pins: &mut dyn PinProvider,
    ) -> Result<VerifiedSignature, Error> {
        let public_key = &key.reference.public_key;
        let started = Instant::now();
        let signature = self.sign_unverified(key, &scheme, digest, pins)?;
        log::info!("signature: {scheme}, {} ms", started.elapsed().as_millis());
        let length = signature.len();
        let signature = match scheme {
            Scheme::Ecdsa { curve } => ecdsa::to_der(signature, curve),
            Scheme::Ed25519
            | Scheme::MlDsa { .. }
            | Scheme::RsaPkcs1 { .. }
            | Scheme::RsaPss { .. } => Some(signature),
        };
        let signature = signature.ok_or_else(|| malformed(&scheme, length))?;
        verify(public_key, &scheme, digest, signature).ok_or_else(|| {
            match self.belongs_to(key.object, public_key) {
                Ok(Some(false)) => key.reference.mismatch(),
                _ => invalid_signature(&key.reference.describe(), &scheme),
            }
        })
    }

    /// What C_Sign returns, for a process that [verifies](verify) it before it uses it. It signs with the first padding, or
    /// with the second one if the token refuses that. ECDSA signatures are PKCS#11's raw `r ‖ s`.
    pub fn sign_unverified(
        &mut self,
        key: &PrivateKey,
        scheme: &Scheme,
        digest: &[u8],
        pins: &mut dyn PinProvider,
    ) -> Result<Vec<u8>, Error> {
        let Paddings { first, second } = self.paddings(scheme)?;
        let mut sign_padded = |token: &mut Self, padding| -> OperationOutcome {
            log::debug!("signature: {scheme}, padding: {padding:?}");
            let public_key = &key.reference.public_key;
            let SigningInput { mechanism, input } = prepared(scheme, padding, digest, public_key)?;
            token.perform(KeyOperation::Sign, key, &mechanism, &input, pins)
        };
        let mut outcome = sign_padded(self, first)?;
        if let (Err(refused), Some(second)) = (&outcome, second)
            && refuses_mechanism(refused)
        {
            let again = sign_padded(self, second)?;
            if again.as_ref().map_or_else(ckr::is_removed, |_| true) {
                outcome = again;
            }
        }
        outcome.map_err(|error| self.signing_failure(key, scheme, &error))
    }

    /// The error for a signature that the token has not made: that the key may not make such ones, if the token says so
    /// elsewhere.
    fn signing_failure(&self, key: &PrivateKey, scheme: &Scheme, error: &CryptokiError) -> Error {
        if !ckr::is_gone(error)
            && let Err(excluded) = self.allowed_schemes(key, std::slice::from_ref(scheme))
        {
            return excluded;
        }
        let other = match ckr::code(error) {
            Some(RvError::KeyFunctionNotPermitted | RvError::KeyTypeInconsistent) => {
                "use another key, one that is for signing (CKA_SIGN), or another library: OpenSC goes by the certificate"
            }
            _ => other_token(scheme),
        };
        let key = format!("{} ({scheme})", key.reference.describe());
        self.operation_failure("signing", &key, error, other)
    }

    /// The error for an operation that has failed. If the token refuses to do it with this key, `other` is what helps.
    pub(super) fn operation_failure(
        &self,
        doing: &str,
        key: &str,
        error: &CryptokiError,
        other: &str,
    ) -> Error {
        self.failure(error, |failure| {
            let failed =
                |what| Error::new(Exit::Signing, format!("{doing} with {key} {what}: {failure}"));
            if refuses_mechanism(error) {
                return failed("is refused by the token").help(other);
            }
            failed("failed").help(ckr::TAKE_OUT).kind(kind::CALL_FAILED)
        })
    }

    /// C_SignInit and C_Sign, or C_DecryptInit and C_Decrypt, with the login that the key wants.
    pub(super) fn perform(
        &mut self,
        operation: KeyOperation,
        key: &PrivateKey,
        mechanism: &Mechanism<'_>,
        input: &[u8],
        pins: &mut dyn PinProvider,
    ) -> OperationOutcome {
        if !key.always_authenticate {
            let was_logged_in = self.is_logged_in();
            let outcome = self.perform_at_once(key, pins, &|session| {
                session.begin(operation, mechanism, key.object)?;
                session.end(operation, mechanism, input)
            })?;
            if !(was_logged_in && wants_login(&outcome)) {
                return Ok(outcome);
            }
            // A key may want its PIN for each operation and not say so: OpenSC says it only of slot 9c.
        }
        // C_SignInit, C_Login(CKU_CONTEXT_SPECIFIC), C_Sign (PKCS#11, section 5.13.1). Nothing may come between
        // the login and C_Sign: some cards take it for the end of the authentication.
        let begin = |token: &Self| token.session.begin(operation, mechanism, key.object);
        if let Err(error) = self.beside_no_operation(begin) {
            return Ok(Err(error));
        }
        if let Err(error) =
            self.authenticate(UserType::ContextSpecific, &key.reference.holder(), pins)
        {
            // The operation has to be ended: the session could begin no other one while it is active.
            let _ = self.session.end(operation, mechanism, input);
            return Err(error);
        }
        let _notice = self.touch_notice();
        Ok(self.session.end(operation, mechanism, input))
    }

    /// An operation that needs no PIN of its own. If the token says only now that it wants a login, it is done again after
    /// that.
    pub(super) fn perform_at_once(
        &mut self,
        key: &PrivateKey,
        pins: &mut dyn PinProvider,
        call: &dyn Fn(&Session) -> CallResult<Vec<u8>>,
    ) -> OperationOutcome {
        let call = |token: &Self| {
            let _notice = token.touch_notice();
            call(&token.session)
        };
        let outcome = self.beside_no_operation(call);
        if self.is_logged_in() || !wants_login(&outcome) {
            return Ok(outcome);
        }
        self.authenticate(UserType::User, &key.reference.holder(), pins)?;
        Ok(self.beside_no_operation(call))
    }

    /// Makes the call once more, in another session, if an operation that failed is active in this one: NSS keeps one
    /// whose parameters were at fault, and it refuses all others.
    fn beside_no_operation<T>(&mut self, call: impl Fn(&Self) -> CallResult<T>) -> CallResult<T> {
        let outcome = call(self);
        let is_refused =
            outcome.as_ref().is_err_and(|error| ckr::code(error) == Some(RvError::OperationActive));
        if is_refused && self.session.renew().is_ok() { call(self) } else { outcome }
    }

    fn touch_notice(&self) -> Box<dyn Any> {
        let text = format!("{TOUCH_NOTICE}: {}", self.state().name);
        self.module.waiting(limits::TOUCH_NOTICE, &text)
    }
}

/// The mechanisms that can make such a signature: the token's own first, then the bare RSA operation, for which the padding
/// is made here.
fn mechanisms(scheme: &Scheme) -> &'static [MechanismType] {
    match scheme {
        Scheme::RsaPss { .. } => &[MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509],
        Scheme::RsaPkcs1 { .. } => &[MechanismType::RSA_PKCS, MechanismType::RSA_X_509],
        Scheme::Ecdsa { .. } => &[MechanismType::ECDSA],
        Scheme::Ed25519 => &[MechanismType::EDDSA],
        Scheme::MlDsa { .. } => &[MechanismType::ML_DSA],
    }
}

/// The mechanisms' names in a sentence: `CKM_RSA_PKCS_PSS or CKM_RSA_X_509`.
fn named(mechanisms: &[MechanismType], last: &str) -> String {
    listed(&mechanisms.iter().map(MechanismType::to_string).collect::<Vec<_>>(), last)
}

fn wants_login(outcome: &CallResult<Vec<u8>>) -> bool {
    outcome.as_ref().err().and_then(ckr::code) == Some(RvError::UserNotLoggedIn)
}

/// Whether the error says that the library has the mechanism, but not for this key or with these parameters.
pub(super) fn refuses_mechanism(error: &CryptokiError) -> bool {
    let codes = [
        RvError::ArgumentsBad,
        RvError::FunctionNotSupported,
        RvError::KeyFunctionNotPermitted,
        RvError::KeyTypeInconsistent,
        RvError::MechanismInvalid,
        RvError::MechanismParamInvalid,
    ];
    ckr::is_one_of(error, &codes)
}

/// The error for a signature that the certificate's public key doesn't accept.
pub fn invalid_signature(key: &str, scheme: &Scheme) -> Error {
    let text = format!(
        "the signature made by {key} ({scheme}) does not verify with its certificate and was withheld"
    );
    Error::new(Exit::Signing, text).help(
        "check that certificate and key belong together; if they do, the token or its library is faulty",
    )
}

fn malformed(scheme: &Scheme, length: usize) -> Error {
    let text = format!(
        "the token returned {length} bytes that are no {scheme} signature; they were withheld"
    );
    Error::new(Exit::Signing, text)
        .help("the token or its library is faulty: update the library and try again")
}

fn other_token(scheme: &Scheme) -> &'static str {
    match scheme {
        Scheme::RsaPss { .. } => {
            "TLS 1.3 needs RSA-PSS: use an ECDSA key, a newer library, or hold the client to TLS 1.2"
        }
        _ => "use a token or a library that can sign with such a key, or a key of another kind",
    }
}

/// What a token is asked to sign, and how.
struct SigningInput {
    /// The mechanism, with its parameters.
    mechanism: Mechanism<'static>,
    input: Vec<u8>,
}

/// Prepares a digest for the mechanism of the scheme. For Ed25519 and ML-DSA, `digest` is the whole message.
fn prepared(
    scheme: &Scheme,
    padding: Padding,
    digest: &[u8],
    key: &PublicKey,
) -> Result<SigningInput, Error> {
    let malformed = || malformed(scheme, digest.len());
    let (mechanism, input) = match (scheme, padding) {
        (Scheme::RsaPss { hash, salt }, Padding::Tokens) => {
            let parameters = pss_parameters(*hash, *salt).ok_or_else(malformed)?;
            (Mechanism::RsaPkcsPss(parameters), digest.to_owned())
        }
        (Scheme::RsaPss { hash, salt }, Padding::Ours) => {
            let block = pss::encode(*hash, digest, &random_salt(*salt)?, key.modulus_bits());
            (Mechanism::RsaX509, block.ok_or_else(malformed)?)
        }
        (Scheme::RsaPkcs1 { hash }, Padding::Tokens) => {
            (Mechanism::RsaPkcs, pkcs1::digest_info(*hash, digest))
        }
        (Scheme::RsaPkcs1 { hash }, Padding::Ours) => {
            let block = pkcs1::pad(&pkcs1::digest_info(*hash, digest), key.modulus_length());
            (Mechanism::RsaX509, block.ok_or_else(malformed)?)
        }
        // Some tokens refuse a digest that is longer or shorter than the curve's order.
        (Scheme::Ecdsa { curve }, _) => (Mechanism::Ecdsa, ecdsa::digest_for(*curve, digest)),
        // No parameter block: some tokens refuse one.
        (Scheme::Ed25519, _) => {
            (Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519)), digest.to_owned())
        }
        // No parameter block either: the token hedges if it can, and the context is empty, as TLS and X.509 want it.
        (Scheme::MlDsa { .. }, _) => {
            let context = SignAdditionalContext::new(HedgeType::Preferred, None);
            (Mechanism::MlDsa(context), digest.to_owned())
        }
    };
    Ok(SigningInput { mechanism, input })
}

/// The parameters of CKM_RSA_PKCS_PSS, with the same hash for the digest and the mask: tokens refuse two different ones.
/// `None` for a hash that PSS isn't used with.
fn pss_parameters(hash: Hash, salt: usize) -> Option<PkcsPssParams> {
    let (hash_alg, mgf) = match hash {
        Hash::Md5Sha1 => return None,
        Hash::Sha1 => (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1),
        Hash::Sha224 => (MechanismType::SHA224, PkcsMgfType::MGF1_SHA224),
        Hash::Sha256 => (MechanismType::SHA256, PkcsMgfType::MGF1_SHA256),
        Hash::Sha384 => (MechanismType::SHA384, PkcsMgfType::MGF1_SHA384),
        Hash::Sha512 => (MechanismType::SHA512, PkcsMgfType::MGF1_SHA512),
    };
    Some(PkcsPssParams { hash_alg, mgf, s_len: salt.try_into().ok()? })
}

/// This many random bytes.
fn random_salt(length: usize) -> Result<Vec<u8>, Error> {
    let mut salt = vec![0; length];
    getrandom::fill(&mut salt).map_err(|error| {
        Error::new(Exit::Signing, format!("no random salt for RSA-PSS: {error}"))
            .help("the operating system's random source is not available")
    })?;
    Ok(salt)
}
