//! Whether a local address is free, and what is shown there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Error as TlsError, RootCertStore};

use super::error::ListenError;
use super::server_identity::ServerIdentity;
use super::{local, trust};
use crate::error::Error;

/// How long what listens on this machine may be silent.
const LIMIT: Duration = Duration::from_secs(5);

/// Listens at the address for a moment, where the cluster of this name is to be served.
///
/// # Errors
/// What serving it there would fail with.
pub fn check_port(cluster: &str, address: SocketAddr) -> Result<(), Error> {
    let outcome = local::bind([address]);
    let failed = |reason| ListenError::of(reason, cluster, Some(address), 1);
    Ok(outcome.map(drop).map_err(failed)?)
}

/// Whether the server at the address shows the identity's certificate to clients that ask for its name.
/// The handshake is left before its last message: no API server is dialled for it.
///
/// # Errors
/// Nothing is there, or what is there doesn't get as far as its certificate.
pub fn shows_certificate(identity: &ServerIdentity, address: SocketAddr) -> io::Result<bool> {
    let mut roots = RootCertStore::empty();
    let [authority, ..] = identity
        .certificates()
        .ok_or_else(|| io::Error::other("an identity lacks a certificate"))?;
    roots.add(authority).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(trust::provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(identity.server_name().to_owned()).map_err(io::Error::other)?;
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    loop {
        while client.wants_write() {
            client.write_tls(&mut stream)?;
        }
        if client.read_tls(&mut stream)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match client.process_new_packets() {
            Ok(_) if !client.is_handshaking() => return Ok(true),
            Ok(_) => {}
            Err(TlsError::InvalidCertificate(_)) => return Ok(false),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::super::tests::{target, tunnels_of};
    use super::*;

    #[test]
    fn only_the_identitys_own_certificate_is_taken_for_it() {
        let new = || ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let (own, other) = (new(), new());
        let tunnels = tunnels_of(&own);
        let address = tunnels.listen(target("prod"), None).unwrap();
        assert!(shows_certificate(&own, address).unwrap());
        // With another name it is shown the certificate of no name.
        assert!(!shows_certificate(&other, address).unwrap());
        assert!(check_port("prod", address).is_err());
        drop(tunnels);
        check_port("prod", address).unwrap();
        shows_certificate(&own, address).unwrap_err();
    }

    #[test]
    fn what_speaks_no_tls_is_no_other_certificate() {
        let own = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        shows_certificate(&own, address).unwrap_err();
        server.join().unwrap();
    }
}
