//! The identity by which clients know a tunnel: a server name, and certificates for it that are good for nothing else.

use std::net::IpAddr;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::der::EncodePem as _;
use x509_cert::der::asn1::{Ia5String, OctetString};
use x509_cert::der::oid::db::rfc5280::ID_KP_SERVER_AUTH;
use x509_cert::der::pem::LineEnding;
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, NameConstraints, SubjectAltName};
use x509_parser::{extensions, parse_x509_certificate};

use super::issued::CertificateWithKey;
use super::local_key::LocalKey;
use kubeconfig::TunnelEndpoint;
use messages::error::Error;
use messages::printable::hex;
use protocol::hash::Hash;
use system::shortage;

/// A server name, and certificates and a key for servers with that name. An identity is made for one run, or kept in a file
/// for as long as kubeconfigs refer to it.
pub struct ServerIdentity {
    /// The certificates of the CA and of the server, and the server's key. The CA's key is kept nowhere, and the CA is not
    /// valid for other names.
    pem: String,
    server_name: String,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl ServerIdentity {
    /// A new identity for servers at these addresses.
    pub fn generate(addresses: &[IpAddr]) -> Result<Self, Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(shortage)?;
        let server_name = format!("{}.run.invalid", hex(&random));
        let pem = issued(&server_name, addresses).map_err(shortage)?;
        Self::from_pem(pem).map_err(shortage)
    }

    /// Reads an identity that [`ServerIdentity::to_pem`] has written.
    pub fn from_pem(pem: String) -> Result<Self, &'static str> {
        let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten();
        let certificate = certificates.nth(1).ok_or("it does not hold two certificates")?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|_| "it holds no private key")?;
        let server_name = server_name(&certificate).ok_or("its second certificate has no name")?;
        Ok(Self { pem, server_name, certificate, key })
    }

    /// The whole identity, for a file that only its user can read.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// What a kubeconfig has to say for the port at this address.
    pub fn endpoint<'a>(&'a self, address: &'a str) -> TunnelEndpoint<'a> {
        TunnelEndpoint {
            address,
            server_name: self.server_name(),
            authority_pem: self.authority_pem(),
        }
    }

    /// The name in the certificate, by which a client may ask for it.
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// The key of the CA that issues certificates to clients. It is derived from the server's key, so that each process
    /// with this identity recognises certificates that an earlier one has issued.
    pub(super) fn key_of_clients_authority(&self) -> Result<LocalKey, Box<dyn std::error::Error>> {
        let parts = [b"the CA of the tunnel's clients", self.key.secret_der()];
        let secret = Hash::Sha256.digest(&parts).unwrap_or_default();
        LocalKey::from_secret(&secret)
    }

    /// The certificate that clients trust.
    pub fn authority_pem(&self) -> &str {
        self.pem.split_inclusive(END).next().unwrap_or_default()
    }
}

const END: &str = "-----END CERTIFICATE-----\n";

/// Issues the certificates; in PEM, with the server's key.
fn issued(server_name: &str, addresses: &[IpAddr]) -> Result<String, Box<dyn std::error::Error>> {
    let name = GeneralName::DnsName(Ia5String::new(server_name)?);
    let usage = ExtendedKeyUsage(vec![ID_KP_SERVER_AUTH]);
    let alone = addresses.iter().map(|address| {
        // A network is an address, and a mask of the same length.
        let network = match address {
            IpAddr::V4(address) => [&address.octets()[..], &[0xff; 4]].concat(),
            IpAddr::V6(address) => [&address.octets()[..], &[0xff; 16]].concat(),
        };
        OctetString::new(network).map(GeneralName::IpAddress)
    });
    let permitted = alone
        .chain([Ok(name.clone())])
        .map(|name| name.map(|base| GeneralSubtree { base, minimum: 0, maximum: None }));
    let permitted_subtrees = Some(permitted.collect::<Result<_, _>>()?);
    let authority = CertificateWithKey::authority(
        "pkcs11-external-signer tunnel",
        LocalKey::generate()?,
        |builder| {
            builder.add_extension(&usage)?;
            builder.add_extension(&NameConstraints { permitted_subtrees, excluded_subtrees: None })
        },
    )?;
    let names = addresses.iter().map(|address| GeneralName::from(*address)).chain([name]);
    let server = CertificateWithKey::new("tunnel", &authority, |builder| {
        builder.add_extension(&SubjectAltName(names.collect()))?;
        builder.add_extension(&usage)
    })?;
    let authority_pem = authority.certificate.to_pem(LineEnding::LF)?;
    let server_pem = server.certificate.to_pem(LineEnding::LF)?;
    let key_pem = server.key.to_pkcs8_pem()?;
    Ok([&*authority_pem, &server_pem, &key_pem].concat())
}

/// The DNS name in a certificate.
fn server_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??.value;
    names.general_names.iter().find_map(|name| match name {
        extensions::GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::super::trust;
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(127, 1, 2, 3);

    fn identity() -> ServerIdentity {
        ServerIdentity::generate(&[HERE.into()]).unwrap()
    }

    /// Whether a client that trusts the identity's CA takes the certificate for this name.
    fn is_taken(trusted: &ServerIdentity, shown: &CertificateDer<'_>, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        let authority = trusted.authority_pem();
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots.into(), trust::provider()).build();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let verified =
            verifier.unwrap().verify_server_cert(shown, &[], &name, &[], UnixTime::now());
        verified.is_ok()
    }

    #[test]
    fn the_certificate_is_for_its_names_alone() {
        let (identity, other) = (identity(), identity());
        let server = &identity.certificate;
        for (name, expected) in
            [("127.1.2.3", true), (identity.server_name(), true), ("127.0.0.1", false)]
        {
            assert_eq!(is_taken(&identity, server, name), expected, "{name}");
        }
        assert!(!is_taken(&other, server, "127.1.2.3"));
    }

    #[test]
    fn the_ca_is_good_for_its_names_alone() {
        let identity = identity();
        let authority =
            CertificateDer::from_pem_slice(identity.authority_pem().as_bytes()).unwrap();
        let (_, authority) = parse_x509_certificate(&authority).unwrap();
        let constraints = authority.name_constraints().unwrap().unwrap();
        assert!(constraints.critical);
        let permitted = constraints.value.permitted_subtrees.as_ref().unwrap();
        let permitted: Vec<_> =
            permitted.iter().map(|subtree| format!("{:?}", subtree.base)).collect();
        let expected = [
            format!("IPAddress({:?})", [127, 1, 2, 3, 255, 255, 255, 255]),
            format!("DNSName({:?})", identity.server_name()),
        ];
        assert_eq!(permitted, expected);
        let basic = authority.basic_constraints().unwrap().unwrap().value;
        assert_eq!((basic.ca, basic.path_len_constraint), (true, Some(0)));
    }

    #[test]
    fn an_identity_is_the_same_when_it_was_in_a_file() {
        let made = identity();
        let read = ServerIdentity::from_pem(made.to_pem().to_owned()).unwrap();
        assert_eq!(read.server_name(), made.server_name());
        assert_eq!((&read.certificate, &read.key), (&made.certificate, &made.key));
        assert_eq!(read.authority_pem(), made.authority_pem());
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        let made = identity();
        let blocks: Vec<_> = made.to_pem().split_inclusive(END).collect();
        let [authority, server, key] = blocks[..] else {
            panic!("{blocks:?}");
        };
        for (text, reason) in [
            (String::new(), "two certificates"),
            (key.to_owned(), "two certificates"),
            ([authority, key].concat(), "two certificates"),
            ([authority, server].concat(), "no private key"),
            ([authority, authority, key].concat(), "no name"),
        ] {
            let error = ServerIdentity::from_pem(text).err().unwrap();
            assert!(error.contains(reason), "{error}");
        }
    }
}
