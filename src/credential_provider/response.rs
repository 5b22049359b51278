//! The response: the login for an image, and how long kubelet keeps it for which images.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Image, ProviderVersion};
use crate::sealed::{Registry, RegistryLogin};

/// What kubelet is told.
pub enum ProviderAnswer<'a> {
    Login(ProviderLogin<'a>),
    /// There is no entry for the image: nothing, not to be kept.
    Nothing,
}

/// A login as kubelet takes it.
pub struct ProviderLogin<'a> {
    /// What kubelet uses it for.
    pub key: String,
    /// Kept for the image alone, rather than for its registry.
    pub is_for_image: bool,
    /// How long it is kept; `None` for `defaultCacheDuration`.
    pub kept_for: Option<Duration>,
    pub login: &'a RegistryLogin,
}

impl<'a> ProviderLogin<'a> {
    /// An entry for a whole registry is kept for that. One for a path answers for the image alone, because kubelet
    /// compares paths by their first characters and would use it for `host/teamster`, too. So is that for a registry
    /// of which another entry is for a part: kubelet would take what it keeps for the registry without asking.
    pub fn new<'r>(
        image: &Image,
        login: &'a RegistryLogin,
        entries: impl IntoIterator<Item = &'r Registry>,
        kept_for: Option<Duration>,
    ) -> Self {
        let mut entries = entries.into_iter();
        let is_for_image = entries.any(|entry| !entry.path.is_empty() && image.fits_host(entry));
        Self {
            key: match is_for_image {
                true => image.text.clone(),
                false => image.registry(),
            },
            is_for_image,
            kept_for,
            login,
        }
    }

    /// kubelet's word for what it is kept for.
    pub fn cache_key_type(&self) -> &'static str {
        match self.is_for_image {
            true => "Image",
            false => "Registry",
        }
    }
}

impl ProviderAnswer<'_> {
    /// The document, with a newline.
    pub fn encode(&self, version: ProviderVersion) -> String {
        let mut document = json!({
            "apiVersion": version.name(),
            "kind": "CredentialProviderResponse",
        });
        match self {
            Self::Nothing => {
                document["cacheKeyType"] = json!("Image");
                document["cacheDuration"] = json!("0s");
                document["auth"] = json!({});
            }
            Self::Login(answer) => {
                let (key, login) = (answer.key.clone(), answer.login);
                document["cacheKeyType"] = json!(answer.cache_key_type());
                if let Some(kept_for) = answer.kept_for {
                    document["cacheDuration"] = json!(format!("{}s", kept_for.as_secs()));
                }
                let auth = json!({ "username": login.username, "password": login.password });
                document["auth"] = Value::Object([(key, auth)].into_iter().collect());
            }
        }
        format!("{document}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login() -> RegistryLogin {
        let text = |text: &str| text.to_owned();
        RegistryLogin::new(text("registry.example"), text("u"), text("p\"q")).unwrap()
    }

    fn answered(image: &str, entries: &[&str], kept_for: Option<Duration>) -> Value {
        let login = login();
        let entries: Vec<_> = entries.iter().filter_map(|it| Registry::parse(it)).collect();
        let image = Image::parse(image).unwrap();
        let login = ProviderLogin::new(&image, &login, &entries, kept_for);
        let answer = ProviderAnswer::Login(login).encode(ProviderVersion::V1Beta1);
        assert!(answer.ends_with("}\n") && !answer.trim_end().contains('\n'));
        serde_json::from_str(&answer).unwrap()
    }

    #[test]
    fn a_whole_registrys_login_is_kept_for_it() {
        assert_eq!(
            answered("registry.example/team/app", &["registry.example", "other/path"], None),
            json!({
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1",
                "kind": "CredentialProviderResponse",
                "cacheKeyType": "Registry",
                "auth": {"registry.example": {"username": "u", "password": "p\"q"}},
            })
        );
    }

    #[test]
    fn where_an_entry_has_a_path_the_login_is_for_the_image_alone() {
        for image in ["registry.example/team/app", "registry.example/other"] {
            let entries = ["registry.example", "registry.example/team"];
            let answer = answered(image, &entries, Some(Duration::from_secs(90)));
            assert_eq!(answer["cacheKeyType"], "Image");
            assert_eq!(answer["cacheDuration"], "90s");
            assert_eq!(answer["auth"][image]["username"], "u");
        }
    }

    #[test]
    fn nothing_is_not_kept() {
        for version in ProviderVersion::ALL {
            let answer: Value =
                serde_json::from_str(&ProviderAnswer::Nothing.encode(version)).unwrap();
            assert_eq!(
                answer,
                json!({
                    "apiVersion": version.name(),
                    "kind": "CredentialProviderResponse",
                    "cacheKeyType": "Image",
                    "cacheDuration": "0s",
                    "auth": {},
                })
            );
        }
    }
}
