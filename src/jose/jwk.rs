//! A public key as JSON (RFC 7517).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{JoseError, base64url};
use crate::certificate::PublicKey;
use crate::hash::Hash;
use crate::scheme::ecdsa;

/// A public key that tokens are verified with.
pub struct Jwk {
    /// Those that the thumbprint is made over, in its order.
    members: BTreeMap<&'static str, String>,
}

impl Jwk {
    /// # Errors
    /// It is of a type that signs no tokens, or is no point of its curve.
    pub fn of(key: &PublicKey) -> Result<Self, JoseError> {
        let members = match key {
            PublicKey::Ecdsa { curve, point } => {
                let [x, y] = ecdsa::coordinates(point, *curve)
                    .ok_or_else(|| JoseError::Malformed { curve: curve.to_string() })?;
                vec![
                    ("crv", curve.to_string()),
                    ("kty", "EC".to_owned()),
                    ("x", base64url(&x)),
                    ("y", base64url(&y)),
                ]
            }
            PublicKey::Ed25519(_) => return Err(JoseError::Ed25519),
            PublicKey::Rsa { modulus, exponent } => vec![
                ("e", base64url(exponent)),
                ("kty", "RSA".to_owned()),
                ("n", base64url(modulus)),
            ],
        };
        Ok(Self { members: members.into_iter().collect() })
    }

    /// The thumbprint (RFC 7638), as which the key is named in tokens.
    pub fn id(&self) -> String {
        let canonical = json!(self.members).to_string();
        let digest = Hash::Sha256.digest(&[canonical.as_bytes()]);
        base64url(&digest.unwrap_or_default())
    }

    /// A set of this key alone: any key of a set can sign any claims.
    pub fn set(&self) -> Value {
        let mut members = json!(self.members);
        members["kid"] = json!(self.id());
        members["use"] = json!("sig");
        json!({ "keys": [members] })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::certificate::Curve;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    /// RFC 7638, section 3.1.
    #[test]
    fn an_rsa_key_has_the_thumbprint_of_the_rfc() {
        let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_\
            BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2Q\
            vzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZ\
            u0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let key = PublicKey::Rsa { modulus: bytes(modulus), exponent: vec![1, 0, 1] };
        let jwk = Jwk::of(&key).unwrap();
        assert_eq!(jwk.id(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        let set = jwk.set();
        assert_eq!(
            set,
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
        let point = [vec![4], bytes(x), bytes(y)].concat();
        let set = Jwk::of(&key(point)).unwrap().set();
        let member = |name: &str| set["keys"][0][name].as_str().unwrap().to_owned();
        assert_eq!([member("x"), member("y")], [x, y]);
        assert_eq!([member("kty"), member("crv")], ["EC", "P-256"]);
        let off_curve = [vec![4], bytes(y), bytes(x)].concat();
        assert!(matches!(Jwk::of(&key(off_curve)), Err(JoseError::Malformed { .. })));
    }
}
