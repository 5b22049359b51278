//! Requests as clients write them, each a file in `softhsm-tests/requests` with what it decodes
//! to beside it. Adding a case is adding two files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Operation, Request, Spelling};

#[test]
fn every_captured_request_decodes_as_told_beside_it() {
    // Tests begin in the folder of their crate.
    let folder = Path::new("../../softhsm-tests/requests");
    let mut cases = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(&path).unwrap();
            let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
            assert_eq!(describe(&text), expected, "{}", path.display());
            cases += 1;
        }
    }
    assert!(cases >= 28, "only {cases} requests found");
}

fn describe(text: &str) -> String {
    let mut request = match Request::decode(text) {
        Ok(request) => request,
        Err(error) => return format!("refused: {error}\n"),
    };
    let mut description = match (request.spelling, &request.operation) {
        (Spelling::Proposal, Operation::Certificate) => "CertificateRequest\n".to_owned(),
        (Spelling::Reference, Operation::Certificate) => "Certificate\n".to_owned(),
        (spelling, Operation::Sign(sign)) => {
            let kind = if spelling == Spelling::Proposal { "SignRequest" } else { "Sign" };
            format!("{kind}\n{:?}\n{} bytes to sign\n", sign.options, sign.digest.len())
        }
    };
    for key in ["objectId", "objectLabel", "pathExec", "pathLib", "pin", "slotId", "tokenLabel"] {
        if let Some(value) = request.configuration.take(key) {
            let _ = writeln!(description, "{key} = {value}");
        }
    }
    description
}
