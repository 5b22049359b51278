//! What clients know a tunnel by: a server name, and certificates for it that are worth nothing elsewhere.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CidrSubnet, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use base::error::Error;
use base::printable::hex;
use base::process::preparation;
use kubeconfig::TunnelEndpoint;

/// A server name, and the certificates of the servers that have it: made for a run, or kept in a file
/// for as long as a kubeconfig names it.
pub struct ServerIdentity {
    /// The certificates of the CA and the server, and the server's key. The CA's key is gone, and could not have
    /// signed other names.
    pem: String,
    server_name: String,
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl ServerIdentity {
    /// A new identity for servers at these addresses.
    pub fn generate(addresses: &[IpAddr]) -> Result<Self, Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(preparation)?;
        let server_name = format!("{}.run.invalid", hex(&random));
        let pem = issued(&server_name, addresses).map_err(preparation)?;
        Self::from_pem(pem).map_err(preparation)
    }

    /// What [`ServerIdentity::to_pem`] has given.
    pub fn from_pem(pem: String) -> Result<Self, &'static str> {
        let mut certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten();
        let certificate = certificates.nth(1).ok_or("it does not hold two certificates")?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|_| "it holds no private key")?;
        let server_name = server_name(&certificate).ok_or("its second certificate has no name")?;
        Ok(Self { pem, server_name, certificate, key })
    }

    /// All of it, for a file that only its user can read.
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

    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// The certificate that clients trust.
    pub fn authority_pem(&self) -> &str {
        self.pem.split_inclusive(END).next().unwrap_or_default()
    }
}

const END: &str = "-----END CERTIFICATE-----\n";

/// The certificates and the key, in PEM.
fn issued(server_name: &str, addresses: &[IpAddr]) -> Result<String, Box<dyn std::error::Error>> {
    let alone = addresses.iter().map(|address| {
        let length = if address.is_ipv4() { 32 } else { 128 };
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, length))
    });
    let name = GeneralSubtree::DnsName(server_name.to_owned());
    let mut params = lasting("pkcs11-external-signer tunnel");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: alone.chain([name]).collect(),
        excluded_subtrees: Vec::new(),
    });
    let authority = CertifiedIssuer::self_signed(params, key_pair()?)?;

    let key = key_pair()?;
    let name = SanType::DnsName(server_name.try_into()?);
    let addresses: Vec<_> = addresses.iter().copied().map(SanType::IpAddress).collect();
    let mut params = lasting("tunnel");
    params.subject_alt_names = [&addresses[..], &[name]].concat();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server = params.signed_by(&key, &authority)?;
    Ok([authority.pem(), server.pem(), key.serialize_pem()].concat())
}

/// Parameters of a certificate that is valid at any time: what it is for ends it.
pub(super) fn lasting(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Python refuses a server without it from 3.13 on.
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

pub(super) fn key_pair() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

/// The DNS name in a certificate.
fn server_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??.value;
    names.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
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
        let permitted: Vec<_> = permitted.iter().map(|it| format!("{:?}", it.base)).collect();
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
