//! What the command and the tunnel know each other by: the certificates of a run, and a server name
//! that can't be guessed.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use p256::SecretKey;
use p256::pkcs8::{DecodePrivateKey as _, LineEnding};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::{preparation, trust};
use crate::keyring::KeyNumber;
use crate::kubeconfig::{ClientIdentity, TunnelEndpoint};
use crate::printable::hex;
use crate::process::RunError;

/// The keys and certificates of one run, made in memory.
pub(super) struct Credentials {
    authority: String,
    pub(super) server_name: String,
    /// The certificate of each user, in PEM.
    certificates: Vec<String>,
    key: String,
    /// The key that each certificate (in DER) stands for.
    users: HashMap<Vec<u8>, KeyNumber>,
    /// Serves connections that ask for the server name.
    pub(super) named: Arc<ServerConfig>,
    /// Serves connections that don't.
    pub(super) plain: Arc<ServerConfig>,
    /// Ends a handshake with the alert "access denied".
    pub(super) refusal: Arc<ServerConfig>,
}

impl Credentials {
    /// Makes a certificate for each of the keys.
    ///
    /// # Errors
    ///
    /// There is no randomness.
    pub(super) fn new(keys: &[KeyNumber]) -> Result<Self, RunError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| preparation(&error))?;
        Self::issued(format!("{}.run.invalid", hex(&random)), keys)
            .map_err(|error| preparation(&error))
    }

    fn issued(server_name: String, keys: &[KeyNumber]) -> Result<Self, Box<dyn std::error::Error>> {
        let mut params = params("pkcs11-external-signer run");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, key_pair()?)?;

        let named = SanType::DnsName(server_name.as_str().try_into()?);
        let address = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
        let named = server_config(&authority, vec![named, address.clone()], Demand::Optional)?;
        let plain = server_config(&authority, vec![address], Demand::Required)?;
        let mut refusal = plain.clone();
        refusal.cert_resolver = Arc::new(NoCertificate);

        let mut params = self::params("command");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = key_pair()?;
        // Each with a serial number of its own; the key says no more than that it is the command's.
        let mut certificates = Vec::with_capacity(keys.len());
        let mut users = HashMap::with_capacity(keys.len());
        for number in keys {
            let certificate = params.signed_by(&key, &authority)?;
            users.insert(certificate.der().to_vec(), *number);
            certificates.push(certificate.pem());
        }
        Ok(Self {
            certificates,
            users,
            key: sec1_pem(&key)?,
            authority: authority.pem(),
            server_name,
            named: Arc::new(named),
            plain: Arc::new(plain),
            refusal: Arc::new(refusal),
        })
    }

    /// What a kubeconfig has to say for the port at this address.
    pub(super) fn endpoint<'a>(&'a self, address: &'a str) -> TunnelEndpoint<'a> {
        TunnelEndpoint {
            address,
            server_name: &self.server_name,
            authority_pem: &self.authority,
        }
    }

    /// The key of the user whose certificate this connection has shown, if one was shown.
    pub(super) fn key(&self, connection: &ServerConnection) -> Option<KeyNumber> {
        let shown = connection.peer_certificates()?.first()?;
        self.users.get(&**shown).copied()
    }

    /// What each user shows there, in the order of the keys.
    pub(super) fn identities(&self) -> impl Iterator<Item = ClientIdentity<'_>> {
        self.certificates
            .iter()
            .map(|certificate_pem| ClientIdentity {
                certificate_pem,
                key_pem: &self.key,
            })
    }
}

/// Whether a client must show a certificate. One that it shows must be of this run.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Demand {
    Optional,
    Required,
}

fn key_pair() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

/// The key in SEC 1 (`BEGIN EC PRIVATE KEY`): some clients read no PKCS #8, such as fabric8's for
/// Java.
fn sec1_pem(key: &KeyPair) -> Result<String, Box<dyn std::error::Error>> {
    let key = SecretKey::from_pkcs8_der(key.serialized_der())?;
    Ok(key.to_sec1_pem(LineEnding::LF)?.to_string())
}

/// Parameters of a certificate that is valid at any time: its key ends with the run.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn server_config(
    authority: &CertifiedIssuer<'_, KeyPair>,
    names: Vec<SanType>,
    demand: Demand,
) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let mut params = params("tunnel");
    params.subject_alt_names = names;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = key_pair()?;
    let certificate = CertificateDer::from(params.signed_by(&key, authority)?);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let provider = trust::provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = match demand {
        Demand::Optional => verifier.allow_unauthenticated().build()?,
        Demand::Required => verifier.build()?,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)?;
    // Each connection shows its certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::{ClientConfig, ClientConnection};
    use x509_parser::pem::Pem;

    use super::*;

    #[test]
    fn certificates_are_valid_whatever_a_clock_says() {
        let credentials = Credentials::new(&[KeyNumber::default()]).unwrap();
        for pem in [&credentials.authority, &credentials.certificates[0]] {
            let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
            let Pem { contents, .. } = &pem;
            let (_, certificate) = x509_parser::parse_x509_certificate(contents).unwrap();
            let validity = certificate.validity();
            assert_eq!(validity.not_before.timestamp(), 0);
            assert_eq!(validity.not_after.to_datetime().year(), 9999);
        }
    }

    /// The key that a client is let in with, in a handshake with this configuration; `Err` for one
    /// that is refused.
    fn admitted(
        run: &Credentials,
        config: &Arc<ServerConfig>,
        shown: Option<&Credentials>,
    ) -> Result<Option<KeyNumber>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(run.authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let client = ClientConfig::builder_with_provider(trust::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let client = match shown {
            None => client.with_no_client_auth(),
            Some(of) => client
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(of.certificates[0].as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(of.key.as_bytes()).unwrap(),
                )
                .unwrap(),
        };
        let name = Ipv4Addr::LOCALHOST.into();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(config)).unwrap();
        while server.is_handshaking() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &*bytes;
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets()?;
            }
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &*bytes;
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(run.key(&server))
    }

    #[test]
    fn only_the_certificates_of_the_run_are_let_in() {
        let key = KeyNumber::default();
        let run = Credentials::new(&[key]).unwrap();
        let other = Credentials::new(&[key]).unwrap();
        for (config, without) in [(&run.plain, None), (&run.named, Some(None))] {
            assert_eq!(admitted(&run, config, Some(&run)), Ok(Some(key)));
            assert_eq!(admitted(&run, config, None).ok(), without);
            assert!(admitted(&run, config, Some(&other)).is_err());
        }
        assert!(admitted(&run, &run.refusal, Some(&run)).is_err());
    }
}
