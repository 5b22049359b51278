//! What TLS clients have to know about an open key, and when to look for a renewed certificate.

use std::mem;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use config::TokenName;
use crypto::certificate::{Certificate, Validity};
use crypto::scheme::Scheme;
use crypto::verify::{VerifiedSignature, verify};
use messages::error::Error;
use system::clock::unix_time;
use system::locked;
use token::invalid_signature;

/// How often to look for a newer certificate once the renewal is due, in seconds: as often as client-go reads its files.
const READ_AGAIN: i64 = 300;
/// How long before its end a certificate gives way to a newer one, in seconds: the server's clock may be ahead.
const LAST_MINUTE: i64 = 60;
/// How often to look for a newer certificate in that last minute, in seconds.
const READ_AGAIN_AT_LAST: i64 = 5;

/// What a TLS client has to know about an open key.
#[derive(Debug, Deserialize, Serialize)]
pub struct OpenKey {
    /// The certificate and its issuers, in DER.
    pub chain: Vec<Vec<u8>>,
    pub subject: String,
    /// The token on which the key was found.
    pub token: TokenName,
    /// The schemes for which the key can sign, in the order in which TLS prefers them.
    pub schemes: Vec<Scheme>,
    /// The certificate's last moment, in seconds since 1970.
    ends: i64,
    /// When to look for a newer certificate, in seconds since 1970.
    read_again: i64,
    /// The reasons why servers refuse the certificate or soon will, until they were reported.
    warnings: Mutex<Vec<String>>,
}

impl OpenKey {
    /// The key with this certificate and its issuers, in DER, on this token.
    pub(super) fn new(
        certificate: &Certificate,
        chain: Vec<Vec<u8>>,
        token: TokenName,
        schemes: Vec<Scheme>,
    ) -> Self {
        let now = unix_time();
        Self {
            chain,
            subject: certificate.subject.clone(),
            token,
            ends: certificate.validity.not_after,
            read_again: read_again(&certificate.validity, now),
            warnings: Mutex::new(warnings(certificate, &schemes)),
            schemes,
        }
    }

    /// Whether the key can sign for TLS 1.3; an RSA key needs RSA-PSS for that.
    pub fn serves_tls_1_3(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_3)
    }

    /// Whether the key can sign for TLS 1.2, which has no ML-DSA.
    pub fn serves_tls_1_2(&self) -> bool {
        self.schemes.iter().any(Scheme::is_of_tls_1_2)
    }

    /// Whether there may be a newer certificate by now.
    pub fn may_be_renewed(&self) -> bool {
        unix_time() >= self.read_again
    }

    pub fn has_expired(&self) -> bool {
        unix_time() > self.ends
    }

    /// How long until a newer certificate should have taken its place everywhere.
    pub fn time_left(&self) -> Duration {
        let left = self.ends.saturating_sub(LAST_MINUTE).saturating_sub(unix_time());
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
    }

    /// Verifies what another process has given as this key's signature.
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

    /// The reasons why servers refuse the certificate or soon will. They are returned once.
    pub fn take_warnings(&self) -> Vec<String> {
        mem::take(&mut *locked(&self.warnings))
    }
}

/// When to look for a certificate that has replaced this one, in seconds since 1970: now and then once the renewal is due,
/// and shortly before the certificate's end.
fn read_again(validity: &Validity, now: i64) -> i64 {
    let regular = validity.renewal_due().max(now.saturating_add(READ_AGAIN));
    let at_last = validity.not_after.saturating_sub(LAST_MINUTE);
    regular.min(at_last).max(now.saturating_add(READ_AGAIN_AT_LAST))
}

/// What should not stay as it is about a certificate and the schemes of its key.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_certificate_is_looked_for_when_there_may_be_one() {
        const DAY: i64 = 24 * 3600;
        let year = Validity { not_before: 0, not_after: 365 * DAY };
        for (now, expected) in [
            // Nothing until the renewal is due, in the last 30 days.
            (0, 335 * DAY + 1),
            (334 * DAY, 335 * DAY + 1),
            (350 * DAY, 350 * DAY + READ_AGAIN),
            (365 * DAY - 100, 365 * DAY - LAST_MINUTE),
            (365 * DAY - 10, 365 * DAY - 5),
        ] {
            assert_eq!(read_again(&year, now), expected, "{now}");
        }
    }
}
