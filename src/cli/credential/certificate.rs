//! `credential --as certificate`: a certificate for a key that is made here and now, requested with the token's
//! key and approved by somebody else.

use std::time::Duration;

use p256::SecretKey;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};

use super::connection::connect;
use super::short_lived::{IssuedCredential, Making, Proof, random_id};
use crate::certificate::{Curve, PublicKey};
use crate::cli::issuance::{IssuedCertificate, WantedCertificate};
use crate::cli::jwks::lifetime;
use crate::cluster_api::signing_request::{SHORTEST, SigningRequest};
use crate::cluster_api::{ClusterUser, Recognition, TokenConnection};
use crate::enrollment::{Applicant, sign_request};
use crate::error::{Error, Exit};
use crate::process::unix_time;
use crate::report;
use crate::token::KeyPurpose;
use crate::tunnel::TunnelTarget;
use crate::verify::verify;

/// The prefix of the groups that are the cluster's own.
const RESERVED: &str = "system:";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CertificateOptions {
    /// certificate: how long to wait for it to be approved and signed
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = lifetime, requires = "kind")]
    pub(super) wait: Duration,
}

/// Has the certificate issued.
pub(super) fn make(making: Making<'_>, target: TunnelTarget) -> Result<IssuedCredential, Error> {
    let options = making.options;
    let limit = options.certificate.wait;
    let life = options.life("a certificate", SHORTEST.into())?;
    let api = connect(making, target)?;
    let Recognition::User(user) = api.whoami()? else {
        let text = "the API server is too old to tell as whom it knows this user";
        return Err(Error::new(Exit::Cluster, text)
            .help("use --as token, or a cluster of Kubernetes 1.28 or later"));
    };
    let key = MadeKey::new()?;
    let issued = issue(&api, &user, &key, life, limit)?;
    Ok(IssuedCredential {
        // Not what stands between and behind the certificates.
        proof: Proof::Certificate { certificate: issued.pem()?, key: key.pem()? },
        // Not when it was asked for: the approval takes time, and not every signer puts the beginning back.
        begins: unix_time(),
        ends: issued.certificate.validity.not_after,
        user: user.name,
    })
}

/// Requests a certificate for exactly this user and waits for it.
fn issue(
    api: &TokenConnection,
    user: &ClusterUser,
    key: &MadeKey,
    life: u64,
    limit: Duration,
) -> Result<IssuedCertificate, Error> {
    let groups = user.own_groups();
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let text = format!(
            "the API server knows this user in group {group}, for which no certificate is requested"
        );
        return Err(Error::new(Exit::Cluster, text).help(
            "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)",
        ));
    }
    let applicant = Applicant::new(user.name.clone(), groups)?;
    let purpose = KeyPurpose::Signing;
    let csr = sign_request(purpose, &applicant, &key.public, |scheme, digest| {
        let signature: Result<Signature, _> = SigningKey::from(&key.secret).sign_prehash(digest);
        let der = signature.ok().map(|it| it.to_der().as_bytes().to_vec());
        der.and_then(|der| verify(&key.public, &scheme, digest, der))
            .ok_or_else(|| Error::internal("a signature of a key that was just made"))
    })?;
    let name = format!("credential-{}", random_id()?);
    let request = SigningRequest::create(api, &name, &csr, u32::try_from(life).ok())?;
    report::note(&format!("waiting for the CertificateSigningRequest {name} to be approved"));
    let request = request.wait(api, limit)?;
    let wanted = WantedCertificate {
        applicant: &applicant,
        public_key: &key.public,
        duration: Some(Duration::from_secs(life)),
    };
    if let Some(issued) = wanted.issued(&request)? {
        return Ok(issued);
    }
    // Its key ends with this process. Who may not remove it leaves it to the cluster.
    let _ = request.remove(api);
    let seconds = limit.as_secs();
    let text = format!("the CertificateSigningRequest {name} was not approved within {seconds} s");
    Err(Error::new(Exit::Cluster, text).help(
        "have an approver run for such requests (docs/short-lived.md shows one), or give it more time: --wait 5m",
    ))
}

/// A key in memory, which is wiped with it.
struct MadeKey {
    secret: SecretKey,
    public: PublicKey,
}

impl MadeKey {
    fn new() -> Result<Self, Error> {
        loop {
            // On the heap, which is wiped when it is freed.
            let mut random = vec![0; 32];
            getrandom::fill(&mut random).map_err(|error| Error::internal(error.to_string()))?;
            // Hardly any number is none.
            if let Ok(secret) = SecretKey::from_slice(&random) {
                let point = SigningKey::from(&secret).verifying_key().to_sec1_point(false);
                let public =
                    PublicKey::Ecdsa { curve: Curve::P256, point: point.as_bytes().to_vec() };
                return Ok(Self { secret, public });
            }
        }
    }

    /// PKCS #8.
    fn pem(&self) -> Result<String, Error> {
        let pem = self.secret.to_pkcs8_pem(LineEnding::LF);
        let pem = pem.map_err(|error| Error::internal(error.to_string()))?;
        Ok(pem.to_string())
    }
}
