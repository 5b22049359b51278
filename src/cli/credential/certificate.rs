//! `credential --as certificate`: a certificate for a key that is made here and now, requested with the token's
//! key and approved by somebody else.

use std::time::Duration;

use p256::SecretKey;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};

use super::short_lived::{IssuedCredential, random_id};
use crate::certificate::{Curve, PublicKey};
use crate::cli::issuance::{Issuance, IssuanceOptions};
use crate::cluster_api::signing_request::SigningRequest;
use crate::cluster_api::{ClusterUser, TokenConnection};
use crate::enrollment::{Applicant, RESERVED, sign_request};
use crate::error::{Error, Exit};
use crate::exec_credential::ExecProof;
use crate::report;
use crate::token::KeyPurpose;
use crate::verify::verify;

/// This user of the cluster, unless no certificate is requested for it.
pub(in crate::cli) fn applicant(user: &ClusterUser) -> Result<Applicant, Error> {
    let (name, groups) = (&user.name, user.assigned_groups());
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let text =
            format!("user \"{name}\" is in group {group}, for which no certificate is requested");
        return Err(Error::new(Exit::Cluster, text).help(
            "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)",
        ));
    }
    Applicant::new(name.clone(), groups)
}

/// Has a certificate issued for exactly the user of this connection; `life` in seconds.
pub(super) fn make(
    api: &TokenConnection,
    life: u64,
    limit: Duration,
) -> Result<IssuedCredential, Error> {
    let user = api.whoami()?;
    let applicant = applicant(&user)?;
    let (secret, public_key) = new_key()?;
    let csr = sign_request(KeyPurpose::Signing, &applicant, &public_key, |scheme, digest| {
        let signature: Result<Signature, _> = SigningKey::from(&secret).sign_prehash(digest);
        let der = signature.ok().map(|it| it.to_der().as_bytes().to_vec());
        der.and_then(|der| verify(&public_key, &scheme, digest, der))
            .ok_or_else(|| Error::internal("a signature of a key that was just made"))
    })?;
    let name = format!("credential-{}", random_id()?);
    let request = SigningRequest::create(api, &name, &csr, u32::try_from(life).ok())?;
    report::note(&format!("waiting for the CertificateSigningRequest {name} to be approved"));
    let request = request.wait(api, limit)?;
    let options =
        &IssuanceOptions { duration: Some(Duration::from_secs(life)), wait: limit, again: true };
    let (applicant, public_key) = (&applicant, &public_key);
    let issuance = Issuance { api, applicant, public_key, options, renewed: None };
    let Some(issued) = issuance.issued(&request)? else {
        // Its key ends with this process. Who may not remove it leaves it to the cluster.
        let _ = request.remove(api);
        let seconds = limit.as_secs();
        let text =
            format!("the CertificateSigningRequest {name} was not approved within {seconds} s");
        return Err(Error::new(Exit::Cluster, text).help(
            "have an approver run for such requests (docs/short-lived.md shows one), or give it more time: --wait 5m",
        ));
    };
    let key = secret.to_pkcs8_pem(LineEnding::LF).map_err(Error::internal)?.to_string();
    Ok(IssuedCredential {
        // Not what stands between and behind the certificates.
        proof: ExecProof::Certificate { certificate: issued.pem()?, key },
        ends: issued.certificate.validity.not_after,
        user: user.name,
    })
}

/// A key in memory, which is wiped with it.
fn new_key() -> Result<(SecretKey, PublicKey), Error> {
    // On the heap, which is wiped when it is freed.
    let mut random = vec![0; 32];
    getrandom::fill(&mut random).map_err(Error::internal)?;
    // Hardly any number is none.
    let secret = SecretKey::from_slice(&random).map_err(Error::internal)?;
    let point = SigningKey::from(&secret).verifying_key().to_sec1_point(false);
    let public = PublicKey::Ecdsa { curve: Curve::P256, point: point.as_bytes().to_vec() };
    Ok((secret, public))
}
