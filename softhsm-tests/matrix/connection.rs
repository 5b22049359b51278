//! The two ends of a run's tunnel: a TLS server that accepts one client certificate, and a client
//! that reads the run's kubeconfig. Both are in this process, which makes a connection cheap.

use std::net::SocketAddr;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
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
        let only = Only { client: client.to_owned(), provider: Arc::clone(&provider) };
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(only))
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(config);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let config = Arc::clone(&config);
                thread::spawn(move || greet(connection.unwrap(), config));
            }
        });
        Self { address, authority: STANDARD.encode(own.cert.pem()) }
    }
}

fn greet(connection: TcpStream, config: Arc<ServerConfig>) {
    let tls = ServerConnection::new(config).unwrap();
    let mut stream = StreamOwned::new(tls, connection);
    // A client without a signature is none.
    if stream.write_all(GREETING).is_ok() {
        stream.conn.send_close_notify();
        let _ = stream.flush();
        let _ = stream.read(&mut [0]);
    }
}

/// Accepts one certificate, from any issuer.
#[derive(Debug)]
struct Only {
    client: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Only {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if shown.as_ref() == self.client {
            Ok(ClientCertVerified::assertion())
        } else {
            Err(CertificateError::UnknownIssuer.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, shown, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, shown, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
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
