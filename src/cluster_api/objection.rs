//! What an approver has to compare, since the signer doesn't: what is asked for, and who asks.

use super::signing_request::{SIGNER, SigningRequest};
use base::error::listed;
use base::printable::quoted;
use crypto::certificate::CertificationRequest;
use crypto::verify::is_signed_by_its_key;

/// What a client certificate of the signer can be for; the first is a must.
const ALLOWED: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// Why this request, whose PKCS#10 is `csr`, should not be approved. Each follows `the request `.
pub fn objections(request: &SigningRequest, csr: &CertificationRequest) -> Vec<String> {
    let spec = &request.spec;
    let mut found = Vec::new();
    match &csr.user {
        Some(name) if *name == spec.username => {}
        Some(name) => found.push(format!("is for {name:?}, who is not the requester")),
        None => found.push("names no user (CN)".to_owned()),
    }
    let foreign = csr.groups.iter().filter(|group| !spec.groups.contains(group));
    let foreign: Vec<_> = foreign.cloned().collect();
    if !foreign.is_empty() {
        let foreign = quoted(&foreign);
        found.push(format!("names groups that the requester isn't in: {foreign}"));
    }
    let usages: Vec<_> = spec.usages.iter().map(String::as_str).collect();
    for (is_so, text) in [
        (!csr.is_plain, "has a subject with more than one CN, or more than CN and O"),
        // Alternative names, for instance, are copied by the signer.
        (csr.wants_extensions, "asks for extensions, such as alternative names"),
        // Whoever made it need not have the key.
        (!is_signed_by_its_key(csr), "is not signed with the key that it is for"),
        (usages.is_empty(), "names no usage"),
    ] {
        found.extend(is_so.then(|| text.to_owned()));
    }
    if spec.signer_name != SIGNER {
        found.push(format!("is for the signer {:?}, not {SIGNER}", spec.signer_name));
    }
    let is_allowed = |usage: &&str| ALLOWED.contains(usage);
    let has_client_auth = usages.is_empty() || usages.contains(&ALLOWED[0]);
    if !has_client_auth || !usages.iter().all(is_allowed) {
        let usages = listed(&usages, "and");
        found.push(format!("is for the usages {usages}, not for client auth alone"));
    }
    found
}
