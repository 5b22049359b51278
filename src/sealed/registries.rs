//! The content of a sealed file: docker's `config.json`, reduced to registries with user names and passwords.
//!
//! No error quotes anything but the name of a registry, a helper or a field.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::registry::Registry;
use crate::error::{Failure, Help};
use crate::printable::excerpt;

/// Registries, each with the login for it, in the order of their names. No two are for the same.
pub struct Registries(Vec<RegistryLogin>);

/// A user name and a password. It is neither printed nor cloned by accident.
pub struct RegistryLogin {
    /// As the document names it.
    key: String,
    pub registry: Registry,
    pub username: String,
    pub password: String,
}

/// Exit code 3: what can't be sealed, or was sealed and can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// `auth` is the base64 text of a user name, a colon and a password.
    #[error("the entry for \"{registry}\" has no user name and password")]
    Entry { registry: String },
    /// `https://registry.example/v1/` and `registry.example` are one registry.
    #[error("there are two entries for {registry}")]
    Twice { registry: String },
    /// docker keeps no passwords in the file then, but asks this program for them.
    #[error(
        "it names the credential helper \"{helper}\" ({field}), which has the passwords in its stead"
    )]
    Helper { field: &'static str, helper: String },
    #[error("\"{0}\" names no registry")]
    Name(String),
    #[error("it has no entries (auths)")]
    None,
    #[error("it is not the JSON of a config.json (line {line}, column {column})")]
    NotJson { line: usize, column: usize },
    /// `identitytoken` and `registrytoken`, which kubelet can't be given.
    #[error("the entry for \"{registry}\" has {field} instead of a password")]
    Token { registry: String, field: &'static str },
    #[error("the user name for {registry} has a colon, is empty or is not one line")]
    Username { registry: String },
    #[error("the password for {registry} is empty or is not one line")]
    Password { registry: String },
}

impl Failure for RegistryError {
    fn exit_code(&self) -> u8 {
        3
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Helper { .. } => {
                "take the helper out of a copy of the file and log in to the registry there (docker --config DIRECTORY \
                 login), or name registry and user: seal --registry HOST --username USER"
            }
            Self::Twice { .. } => "take one of them out",
            Self::Token { .. } => {
                "make a password or an access token for the nodes, and name it with seal --registry HOST --username USER"
            }
            Self::Entry { .. } | Self::None | Self::NotJson { .. } => {
                "seal a config.json as `docker login` writes it, or name registry and user: seal --registry HOST \
                 --username USER"
            }
            Self::Name(_) => "write it as HOST, HOST:PORT or HOST/PATH",
            Self::Username { .. } => "give the user name as the registry knows it, without a colon",
            Self::Password { .. } => "give the password in one line",
        }
        .into()
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    auths: Option<OrderedMembers<AuthEntry>>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
    #[serde(default, rename = "credHelpers")]
    helpers: Option<OrderedMembers<String>>,
}

#[derive(Default, Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// An object's members in their order, those of one name too.
struct OrderedMembers<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMembers<T> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Each<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<T> {
            type Value = OrderedMembers<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(OrderedMembers(members))
            }
        }
        value.deserialize_map(Each(std::marker::PhantomData))
    }
}

impl Registries {
    /// Reads a `config.json`. What it says beside registries is passed over.
    ///
    /// # Errors
    /// It is malformed, leaves the passwords to a helper, or has an entry that can't be used.
    pub fn from_config(bytes: &[u8]) -> Result<Self, RegistryError> {
        let not_json = |error: serde_json::Error| RegistryError::NotJson {
            line: error.line(),
            column: error.column(),
        };
        // serde takes an array for the fields of a struct.
        let _: OrderedMembers<IgnoredAny> = serde_json::from_slice(bytes).map_err(not_json)?;
        let file: ConfigFile = serde_json::from_slice(bytes).map_err(not_json)?;
        if let Some(helper) = file.store.filter(|it| !it.is_empty()) {
            return Err(RegistryError::Helper { field: "credsStore", helper: excerpt(&helper) });
        }
        if let Some((registry, helper)) = file.helpers.and_then(|it| it.0.into_iter().next()) {
            return Err(RegistryError::Helper {
                field: "credHelpers",
                helper: format!("{} for {}", excerpt(&helper), excerpt(&registry)),
            });
        }
        let entries = file.auths.map(|it| it.0).unwrap_or_default();
        let logins: Result<Vec<_>, _> =
            entries.into_iter().map(|(key, it)| it.login(key)).collect();
        Self::new(logins?)
    }

    /// # Errors
    /// There are none, or two for one registry.
    pub fn new(mut logins: Vec<RegistryLogin>) -> Result<Self, RegistryError> {
        if logins.is_empty() {
            return Err(RegistryError::None);
        }
        let mut names = HashSet::new();
        for login in &logins {
            let registry = login.registry.to_string();
            if !names.insert(registry.clone()) {
                return Err(RegistryError::Twice { registry });
            }
        }
        logins.sort_by_cached_key(|it| it.registry.to_string());
        Ok(Self(logins))
    }

    pub fn logins(&self) -> &[RegistryLogin] {
        &self.0
    }

    /// As a `config.json` that [`Registries::from_config`], docker and kubelet read.
    pub fn to_config(&self) -> String {
        let entries = self.0.iter().map(|login| {
            let auth = STANDARD.encode(format!("{}:{}", login.username, login.password));
            (login.key.clone(), json!({ "auth": auth }))
        });
        let entries: Map<String, Value> = entries.collect();
        json!({ "auths": entries }).to_string()
    }
}

impl RegistryLogin {
    /// # Errors
    /// The name is no registry's, or a text isn't one that a registry is given as a login.
    pub fn new(key: String, username: String, password: String) -> Result<Self, RegistryError> {
        let registry = Registry::parse(&key).ok_or_else(|| RegistryError::Name(excerpt(&key)))?;
        let is_one_line = |text: &str| !text.is_empty() && !text.contains(['\n', '\r', '\0']);
        if !is_one_line(&username) || username.contains(':') {
            let registry = registry.to_string();
            return Err(RegistryError::Username { registry });
        }
        if !is_one_line(&password) {
            let registry = registry.to_string();
            return Err(RegistryError::Password { registry });
        }
        Ok(Self { key, registry, username, password })
    }
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryLogin({})", self.registry)
    }
}

impl fmt::Debug for Registries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AuthEntry {
    fn login(self, key: String) -> Result<RegistryLogin, RegistryError> {
        let registry = || excerpt(&key);
        let is_given = |it: &Option<String>| it.as_ref().is_some_and(|it| !it.is_empty());
        let token =
            [("identitytoken", &self.identitytoken), ("registrytoken", &self.registrytoken)];
        if let Some((field, _)) = token.into_iter().find(|(_, it)| is_given(it)) {
            let registry = registry();
            return Err(RegistryError::Token { registry, field });
        }
        let decoded = match self.auth {
            Some(auth) if !auth.is_empty() => decoded(&auth),
            _ => self.username.zip(self.password),
        };
        let Some((username, password)) = decoded else {
            let registry = registry();
            return Err(RegistryError::Entry { registry });
        };
        RegistryLogin::new(key, username, password)
    }
}

/// `None` for a text that isn't user name and password in base64.
fn decoded(auth: &str) -> Option<(String, String)> {
    let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    // docker fills up with zeros.
    let password = password.trim_end_matches('\0');
    Some((username.to_owned(), password.to_owned()))
}
