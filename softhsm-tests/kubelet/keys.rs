//! `enroll --for unsealing`: from a bare token to a key that opens what is sealed to its certificate.

use super::{CONFIG, IMAGE, PASSWORD, asked, provider, sealed_to};
use crate::enroll::{at, enroll, subject_of};
use crate::fixture::*;

/// What a CA makes of a request that does what the request asks for.
pub(crate) fn issued(request: &str) -> String {
    let [authority, authority_key] = authority();
    let issuer = [authority.as_path(), &authority_key];
    let certificate = certify(request.as_ref(), issuer, 30, "", &["-copy_extensions", "copy"]);
    certificate.into_os_string().into_string().unwrap()
}

fn key_usage(certificate: &str) -> String {
    let show = ["x509", "-in", certificate, "-noout", "-ext", "keyUsage"];
    printed(tool("openssl", "openssl").args(show))
}

#[test]
fn a_key_is_made_and_certified_for_unsealing() {
    for (kind, usage) in [("ec-p384", "Key Agreement"), ("rsa-2048", "Key Encipherment")] {
        let store = token_with([]);
        let csr = at(&store, "node1.csr");
        let make = ["--for=unsealing", "--user=node1", "--key", kind, "--csr", &csr];
        enroll(&store, &make).run().printed();
        assert_eq!(subject_of(&csr), "subject=CN = node1");
        let certificate = issued(&csr);
        assert!(
            key_usage(&certificate).contains(&format!("Digital Signature, {usage}")),
            "{}",
            key_usage(&certificate)
        );
        enroll(&store, &["--certificate", &certificate]).run().printed();
        let file = sealed_to(&store, "registry.cms", CONFIG, &[Path::new(&certificate)]);
        let answer = asked(provider(&store, &file), IMAGE).answer();
        assert_eq!(answer["auth"]["registry.example:5000"]["password"], PASSWORD);
    }
}

#[test]
fn a_key_for_signing_opens_nothing_and_ed25519_is_refused() {
    let store = token_with([]);
    let csr = at(&store, "node1.csr");
    enroll(&store, &["--user=node1", "--key=rsa-2048", "--csr", &csr]).run().printed();
    let certificate = issued(&csr);
    assert_eq!(key_usage(&certificate), "");
    enroll(&store, &["--certificate", &certificate]).run().printed();
    let file = sealed_to(&store, "registry.cms", CONFIG, &[Path::new(&certificate)]);
    asked(provider(&store, &file), IMAGE).fails_in_one_line(8, &["its CKA_DECRYPT is false"]);
    let unsealing = ["--for=unsealing", "--user=node2", "--csr", &csr];
    let refused = enroll(&store, &[&unsealing[..], &["--key=ed25519"]].concat()).run();
    refused.fails(2, &["a key of the kind ed25519 only signs"]);
}
