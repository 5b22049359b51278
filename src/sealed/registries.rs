//! The content of a sealed file: docker's `config.json`, reduced to registries with user names and passwords.
//!
//! No error quotes anything but the name of a registry.

use std::collections::BTreeMap;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{Engine as _, alphabet};
use serde::Deserialize;
use serde_json::{Value, json};

use super::registry::Registry;
use base::error::{Error, Exit};
use base::printable::excerpt;

/// The length of a content is a multiple of it, in bytes: that of the file doesn't show the passwords' length.
const PADDED: usize = 1024;

/// Registries, each with the login for it, in the order of their names. No two are for the same.
pub struct Registries {
    pub logins: Vec<RegistryLogin>,
}

/// A user name and a password. It is neither printed nor cloned by accident.
pub struct RegistryLogin {
    /// As the document names it.
    key: String,
    pub registry: Registry,
    pub username: String,
    pub password: String,
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
    // What kubelet can't be given.
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Registries {
    /// Reads a `config.json`, called `name` in messages. What it says beside registries is passed over.
    pub fn from_config(bytes: &[u8], name: &str) -> Result<Self, Error> {
        let refused = |reason: String| {
            Error::new(Exit::Configuration, format!("{name}: {reason}")).help("seal a config.json as `docker --config DIRECTORY login` writes it without a credential helper, or name \
                 registry and user: seal --registry HOST --username USER")
        };
        let file: ConfigFile = serde_json::from_slice(bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            refused(format!("it is not the JSON of a config.json (line {line}, column {column})"))
        })?;
        let has_store = file.creds_store.is_some_and(|it| !it.is_empty());
        if has_store || file.cred_helpers.is_some_and(|it| !it.is_empty()) {
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
        match logins.is_empty() {
            true => Err(refused("it has no entries (auths)".to_owned())),
            false => Ok(Self { logins: logins.into_values().collect() }),
        }
    }

    /// As a `config.json` that [`Registries::from_config`], docker and kubelet read, with spaces at its end.
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
    /// The login for the registry that `key` names; or why there is none.
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
    /// User name and password; or what the entry has in their stead.
    fn login(self) -> Result<(String, String), &'static str> {
        const NONE: &str = "no user name and password";
        let is_given = |it: Option<String>| it.is_some_and(|it| !it.is_empty());
        if is_given(self.identitytoken) || is_given(self.registrytoken) {
            return Err(NONE);
        }
        let Some(auth) = self.auth.filter(|it| !it.is_empty()) else {
            return self.username.zip(self.password).ok_or(NONE);
        };
        let decoded = decoded(&auth).ok_or("an auth that is not base64")?;
        let text = String::from_utf8(decoded).map_err(|_| "an auth that is not UTF-8")?;
        let (username, password) =
            text.split_once(':').ok_or("an auth that is not USER:PASSWORD in base64")?;
        // docker fills up with zeros.
        Ok((username.to_owned(), password.trim_end_matches('\0').to_owned()))
    }
}

/// As kubelet and docker decode it, in Go: padded or not, line breaks passed over, the last bits not looked at.
fn decoded(auth: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    LENIENT.decode(auth.trim().replace(['\r', '\n'], "")).ok()
}
