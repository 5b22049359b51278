//! The request, which clients put into KUBERNETES_EXEC_INFO.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{ApiVersion, ExecRequestError};
use crate::printable::excerpt;

/// The status of an answer to a credential that isn't accepted.
const UNAUTHORIZED: i32 = 401;

/// A request for a credential.
#[derive(Debug)]
pub struct ExecRequest {
    pub api_version: ApiVersion,
    /// The cluster that the client is about to connect to; only with `provideClusterInfo`.
    pub cluster: Option<LocalCluster>,
    /// The server has refused the credential before (v1alpha1 alone says so).
    pub is_refused: bool,
}

/// A cluster as the client's kubeconfig describes it; what this program has no use for is left out.
#[derive(Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub struct LocalCluster {
    pub server: String,
    pub tls_server_name: Option<String>,
    /// PEM.
    #[serde(default, rename = "certificate-authority-data", deserialize_with = "base64_bytes")]
    pub authority: Option<Vec<u8>>,
    #[serde(default, rename = "insecure-skip-tls-verify")]
    pub insecure: bool,
    /// With the environment's taken into account.
    pub proxy_url: Option<String>,
    /// The extension `client.authentication.k8s.io/exec` of the cluster; null if it has none.
    #[serde(default)]
    pub config: Value,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    spec: Option<Spec>,
}

/// What isn't used is decoded all the same, so that a client that means something else is noticed.
#[derive(Deserialize)]
struct Spec {
    cluster: Option<LocalCluster>,
    #[serde(rename = "interactive")]
    _interactive: Option<bool>,
    /// v1alpha1: the server's refusal of the credential before.
    response: Option<ServerResponse>,
}

#[derive(Deserialize)]
struct ServerResponse {
    #[serde(default)]
    code: i32,
    #[serde(default, rename = "header")]
    _header: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl ExecRequest {
    /// Parses a request: JSON, apiVersion, kind, then the fields. Unknown fields pass.
    pub fn decode(text: &str) -> Result<Self, ExecRequestError> {
        let whole: Value = serde_json::from_str(text).map_err(|error| {
            ExecRequestError::NotJson { line: error.line(), column: error.column() }
        })?;
        // serde takes an array for the fields of a struct.
        if !whole.is_object() {
            return Err(ExecRequestError::NotObject);
        }
        let Envelope { api_version, kind } = fields(&whole)?;
        let api_version = ApiVersion::named(&api_version)
            .ok_or_else(|| ExecRequestError::ApiVersion(excerpt(&api_version)))?;
        if kind != "ExecCredential" {
            return Err(ExecRequestError::Kind(excerpt(&kind)));
        }
        let Document { spec } = fields(&whole)?;
        let (cluster, response) = spec.map_or((None, None), |it| (it.cluster, it.response));
        Ok(Self {
            api_version,
            cluster,
            is_refused: response.is_some_and(|it| it.code == UNAUTHORIZED),
        })
    }
}

fn fields<'de, T: Deserialize<'de>>(document: &'de Value) -> Result<T, ExecRequestError> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        // A field that is missing is one of the object that the path leads to.
        let missing = error.inner().to_string();
        let missing = missing.strip_prefix("missing field `").and_then(|it| it.strip_suffix('`'));
        let path = error.path().to_string();
        let field = match (path.as_str(), missing) {
            ("." | "?", Some(missing)) => missing.to_owned(),
            (path, None) => path.to_owned(),
            (path, Some(missing)) => format!("{path}.{missing}"),
        };
        ExecRequestError::Field { field: excerpt(&field) }
    })
}

fn base64_bytes<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(value)? else {
        return Ok(None);
    };
    let bytes = STANDARD.decode(text.as_bytes());
    bytes.map(Some).map_err(|_| D::Error::invalid_value(Unexpected::Other("text"), &"base64"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ExecCredential, ExecProof};
    use super::*;

    fn refused(text: &str) -> String {
        ExecRequest::decode(text).unwrap_err().to_string()
    }

    #[test]
    fn every_version_is_understood_and_answered_in_kind() {
        for version in ApiVersion::ALL {
            let text = json!({"kind": "ExecCredential", "apiVersion": version.name(), "spec": {}});
            let request = ExecRequest::decode(&text.to_string()).unwrap();
            assert_eq!(request.api_version, version);
            assert!(request.cluster.is_none());
            let credential = ExecCredential {
                proof: ExecProof::Certificate { certificate: "a\nb\n", key: "c" },
                expires: "2026-11-22T04:00:00Z",
            };
            let answer: Value = serde_json::from_str(&credential.encode(version)).unwrap();
            assert_eq!(answer["apiVersion"], version.name());
            assert_eq!(answer["kind"], "ExecCredential");
            assert_eq!(answer["status"]["clientCertificateData"], "a\nb\n");
            assert_eq!(answer["status"]["clientKeyData"], "c");
            assert_eq!(answer["status"]["expirationTimestamp"], "2026-11-22T04:00:00Z");
            assert!(answer["status"].get("token").is_none());
            let credential = ExecCredential { proof: ExecProof::Token("a.b.c"), ..credential };
            let answer: Value = serde_json::from_str(&credential.encode(version)).unwrap();
            assert_eq!(
                answer["status"],
                json!({"token": "a.b.c", "expirationTimestamp": "2026-11-22T04:00:00Z"})
            );
        }
    }

    #[test]
    fn a_whole_request_is_read() {
        // As kubectl 1.36.3 sends it.
        let text = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{
            "server":"https://127.1.3.232:21234","tls-server-name":"name","insecure-skip-tls-verify":true,
            "certificate-authority-data":"Zm9v","proxy-url":"http://proxy:3128","disable-compression":true,
            "config":{"anything":"goes"}},"interactive":false}}"#;
        let cluster = ExecRequest::decode(&format!("{text}\n")).unwrap().cluster;
        assert_eq!(
            cluster,
            Some(LocalCluster {
                server: "https://127.1.3.232:21234".to_owned(),
                tls_server_name: Some("name".to_owned()),
                authority: Some(b"foo".to_vec()),
                insecure: true,
                proxy_url: Some("http://proxy:3128".to_owned()),
                config: json!({"anything": "goes"}),
            })
        );
        let text = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1","spec":{
            "response":{"code":401,"header":{"Www-Authenticate":["Bearer"]}},"interactive":true}}"#;
        let request = ExecRequest::decode(text).unwrap();
        assert!(request.cluster.is_none() && request.is_refused);
    }

    #[test]
    fn the_first_fault_is_named_and_no_value_quoted() {
        let version = "client.authentication.k8s.io/v1";
        let with = |spec: Value| {
            json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}).to_string()
        };
        for (text, told) in [
            ("{".to_owned(), "KUBERNETES_EXEC_INFO is not valid JSON (line 1, column 1)"),
            ("[]".to_owned(), "KUBERNETES_EXEC_INFO is not a JSON object"),
            ("{}".to_owned(), "KUBERNETES_EXEC_INFO: malformed field apiVersion"),
            (
                r#"{"apiVersion":"v2","kind":"ExecCredential"}"#.to_owned(),
                "KUBERNETES_EXEC_INFO: unsupported apiVersion \"v2\"",
            ),
            (
                json!({"apiVersion": version, "kind": "ExecInfo"}).to_string(),
                "KUBERNETES_EXEC_INFO: unknown kind \"ExecInfo\"",
            ),
            (
                with(json!({"cluster": {"config": null}})),
                "KUBERNETES_EXEC_INFO: malformed field spec.cluster.server",
            ),
            (
                with(json!({"cluster": {"server": "a", "certificate-authority-data": "secret!"}})),
                "KUBERNETES_EXEC_INFO: malformed field spec.cluster.certificate-authority-data",
            ),
            (
                with(json!({"response": {"code": "secret"}})),
                "KUBERNETES_EXEC_INFO: malformed field spec.response.code",
            ),
            (
                with(json!({"interactive": "secret"})),
                "KUBERNETES_EXEC_INFO: malformed field spec.interactive",
            ),
        ] {
            assert_eq!(refused(&text), told, "{text}");
        }
    }
}
