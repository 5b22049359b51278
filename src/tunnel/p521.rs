//! Key exchange over P-521 (RFC 8446, section 4.2.7), which rustls has none of.
//!
//! OpenSSL takes a client certificate over TLS 1.2 only if the client offers the certificate's curve
//! among its groups, and there is one list for both.

use aws_lc_rs::agreement::{
    ECDH_P521, EphemeralPrivateKey, PublicKey, UnparsedPublicKey, agree_ephemeral,
};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// The first byte of a point in a TLS message (RFC 8446, section 4.2.8.2).
const UNCOMPRESSED: u8 = 4;

#[derive(Debug)]
pub(super) struct Secp521r1;

struct Exchange {
    private: EphemeralPrivateKey,
    public: PublicKey,
}

impl SupportedKxGroup for Secp521r1 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new())
            .map_err(|_| GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Exchange { private, public }))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }
}

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        let invalid = || PeerMisbehaved::InvalidKeyShare.into();
        if peer.first() != Some(&UNCOMPRESSED) {
            return Err(invalid());
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        agree_ephemeral(self.private, peer, invalid(), |secret| Ok(SharedSecret::from(secret)))
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }
}
