//! The request of an exec credential plugin, on any text: what is decoded is what the JSON says, and what
//! is refused is refused in one readable line. The cluster's extension is read, too.

#![no_main]

use kubeconfig::exec_credential::ExecRequest;
use kubeconfig::{LocalCluster, tunnelled};
use libfuzzer_sys::fuzz_target;
use messages::error::Error;
use pkcs11_external_signer_fuzz::told;

fn refused(error: impl Into<Error>) {
    assert!([2, 3].contains(&told(error).exit_code()));
}

fuzz_target!(|text: &[u8]| {
    let request = match ExecRequest::decode(text) {
        Ok(request) => request,
        Err(error) => return refused(error),
    };
    // The comparing decoder refuses what is deep or a number beyond all bounds, which unknown fields may be.
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(text) else {
        return;
    };
    assert_eq!(json["kind"], "ExecCredential");
    let Some(entry) = request.cluster else {
        return;
    };
    assert_eq!(json["spec"]["cluster"], entry);
    let extension = match LocalCluster::requested(&entry) {
        Ok(local) => local.extension,
        Err(error) => return refused(error),
    };
    match tunnelled(&extension) {
        Ok(real) => assert_eq!(extension["name"], real.name.as_str()),
        Err(error) => refused(error),
    }
});
