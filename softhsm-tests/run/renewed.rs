//! A certificate that is renewed while a command runs, as a controller does for months.

use std::io::PipeWriter;

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use crate::fixture::*;

/// Puts this certificate in the place of the one in the file, in one step.
fn replace(file: &Path, certificate: &[u8]) {
    let new = file.with_extension("new");
    fs::write(&new, certificate).unwrap();
    fs::rename(new, file).unwrap();
}

/// A token whose certificate is in a file.
fn token() -> Store {
    token_with([Object::key(key(Kind::P256), &[1])])
}

/// A run with a certificate that ends after 30 s, and is replaced by one for a year when the command has said `ready`.
/// The command goes on with its next line of input when the first one has ended.
fn renewed_meanwhile(store: &Store, script: &str) -> (Running, PipeWriter) {
    let file = store.path("certificate");
    let left = time::Duration::seconds(30);
    replace(&file, &expiring(Kind::P256, "jane", left, ClientAuth, cluster().authority()));
    let end = Instant::now() + Duration::from_secs(31);
    let configuration = store.configuration_with_pin_source();
    let configuration = configuration.with("certificateFile", file.to_str().unwrap());
    let run = cluster().run(store, &configuration, &["bash", "-c", script]);
    let (run, mut command) = run.held();
    let mut run = run.start(None);
    while run.line() != "ready" {}
    replace(&file, &cluster().issue(Kind::P256, JANE));
    wait_until("the first certificate has ended", || Instant::now() > end);
    command.write_all(b"\n").unwrap();
    (run, command)
}

#[test]
fn the_next_connection_shows_the_new_one() {
    let whoami = "kubectl auth whoami -o jsonpath={.status.userInfo.username}; echo";
    let store = token();
    let (mut run, _command) =
        renewed_meanwhile(&store, &format!("{whoami}; echo ready; read; {whoami}"));
    assert_eq!(run.line(), "jane", "{}", run.describe());
    assert!(run.finish().status.success());
}

/// kubectl proxy keeps its connections to the server. Each request on them is refused once their certificate has ended.
#[test]
fn connections_with_the_old_one_end_with_it() {
    let port = free_port();
    let ask = format!(
        "curl --silent --output /dev/null --write-out '%{{http_code}}\\n' http://127.0.0.1:{port}/version"
    );
    let script = format!(
        "kubectl proxy --port={port} >/dev/null & until {ask} | grep 200; do :; done; {ask}; echo ready; read
         {ask}; {ask}; {ask}; kill $!"
    );
    let store = token();
    let (mut run, _command) = renewed_meanwhile(&store, &script);
    assert_eq!([(); 3].map(|()| run.line()), ["200"; 3], "{}", run.describe());
    run.finish();
}
