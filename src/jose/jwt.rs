//! A token: claims, and a signature over them (RFC 7519, in the compact form of RFC 7515).

use serde_json::{Value, json};

use super::{Algorithm, Issuer, base64url};
use crate::scheme::{Scheme, ecdsa};
use crate::verify::VerifiedSignature;

/// What a token says (RFC 7519, section 4.1); times in seconds since 1970.
pub struct Claims<'a> {
    pub issuer: &'a Issuer,
    pub audiences: &'a [String],
    pub subject: &'a str,
    pub issued_at: i64,
    pub expires: i64,
    /// Never the same again: the API server's audit log has it as the credential's id.
    pub id: &'a str,
}

/// A token without its signature.
pub struct UnsignedToken {
    text: String,
    algorithm: Algorithm,
}

impl UnsignedToken {
    /// A token to be signed by the key with this id.
    pub fn new(algorithm: Algorithm, key_id: &str, claims: &Claims<'_>) -> Self {
        let header = json!({"alg": algorithm.to_string(), "kid": key_id, "typ": "JWT"});
        let payload = json!({
            "iss": claims.issuer.as_str(),
            // A list of one is understood by fewer servers.
            "aud": match claims.audiences {
                [one] => json!(one),
                several => json!(several),
            },
            "sub": claims.subject,
            "iat": claims.issued_at,
            "nbf": claims.issued_at,
            "exp": claims.expires,
            "jti": claims.id,
        });
        let encoded = |value: Value| base64url(value.to_string().as_bytes());
        Self { text: format!("{}.{}", encoded(header), encoded(payload)), algorithm }
    }

    /// What is to be signed; `None` for an algorithm without a hash.
    pub fn digest(&self) -> Option<Vec<u8>> {
        self.algorithm.hash().digest(&[self.text.as_bytes()])
    }

    /// The token; `None` if the signature is none of this scheme.
    pub fn signed(self, scheme: Scheme, signature: &VerifiedSignature) -> Option<String> {
        let raw;
        let signature = match scheme {
            Scheme::Ecdsa { curve } => {
                raw = ecdsa::from_der(signature.as_bytes(), curve)?;
                &raw
            }
            Scheme::Ed25519 | Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. } => {
                signature.as_bytes()
            }
        };
        Some(format!("{}.{}", self.text, base64url(signature)))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};

    use super::*;
    use crate::certificate::{Curve, PublicKey};
    use crate::jose::Jwk;
    use crate::verify::verify;

    fn decoded(part: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(part).unwrap()
    }

    #[test]
    fn a_token_is_three_parts_of_which_the_last_signs_the_others() {
        let issuer: Issuer = "https://keys.example/jane".parse().unwrap();
        let secret = p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap();
        let key = PublicKey::Ecdsa {
            curve: Curve::P256,
            point: secret.verifying_key().to_sec1_point(false).as_bytes().to_vec(),
        };
        let key_id = Jwk::of(&key).unwrap().id();
        let claims = |audiences| Claims {
            issuer: &issuer,
            audiences,
            subject: "jane",
            issued_at: 1_800_000_000,
            expires: 1_800_000_300,
            id: "0a",
        };
        let audience = ["prod".to_owned()];
        let token = UnsignedToken::new(Algorithm::Es256, &key_id, &claims(&audience));
        let digest = token.digest().unwrap();
        let signature: p256::ecdsa::Signature = secret.sign_prehash(&digest).unwrap();
        let der = signature.to_der().as_bytes().to_vec();
        let scheme = Scheme::Ecdsa { curve: Curve::P256 };
        let verified = verify(&key, &scheme, &digest, der).unwrap();
        let token = token.signed(scheme, &verified).unwrap();

        let parts: Vec<_> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        let header: Value = serde_json::from_slice(&decoded(parts[0])).unwrap();
        assert_eq!(header, json!({"alg": "ES256", "kid": key_id, "typ": "JWT"}));
        let payload: Value = serde_json::from_slice(&decoded(parts[1])).unwrap();
        assert_eq!(
            payload,
            json!({
                "iss": "https://keys.example/jane", "aud": "prod", "sub": "jane", "jti": "0a",
                "iat": 1_800_000_000, "nbf": 1_800_000_000, "exp": 1_800_000_300,
            })
        );
        // RFC 7518, section 3.4: not DER.
        let raw = p256::ecdsa::Signature::from_slice(&decoded(parts[2])).unwrap();
        let digest = Algorithm::Es256.hash();
        let digest = digest.digest(&[format!("{}.{}", parts[0], parts[1]).as_bytes()]);
        let verifying = secret.verifying_key();
        verifying.verify_prehash(&digest.unwrap(), &raw).unwrap();

        let several = ["a".to_owned(), "b".to_owned()];
        let token = UnsignedToken::new(Algorithm::Es256, &key_id, &claims(&several));
        let (_, payload) = token.text.split_once('.').unwrap();
        let payload: Value = serde_json::from_slice(&decoded(payload)).unwrap();
        assert_eq!(payload["aud"], json!(["a", "b"]));
    }
}
