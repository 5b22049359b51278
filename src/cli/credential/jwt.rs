//! `credential --as jwt`: a token that the key in the hardware signs.

use clap::builder::NonEmptyStringValueParser;

use super::short_lived::{IssuedCredential, Making, OpenedModule, Proof, random_id};
use crate::certificate::PublicKey;
use crate::cli::credential::AUDIENCE;
use crate::cli::error::{ArgumentNeeds, CredentialError};
use crate::cli::holder::KeyHolder;
use crate::error::Error;
use crate::jose::{Algorithm, Claims, Issuer, JoseError, Jwk, UnsignedToken};
use crate::library::{self, LockReports};
use crate::pipeline::Pipeline;
use crate::process::lock;
use crate::scheme::Scheme;
use crate::token::Token;

/// In seconds.
const LIFETIME: u64 = 5 * 60;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct JwtOptions {
    /// jwt: who signs it, a URL that the API server has in its AuthenticationConfiguration (`jwks`)
    #[arg(long, value_name = "URL", requires = "kind")]
    issuer: Option<Issuer>,
    /// jwt: whom it is about; without it the certificate's user
    #[arg(long, value_name = "NAME", requires = "kind", value_parser = NonEmptyStringValueParser::new())]
    subject: Option<String>,
    /// jwt: how it is signed, such as PS256; without it the first that key and token can make
    #[arg(long, value_name = "NAME", requires = "kind")]
    algorithm: Option<Algorithm>,
}

/// Signs a token that begins `now`, in seconds since 1970.
pub(super) fn make(making: Making<'_>, now: i64) -> Result<IssuedCredential, Error> {
    let Making { options, config, mut pins, opened } = making;
    let pins = &mut pins;
    let JwtOptions { issuer, subject, algorithm } = &options.jwt;
    let issuer =
        issuer.as_ref().ok_or(ArgumentNeeds { argument: "--as jwt", other: "--issuer" })?;
    let lifetime = options.duration.map_or(LIFETIME, |it| it.as_secs());
    let (init_args, observer) = (config.init_args.as_ref(), &mut LockReports);
    let library = library::open(&config.library, init_args, lock::LIMIT, observer)?;
    *opened = OpenedModule::Library(Box::new(library));
    let OpenedModule::Library(library) = opened else {
        return Err(Error::internal("a library that isn't open"));
    };
    let mut token = library.token(&config.token, Some(pins), observer)?;
    let mut pipeline = Pipeline { config: &config, observer };
    let holder = KeyHolder::find(&mut pipeline, &mut token, Some(pins))?;
    let public_key = holder.key.public_key().clone();
    let (algorithm, scheme) = choice(*algorithm, &public_key, &token)?;
    let key_id = Jwk::of(&public_key)?.id();
    let subject = subject.clone().or(holder.user);
    let subject = subject.ok_or(CredentialError::NoSubject)?;
    let id = random_id()?;
    let default = [AUDIENCE.to_owned()];
    let ends = now.saturating_add(i64::try_from(lifetime).unwrap_or(i64::MAX));
    let unsigned = UnsignedToken::new(
        algorithm,
        &key_id,
        &Claims {
            issuer,
            audiences: match options.audience.as_slice() {
                [] => &default,
                named => named,
            },
            subject: &subject,
            issued_at: now,
            expires: ends,
            id: &id,
        },
    );
    let digest = unsigned.digest();
    let digest = digest.ok_or_else(|| Error::internal("an algorithm without a hash"))?;
    let key = pipeline.key(&mut token, holder.key, pins)?;
    let signature = pipeline.sign(&mut token, &key, scheme, &digest, pins)?;
    let signed = unsigned.signed(scheme, &signature);
    Ok(IssuedCredential {
        proof: Proof::Token(
            signed.ok_or_else(|| Error::internal("a signature of another scheme"))?,
        ),
        begins: now,
        ends,
        user: subject,
    })
}

/// The algorithm that was asked for, or the first for which the token has a mechanism.
///
/// # Errors
/// The key can't make it, or the token has no mechanism.
pub(in crate::cli) fn choice(
    wanted: Option<Algorithm>,
    key: &PublicKey,
    token: &Token<'_>,
) -> Result<(Algorithm, Scheme), Error> {
    let possible = Algorithm::of_key(key)?;
    if let Some(algorithm) = wanted {
        let scheme = algorithm.scheme(key).filter(|_| possible.contains(&algorithm));
        let scheme = scheme.ok_or_else(|| JoseError::Contradiction {
            algorithm,
            key: key.to_string(),
            possible,
        })?;
        token.check_mechanism(&scheme)?;
        return Ok((algorithm, scheme));
    }
    let mut refusal = None;
    for algorithm in possible {
        let Some(scheme) = algorithm.scheme(key) else {
            continue;
        };
        match token.check_mechanism(&scheme) {
            Ok(()) => return Ok((algorithm, scheme)),
            Err(error) => {
                refusal.get_or_insert(error);
            }
        }
    }
    Err(refusal.unwrap_or_else(|| Error::internal("a key without an algorithm")))
}
