//! Clients that ask for a certificate once, as those for Python and kube-rs do: what they are told when it is worth
//! nothing any more.

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;

#[test]
fn a_client_with_a_certificate_of_an_earlier_process_is_told_so() {
    let user = PlainUser::new(&["--keep=15m"]);
    let request = user.request();
    let answer = user.plugin(&request.to_string()).run().answer();
    for (name, data) in [("certificate", "clientCertificateData"), ("key", "clientKeyData")] {
        fs::write(user.path(name), answer["status"][data].as_str().unwrap()).unwrap();
    }
    let cluster = &request["spec"]["cluster"];
    let authority = cluster["certificate-authority-data"].as_str().unwrap();
    fs::write(user.path("ca"), STANDARD.decode(authority).unwrap()).unwrap();
    let (address, name) = (user.address(), cluster["tls-server-name"].as_str().unwrap());
    let (_, port) = address.rsplit_once(':').unwrap();
    let curl = format!(
        "cd \"$HOME\"; curl -sS --cacert ca --cert certificate --key key --connect-to ::{address} \
         -w '%{{http_code}}\\n' https://{name}:{port}/version"
    );
    let served = user.shell(&curl).run().printed();
    assert!(served.contains("gitVersion") && served.ends_with("200\n"), "{served}");
    user.program(&["stop"]).run().printed();
    // Another program has the key opened again.
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let before = user.counts();
    for protocol in ["--http1.1", "--http2"] {
        let told = user.shell(&format!("{curl} {protocol}")).run().printed();
        assert!(told.contains("certificate has been closed since"), "{told}");
        assert!(told.contains("restart the client") && told.ends_with("502\n"), "{told}");
    }
    // It is let in no more: the key is open for others.
    assert_eq!(user.counts(), before);
    user.program(&["stop"]).run().printed();
}
