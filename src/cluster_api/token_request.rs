//! A token of a service account (TokenRequest), for as long as was asked for.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{ClusterApi as _, TokenConnection, is_label, is_name, unusable};
use base::error::Error;

/// In characters, of a namespace.
const LONGEST_LABEL: usize = 63;

/// A service account, as `NAMESPACE/NAME`. Both are fit for a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

/// Asks for a token, and when it ends: in seconds since 1970, by the server's clock, which may have made it shorter.
/// Without audiences it is for the API server itself.
pub fn request_token(
    api: &TokenConnection,
    account: &ServiceAccount,
    seconds: u64,
    audiences: &[String],
) -> Result<(String, i64), Error> {
    let ServiceAccount { namespace, name } = account;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let purpose = format!("make a token of the service account {account}");
    let object = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "audiences": audiences},
    });
    made(&api.create(&path, &object, &purpose)?, &api.cluster, &purpose)
}

fn made(answer: &Value, cluster: &str, purpose: &str) -> Result<(String, i64), Error> {
    let text = |field: &str| answer["status"][field].as_str();
    let ends = text("expirationTimestamp").and_then(|it| OffsetDateTime::parse(it, &Rfc3339).ok());
    let (token, ends) = text("token")
        .filter(|it| !it.is_empty())
        .zip(ends)
        .ok_or_else(|| unusable(cluster, purpose, "it holds no token with its end"))?;
    Ok((token.to_owned(), ends.unix_timestamp()))
}

impl FromStr for ServiceAccount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/').filter(|(namespace, name)| {
            namespace.len() <= LONGEST_LABEL && is_label(namespace) && is_name(name)
        });
        let (namespace, name) =
            parts.ok_or("it is not NAMESPACE/NAME, such as default/deployer")?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(object: Value) -> Result<(String, i64), Error> {
        made(&object, "cluster \"test\"", "make a token")
    }

    #[test]
    fn the_servers_end_counts() {
        let status = json!({"token": "a.b-_.c", "expirationTimestamp": "2026-11-22T04:00:00Z"});
        let made = answered(json!({ "status": status })).unwrap();
        assert_eq!(made, ("a.b-_.c".to_owned(), 1_795_320_000));
    }

    #[test]
    fn what_holds_no_token_is_none() {
        let status = |token: &str, end: &str| json!({"status": {"token": token, "expirationTimestamp": end}});
        let end = "2026-11-22T04:00:00Z";
        for answer in [
            json!({}),
            json!({"status": {}}),
            json!({"status": {"token": 1, "expirationTimestamp": end}}),
            status("", end),
            status("a", "soon"),
        ] {
            let error = answered(answer.clone()).err().unwrap();
            assert_eq!(error.exit_code(), 9, "{answer}");
        }
    }

    #[test]
    fn names_lead_to_no_other_path() {
        for text in ["default/a", "kube-system/a.b-c"] {
            assert_eq!(text.parse::<ServiceAccount>().unwrap().to_string(), text);
        }
        let long = format!("{}/a", "n".repeat(64));
        for text in ["", "a", "a/", "/a", "a/b/c", "a/..", "A/b", "a/b?c", "a.b/c", "a/-b", &long] {
            assert!(text.parse::<ServiceAccount>().is_err(), "{text}");
        }
    }
}
