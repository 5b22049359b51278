//! The wire of client-go's exec credential plugins, as data: one request, one answer.
//!
//! Source: KEP-541, "External credential providers", and client-go's
//! `pkg/apis/clientauthentication`. It knows no environment and no file. No error quotes a value of
//! the request: a proxy's URL can hold a password.

#![forbid(unsafe_code)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::error::{Error, Exit};
use crate::printable::excerpt;

/// The versions of client.authentication.k8s.io. The answer has that of the request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ApiVersion {
    V1Alpha1,
    V1Beta1,
    #[default]
    V1,
}

impl ApiVersion {
    const ALL: [Self; 3] = [Self::V1Alpha1, Self::V1Beta1, Self::V1];

    /// The version of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "client.authentication.k8s.io/v1alpha1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
            Self::V1 => "client.authentication.k8s.io/v1",
        }
    }
}

/// A request for a credential, which clients put into KUBERNETES_EXEC_INFO.
#[derive(Debug)]
pub struct ExecRequest {
    pub api_version: ApiVersion,
    /// The cluster that the client is about to connect to; only with `provideClusterInfo`.
    pub cluster: Option<LocalCluster>,
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
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Document {
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Spec {
    cluster: Option<LocalCluster>,
}

impl ExecRequest {
    /// Parses a request: apiVersion and kind, then the fields. Unknown fields pass.
    pub fn decode(text: &str) -> Result<Self, Error> {
        let Envelope { api_version, kind } = parsed(text)?;
        let Some(version) = ApiVersion::named(&api_version) else {
            let text = format!(
                "KUBERNETES_EXEC_INFO: unsupported apiVersion \"{}\"",
                excerpt(&api_version)
            );
            return Err(Error::new(Exit::Request, text).help(
                "set apiVersion of the user's exec to client.authentication.k8s.io/v1 (or v1beta1, or v1alpha1)",
            ));
        };
        if kind != "ExecCredential" {
            let text = format!("KUBERNETES_EXEC_INFO: unknown kind \"{}\"", excerpt(&kind));
            return Err(Error::new(Exit::Request, text)
                .help("update the client: this program understands the kind ExecCredential"));
        }
        let Document { spec } = parsed(text)?;
        Ok(Self { api_version: version, cluster: spec.and_then(|spec| spec.cluster) })
    }

    /// What is no request, for this reason.
    pub fn error(reason: &str) -> Error {
        Error::new(Exit::Request, format!("KUBERNETES_EXEC_INFO is not a request: {reason}")).help(
            "the client sets this variable for its credential plugins; by hand, run the command without it",
        )
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        ExecRequest::error(&format!("see line {}, column {}", error.line(), error.column()))
    })
}

fn base64_bytes<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<u8>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(value)? else {
        return Ok(None);
    };
    let bytes = STANDARD.decode(text.as_bytes());
    bytes.map(Some).map_err(|_| D::Error::invalid_value(Unexpected::Other("text"), &"base64"))
}

/// What a client shows to a server.
#[derive(Clone, Copy)]
pub enum ExecProof<'a> {
    /// A certificate and its key, both in PEM.
    Certificate { certificate: &'a str, key: &'a str },
    /// A bearer token.
    Token(&'a str),
}

/// The ExecCredential of this version, with a newline. The client has to ask again when it `expires`, an RFC 3339 text in UTC.
pub fn exec_answer(version: ApiVersion, proof: ExecProof<'_>, expires: &str) -> String {
    let mut status = match proof {
        ExecProof::Certificate { certificate, key } => {
            json!({"clientCertificateData": certificate, "clientKeyData": key})
        }
        ExecProof::Token(token) => json!({ "token": token }),
    };
    status["expirationTimestamp"] = json!(expires);
    let document =
        json!({"apiVersion": version.name(), "kind": "ExecCredential", "status": status});
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_understood_and_answered_in_kind() {
        for version in ApiVersion::ALL {
            let text = json!({"kind": "ExecCredential", "apiVersion": version.name(), "spec": {}});
            let request = ExecRequest::decode(&text.to_string()).unwrap();
            assert_eq!(request.api_version, version);
            assert!(request.cluster.is_none());
            let answered = |proof| -> Value {
                serde_json::from_str(&exec_answer(version, proof, "2026-11-22T04:00:00Z")).unwrap()
            };
            let answer = answered(ExecProof::Certificate { certificate: "a\nb\n", key: "c" });
            assert_eq!(answer["apiVersion"], version.name());
            assert_eq!(answer["kind"], "ExecCredential");
            assert_eq!(answer["status"]["clientCertificateData"], "a\nb\n");
            assert_eq!(answer["status"]["clientKeyData"], "c");
            assert_eq!(answer["status"]["expirationTimestamp"], "2026-11-22T04:00:00Z");
            assert!(answer["status"].get("token").is_none());
            let answer = answered(ExecProof::Token("a.b.c"));
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
    }

    #[test]
    fn the_first_fault_is_named_and_no_value_quoted() {
        let version = "client.authentication.k8s.io/v1";
        let with = |spec: Value| {
            json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}).to_string()
        };
        for (text, expected) in [
            ("{".to_owned(), "is not a request: see line 1, column 1"),
            ("[]".to_owned(), "is not a request: see line 1"),
            ("{}".to_owned(), "is not a request: see line 1, column 2"),
            (r#"{"apiVersion":"v2","kind":"ExecCredential"}"#.to_owned(), "apiVersion \"v2\""),
            (json!({"apiVersion": version, "kind": "ExecInfo"}).to_string(), "kind \"ExecInfo\""),
            (with(json!({"cluster": {"config": null}})), "is not a request: see line 1"),
            (
                with(json!({"cluster": {"server": "a", "certificate-authority-data": "secret!"}})),
                "is not a request: see line 1",
            ),
        ] {
            let error = ExecRequest::decode(&text).unwrap_err();
            let shown = format!("{error} {}", error.remedy());
            assert!(shown.contains(expected) && !shown.contains("secret"), "{shown}");
        }
    }
}
