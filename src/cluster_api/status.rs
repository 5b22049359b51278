//! A Kubernetes Status: why the API server did not do what it was asked, as JSON or in kubectl's words.

use serde::Deserialize;

use super::ApiRequest;
use super::error::{ApiError, RefusedRequest};

/// What stands in a Status, except for its details.
#[derive(Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default)]
pub struct Status {
    pub(super) kind: String,
    pub(super) code: Option<u16>,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The HTTP status of each reason that this program's requests can meet (apimachinery, meta/v1/types.go).
const CODES: [(&str, u16); 14] = [
    ("BadRequest", 400),
    ("Unauthorized", 401),
    ("Forbidden", 403),
    ("NotFound", 404),
    ("MethodNotAllowed", 405),
    ("NotAcceptable", 406),
    ("AlreadyExists", 409),
    ("Conflict", 409),
    ("Gone", 410),
    ("Expired", 410),
    ("Invalid", 422),
    ("TooManyRequests", 429),
    ("InternalError", 500),
    ("ServiceUnavailable", 503),
];

impl Status {
    /// From an answer's body; `None` for anything else.
    pub fn from_json(body: &[u8]) -> Option<Self> {
        let status: Self = serde_json::from_slice(body).ok()?;
        (status.kind == "Status").then_some(status)
    }

    /// Of a path that the server has nothing at.
    pub(super) fn not_found() -> Self {
        Self {
            kind: "Status".to_owned(),
            code: Some(404),
            reason: "NotFound".to_owned(),
            message: "the server could not find the requested resource".to_owned(),
        }
    }

    /// From what kubectl says in the end; `None` where the error isn't the server's.
    pub fn from_kubectl(text: &str) -> Option<Self> {
        let text = text.trim();
        let of = |reason: &str, message: &str| Self {
            kind: "Status".to_owned(),
            code: code_of(reason),
            reason: reason.to_owned(),
            message: message.trim().to_owned(),
        };
        if let Some(rest) = text.strip_prefix("Error from server (") {
            let (reason, message) = rest.split_once("): ")?;
            return Some(of(reason, message));
        }
        if let Some(message) = text.strip_prefix("Error from server: ") {
            return Some(of("", message));
        }
        if let Some(rest) = text.strip_prefix("error: You must be logged in to the server") {
            let reason = rest.trim().trim_start_matches('(').trim_end_matches(')');
            let reason = if reason.is_empty() { "Unauthorized" } else { reason };
            return Some(of(reason, "the credentials are not accepted"));
        }
        let is_invalid = text.starts_with("The ") && text.contains(" is invalid");
        is_invalid.then(|| of("Invalid", text))
    }

    /// The failure of this request.
    pub fn refused(
        self,
        cluster: &str,
        request: &ApiRequest<'_>,
        warnings: Vec<String>,
    ) -> ApiError {
        ApiError::Refused(Box::new(RefusedRequest {
            cluster: cluster.to_owned(),
            purpose: request.purpose.to_owned(),
            code: self.code,
            reason: self.reason,
            message: self.message,
            warnings,
        }))
    }
}

fn code_of(reason: &str) -> Option<u16> {
    let known = CODES.iter().find(|(known, _)| *known == reason);
    known.map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<(u16, String, String)> {
        let status = Status::from_kubectl(text)?;
        Some((status.code.unwrap_or(0), status.reason, status.message))
    }

    #[test]
    fn kubectls_words_are_a_status() {
        for (text, code, reason, message) in [
            (
                "Error from server (NotFound): requests \"a\" not found\n",
                404,
                "NotFound",
                "requests \"a\" not found",
            ),
            ("Error from server: etcd is away\n", 0, "", "etcd is away"),
            (
                "error: You must be logged in to the server (Unauthorized)\n",
                401,
                "Unauthorized",
                "the credentials are not accepted",
            ),
            (
                "The Thing \"b\" is invalid: spec: too short\n",
                422,
                "Invalid",
                "The Thing \"b\" is invalid: spec: too short",
            ),
        ] {
            let expected = (code, reason.to_owned(), message.to_owned());
            assert_eq!(told(text), Some(expected), "{text}");
        }
        for other in [
            "",
            "error: context \"x\" does not exist\n",
            "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n",
            "Error from server (\n",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_status_is_one() {
        let body = br#"{"kind":"Status","code":409,"reason":"Conflict","message":"m"}"#;
        let status = Status::from_json(body).unwrap();
        assert_eq!((status.code, status.reason.as_str()), (Some(409), "Conflict"));
        for other in [&b"<html>"[..], b"{}", br#"{"kind":"Pod"}"#, b"404 page not found"] {
            assert_eq!(Status::from_json(other), None);
        }
    }
}
