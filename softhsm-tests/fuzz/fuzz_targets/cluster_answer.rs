//! What an API server answers, as its own JSON or in kubectl's words, on any text: nothing of it leads to another
//! object, an approval changes nothing of the request but its conditions, and what it says fits on a line.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use pkcs11_external_signer::certificate::CertificationRequest;
use pkcs11_external_signer::cluster_api::access_review::{ResourceAccess, may};
use pkcs11_external_signer::cluster_api::signing_request::{self, RequestState};
use pkcs11_external_signer::cluster_api::token_request::{TokenWish, request_token};
use pkcs11_external_signer::cluster_api::{
    ApiAnswer, ApiError, ApiMethod, ApiRequest, ClusterApi, Recognition, Status, objections,
    self_subject_review,
};
use pkcs11_external_signer::error::Error;
use pkcs11_external_signer::printable::line;
use pkcs11_external_signer_fuzz::go::assert_request;
use pkcs11_external_signer_fuzz::told;
use serde_json::Value;

/// Answers each request with the same, and keeps what it was sent last.
struct Answering<'a> {
    text: &'a str,
    sent: RefCell<Option<(ApiMethod, String, Value)>>,
}

impl ClusterApi for Answering<'_> {
    fn send(&self, request: &ApiRequest<'_>) -> Result<ApiAnswer, ApiError> {
        let body = request.body.cloned().unwrap_or_default();
        *self.sent.borrow_mut() = Some((request.method, request.path.to_owned(), body));
        let status = Status::from_json(self.text.as_bytes());
        if let Some(status) = status.or_else(|| Status::from_kubectl(self.text)) {
            return Err(status.refused(self.cluster(), request, Vec::new()));
        }
        match serde_json::from_str(self.text) {
            Ok(object) => Ok(ApiAnswer { object, warnings: Vec::new() }),
            Err(error) => Err(Error::internal(error.to_string()).into()),
        }
    }

    fn cluster(&self) -> &str {
        "cluster \"fuzzed\""
    }
}

fuzz_target!(|text: &str| {
    let api = Answering { text, sent: RefCell::default() };
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    match self_subject_review(&api) {
        Ok(Recognition::User(user)) => {
            let told = &answer["status"]["userInfo"]["username"];
            assert_eq!(told.as_str().unwrap_or_default(), user.name);
            let groups = user.own_groups();
            assert!(!groups.iter().any(|it| it == "system:authenticated"));
        }
        Ok(Recognition::NotTold) => {}
        Err(error) => drop(told(error)),
    }
    match may(&api, &ACCESS) {
        Ok(allowed) => assert_eq!(answer["status"]["allowed"], allowed),
        Err(error) => drop(told(error)),
    }
    token(&api, &answer);
    let request = match signing_request::read(&api, "jane") {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(error) => return drop(told(error)),
    };
    assert_eq!(answer["metadata"]["uid"], request.uid());
    if let RequestState::Issued(_) = request.state() {
        assert!(answer["status"]["certificate"].is_string());
    }
    if let Ok(asked) = CertificationRequest::from_pem(&request.pem) {
        let is_requester = asked.user.as_deref() == Some(request.requester());
        let found = objections(&request, &asked);
        assert!(is_requester || !found.is_empty());
        assert_request(&request.pem, &asked);
        let texts = found.iter().map(|it| line(&it.to_string()).into_owned());
        texts.for_each(|it| assert!(!it.contains('\u{1b}')));
    }
    let _ = signing_request::approve(&api, &request, "r", "m");
    let sent = api.sent.borrow_mut().take();
    let (method, path, mut body) = sent.expect("a request");
    if method == ApiMethod::Replace {
        let name = request.name();
        let base = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        assert_eq!(path, format!("{base}/{name}/approval"));
        assert!(!name.contains('/'));
        let mut before = answer;
        for object in [&mut before, &mut body] {
            object.as_object_mut().expect("an object").remove("status");
        }
        assert_eq!(before, body);
    }
});

const ACCESS: ResourceAccess<'_> = ResourceAccess {
    verb: "create",
    group: "",
    resource: "serviceaccounts",
    subresource: "token",
    namespace: "default",
    name: "deployer",
};

/// A token that is taken is the server's, fits into a header, and has an end.
fn token(api: &Answering<'_>, answer: &Value) {
    let account = "default/deployer".parse().expect("an account");
    let wish = TokenWish { account: &account, seconds: 600, audiences: &[], bound_to: None };
    match request_token(api, &wish) {
        Ok(made) => {
            let status = &answer["status"];
            assert_eq!(status["token"], made.token);
            assert!(made.token.bytes().all(|byte| byte.is_ascii_graphic()));
            // Which others can write.
            assert!((-400_000_000_000..400_000_000_000).contains(&made.ends));
            assert!(status["expirationTimestamp"].is_string());
        }
        Err(error) => drop(told(error)),
    }
}
