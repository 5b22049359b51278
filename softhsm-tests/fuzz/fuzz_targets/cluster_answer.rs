//! A CertificateSigningRequest as an API server or kubectl gives it, on any text: nothing of it leads to another
//! object, an approval changes nothing of the request but its conditions, and what it says fits on a line.

#![no_main]

use cluster_api::signing_request::{
    ApprovalReason, ApprovalRecord, Granted, RequestState, SigningRequest,
};
use cluster_api::{ClusterApi, objections};
use crypto::certificate::CertificationRequest;
use libfuzzer_sys::fuzz_target;
use messages::error::Error;
use messages::printable::printable;
use pkcs11_external_signer_fuzz::go::assert_request;
use pkcs11_external_signer_fuzz::told;
use serde_json::Value;

/// Answers each request with the same.
struct Answering(Value);

impl ClusterApi for Answering {
    fn signing_request(&self, _: &str) -> Result<Option<Value>, Error> {
        Ok(Some(self.0.clone()))
    }

    fn create(&self, _: &str, _: &Value, _: &str) -> Result<Value, Error> {
        Ok(self.0.clone())
    }

    fn cluster(&self) -> &str {
        "cluster \"fuzzed\""
    }
}

fuzz_target!(|text: &str| {
    let Ok(answer) = serde_json::from_str::<Value>(text) else {
        return;
    };
    let request = match SigningRequest::read(&Answering(answer.clone()), "jane") {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(error) => return drop(told(error)),
    };
    assert_eq!(answer["metadata"]["uid"], request.metadata.uid);
    match request.state() {
        Ok(RequestState::Issued(_)) => assert!(answer["status"]["certificate"].is_string()),
        Ok(_) => {}
        Err(error) => drop(told(error)),
    }
    if let Ok(asked) = CertificationRequest::from_pem(&request.pem) {
        let is_requester = asked.user.as_ref() == Some(&request.spec.username);
        let found = objections(&request, &asked, &Granted::default());
        assert!(is_requester || !found.is_empty());
        assert_request(&request.pem, &asked);
        let texts = found.iter().map(|it| printable(it).into_owned());
        texts.for_each(|it| assert!(!it.contains('\u{1b}')));
    }
    let mut before = answer;
    let record = ApprovalRecord { reason: ApprovalReason::Compared, message: String::new() };
    let mut approved = request.approved(&record);
    for object in [&mut before, &mut approved] {
        object.as_object_mut().expect("an object").remove("status");
    }
    assert_eq!(before, approved);
});
