//! The wire of client-go's exec credential plugins, as data: one request, one answer.
//!
//! Source: KEP-541, "External credential providers", and client-go's `pkg/apis/clientauthentication`. It knows no
//! environment and no file. No error quotes a value of the request: a proxy's URL can hold a password.

use std::path::PathBuf;

use serde_json::{Value, json};

use messages::error::{Error, Exit};
use messages::printable::excerpt;

/// The versions of the API. The answer has the same one as the request.
pub const VERSIONS: [&str; 3] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
    "client.authentication.k8s.io/v1alpha1",
];

/// A request for a credential, which clients put into KUBERNETES_EXEC_INFO.
#[derive(Debug)]
pub struct ExecRequest {
    /// The version of the API, which is one of [`VERSIONS`].
    pub version: &'static str,
    /// The cluster that the client is about to connect to, in the form of a kubeconfig's entry, with the extension for
    /// plugins as its `config`. Clients send it only with `provideClusterInfo`.
    pub cluster: Option<Value>,
}

impl ExecRequest {
    /// Parses a request: apiVersion and kind, then the fields. Unknown fields are allowed.
    pub fn decode(text: &[u8]) -> Result<Self, Error> {
        let request = PluginRequest::decode(text, "ExecCredential", VERSIONS);
        let PluginRequest { mut document, version } =
            request.map_err(|reason| Self::error(&reason))?;
        let cluster = match &mut document["spec"] {
            Value::Null => None,
            Value::Object(spec) => spec.remove("cluster").filter(|cluster| !cluster.is_null()),
            _ => return Err(Self::error("its spec is no map")),
        };
        Ok(Self { version, cluster })
    }

    /// Whether the request says all about its cluster but for the content of [`Self::authority_file`], and nothing has to be
    /// told.
    pub fn is_complete(&self) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let is_absent = |field: &str| cluster[field].is_null();
        !is_absent("config") && is_absent("proxy-url") && is_absent("certificate-authority")
    }

    /// The file with the real cluster's authority, if the request names one.
    pub fn authority_file(&self) -> Option<PathBuf> {
        let file = self.cluster.as_ref()?["config"]["certificate-authority"].as_str()?;
        Some(file.into())
    }

    /// The error for a text that isn't a request, for this reason.
    pub fn error(reason: &str) -> Error {
        Error::new(Exit::Request, format!("KUBERNETES_EXEC_INFO is not a request: {reason}")).help(
            "set apiVersion of the user's exec to client.authentication.k8s.io/v1 (or v1beta1, or v1alpha1); by hand, run \
             the command without this variable",
        )
    }
}

/// What a client asks a plugin, in the form of a Kubernetes object.
pub struct PluginRequest {
    pub document: Value,
    /// The request's `apiVersion`.
    pub version: &'static str,
}

impl PluginRequest {
    /// Parses a request of this kind in one of these versions. The error says what is wrong with it.
    pub fn decode(
        bytes: &[u8],
        kind: &'static str,
        versions: [&'static str; 3],
    ) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(bytes).map_err(|error| {
            format!("it is not valid JSON (line {}, column {})", error.line(), error.column())
        })?;
        let known = |field: &str, values: &[&'static str]| {
            let Some(value) = document[field].as_str() else {
                return Err(format!("its {field} is malformed or missing"));
            };
            let known = values.iter().copied().find(|known| *known == value);
            known.ok_or_else(|| format!("its {field} \"{}\" is not known", excerpt(value)))
        };
        let version = known("apiVersion", &versions)?;
        known("kind", &[kind])?;
        Ok(Self { document, version })
    }
}

/// The credential that a plugin hands out to authenticate its client.
pub enum ExecProof {
    /// A certificate and its key, both in PEM.
    Certificate { certificate: String, key: String },
    /// A bearer token.
    Token(String),
}

/// The ExecCredential of this version, with a newline. The client has to ask again when it `expires`, an RFC 3339 text in UTC.
pub fn exec_answer(version: &str, proof: &ExecProof, expires: &str) -> String {
    let mut status = match proof {
        ExecProof::Certificate { certificate, key } => {
            json!({"clientCertificateData": certificate, "clientKeyData": key})
        }
        ExecProof::Token(token) => json!({ "token": token }),
    };
    status["expirationTimestamp"] = json!(expires);
    let document = json!({"apiVersion": version, "kind": "ExecCredential", "status": status});
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_is_named_and_no_value_quoted() {
        let version = "client.authentication.k8s.io/v1";
        let with = |spec: Value| {
            json!({"kind": "ExecCredential", "apiVersion": version, "spec": spec}).to_string()
        };
        for (text, expected) in [
            ("{".to_owned(), "is not a request: it is not valid JSON (line 1, column 1)"),
            ("[]".to_owned(), "is not a request: its apiVersion is malformed or missing"),
            (r#"{"apiVersion":"v2","kind":"ExecCredential"}"#.to_owned(), "apiVersion \"v2\""),
            (json!({"apiVersion": version, "kind": "ExecInfo"}).to_string(), "kind \"ExecInfo\""),
            (with(json!("secret")), "is not a request: its spec is no map"),
        ] {
            let error = ExecRequest::decode(text.as_bytes()).unwrap_err();
            let shown = format!("{error} {}", error.remedy());
            assert!(shown.contains(expected) && !shown.contains("secret"), "{shown}");
        }
    }
}
