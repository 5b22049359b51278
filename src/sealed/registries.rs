//! The content of a sealed file: docker's `config.json`, reduced to registries with user names and passwords.
//!
//! No error quotes anything but the name of a registry.

use std::collections::BTreeMap;
use std::path::Path;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine as _, alphabet};
use serde::Deserialize;
use serde_json::{Value, json};

use super::registry::Registry;
use messages::error::{Error, Exit};
use messages::printable::excerpt;

/// The length of a content is a multiple of this, in bytes, so that the file's length doesn't show that of the
/// passwords.
const PADDED: usize = 1024;

/// Registries, each with the login for it, in the order of their names. No two are for the same.
pub struct Registries {
    pub logins: Vec<RegistryLogin>,
}

/// A user name and a password. It is neither printed nor cloned by accident.
pub struct RegistryLogin {
    /// The registry's name in the document.
    key: String,
    pub registry: Registry,
    pub username: String,
    pub password: String,
}

/// The login with which an image is pulled.
pub struct ImageLogin<'a> {
    pub login: &'a RegistryLogin,
    /// Whether kubelet may not use the login for other images of the registry.
    pub is_for_image_alone: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    auths: Option<BTreeMap<String, AuthEntry>>,
    creds_store: Option<String>,
    cred_helpers: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    // kubelet can't be given such a token.
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Registries {
    /// Reads a `config.json`, which messages call `name`. Everything in it but registries is passed over.
    pub fn from_config(bytes: &[u8], name: &str) -> Result<Self, Error> {
        let refused = |reason: String| {
            Error::new(Exit::Configuration, format!("{name}: {reason}")).help("seal a config.json as `docker --config DIRECTORY login` writes it without a credential helper, or name \
                 registry and user: seal --registry HOST --username USER")
        };
        let file: ConfigFile = serde_json::from_slice(bytes).map_err(|error| {
            let line = error.line();
            let column = error.column();
            refused(format!("it is not the JSON of a config.json (line {line}, column {column})"))
        })?;
        let has_store = file.creds_store.is_some_and(|store| !store.is_empty());
        if has_store || file.cred_helpers.is_some_and(|helpers| !helpers.is_empty()) {
            return Err(refused("a credential helper has the passwords in its stead".to_owned()));
        }
        let mut logins = BTreeMap::new();
        for (key, entry) in file.auths.unwrap_or_default() {
            let (username, password) = entry.login().map_err(|problem| {
                refused(format!("the entry for \"{}\" has {problem}", excerpt(&key)))
            })?;
            let login = RegistryLogin::new(key, username, password).map_err(refused)?;
            let registry = login.registry.to_string();
            if logins.insert(registry.clone(), login).is_some() {
                return Err(refused(format!("there are two entries for {registry}")));
            }
        }
        if logins.is_empty() {
            return Err(refused("it has no entries (auths)".to_owned()));
        }
        Ok(Self { logins: logins.into_values().collect() })
    }

    /// The login for an image with the longest fitting path; `None` if there is none for it.
    ///
    /// A login for a path answers for the image alone, because kubelet compares paths by their first characters and would
    /// use it for `host/teamster`, too. So does one for a registry of which another login is for a part: kubelet would take
    /// what it keeps for the registry without asking.
    pub fn login_for(&self, image: &Registry) -> Option<ImageLogin<'_>> {
        // The ports have to be equal, as for kubelet.
        let host = image.canonical_authority()?;
        let of_host = || self.logins.iter().filter(|login| login.registry.authority == host);
        // Paths are compared by whole segments.
        let path = Path::new(&image.path);
        let fitting = of_host().filter(|login| path.starts_with(&login.registry.path));
        let login = fitting.max_by_key(|login| login.registry.path.len())?;
        let is_for_image_alone = of_host().any(|login| !login.registry.path.is_empty());
        Some(ImageLogin { login, is_for_image_alone })
    }

    /// The text of a `config.json` that [`Registries::from_config`], docker and kubelet read, with spaces at its end.
    pub fn to_config(&self) -> String {
        let entries = self.logins.iter().map(|login| {
            let auth = STANDARD.encode(format!("{}:{}", login.username, login.password));
            (login.key.clone(), json!({ "auth": auth }))
        });
        let config = json!({ "auths": entries.collect::<Value>() }).to_string();
        let length = config.len().next_multiple_of(PADDED);
        format!("{config:length$}")
    }
}

impl RegistryLogin {
    /// The login for the registry that `key` names. The error says why it can't be one.
    pub fn new(key: String, username: String, password: String) -> Result<Self, String> {
        let registry = Registry::parse(&key).ok_or_else(|| {
            format!("\"{}\" names no registry by HOST, HOST:PORT or HOST/PATH", excerpt(&key))
        })?;
        let is_one_line = |text: &str| !text.is_empty() && !text.contains(['\n', '\r', '\0']);
        if !is_one_line(&username) || username.contains(':') || !is_one_line(&password) {
            return Err(format!(
                "user name (without a colon) and password for {registry} are not one line each"
            ));
        }
        Ok(Self { key, registry, username, password })
    }
}

impl AuthEntry {
    /// The user name and the password. The error names what the entry has instead.
    fn login(self) -> Result<(String, String), &'static str> {
        const NONE: &str = "no user name and password";
        let is_given = |token: Option<String>| token.is_some_and(|token| !token.is_empty());
        if is_given(self.identitytoken) || is_given(self.registrytoken) {
            return Err(NONE);
        }
        let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) else {
            return self.username.zip(self.password).ok_or(NONE);
        };
        let decoded = decoded(&auth).ok_or("an auth that is not base64")?;
        let text = String::from_utf8(decoded).map_err(|_| "an auth that is not UTF-8")?;
        let (username, password) =
            text.split_once(':').ok_or("an auth that is not USER:PASSWORD in base64")?;
        // docker adds zeros.
        Ok((username.to_owned(), password.trim_end_matches('\0').to_owned()))
    }
}

/// Decodes an entry's `auth` as kubelet and docker do it, in Go: padded or not, without line breaks, and whatever the
/// last bits are.
fn decoded(auth: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    LENIENT.decode(auth.trim().replace(['\r', '\n'], "")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_that_fits_best_is_chosen_by_whole_segments() {
        let login = |key: &str| RegistryLogin::new(key.into(), "u".into(), "p".into()).unwrap();
        let logins = [
            "registry.example:5000",
            "registry.example",
            "registry.example/team",
            "registry.example/team/app",
            "docker.io",
        ]
        .map(login);
        let registries = Registries { logins: logins.into() };
        let login_for = |image| {
            let image = Registry::of_image(image).unwrap();
            let found = registries.login_for(&image)?;
            Some((found.login.registry.to_string(), found.is_for_image_alone))
        };
        for (image, index, is_for_image) in [
            ("registry.example/team/app", 3, true),
            ("registry.example/team/app/sub", 3, true),
            ("registry.example/team/application", 2, true),
            ("registry.example/team", 2, true),
            ("registry.example/teamster/app", 1, true),
            ("registry.example/other", 1, true),
            ("registry.example:5000/team/app", 0, false),
            ("docker.io/library/nginx", 4, false),
            ("registry-1.docker.io/library/nginx", 4, false),
            ("Registry.Example/team", 2, true),
        ] {
            let registry = registries.logins[index].registry.to_string();
            assert_eq!(login_for(image), Some((registry, is_for_image)), "{image}");
        }
        for image in ["registry.example:5001/team/app", "other.example/team", "example/team"] {
            assert_eq!(login_for(image), None, "{image}");
        }
    }
}
