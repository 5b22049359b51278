//! Kubeconfigs: found, merged and rewritten as kubectl does it.
//!
//! A kubeconfig is kept as the tree it was written as, so that what this program doesn't know of
//! it stays. It is written as JSON, which is YAML too. Reference: client-go's package clientcmd.

#![forbid(unsafe_code)]

mod load;
mod redirect;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use zeroize::{Zeroize as _, Zeroizing};

pub use load::Locations;
pub use redirect::Detour;

use crate::error::KubeconfigError;
use crate::protocol::Configuration;

/// The provider of the external signer protocol, by its name in a kubeconfig.
const PROVIDER: &str = "externalSigner";

/// A kubeconfig, merged from its files, with every path in it absolute. It can hold PINs and keys:
/// its strings are wiped when it is dropped.
pub struct Kubeconfig(Map<String, Value>);

/// A context, by the names it brings together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Context {
    pub name: String,
    pub cluster: String,
    pub user: String,
}

/// What a client has to know to reach a cluster.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Cluster {
    /// A URL, as it stands.
    pub server: String,
    /// PEM: whom to trust, if not the system's certificates.
    pub authority: Option<Vec<u8>>,
    pub tls_server_name: Option<String>,
    /// `insecure-skip-tls-verify`
    pub insecure: bool,
    pub proxy_url: Option<String>,
}

/// What a user's `auth-provider` asks for.
pub enum Provider {
    None,
    ExternalSigner(Configuration),
    /// One of another name.
    Other(String),
}

/// The lists of a kubeconfig: the list's key, and the key of what an entry names.
#[derive(Clone, Copy)]
enum List {
    Clusters,
    Contexts,
    Users,
}

impl List {
    fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Clusters => ("clusters", "cluster"),
            Self::Contexts => ("contexts", "context"),
            Self::Users => ("users", "user"),
        }
    }
}

impl Kubeconfig {
    pub fn current_context(&self) -> Option<&str> {
        text(self.0.get("current-context")).filter(|name| !name.is_empty())
    }

    /// Makes this context the current one, here alone.
    pub fn set_current_context(&mut self, name: &str) -> Result<(), KubeconfigError> {
        let contexts = self.contexts();
        if !contexts.iter().any(|context| context.name == name) {
            return Err(KubeconfigError::NoContext {
                name: name.to_owned(),
                present: contexts.into_iter().map(|context| context.name).collect(),
            });
        }
        self.0
            .insert("current-context".to_owned(), Value::from(name));
        Ok(())
    }

    pub fn contexts(&self) -> Vec<Context> {
        let owned = |value| text(value).unwrap_or_default().to_owned();
        self.entries(List::Contexts)
            .map(|(name, context)| Context {
                name: name.to_owned(),
                cluster: owned(context.get("cluster")),
                user: owned(context.get("user")),
            })
            .collect()
    }

    /// The cluster, with its authority read where a file holds it.
    pub fn cluster(&self, name: &str) -> Result<Cluster, KubeconfigError> {
        let entry = self
            .entry(List::Clusters, name)
            .ok_or_else(|| KubeconfigError::NoCluster {
                name: name.to_owned(),
                present: self
                    .entries(List::Clusters)
                    .map(|(name, _)| name.to_owned())
                    .collect(),
            })?;
        read_cluster(entry).map_err(|reason| KubeconfigError::Cluster {
            name: name.to_owned(),
            reason,
        })
    }

    /// What the user of this name needs; a user that isn't there needs nothing.
    pub fn provider(&self, user: &str) -> Result<Provider, KubeconfigError> {
        let Some(provider) = self
            .entry(List::Users, user)
            .and_then(|user| user.get("auth-provider"))
            .filter(|provider| !provider.is_null())
        else {
            return Ok(Provider::None);
        };
        let fault = |reason: String| KubeconfigError::User {
            name: user.to_owned(),
            reason,
        };
        match text(provider.get("name")) {
            Some(PROVIDER) => {}
            name => return Ok(Provider::Other(name.unwrap_or_default().to_owned())),
        }
        let no_settings = Map::new();
        let settings = match provider.get("config") {
            None | Some(Value::Null) => &no_settings,
            Some(Value::Object(settings)) => settings,
            Some(_) => return Err(fault("auth-provider.config is not a map".to_owned())),
        };
        let pairs = settings
            .iter()
            .map(|(key, value)| {
                let value = text(Some(value)).ok_or_else(|| {
                    fault(format!(
                        "{key} in auth-provider.config is not a string: put it in quotes"
                    ))
                })?;
                Ok((key.as_str(), value))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Provider::ExternalSigner(pairs.into_iter().collect()))
    }

    /// As JSON.
    pub fn to_json(&self) -> Zeroizing<String> {
        Zeroizing::new(Value::Object(self.0.clone()).to_string())
    }

    /// The entries of a list by their names; what is no entry is passed over.
    fn entries(&self, list: List) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        let (list, item) = list.keys();
        self.0
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(move |entry| {
                let name = text(entry.get("name")).unwrap_or_default();
                Some((name, entry.get(item)?.as_object()?))
            })
    }

    fn entry(&self, list: List, name: &str) -> Option<&Map<String, Value>> {
        self.entries(list)
            .find_map(|(found, entry)| (found == name).then_some(entry))
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        self.0.values_mut().for_each(wipe);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe),
        Value::Object(members) => members.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn read_cluster(entry: &Map<String, Value>) -> Result<Cluster, String> {
    let string = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("{key} is not a string")),
    };
    let insecure = match entry.get("insecure-skip-tls-verify") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(insecure)) => *insecure,
        Some(_) => return Err("insecure-skip-tls-verify is neither true nor false".to_owned()),
    };
    // As client-go has it, the data goes before the file.
    let authority = match (
        string("certificate-authority-data")?,
        string("certificate-authority")?,
    ) {
        (Some(data), _) => Some(
            BASE64_STANDARD
                .decode(data.split_whitespace().collect::<String>())
                .map_err(|_| "certificate-authority-data is not base64".to_owned())?,
        ),
        (None, Some(file)) => Some(
            load::read(file.as_ref())
                .map_err(|reason| format!("certificate-authority {file}: {reason}"))?
                .to_vec(),
        ),
        (None, None) => None,
    };
    if insecure && authority.is_some() {
        return Err(
            "it has a certificate-authority and insecure-skip-tls-verify; only one can be meant"
                .to_owned(),
        );
    }
    Ok(Cluster {
        server: string("server")?.ok_or("it has no server")?,
        authority,
        tls_server_name: string("tls-server-name")?,
        insecure,
        proxy_url: string("proxy-url")?,
    })
}

fn text(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(yaml: &str) -> Kubeconfig {
        load::parse(yaml.as_bytes(), "test".as_ref()).unwrap()
    }

    #[test]
    fn the_settings_of_a_user_are_strings() {
        let config = kubeconfig(
            "users:\n\
             - name: jane\n  user: {auth-provider: {name: externalSigner, config: {slotId: \"0\"}}}\n\
             - name: joe\n  user: {auth-provider: {name: externalSigner, config: {pin: 987654}}}\n\
             - name: jim\n  user: {auth-provider: {name: gcp}}\n\
             - name: jill\n  user: {token: t}\n",
        );
        let Ok(Provider::ExternalSigner(mut settings)) = config.provider("jane") else {
            panic!("jane has a provider");
        };
        assert_eq!(settings.take("slotId").unwrap().as_str(), "0");
        let refused = config.provider("joe").err().unwrap().to_string();
        assert!(
            refused.contains("\"joe\"") && refused.contains("pin"),
            "{refused}"
        );
        assert!(!refused.contains("987654"), "{refused}");
        assert!(matches!(config.provider("jim"), Ok(Provider::Other(name)) if name == "gcp"));
        for name in ["jill", "nobody"] {
            assert!(matches!(config.provider(name), Ok(Provider::None)));
        }
    }

    #[test]
    fn a_cluster_is_read_as_kubectl_reads_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from the file").unwrap();
        let path = file.path().display();
        let config = kubeconfig(&format!(
            "clusters:\n\
             - name: file\n  cluster: {{server: \"https://a\", certificate-authority: {path}}}\n\
             - name: both\n  cluster: {{server: \"https://a\", certificate-authority: {path}, \
                certificate-authority-data: aGVyZQ==}}\n\
             - name: twofold\n  cluster: {{server: \"https://a\", insecure-skip-tls-verify: true, \
                certificate-authority-data: aGVyZQ==}}\n\
             - name: nowhere\n  cluster: {{proxy-url: \"socks5://p:1\"}}\n"
        ));
        let authority = |name: &str| config.cluster(name).unwrap().authority.unwrap();
        assert_eq!(authority("file"), b"from the file");
        assert_eq!(authority("both"), b"here");
        for (name, reason) in [("twofold", "only one"), ("nowhere", "no server")] {
            let error = config.cluster(name).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(matches!(
            config.cluster("neverland"),
            Err(KubeconfigError::NoCluster { present, .. }) if present.len() == 4
        ));
    }
}
