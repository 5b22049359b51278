//! JSON Web Tokens that API servers take, and the key set by which they verify them.
//!
//! Sources: RFC 7515 (JWS), 7517 (JWK), 7518 (algorithms), 7519 (JWT), 7638 (thumbprint). Pure functions; signing is
//! the pipeline's.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde_json::{Value, json};

use crate::certificate::{Curve, PublicKey};
use crate::error::{Error, Exit};
use crate::hash::Hash;
use crate::scheme::{Scheme, ecdsa};
use crate::verify::VerifiedSignature;

/// In bits (RFC 7518, sections 3.3 and 3.5).
const SHORTEST_MODULUS: usize = 2048;

/// A signature algorithm that API servers take (RFC 7518, section 3.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Algorithm {
    name: &'static str,
    hash: Hash,
    family: Family,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    Ecdsa(Curve),
    Pkcs1,
    Pss,
}

impl Algorithm {
    /// Of those of an RSA key, RS256 is the first: every server and almost every token has it, and many a token has no
    /// PSS.
    const ALL: [Self; 9] = [
        Self { name: "RS256", hash: Hash::Sha256, family: Family::Pkcs1 },
        Self { name: "RS384", hash: Hash::Sha384, family: Family::Pkcs1 },
        Self { name: "RS512", hash: Hash::Sha512, family: Family::Pkcs1 },
        Self { name: "PS256", hash: Hash::Sha256, family: Family::Pss },
        Self { name: "PS384", hash: Hash::Sha384, family: Family::Pss },
        Self { name: "PS512", hash: Hash::Sha512, family: Family::Pss },
        Self { name: "ES256", hash: Hash::Sha256, family: Family::Ecdsa(Curve::P256) },
        Self { name: "ES384", hash: Hash::Sha384, family: Family::Ecdsa(Curve::P384) },
        Self { name: "ES512", hash: Hash::Sha512, family: Family::Ecdsa(Curve::P521) },
    ];

    /// Those that this key makes, each with its scheme; there is at least one.
    fn of_key(key: &PublicKey) -> Result<Vec<(Self, Scheme)>, Error> {
        let is_short =
            matches!(key, PublicKey::Rsa { .. }) && key.modulus_bits() < SHORTEST_MODULUS;
        let made = Self::ALL.into_iter().filter_map(|it| Some((it, it.scheme(key)?)));
        let made: Vec<_> = made.filter(|_| !is_short).collect();
        match made.is_empty() {
            false => Ok(made),
            true => Err(unfit(key)),
        }
    }

    /// The algorithm that was asked for, or the first that `check` has nothing against.
    pub fn choose(
        wanted: Option<Self>,
        key: &PublicKey,
        check: impl Fn(&Scheme) -> Result<(), Error>,
    ) -> Result<(Self, Scheme), Error> {
        let mut possible = Self::of_key(key)?;
        if let Some(wanted) = wanted {
            let names: Vec<_> = possible.iter().map(|(it, _)| it.name).collect();
            possible.retain(|(it, _)| *it == wanted);
            if possible.is_empty() {
                let text = format!("algorithm {wanted} is none of a key {key}");
                return Err(Error::new(Exit::Request, text)
                    .help(format!("leave --algorithm out, or name one of {}", names.join(", "))));
            }
        }
        let mut refusal = None;
        for (algorithm, scheme) in possible {
            match check(&scheme) {
                Ok(()) => return Ok((algorithm, scheme)),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::internal("a key without an algorithm")))
    }

    /// The scheme of a signature by this algorithm; `None` if it is none of this key's.
    fn scheme(self, key: &PublicKey) -> Option<Scheme> {
        match (self.family, key) {
            (Family::Ecdsa(curve), PublicKey::Ecdsa { curve: key_curve, .. }) => {
                (curve == *key_curve).then_some(Scheme::Ecdsa { curve })
            }
            (Family::Pkcs1, _) => Scheme::rsa_pkcs1(self.hash, key),
            (Family::Pss, _) => Scheme::rsa_pss(self.hash, self.hash.length(), key),
            (Family::Ecdsa(_), _) => None,
        }
    }
}

fn unfit(key: &PublicKey) -> Error {
    Error::new(Exit::Object, format!("an API server takes no token that a key {key} has signed"))
        .help("use an ECDSA key on P-256, P-384 or P-521, or an RSA key of 2048 bits or more")
}

impl FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|it| it.name == text);
        named
            .ok_or("it is none of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and ES512")
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A public key that tokens are verified with (RFC 7517).
pub struct Jwk {
    /// Those that the thumbprint is made over, in its order.
    members: BTreeMap<&'static str, String>,
}

impl Jwk {
    pub fn of(key: &PublicKey) -> Result<Self, Error> {
        let members = match key {
            PublicKey::Ecdsa { curve, point } => {
                let coordinates = ecdsa::coordinates(point, *curve).ok_or_else(|| {
                    Error::new(Exit::Object, format!("the public key is malformed: its point is not on {curve}")).help("write the key's certificate again; `openssl x509 -noout -pubkey` shows its public key")
                })?;
                let [x, y] = coordinates.map(|it| base64url(&it));
                vec![("crv", curve.to_string()), ("kty", "EC".to_owned()), ("x", x), ("y", y)]
            }
            PublicKey::Ed25519(_) => return Err(unfit(key)),
            PublicKey::Rsa { modulus, exponent } => {
                let (n, e) = (base64url(modulus), base64url(exponent));
                vec![("e", e), ("kty", "RSA".to_owned()), ("n", n)]
            }
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

/// The URL that names an issuer of tokens: https, and no user, query or fragment, as kube-apiserver wants it. It stays
/// as it was written, since it is compared as text.
pub fn issuer(text: &str) -> Result<String, &'static str> {
    let uri: Option<Uri> = text.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    // The parser drops fragments.
    let is_issuer = text.starts_with("https://")
        && !text.contains(['?', '#'])
        && authority.is_some_and(|it| !it.host().is_empty() && !it.as_str().contains('@'));
    match is_issuer {
        true => Ok(text.to_owned()),
        false => {
            Err("it is no URL such as https://keys.example/jane, without user, query and fragment")
        }
    }
}

/// A token without its signature (RFC 7519, in the compact form of RFC 7515), to be signed by the key with this id.
pub fn unsigned(algorithm: Algorithm, key_id: &str, claims: &Value) -> String {
    let header = json!({"alg": algorithm.name, "kid": key_id, "typ": "JWT"});
    let encoded = |value: &Value| base64url(value.to_string().as_bytes());
    format!("{}.{}", encoded(&header), encoded(claims))
}

/// What is to be signed of an unsigned token; `None` for an algorithm without a hash.
pub fn digest(algorithm: Algorithm, unsigned: &str) -> Option<Vec<u8>> {
    algorithm.hash.digest(&[unsigned.as_bytes()])
}

/// The whole token; `None` if the signature is none of this scheme.
pub fn signed(unsigned: &str, scheme: Scheme, signature: &VerifiedSignature) -> Option<String> {
    let raw;
    let signature = match scheme {
        Scheme::Ecdsa { curve } => {
            raw = ecdsa::from_der(signature.as_bytes(), curve)?;
            &raw
        }
        Scheme::Ed25519 | Scheme::RsaPkcs1 { .. } | Scheme::RsaPss { .. } => signature.as_bytes(),
    };
    Some(format!("{unsigned}.{}", base64url(signature)))
}

/// Base64 as all of these RFCs use it (RFC 7515, section 2).
fn base64url(bytes: &[u8]) -> String {
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
    fn a_key_makes_those_of_its_type() {
        let made = Algorithm::of_key(&rsa(2048)).unwrap();
        let names: Vec<_> = made.iter().map(|(it, _)| it.name).collect();
        assert_eq!(names, ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]);
        for ((_, scheme), (hash, salt)) in
            made[3..].iter().zip([(Hash::Sha256, 32), (Hash::Sha384, 48), (Hash::Sha512, 64)])
        {
            assert_eq!(*scheme, Scheme::RsaPss { hash, salt });
        }
        for (curve, name) in
            [(Curve::P256, "ES256"), (Curve::P384, "ES384"), (Curve::P521, "ES512")]
        {
            let key = PublicKey::Ecdsa { curve, point: Vec::new() };
            let algorithm: Algorithm = name.parse().unwrap();
            assert_eq!(Algorithm::of_key(&key).unwrap(), [(algorithm, Scheme::Ecdsa { curve })]);
        }
        for key in [PublicKey::Ed25519([0; 32]), rsa(1024)] {
            assert_eq!(Algorithm::of_key(&key).unwrap_err().exit_code(), 6);
        }
        "EdDSA".parse::<Algorithm>().unwrap_err();
    }

    /// RFC 7638, section 3.1.
    #[test]
    fn the_id_is_the_thumbprint() {
        let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_\
            BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2Q\
            vzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZ\
            u0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let key = PublicKey::Rsa { modulus: decoded(modulus), exponent: vec![1, 0, 1] };
        let jwk = Jwk::of(&key).unwrap();
        assert_eq!(jwk.id(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert_eq!(
            jwk.set(),
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
        let set = Jwk::of(&key([vec![4], decoded(x), decoded(y)].concat())).unwrap().set();
        let member = |name: &str| set["keys"][0][name].as_str().unwrap().to_owned();
        assert_eq!(["x", "y", "kty", "crv"].map(member), [x, y, "EC", "P-256"]);
        let off_curve = key([vec![4], decoded(y), decoded(x)].concat());
        assert_eq!(Jwk::of(&off_curve).err().unwrap().exit_code(), 6);
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
        let key_id = Jwk::of(&key).unwrap().id();
        let [(algorithm, scheme)] = Algorithm::of_key(&key).unwrap()[..] else { panic!() };
        let claims = json!({"iss": "https://keys.example/jane", "exp": 1});
        let unsigned = unsigned(algorithm, &key_id, &claims);
        let digest = digest(algorithm, &unsigned).unwrap();
        let signature: p256::ecdsa::Signature = secret.sign_prehash(&digest).unwrap();
        let der = signature.to_der().as_bytes().to_vec();
        let verified = verify(&key, &scheme, &digest, der).unwrap();
        let token = signed(&unsigned, scheme, &verified).unwrap();

        let [header, payload, raw] = token.split('.').collect::<Vec<_>>()[..] else { panic!() };
        let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
        assert_eq!(header, json!({"alg": "ES256", "kid": key_id, "typ": "JWT"}));
        assert_eq!(serde_json::from_slice::<Value>(&decoded(payload)).unwrap(), claims);
        // RFC 7518, section 3.4: not DER.
        let raw = p256::ecdsa::Signature::from_slice(&decoded(raw)).unwrap();
        secret.verifying_key().verify_prehash(&digest, &raw).unwrap();
    }
}
