//! An API server whose clock is another one than this machine's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use time::format_description::well_known::Rfc2822;
use time::{Duration, OffsetDateTime};

use super::{plugin, with_key};
use crate::fixture::cluster::{JANE, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::program::{Invocation, Outcome};
use crate::fixture::softhsm::Store;
use crate::run::trouble::server_certificate;

/// Answers one request with this object, by a clock that is ahead; its URL.
fn server(workshop: &Path, ahead: Duration, object: &Value) -> String {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let [authority, _] = cluster().authority();
    let authority = CertificateDer::from_pem_file(authority).unwrap();
    roots.add(authority).unwrap();
    let roots = Arc::new(roots);
    let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let [own, key] = server_certificate(workshop);
    let own = CertificateDer::from_pem_file(own).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(vec![own], PrivateKeyDer::from_pem_file(key).unwrap())
        .unwrap();
    let date = (OffsetDateTime::now_utc() + ahead).format(&Rfc2822);
    let date = date.unwrap().replace("+0000", "GMT");
    let body = object.to_string();
    let answer = format!(
        "HTTP/1.1 201 Created\r\nDate: {date}\r\nWarning: 299 - \"shortened\"\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (connection, _) = listener.accept().unwrap();
        give(connection, Arc::new(config), answer.as_bytes());
    });
    format!("https://{address}")
}

fn give(connection: TcpStream, config: Arc<ServerConfig>, answer: &[u8]) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), connection);
    let (mut request, mut some) = (Vec::<u8>::new(), [0; 4096]);
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        let length = stream.read(&mut some).unwrap();
        request.extend(&some[..length]);
    }
    stream.write_all(answer).unwrap();
    stream.conn.send_close_notify();
    let _ = stream.flush();
    while stream.read(&mut some).is_ok_and(|length| length > 0) {}
}

/// The program with jane's key and such a server.
fn asking(store: &Store, ahead: Duration, object: &Value, arguments: &[&str]) -> Outcome {
    let directory = store.directory.path();
    let mut entry = cluster().entry();
    entry["server"] = json!(server(directory, ahead, object));
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, plugin::kubeconfig(&entry, &json!({"token": "unused"}))).unwrap();
    let program: Invocation = with_key(store, "1", arguments);
    program.variable("KUBECONFIG", kubeconfig).run()
}

const AHEAD: &str = "the clock of this machine is 5 minutes ahead of the API server's";
const BEHIND: &str = "the clock of this machine is 5 minutes behind the API server's";

#[test]
fn a_token_comes_with_a_warning_and_ends_when_the_server_says() {
    let store = cluster().token(Kind::P256, JANE);
    let answer = json!({"kind": "TokenRequest", "status": {
        "token": "a.b.c", "expirationTimestamp": "2126-11-22T04:00:00Z",
    }});
    let get = ["credential", "--as=token", "--service-account=default/any"];
    let shortened = "the API server says: shortened";
    let right = asking(&store, Duration::ZERO, &answer, &get);
    right.says_only(&[shortened]);
    let status = &right.answer()["status"];
    assert_eq!(status["token"], "a.b.c");
    assert_eq!(status["expirationTimestamp"], "2126-11-22T03:59:30Z");
    let mut ended = answer.clone();
    ended["status"]["expirationTimestamp"] = json!("2001-09-09T01:46:40Z");
    let ended = asking(&store, Duration::ZERO, &ended, &get);
    assert_eq!(ended.status.code(), Some(9), "{ended:?}");
    let said = "has ended already, at 2001-09-09T01:46:40Z";
    assert!(ended.stderr.contains(said), "{ended:?}");
    for (ahead, said) in [(-330, AHEAD), (330, BEHIND)] {
        let wrong = asking(&store, Duration::seconds(ahead), &answer, &get);
        wrong.says_only(&[shortened, &format!("{said}: set it")]);
        assert_eq!(wrong.answer()["status"], *status);
    }
}

#[test]
fn check_tells_what_clusters_refuse_signed_tokens_for() {
    let store = cluster().token(Kind::P256, JANE);
    let review = json!({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "jane"}}});
    let check = ["check", "--as=jwt", "--server"];
    let told = |ahead| asking(&store, Duration::seconds(ahead), &review, &check).told(0);
    for (ahead, said) in [(-330, AHEAD), (330, BEHIND)] {
        let wrong = told(ahead);
        assert!(wrong.contains(said), "{wrong}");
        assert!(wrong.contains("set it: tokens that a key signs are refused"), "{wrong}");
    }
    assert!(!told(0).contains("clock"), "{}", told(0));
}
