//! kubectl's own fields of a kubeconfig (client-go, tools/clientcmd/api/v1, types.go), each with
//! what isn't known here kept beside them in `other`.
//!
//! A field of another type is refused, as kubectl refuses it. `null` is the same as no field, and
//! [`Kubeconfig::to_json`] leaves both out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::printable::excerpt;

/// Members that aren't known here, by their names.
pub(super) type Other = BTreeMap<String, Value>;

pub(super) type Extensions = Option<Named<NamedExtension>>;

/// One kubeconfig, merged from its files, every path in it absolute. No `Debug`: it can hold a PIN
/// and keys.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case", expecting = "a map with clusters and users")]
pub struct Kubeconfig {
    /// `v1` or empty, and written by [`Kubeconfig::to_json`].
    #[serde(rename = "apiVersion", deserialize_with = "or_default", skip_serializing)]
    pub(super) api_version: String,
    #[serde(deserialize_with = "or_default", skip_serializing)]
    pub(super) kind: String,
    pub(super) preferences: Option<Preferences>,
    pub(super) clusters: Named<NamedCluster>,
    pub(super) users: Named<NamedUser>,
    pub(super) contexts: Named<NamedContext>,
    /// Empty for none.
    #[serde(deserialize_with = "or_default")]
    pub(super) current_context: String,
    pub(super) extensions: Extensions,
    #[serde(flatten)]
    pub(super) other: Other,
    /// The files that somebody else can change, and who.
    #[serde(skip)]
    pub(super) concerns: Vec<(PathBuf, String)>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, expecting = "a map")]
pub(super) struct Preferences {
    pub(super) colors: Option<bool>,
    pub(super) extensions: Extensions,
    #[serde(flatten)]
    pub(super) other: Other,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case", expecting = "a map")]
pub(super) struct ClusterEntry {
    pub(super) server: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) certificate_authority: Option<String>,
    #[serde(deserialize_with = "base64_text")]
    pub(super) certificate_authority_data: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) disable_compression: Option<bool>,
    pub(super) extensions: Extensions,
    #[serde(flatten)]
    pub(super) other: Other,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case", expecting = "a map")]
pub(super) struct UserEntry {
    pub(super) client_certificate: Option<String>,
    #[serde(deserialize_with = "base64_text")]
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    #[serde(deserialize_with = "base64_text")]
    pub(super) client_key_data: Option<String>,
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    #[serde(rename = "as")]
    as_user: Option<String>,
    pub(super) as_uid: Option<String>,
    pub(super) as_groups: Option<Vec<Option<String>>>,
    pub(super) as_user_extra: Option<BTreeMap<String, Option<Vec<Option<String>>>>>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) auth_provider: Option<AuthProvider>,
    pub(super) exec: Option<Exec>,
    extensions: Extensions,
    #[serde(flatten)]
    pub(super) other: Other,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, expecting = "a map")]
pub(super) struct AuthProvider {
    pub(super) name: Option<String>,
    pub(super) config: Option<BTreeMap<String, ConfigurationValue>>,
    #[serde(flatten)]
    pub(super) other: Other,
}

/// One of the texts that a provider is configured with; see `decode` for numbers.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct ConfigurationValue(pub(super) String);

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase", expecting = "a map")]
pub(super) struct Exec {
    pub(super) command: Option<String>,
    pub(super) args: Option<Vec<Option<String>>>,
    pub(super) env: Option<Vec<Option<EnvironmentVariable>>>,
    pub(super) api_version: Option<String>,
    pub(super) install_hint: Option<String>,
    pub(super) provide_cluster_info: Option<bool>,
    pub(super) interactive_mode: Option<String>,
    #[serde(flatten)]
    pub(super) other: Other,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, expecting = "a map")]
pub(super) struct EnvironmentVariable {
    pub(super) name: Option<String>,
    pub(super) value: Option<String>,
    #[serde(flatten)]
    pub(super) other: Other,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case", expecting = "a map")]
pub(super) struct ContextEntry {
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) extensions: Extensions,
    #[serde(flatten)]
    pub(super) other: Other,
}

/// Its `extension` can be anything.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default, expecting = "a map")]
pub(super) struct NamedExtension {
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) other: Other,
}

/// The content of the extension of this name.
pub(super) fn extension<'a>(extensions: &'a Extensions, name: &str) -> Option<&'a Value> {
    extensions.as_ref()?.0.get(name)?.other.get("extension")
}

/// Gives the extension of this name another content, or removes it.
pub(super) fn set_extension(extensions: &mut Extensions, name: &str, content: Option<Value>) {
    let list = extensions.get_or_insert_default();
    match content {
        Some(content) => {
            let element = list.0.entry(name.to_owned()).or_default();
            element.name = name.to_owned();
            element.other.insert("extension".to_owned(), content);
        }
        None => {
            list.0.remove(name);
        }
    }
    if list.0.is_empty() {
        *extensions = None;
    }
}

/// The elements of a list, distinguished by their names.
#[derive(Clone)]
pub(super) struct Named<T>(pub(super) BTreeMap<String, T>);

impl<T> Named<T> {
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Adds the elements of a later file whose names aren't there yet.
    pub(super) fn add_missing(&mut self, later: Self) {
        for (name, element) in later.0 {
            self.0.entry(name).or_insert(element);
        }
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Default + Deserialize<'de> + HasName> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(list: D) -> Result<Self, D::Error> {
        let elements: Vec<Option<T>> = or_default(list)?;
        let mut named = Self::default();
        for element in elements.into_iter().map(Option::unwrap_or_default) {
            let name = element.name().to_owned();
            if named.0.insert(name.clone(), element).is_some() {
                let name = excerpt(&name);
                return Err(D::Error::custom(format_args!("\"{name}\" is there twice")));
            }
        }
        Ok(named)
    }
}

/// In the order of names, as kubectl writes them.
impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.values())
    }
}

pub(super) trait HasName {
    fn name(&self) -> &str;
}

/// An element of a list: its name, and its content in a field that is called after the kind.
macro_rules! named_element {
    ($element:ident, $field:ident: $content:ident) => {
        #[derive(Clone, Default, Deserialize, Serialize)]
        #[serde(default, expecting = "a map")]
        pub(super) struct $element {
            #[serde(deserialize_with = "or_default")]
            pub(super) name: String,
            pub(super) $field: Option<$content>,
            #[serde(flatten)]
            pub(super) other: Other,
        }

        impl HasName for $element {
            fn name(&self) -> &str {
                &self.name
            }
        }
    };
}

named_element!(NamedCluster, cluster: ClusterEntry);
named_element!(NamedUser, user: UserEntry);
named_element!(NamedContext, context: ContextEntry);

impl HasName for NamedExtension {
    fn name(&self) -> &str {
        &self.name
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

fn base64_text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(value)?;
    match text.as_deref().map(decode_base64) {
        Some(None) => Err(D::Error::invalid_value(Unexpected::Other(""), &"base64")),
        _ => Ok(text),
    }
}

/// As Go decodes it: padded, line breaks passed over, the last bits not looked at.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    LENIENT.decode(text.replace(['\r', '\n'], "")).ok()
}
