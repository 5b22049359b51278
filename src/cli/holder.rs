//! The key that a configuration names, with or without a certificate, and whose it is.

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::pin::PinProvider;
use crate::token::{KeyReference, Token};

/// The key by its certificate, and the user that this names; or by its public key where there is no certificate. Without
/// `pins` only what the token shows without a login is found.
pub(super) fn key_and_user(
    token: &mut Token,
    config: &Config,
    mut pins: Option<&mut dyn PinProvider>,
) -> Result<(KeyReference, Option<String>), Error> {
    match token.identity(config, pins.as_mut().map(|it| &mut **it as &mut dyn PinProvider)) {
        Ok(identity) => Ok((identity.key, identity.certificate.user)),
        Err(error) if error.is(Kind::NoCertificate) || error.is(Kind::CertificateUnseen) => {
            // What is missing is rather the certificate than a public key.
            token.bare_key(&config.object, pins).map(|key| (key, None)).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}
