//! The name of an issuer, which is a URL, and what is served below it.

use std::str::FromStr;

use http::Uri;
use serde_json::{Value, json};

use super::Algorithm;

/// A URL as an issuer of tokens is named by (OpenID Connect Discovery 1.0, section 3), with what
/// kube-apiserver asks for: https, and no user, query or fragment. It stays as it was written, since it is
/// compared as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Issuer(String);

/// Why a text names no issuer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IssuerError {
    #[error("it is not a URL such as https://keys.example/jane")]
    NoUrl,
    #[error("it doesn't begin with https://, without which API servers take no issuer")]
    NotHttps,
    #[error("it has a query or a fragment, with which API servers take no issuer")]
    Query,
    #[error("it has a user or a password, with which API servers take no issuer")]
    User,
}

impl Issuer {
    /// The path of the discovery document below the URL (section 4).
    pub const DISCOVERY: &str = ".well-known/openid-configuration";
    /// That of the keys.
    pub const KEYS: &str = "jwks.json";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the discovery document is served.
    pub fn discovery_url(&self) -> String {
        self.below(Self::DISCOVERY)
    }

    /// Where the keys are served.
    pub fn keys_url(&self) -> String {
        self.below(Self::KEYS)
    }

    fn below(&self, path: &str) -> String {
        format!("{}/{path}", self.0.trim_end_matches('/'))
    }

    /// The discovery document (section 3), for files that are served at this URL. `kube-apiserver` reads the first
    /// two members; the others are required of it.
    pub fn discovery(&self, served_at: &Self, algorithms: &[Algorithm]) -> Value {
        let algorithms = algorithms.iter().map(Algorithm::to_string);
        json!({
            "issuer": self.0,
            "jwks_uri": served_at.keys_url(),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms.collect::<Vec<_>>(),
        })
    }
}

impl FromStr for Issuer {
    type Err = IssuerError;

    fn from_str(text: &str) -> Result<Self, IssuerError> {
        // The parser drops fragments.
        if text.contains(['?', '#']) {
            return Err(IssuerError::Query);
        }
        let uri: Uri = text.parse().map_err(|_| IssuerError::NoUrl)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(IssuerError::NoUrl);
        };
        if scheme != "https" || !text.starts_with("https://") {
            return Err(IssuerError::NotHttps);
        }
        if authority.as_str().contains('@') {
            return Err(IssuerError::User);
        }
        match authority.host().is_empty() {
            true => Err(IssuerError::NoUrl),
            false => Ok(Self(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_api_servers_take_for_an_issuer_is_one() {
        for text in [
            "https://keys.example",
            "https://keys.example/",
            "https://keys.example/jane",
            "https://[::1]:9443/a/b",
        ] {
            let issuer: Issuer = text.parse().unwrap();
            assert_eq!(issuer.as_str(), text);
        }
    }

    #[test]
    fn what_they_refuse_is_refused() {
        for (text, expected) in [
            ("", IssuerError::NoUrl),
            ("jane", IssuerError::NoUrl),
            ("/jane", IssuerError::NoUrl),
            ("https://", IssuerError::NoUrl),
            ("https://:443", IssuerError::NoUrl),
            ("https:/keys.example", IssuerError::NoUrl),
            ("https://keys.example/a b", IssuerError::NoUrl),
            ("http://keys.example", IssuerError::NotHttps),
            ("HTTPS://keys.example", IssuerError::NotHttps),
            ("https://keys.example?", IssuerError::Query),
            ("https://keys.example/?a=b", IssuerError::Query),
            ("https://keys.example/#jane", IssuerError::Query),
            ("https://jane@keys.example", IssuerError::User),
            ("https://jane:a@keys.example", IssuerError::User),
        ] {
            assert_eq!(text.parse::<Issuer>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn what_is_served_is_below_the_url() {
        for text in ["https://keys.example/jane", "https://keys.example/jane/"] {
            let issuer: Issuer = text.parse().unwrap();
            let url = issuer.discovery_url();
            assert_eq!(url, "https://keys.example/jane/.well-known/openid-configuration");
            let served_at: Issuer = "https://127.0.0.1:9443".parse().unwrap();
            let document = issuer.discovery(&served_at, &[Algorithm::Es256]);
            assert_eq!(document["issuer"], text);
            assert_eq!(document["jwks_uri"], "https://127.0.0.1:9443/jwks.json");
            let algorithms = &document["id_token_signing_alg_values_supported"];
            assert_eq!(algorithms, &json!(["ES256"]));
        }
    }
}
