//! The wire of kubelet's credential provider plugins, as data: one request, one response.
//!
//! Source: KEP-2133 and kubelet's `pkg/credentialprovider/plugin`. It knows no file and no token.

use std::time::Duration;

use serde_json::json;

use crate::{ImageLogin, Registries, Registry};
use kubeconfig::exec_credential::PluginRequest;
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::excerpt;

/// The longest request that is read, in bytes. A token of a service account and its annotations have a few thousand.
pub const LONGEST_REQUEST: u64 = 1 << 20;

/// The versions of the API. The response has the same one as the request.
pub const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1",
];

/// A request for the login of an image's registry, which kubelet writes to standard input. The service account's token
/// and annotations, which it adds with `tokenAttributes`, are passed over.
#[derive(Debug)]
pub struct ProviderRequest {
    pub version: &'static str,
    /// The image's place in a registry.
    pub image: Registry,
}

impl ProviderRequest {
    /// Parses a request: JSON, apiVersion, kind, then the image. Unknown fields are allowed.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() as u64 > LONGEST_REQUEST {
            return Err(refused("it is longer than a request of kubelet"));
        }
        let request = PluginRequest::decode(bytes, "CredentialProviderRequest", VERSIONS);
        let PluginRequest { document, version } = request.map_err(|reason| refused(&reason))?;
        let image = document["image"].as_str().unwrap_or_default();
        let image = Registry::of_image(image).ok_or_else(|| {
            let image = excerpt(image);
            refused(&format!(
                "\"{image}\" is not an image with its registry, without tag and digest"
            ))
        })?;
        Ok(Self { version, image })
    }
}

fn refused(reason: &str) -> Error {
    let by_hand =
        command("check --sealed FILE --image NAME").and(HelpPart::Key).and(HelpPart::PinSource);
    let help = Help::from(
        "have kubelet's CredentialProviderConfig name credentialprovider.kubelet.k8s.io/v1 (or v1beta1, or v1alpha1) \
         as the provider's apiVersion; by hand, ",
    );
    let help = help.and(by_hand).and(" asks the same");
    let text = format!("the request on standard input can't be answered: {reason}");
    Error::new(Exit::Request, text).help(help)
}

/// The response, with a newline: the login for the image and how long kubelet keeps it (`None`: for `defaultCacheDuration`)
/// or, where there is none, nothing, which is not to be kept.
pub fn answer(
    request: &ProviderRequest,
    registries: &Registries,
    kept_for: Option<Duration>,
) -> String {
    let image = &request.image;
    let (kind, auth, kept_for) = match registries.login_for(image) {
        None => ("Image", json!({}), Some(Duration::ZERO)),
        Some(ImageLogin { login, is_for_image_alone }) => {
            let (kind, key) = if is_for_image_alone {
                ("Image", image.to_string())
            } else {
                ("Registry", image.authority.clone())
            };
            let auth = json!({ key: { "username": login.username, "password": login.password } });
            (kind, auth, kept_for)
        }
    };
    let mut document = json!({
        "apiVersion": request.version,
        "kind": "CredentialProviderResponse",
        "cacheKeyType": kind,
        "auth": auth,
    });
    if let Some(limit) = kept_for {
        document["cacheDuration"] = json!(format!("{}s", limit.as_secs()));
    }
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = ProviderRequest::decode(text.as_bytes()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn other_requests_are_refused() {
        for (text, expected) in [
            ("", "it is not valid JSON (line 1, column 0)"),
            ("[]", "its apiVersion is malformed or missing"),
            (r#"{"apiVersion":1}"#, "its apiVersion is malformed or missing"),
            (r#"{"apiVersion":"v1"}"#, "\"v1\" is not known"),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1"}"#,
                "its kind is malformed or missing",
            ),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"ExecCredential"}"#,
                "\"ExecCredential\" is not known",
            ),
            (
                r#"{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest",
                    "image":"a.example/b@sha256:00"}"#,
                "\"a.example/b@sha256:00\" is not an image",
            ),
        ] {
            assert!(refused(text).contains(expected), "{}", refused(text));
        }
        assert!(refused(&" ".repeat(2 << 20)).contains("longer"));
    }
}
