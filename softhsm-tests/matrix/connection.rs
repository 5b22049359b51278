//! The two ends of a run's tunnel: a TLS server that greets one client certificate, and a client
//! that reads the run's kubeconfig. Both are in this process, which makes a connection cheap.

use std::net::SocketAddr;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use crate::fixture::*;

const GREETING: &[u8] = b"signed\n";

/// A server that greets a client with the key of one certificate.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// Its own certificate in PEM, which is its authority's, too.
    pub(super) authority: String,
}

impl Server {
    /// It runs until the process ends.
    pub(super) fn start(client: &[u8]) -> Self {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(key(Kind::Authority).certificate.clone().into()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let own_key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![own.cert.der().clone()], own_key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (config, client) = (Arc::new(config), client.to_owned());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (config, client) = (Arc::clone(&config), client.clone());
                thread::spawn(move || greet(connection.unwrap(), config, &client));
            }
        });
        Self { address, authority: STANDARD.encode(own.cert.pem()) }
    }
}

fn greet(mut connection: TcpStream, config: Arc<ServerConfig>, client: &[u8]) {
    let mut tls = ServerConnection::new(config).unwrap();
    // A client without a signature is none.
    let is_shown = tls.complete_io(&mut connection).is_ok()
        && tls.peer_certificates().is_some_and(|shown| shown[0].as_ref() == client);
    let mut stream = StreamOwned::new(tls, connection);
    if is_shown && stream.write_all(GREETING).is_ok() {
        stream.conn.send_close_notify();
        let _ = stream.flush();
        let _ = stream.read(&mut [0]);
    }
}

/// What is heard instead of the greeting where there is no connection.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Heard {
    Greeting,
    /// The body of the tunnel's own answer.
    Answer(String),
    Nothing,
}

/// Connects as the command of a run would.
pub(super) fn connect(kubeconfig: &str) -> Heard {
    let config: Value = serde_json::from_str(kubeconfig).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let user = &config["users"][0]["user"];
    let pem = |value: &Value| STANDARD.decode(value.as_str().unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    let authority = pem(&cluster["certificate-authority-data"]);
    roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
    let own = CertificateDer::from_pem_slice(&pem(&user["client-certificate-data"])).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![own], key)
        .unwrap();
    let name = cluster["tls-server-name"].as_str().unwrap().to_owned();
    let tls = ClientConnection::new(Arc::new(tls), ServerName::try_from(name).unwrap()).unwrap();
    let address = cluster["server"].as_str().unwrap();
    let stream = TcpStream::connect(address.strip_prefix("https://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(tls, stream);
    let mut heard = Vec::new();
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let _ = stream.read_to_end(&mut heard);
    if heard == GREETING {
        return Heard::Greeting;
    }
    let heard = String::from_utf8(heard).unwrap();
    match heard.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 502 ") => Heard::Answer(body.to_owned()),
        _ => Heard::Nothing,
    }
}
