//! A connection of our own to the API server, with the token's key and certificate.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{
    ClusterApi, ClusterUser, is_label, is_name, parsed, signing_request, unusable, whoami,
};
use crate::kind;
use keyring::{KeyNumber, OpenKeys};
use messages::error::{Error, Exit};
use tunnel::{ServerAnswer, ServerExchange, TunnelObserver, TunnelTarget, tunnel_error};

/// The user for whom an API server takes a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

/// The longest name of a namespace, in characters.
const LONGEST_LABEL: usize = 63;

/// The cluster, asked by the bearer of a token's key.
pub struct TokenConnection {
    exchange: ServerExchange,
    cluster: String,
}

impl TokenConnection {
    /// Prepares a connection to this cluster with this key of the keyring. Nothing is sent yet.
    pub fn new(
        cluster: TunnelTarget,
        key: KeyNumber,
        keyring: Arc<dyn OpenKeys>,
        observer: &Arc<dyn TunnelObserver>,
    ) -> Result<Self, Error> {
        let described = format!("cluster \"{}\" ({})", cluster.name, cluster.cluster.server);
        let exchange = ServerExchange::new(cluster, key, keyring, observer)?;
        Ok(Self { exchange, cluster: described })
    }

    /// Asks the cluster for which user it takes the bearer of the key. An error if that is nobody.
    pub fn whoami(&self) -> Result<ClusterUser, Error> {
        match whoami(self)? {
            user if user.name == ANONYMOUS => Err(not_recognised().about(&self.cluster)),
            user => Ok(user),
        }
    }

    /// Asks for a token of a service account that lives so many seconds, or shorter if the server wants that. Without
    /// audiences, the token is for the API server itself.
    pub fn request_token(
        &self,
        account: &ServiceAccount,
        seconds: u64,
        audiences: &[String],
    ) -> Result<ServiceAccountToken, Error> {
        let ServiceAccount { namespace, name } = account;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let purpose = format!("make a token of the service account {account}");
        let object = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds, "audiences": audiences},
        });
        made(&self.create(&path, &object, &purpose)?, &self.cluster, &purpose)
    }

    /// Sends a request and waits for the answer, for a limited time. Names in `path` must be fit for a URL.
    pub(super) fn send(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        purpose: &str,
    ) -> Result<Value, Error> {
        let body = body.map(ToString::to_string);
        let ServerAnswer { status, body } = self.exchange.send(method, path, body.as_deref())?;
        if (200..300).contains(&status) {
            return parsed(&self.cluster, purpose, &body);
        }
        let refusal =
            ServerRefusal::of(status, &body).map_err(|error| error.about(&self.cluster))?;
        let ServerRefusal { reason, message } = refusal;
        let cluster = &self.cluster;
        let text = format!("{cluster}: the API server refuses to {purpose}: {message}");
        let error = Error::new(Exit::Cluster, text);
        Err(match (status, reason.as_str()) {
            (404, _) => error.kind(kind::NOT_FOUND).help(
                "check the name, and that the cluster has this API: `kubectl api-resources`",
            ),
            (_, "Forbidden") => error.kind(kind::FORBIDDEN).help(
                "have an administrator of the cluster allow this user what the message names (RBAC)",
            ),
            _ => error.help("correct what the message names; the API server's log may tell more"),
        })
    }
}

impl ClusterApi for TokenConnection {
    fn signing_request(&self, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", signing_request::PATH);
        match self.send(&Method::GET, &path, None, "show the CertificateSigningRequest") {
            Ok(request) => Ok(Some(request)),
            Err(error) if error.is(&kind::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create(&self, path: &str, object: &Value, purpose: &str) -> Result<Value, Error> {
        self.send(&Method::POST, path, Some(object), purpose)
    }

    fn cluster(&self) -> &str {
        &self.cluster
    }
}

/// A service account, typed as `NAMESPACE/NAME`. Both names are fit for a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
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

/// A token of a service account, as the API server has made it.
pub struct ServiceAccountToken {
    pub token: String,
    /// When the token expires, in seconds since 1970, by the server's clock.
    pub ends: i64,
}

/// Reads the token from the answer to a request for one.
fn made(answer: &Value, cluster: &str, purpose: &str) -> Result<ServiceAccountToken, Error> {
    let text = |field: &str| answer["status"][field].as_str();
    let token = text("token").filter(|token| !token.is_empty());
    let ends =
        text("expirationTimestamp").and_then(|end| OffsetDateTime::parse(end, &Rfc3339).ok());
    let (Some(token), Some(ends)) = (token, ends) else {
        return Err(unusable(cluster, purpose, "it holds no token with its end"));
    };
    Ok(ServiceAccountToken { token: token.to_owned(), ends: ends.unix_timestamp() })
}

fn not_recognised() -> Error {
    tunnel::not_recognised().kind(kind::NOT_RECOGNISED)
}

/// Why an API server refuses a request that it has understood: the fields of a Kubernetes Status. A field that the
/// answer doesn't have is empty.
#[derive(Debug)]
struct ServerRefusal {
    reason: String,
    message: String,
}

impl ServerRefusal {
    /// Reads the refusal from an answer whose HTTP status isn't one of success. An error if the API server doesn't know
    /// the bearer, or if something else than an API server has answered.
    fn of(status: u16, body: &[u8]) -> Result<Self, Error> {
        if status == 401 {
            return Err(not_recognised());
        }
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        if answer["kind"] == "Status" {
            let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
            let refusal = Self { reason: text("reason"), message: text("message") };
            if status == 403 && refusal.message.contains(ANONYMOUS) {
                return Err(not_recognised());
            }
            return Ok(refusal);
        }
        if status == 404 {
            // An API server answers so for a path that it doesn't know at all.
            let message = "the server could not find the requested resource".to_owned();
            return Ok(Self { reason: String::new(), message });
        }
        Err(tunnel_error(
            format!("the server answered with HTTP status {status}"),
            "check that the address in the kubeconfig is an API server's, and its health",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, body: &str) -> String {
        match ServerRefusal::of(status, body.as_bytes()) {
            Err(failure) => format!("{failure:?}"),
            Ok(ServerRefusal { reason, .. }) => format!("refused {reason}"),
        }
    }

    #[test]
    fn an_answer_that_is_no_object_says_why() {
        assert!(outcome(401, "").contains("does not take the certificate"));
        let status = |message: &str| {
            format!(r#"{{"kind":"Status","reason":"Forbidden","message":"{message}"}}"#)
        };
        let forbidden = status(r#"User \"system:anonymous\" cannot create"#);
        assert_eq!(outcome(403, &forbidden), outcome(401, ""));
        assert_eq!(outcome(403, &status("no")), "refused Forbidden");
        assert!(outcome(403, "{}").contains("status 403"));
        assert_eq!(outcome(404, "404 page not found"), "refused ");
        assert!(outcome(502, "<html>").contains("status 502"));
    }
    fn answered(object: Value) -> Result<ServiceAccountToken, Error> {
        made(&object, "cluster \"test\"", "make a token")
    }

    #[test]
    fn the_servers_end_counts() {
        let status = json!({"token": "a.b-_.c", "expirationTimestamp": "2026-11-22T04:00:00Z"});
        let made = answered(json!({ "status": status })).unwrap();
        assert_eq!((made.token.as_str(), made.ends), ("a.b-_.c", 1_795_320_000));
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
