//! The key that a configuration names, with or without a certificate, and whose it is.

use crate::config::Config;
use crate::error::{Error, Kind};
use crate::pin::PinProvider;
use crate::token::{KeyReference, Token};

pub(super) struct KeyHolder {
    pub(super) key: KeyReference,
    /// The user that the key's certificate names, if it has one.
    pub(super) user: Option<String>,
}

impl KeyHolder {
    /// By the key's certificate, or by its public key where there is no certificate. Without `pins` only
    /// what the token shows without a login is found.
    pub(super) fn find(
        token: &mut Token,
        config: &Config,
        mut pins: Option<&mut dyn PinProvider>,
    ) -> Result<Self, Error> {
        // Not as_deref_mut, which would keep the provider's lifetime.
        let reborrowed: Option<&mut dyn PinProvider> = match &mut pins {
            Some(pins) => Some(&mut **pins),
            None => None,
        };
        match token.identity(config, reborrowed) {
            Ok(identity) => Ok(Self { user: identity.certificate.user.clone(), key: identity.key }),
            Err(error) if error.is(Kind::NoCertificate) || error.is(Kind::CertificateUnseen) => {
                // What is missing is rather the certificate than a public key.
                let key = token.bare_key(&config.object, pins).map_err(|_| error)?;
                Ok(Self { key, user: None })
            }
            Err(error) => Err(error),
        }
    }
}
