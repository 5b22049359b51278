//! JSON Web Tokens that API servers take, and the key set by which they verify them.
//!
//! Sources: RFC 7515 (JWS), 7517 (JWK), 7518 (algorithms), 7519 (JWT), 7638 (thumbprint). The functions are pure; the
//! caller has the key sign.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::certificate::{Curve, PublicKey};
use crate::scheme::{Scheme, ecdsa};
use crate::verify::VerifiedSignature;
use messages::error::{Error, Exit};
use protocol::hash::Hash;

/// The shortest RSA modulus of a key that signs tokens, in bits (RFC 7518, section 3.3).
const SHORTEST_MODULUS: usize = 2048;

/// The algorithm with which a key signs tokens (RFC 7518, section 3.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TokenAlgorithm {
    /// The algorithm's name in a token's header (`alg`).
    pub name: &'static str,
    /// The hash of the bytes that are signed.
    pub hash: Hash,
    pub scheme: Scheme,
}

impl TokenAlgorithm {
    /// The algorithm for this key. There is one for each type; for RSA it is the one that every server and almost every
    /// token has. An error for a key whose tokens no server takes.
    pub fn of(key: &PublicKey) -> Result<Self, Error> {
        match key {
            PublicKey::Ecdsa { curve, .. } => Ok(Self::on_curve(*curve)),
            PublicKey::Rsa { .. } if key.modulus_bits() >= SHORTEST_MODULUS => {
                let hash = Hash::Sha256;
                Ok(Self { name: "RS256", hash, scheme: Scheme::RsaPkcs1 { hash } })
            }
            PublicKey::Rsa { .. } | PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => {
                Err(unfit(key))
            }
        }
    }

    fn on_curve(curve: Curve) -> Self {
        let scheme = Scheme::Ecdsa { curve };
        match curve {
            Curve::P256 => Self { name: "ES256", hash: Hash::Sha256, scheme },
            Curve::P384 => Self { name: "ES384", hash: Hash::Sha384, scheme },
            Curve::P521 => Self { name: "ES512", hash: Hash::Sha512, scheme },
        }
    }
}

fn unfit(key: &PublicKey) -> Error {
    Error::new(Exit::Object, format!("an API server takes no token that a key {key} has signed"))
        .help("use an ECDSA key on P-256, P-384 or P-521, or an RSA key of 2048 bits or more")
}

/// A key in the form of RFC 7517. Its members are those that the thumbprint is made over, in their order.
fn jwk(key: &PublicKey) -> Result<Value, Error> {
    match key {
        PublicKey::Ecdsa { curve, point } => {
            let coordinates = ecdsa::coordinates(point, *curve).ok_or_else(|| {
                let text = format!("the public key is malformed: its point is not on {curve}");
                Error::new(Exit::Object, text).help("write the key's certificate again; `openssl x509 -noout -pubkey` shows its public key")
            })?;
            let [x, y] = coordinates.map(|coordinate| base64url(&coordinate));
            Ok(json!({"crv": curve.to_string(), "kty": "EC", "x": x, "y": y}))
        }
        PublicKey::Ed25519(_) | PublicKey::MlDsa { .. } => Err(unfit(key)),
        PublicKey::Rsa { modulus, exponent } => {
            Ok(json!({"e": base64url(exponent), "kty": "RSA", "n": base64url(modulus)}))
        }
    }
}

/// The thumbprint of a key (RFC 7638), by which tokens name it.
fn id(jwk: &Value) -> String {
    base64url(&Sha256::digest(jwk.to_string()))
}

/// The key set with this key and no other one: any key of a set can sign any claims.
pub fn key_set(key: &PublicKey) -> Result<Value, Error> {
    let mut jwk = jwk(key)?;
    let id = id(&jwk);
    jwk["kid"] = json!(id);
    jwk["use"] = json!("sig");
    Ok(json!({ "keys": [jwk] }))
}

/// Checks the URL that names an issuer of tokens: it is https, and has no user, query or fragment, as kube-apiserver
/// demands. It stays exactly as it is, since it is compared as text.
pub fn issuer(text: &str) -> Result<String, &'static str> {
    let uri: Option<Uri> = text.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    // The parser drops fragments.
    let is_issuer = text.starts_with("https://")
        && !text.contains(['?', '#'])
        && authority.is_some_and(|authority| {
            !authority.host().is_empty() && !authority.as_str().contains('@')
        });
    if is_issuer {
        Ok(text.to_owned())
    } else {
        Err("it must be a URL such as https://keys.example/jane, without user, query and fragment")
    }
}

/// Makes a token of these claims (RFC 7519, in the compact form of RFC 7515), signed with this key. `sign` gets the
/// scheme and the digest.
pub fn token(
    key: &PublicKey,
    claims: &Value,
    sign: impl FnOnce(Scheme, &[u8]) -> Result<VerifiedSignature, Error>,
) -> Result<String, Error> {
    let TokenAlgorithm { name, hash, scheme } = TokenAlgorithm::of(key)?;
    let header = json!({"alg": name, "kid": id(&jwk(key)?), "typ": "JWT"});
    let [header, claims] = [&header, claims].map(|part| base64url(part.to_string().as_bytes()));
    let unsigned = format!("{header}.{claims}");
    let digest = hash.digest(&[unsigned.as_bytes()]);
    let digest = digest.ok_or_else(|| Error::internal("a token's hash has no digest"))?;
    let signature = signature_part(scheme, sign(scheme, &digest)?)?;
    Ok(format!("{unsigned}.{signature}"))
}

/// The third part of a token: the signature of this scheme as RFC 7518 (section 3) has it, in Base64.
pub fn signature_part(scheme: Scheme, signature: VerifiedSignature) -> Result<String, Error> {
    let raw = match scheme {
        Scheme::Ecdsa { curve } => ecdsa::from_der(signature.as_bytes(), curve),
        _ => Some(signature.into_bytes()),
    };
    let raw = raw.ok_or_else(|| Error::internal("a signature of another scheme"))?;
    Ok(base64url(&raw))
}

/// Base64 in the form that all of these RFCs use (RFC 7515, section 2).
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};

    use super::*;
    use crate::verify::verify;

    fn rsa(bits: usize) -> PublicKey {
        PublicKey::Rsa { modulus: vec![0xff; bits / 8], exponent: vec![1, 0, 1] }
    }

    fn decoded(part: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(part).unwrap()
    }

    #[test]
    fn each_type_of_key_has_one_algorithm() {
        let ec = |curve| PublicKey::Ecdsa { curve, point: Vec::new() };
        for (key, name) in [
            (rsa(2048), Some("RS256")),
            (ec(Curve::P256), Some("ES256")),
            (ec(Curve::P384), Some("ES384")),
            (ec(Curve::P521), Some("ES512")),
            (rsa(1024), None),
            (PublicKey::Ed25519([0; 32]), None),
        ] {
            match (TokenAlgorithm::of(&key), name) {
                (Ok(found), Some(name)) => assert_eq!(found.name, name),
                (found, _) => assert_eq!(found.unwrap_err().exit_code(), 6),
            }
        }
    }

    /// RFC 7638, section 3.1.
    #[test]
    fn the_id_is_the_thumbprint() {
        let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_\
            BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2Q\
            vzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZ\
            u0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let key = PublicKey::Rsa { modulus: decoded(modulus), exponent: vec![1, 0, 1] };
        assert_eq!(
            key_set(&key).unwrap(),
            json!({"keys": [{
                "kty": "RSA", "n": modulus, "e": "AQAB", "use": "sig",
                "kid": "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
            }]})
        );
    }

    /// RFC 7515, appendix A.3.
    #[test]
    fn an_ec_key_has_its_coordinates() {
        let x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
        let key = |point| PublicKey::Ecdsa { curve: Curve::P256, point };
        let set = key_set(&key([vec![4], decoded(x), decoded(y)].concat())).unwrap();
        let member = |name: &str| set["keys"][0][name].as_str().unwrap().to_owned();
        assert_eq!(["x", "y", "kty", "crv"].map(member), [x, y, "EC", "P-256"]);
        let off_curve = key([vec![4], decoded(y), decoded(x)].concat());
        assert_eq!(key_set(&off_curve).unwrap_err().exit_code(), 6);
    }

    #[test]
    fn an_issuer_is_what_api_servers_take_for_one() {
        for text in ["https://keys.example", "https://keys.example/jane", "https://[::1]:9443/a/b"]
        {
            assert_eq!(issuer(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "jane",
            "https://",
            "https://:443",
            "https:/keys.example",
            "https://keys.example/a b",
            "http://keys.example",
            "https://keys.example?",
            "https://keys.example/#jane",
            "https://jane:a@keys.example",
        ] {
            issuer(text).unwrap_err();
        }
    }

    #[test]
    fn a_token_is_three_parts_of_which_the_last_signs_the_others() {
        let secret = p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap();
        let point = secret.verifying_key().to_sec1_point(false).as_bytes().to_vec();
        let key = PublicKey::Ecdsa { curve: Curve::P256, point };
        let key_id = key_set(&key).unwrap()["keys"][0]["kid"].clone();
        let claims = json!({"iss": "https://keys.example/jane", "exp": 1});
        let mut signed = Vec::new();
        let token = token(&key, &claims, |scheme, digest| {
            signed = digest.to_vec();
            let signature: p256::ecdsa::Signature = secret.sign_prehash(digest).unwrap();
            Ok(verify(&key, &scheme, digest, signature.to_der().as_bytes().to_vec()).unwrap())
        })
        .unwrap();

        let [header, payload, raw] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
        let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
        assert_eq!(header, json!({"alg": "ES256", "kid": key_id, "typ": "JWT"}));
        assert_eq!(serde_json::from_slice::<Value>(&decoded(payload)).unwrap(), claims);
        // RFC 7518, section 3.4: not DER.
        let raw = p256::ecdsa::Signature::from_slice(&decoded(raw)).unwrap();
        secret.verifying_key().verify_prehash(&signed, &raw).unwrap();
    }
}
