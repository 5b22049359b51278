//! The messages of the API server's external signer of service account tokens, `externaljwt/v1` (KEP-740), by the field
//! numbers of its proto file in k8s.io/externaljwt.

use std::fmt;

/// The service, as it stands in the path of a call.
pub(crate) const SERVICE: &str = "/v1.ExternalJWTSigner/";

/// Asks for a token of these claims.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct SignJwtRequest {
    /// The second part of the token, in base64url.
    #[prost(string, tag = "1")]
    pub claims: String,
}

/// Shows only the length: the claims say whom the token is for, which belongs into no log.
impl fmt::Debug for SignJwtRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignJwtRequest({} bytes)", self.claims.len())
    }
}

/// The parts of a token that the claims lack.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct SignJwtResponse {
    /// The first part, in base64url.
    #[prost(string, tag = "1")]
    pub header: String,
    /// The third part, in base64url.
    #[prost(string, tag = "2")]
    pub signature: String,
}

/// Shows nothing: with the claims, which others may log, the two parts are a token.
impl fmt::Debug for SignJwtResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignJwtResponse(…)")
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchKeysRequest {}

/// The keys by which tokens are verified.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FetchKeysResponse {
    #[prost(message, repeated, tag = "1")]
    pub keys: Vec<Key>,
    /// When the keys were read.
    #[prost(message, optional, tag = "2")]
    pub data_timestamp: Option<Timestamp>,
    /// How long the API server waits before it asks again.
    #[prost(int64, tag = "3")]
    pub refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Key {
    /// The `kid` of its tokens.
    #[prost(string, tag = "1")]
    pub key_id: String,
    /// The public key as a SubjectPublicKeyInfo in DER.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// Whether the API server only verifies by it, and doesn't show it to others.
    #[prost(bool, tag = "3")]
    pub exclude_from_oidc_discovery: bool,
}

/// google.protobuf.Timestamp.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Timestamp {
    /// Since 1970.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetadataRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetadataResponse {
    /// The longest life of a token that the API server may ask for.
    #[prost(int64, tag = "1")]
    pub max_token_expiration_seconds: i64,
}
