//! The request, which kubelet writes to standard input.

use serde_json::Value;

use super::{Image, ProviderRequestError, ProviderVersion};
use crate::printable::excerpt;

/// In bytes. A token of a service account and its annotations have a few thousand.
pub const LONGEST_REQUEST: u64 = 1 << 20;

/// A request for the login of an image's registry. The service account's token and annotations, which kubelet adds
/// with `tokenAttributes`, are passed over.
#[derive(Debug)]
pub struct ProviderRequest {
    pub version: ProviderVersion,
    pub image: Image,
}

impl ProviderRequest {
    /// Parses a request: JSON, apiVersion, kind, then the image. Unknown fields pass.
    ///
    /// # Errors
    /// The first of these that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProviderRequestError> {
        if bytes.len() as u64 > LONGEST_REQUEST {
            return Err(ProviderRequestError::Long);
        }
        let whole: Value = serde_json::from_slice(bytes).map_err(|error| {
            ProviderRequestError::NotJson { line: error.line(), column: error.column() }
        })?;
        let text = |field: &'static str| {
            let value = whole.get(field).and_then(Value::as_str);
            value.ok_or(ProviderRequestError::Field(field))
        };
        let name = text("apiVersion")?;
        let version = ProviderVersion::named(name)
            .ok_or_else(|| ProviderRequestError::ApiVersion(excerpt(name)))?;
        let kind = text("kind")?;
        if kind != "CredentialProviderRequest" {
            return Err(ProviderRequestError::Kind(excerpt(kind)));
        }
        let image = text("image")?;
        let image = Image::parse(image)
            .map_err(|problem| ProviderRequestError::Image { image: excerpt(image), problem })?;
        Ok(Self { version, image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        ProviderRequest::decode(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn kubelets_requests_are_read() {
        // As kubelet 1.36.3 writes them.
        for text in [
            r#"{"kind":"CredentialProviderRequest","apiVersion":"VERSION","image":"registry.example:5000/team/app"}"#,
            r#"{"kind":"CredentialProviderRequest","apiVersion":"VERSION","image":"registry.example:5000/team/app",
                "serviceAccountToken":"eyJ","serviceAccountAnnotations":{"a":"b"},"later":[1]}"#,
        ] {
            for version in ProviderVersion::ALL {
                let text = text.replace("VERSION", version.name()) + "\n";
                let request = ProviderRequest::decode(text.as_bytes()).unwrap();
                assert_eq!(request.version, version);
                assert_eq!(request.image.text, "registry.example:5000/team/app");
                assert_eq!(request.image.registry(), "registry.example:5000");
            }
        }
    }

    #[test]
    fn other_requests_are_refused() {
        for (text, expected) in [
            ("", "the request on standard input is not valid JSON (line 1, column 0)"),
            ("[]", "malformed or missing field apiVersion of the request"),
            (r#"{"apiVersion":1}"#, "malformed or missing field apiVersion of the request"),
            (r#"{"apiVersion":"v1"}"#, "unsupported apiVersion \"v1\" of the request"),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1"}"#,
                "malformed or missing field kind of the request",
            ),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"ExecCredential"}"#,
                "unknown kind \"ExecCredential\" of the request",
            ),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest",
                    "image":"a.example/b@sha256:00"}"#,
                "the request's image \"a.example/b@sha256:00\" has a digest",
            ),
        ] {
            assert_eq!(refused(text), expected);
        }
        let long = vec![b' '; 2 << 20];
        let error = ProviderRequest::decode(&long).unwrap_err();
        assert!(matches!(error, ProviderRequestError::Long));
    }
}
