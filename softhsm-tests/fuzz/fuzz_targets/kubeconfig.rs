//! The kubeconfig reader, on any bytes: what is read is written as JSON that says the same to
//! itself, to a JSON parser and to kubectl, before and after a context is redirected.
//!
//! It opens no file: clusters whose authority is in one are passed over.

#![no_main]

use std::path::Path;

use kubeconfig::{Context, Kubeconfig, NamedCluster, Provider, TunnelEndpoint, user_excerpt};
use libfuzzer_sys::fuzz_target;
use protocol::Configuration;
use serde_json::Value;

const ADDRESS: &str = "127.0.0.1:21234";

fuzz_target!(|content: &[u8]| {
    assert_pasted_as_set(content);
    let mut config = match parse(content) {
        Ok(config) => config,
        Err(error) => {
            assert!(error.len() < 2000, "{error}");
            return;
        }
    };
    let written = serde_json::from_str(&config.to_json()).expect("JSON");
    if has_long_key(&written) {
        return;
    }
    let before = document(&config);
    let contexts = config.contexts();
    for context in &contexts {
        assert_eq!(config.context(&context.name).ok().as_ref(), Some(context));
        look_at(&config, &before, context);
    }
    let Some(redirected) = contexts.first() else {
        return;
    };
    let others = contexts
        .iter()
        .filter(|context| context.cluster == redirected.cluster && context.user != redirected.user);
    config.redirect(&redirected.cluster, &endpoint(), &others.collect::<Vec<_>>());
    config.identify(&redirected.user, "certificate", "key");
    let after = document(&config);
    for (old, new) in contexts.iter().zip(config.contexts()) {
        let (was, is) = (cluster(&before, &old.cluster), cluster(&after, &new.cluster));
        assert_eq!((&old.name, &old.user), (&new.name, &new.user));
        if (&old.cluster, &old.user) == (&redirected.cluster, &redirected.user) && was.is_some() {
            let server = is.and_then(|cluster| cluster["server"].as_str());
            let place = server.and_then(|server| server.strip_prefix("https://"));
            let path = place.and_then(|place| place.strip_prefix(ADDRESS));
            assert!(path.is_some_and(|path| path.is_empty() || path.starts_with('/')));
        } else {
            assert_eq!(was, is);
        }
    }
});

fn parse(content: &[u8]) -> Result<Kubeconfig, String> {
    let path = Path::new("/home/jane/.kube/config");
    Kubeconfig::parse(content, path).map_err(|error| error.to_string())
}

/// Whether a key is, or with escapes may be, longer than YAML lets it be in a flow mapping, and so in JSON: 1,024
/// characters (YAML 1.2.2, section 7.4.2).
fn has_long_key(document: &Value) -> bool {
    match document {
        Value::Object(members) => {
            members.iter().any(|(key, it)| key.len() > 170 || has_long_key(it))
        }
        Value::Array(items) => items.iter().any(has_long_key),
        _ => false,
    }
}

/// The kubeconfig as it is written, read by another parser.
fn document(config: &Kubeconfig) -> Value {
    let written = config.to_json();
    assert!(written.chars().all(is_of_yaml), "{written:?}");
    let again = parse(written.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.to_json(), written);
    let document: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(document["contexts"].as_array().map_or(0, Vec::len), config.contexts().len());
    document
}

/// What YAML 1.1 takes as it is; what it takes for a line break has no place in JSON.
fn is_of_yaml(character: char) -> bool {
    matches!(character, ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
        && !matches!(character, '\u{2028}' | '\u{2029}')
}

/// What a cluster's entry holds, by another parser's view.
fn cluster<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let clusters = document["clusters"].as_array()?;
    let mut found =
        clusters.iter().filter(|entry| entry["name"].as_str().unwrap_or_default() == name);
    let entry = found.next()?;
    assert!(found.next().is_none(), "{name} is there twice");
    Some(&entry["cluster"])
}

fn look_at(config: &Kubeconfig, document: &Value, context: &Context) {
    if let Ok(Provider::ExternalSigner(configuration)) = config.provider(&context.user) {
        let mut users = document["users"].as_array().into_iter().flatten();
        let user = users.find(|entry| entry["name"].as_str().unwrap_or_default() == context.user);
        let settings = user.map(|entry| &entry["user"]["auth-provider"]["config"]);
        for (key, value) in settings.and_then(Value::as_object).into_iter().flatten() {
            assert_eq!(configuration.value(key), Some(value.as_str().unwrap_or_default()));
        }
    }
    let named = cluster(document, &context.cluster);
    let text = |key: &str| named.and_then(|it| it[key].as_str()).unwrap_or_default();
    // What is noted for the plugin can name a file, too.
    let is_noted = named.is_some_and(|it| it.to_string().contains("pkcs11-external-signer"));
    if text("certificate-authority").is_empty() && !is_noted {
        match config.cluster(&context.cluster) {
            Ok(NamedCluster { cluster, .. }) => {
                // A user and a password are left out.
                if !text("server").contains('@') {
                    assert_eq!(cluster.server, text("server"));
                }
                assert!(!cluster.server.is_empty());
                assert!(!(cluster.insecure && cluster.authority.is_some()));
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

/// A user made of the lines of any text is read as what it was made of.
fn assert_pasted_as_set(content: &[u8]) {
    let text = String::from_utf8_lossy(content);
    let (name, label) = text.split_once('\n').unwrap_or((&text, ""));
    let library = format!("/{name}");
    let pairs = [("pathLib", &*library), ("objectLabel", label)];
    let is_fit = |character| character == '\n' || is_of_yaml(character);
    for is_plugin in [true, false] {
        let excerpt = user_excerpt(name, &pairs.into_iter().collect(), is_plugin).expect("a user");
        assert!(excerpt.chars().all(is_fit), "{excerpt:?}");
        let config = parse(excerpt.as_bytes()).unwrap_or_else(|error| panic!("{excerpt}: {error}"));
        let Ok(Provider::ExternalSigner(configuration)) = config.provider(name) else {
            panic!("{excerpt}");
        };
        let value = |key| Configuration::value(&configuration, key).unwrap_or_default();
        assert_eq!((value("pathLib"), value("objectLabel")), (&*library, label));
    }
}

fn endpoint() -> TunnelEndpoint<'static> {
    TunnelEndpoint { address: ADDRESS, server_name: "tunnel.invalid", authority_pem: "authority" }
}
