//! A file with a certificate and those of its CAs.

use messages::error::Error;
use x509_parser::pem::Pem;

use super::{Certificate, unusable};

/// The labels of a certificate in PEM (RFC 7468, section 5): the present one and a former one.
const PEM_LABELS: [&str; 2] = ["CERTIFICATE", "X509 CERTIFICATE"];

/// The certificates of one file.
#[derive(Clone, Debug)]
pub struct CertificateChain {
    /// The certificate that isn't a CA's.
    pub leaf: Certificate,
    /// The other certificates in DER. The leaf's issuer comes first.
    pub issuers: Vec<Vec<u8>>,
}

impl CertificateChain {
    /// Reads a file in DER, or in PEM with any number of certificates, in either order, and other blocks. Messages call
    /// the file `source`. If all certificates are CAs', the first one is the leaf.
    pub fn from_pem_or_der(bytes: &[u8], source: &str) -> Result<Self, Error> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.first() == Some(&0x30) {
            return Ok(Self { leaf: Certificate::from_der(bytes, source)?, issuers: Vec::new() });
        }
        let mut certificates = certificates_in_pem(bytes, source)?;
        let leaf = leaf_position(&certificates, source)?;
        // If certificates come before the leaf, the first of them is the root's.
        let mut issuers = certificates.split_off(leaf);
        let leaf = Certificate::from_der(&issuers.remove(0), source)?;
        issuers.extend(certificates.into_iter().rev());
        Ok(Self { leaf, issuers })
    }
}

/// The certificates in a text, in DER and in the text's order. Other blocks, such as an encrypted key, are passed over.
fn certificates_in_pem(text: &[u8], source: &str) -> Result<Vec<Vec<u8>>, Error> {
    let certificates: Vec<_> = Pem::iter_from_buffer(text)
        .flatten()
        .filter(|block| PEM_LABELS.contains(&block.label.as_str()))
        .map(|block| block.contents)
        .collect();
    let text = String::from_utf8_lossy(text);
    let begins = |line: &&str| {
        PEM_LABELS.iter().any(|label| line.starts_with(&format!("-----BEGIN {label}-----")))
    };
    if text.lines().filter(begins).count() != certificates.len() {
        return Err(unusable(source, "a CERTIFICATE in it is damaged, or has no end")
            .help("copy the file again, whole"));
    }
    Ok(certificates)
}

/// The position of the first certificate that isn't a CA's; 0 if all are.
fn leaf_position(certificates: &[Vec<u8>], source: &str) -> Result<usize, Error> {
    let Some(first) = certificates.first() else {
        return Err(unusable(source, "it has no CERTIFICATE in PEM, and is no DER").help(
            "give the certificate in PEM or DER: `openssl pkcs7 -print_certs -in FILE` takes it out of a .p7b (-inform DER if \
             that is no text), `openssl pkcs12 -nokeys -in FILE` out of a .p12",
        ));
    };
    if !Certificate::from_der(first, source)?.is_ca {
        return Ok(0);
    }
    let is_leaf = |der: &Vec<u8>| {
        Certificate::from_der(der, source).is_ok_and(|certificate| !certificate.is_ca)
    };
    Ok(certificates.iter().position(is_leaf).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::super::tests::issued;
    use super::*;

    #[test]
    fn what_is_no_certificate_says_so() {
        let reason = |bytes: &[u8]| {
            CertificateChain::from_pem_or_der(bytes, "the file").unwrap_err().to_string()
        };
        assert!(reason(b"").contains("no CERTIFICATE in PEM"));
        assert!(reason(b"hello").contains("no CERTIFICATE in PEM"));
        assert!(reason(&[0x30, 0x82, 0x01, 0x00]).contains("does not parse"));
        let key = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        assert!(reason(key).contains("no CERTIFICATE in PEM"));
        assert!(reason(b"-----BEGIN CERTIFICATE-----\nMAA=\n").contains("has no end"));
    }

    /// The next certificate of the file would stand for it, and the chain would have a hole.
    #[test]
    fn a_damaged_certificate_is_not_passed_over_and_another_block_is() {
        let pem = |der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let [jane, otto] = ["jane", "otto"].map(issued);
        let read = |text: &str| CertificateChain::from_pem_or_der(text.as_bytes(), "the file");
        let damaged = pem(&jane).replacen("MII", "M*I", 1) + &pem(&otto);
        let error = read(&damaged).unwrap_err();
        assert!(error.to_string().contains("a CERTIFICATE in it is damaged"), "{error}");
        let key = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAA==\n\
                   -----END RSA PRIVATE KEY-----\n";
        let found = read(&(key.to_owned() + &pem(&jane))).unwrap();
        assert_eq!(found.leaf.user.as_deref(), Some("jane"));
    }
}
