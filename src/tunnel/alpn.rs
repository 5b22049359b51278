//! The protocols above TLS (ALPN, RFC 7301), and the question which of them a server chooses.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::wire::Stream;

pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// The protocols that a client offers, the preferred one first.
pub(super) type Offer = Vec<Vec<u8>>;

/// Asks what a server chooses of the protocols in `config`. Its choice comes before it asks for a
/// client certificate, so it is known even from a server that then refuses us without one.
///
/// # Errors
///
/// The connection failed before the server's certificate was accepted.
pub(super) async fn ask(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    mut stream: Box<dyn Stream>,
) -> io::Result<Option<Vec<u8>>> {
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let outcome = shake_hands(&mut tls, &mut stream).await;
    if tls.peer_certificates().is_none() {
        outcome?;
    }
    Ok(tls.alpn_protocol().map(<[u8]>::to_owned))
}

/// Makes the handshake and ends the connection.
async fn shake_hands(tls: &mut ClientConnection, stream: &mut Box<dyn Stream>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        if !tls.is_handshaking() {
            tls.send_close_notify();
        }
        send(tls, stream).await?;
        if !tls.is_handshaking() {
            return stream.shutdown().await;
        }
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(kind, "tls handshake eof"));
        }
        let mut rest = bytes.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            if let Err(error) = tls.process_new_packets() {
                // The alert that says why.
                let _ = send(tls, stream).await;
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

async fn send(tls: &mut ClientConnection, stream: &mut Box<dyn Stream>) -> io::Result<()> {
    let mut out = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut out)?;
    }
    stream.write_all(&out).await
}
