//! `credential --as certificate`: a certificate for a key that is made here and now, requested with the token's
//! key and approved by somebody else.

use std::time::Duration;

use p256::SecretKey;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};

use super::connection::{connect, show_clock};
use super::error::NotIssued;
use super::short_lived::{IssuedCredential, Making, Proof, random_id};
use crate::certificate::{Certificate, Curve, PublicKey};
use crate::cli::jwks::lifetime;
use crate::cluster_api::signing_request::{
    self, NewSigningRequest, RequestEnd, RequestState, SHORTEST,
};
use crate::cluster_api::{ClusterApi, ClusterUser, Recognition, self_subject_review};
use crate::enrollment::{
    Applicant, ExpectedCertificate, certificates_pem, check_issued, sign_request,
};
use crate::error::Error;
use crate::process::unix_time;
use crate::report;
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
    let user = match self_subject_review(&api)? {
        Recognition::User(user) => user,
        Recognition::NotTold => return Err(NotIssued::TooOld.into()),
    };
    show_clock(&api);
    let key = MadeKey::new()?;
    let certificate = issue(&api, &user, &key, life, limit)?;
    Ok(IssuedCredential {
        ends: certificate.ends,
        proof: Proof::Certificate { certificate: certificate.pem, key: key.pem()? },
        begins: certificate.begins,
        user: user.name,
    })
}

struct MadeCertificate {
    /// With those that the signer added.
    pem: String,
    /// When it came, in seconds since 1970.
    begins: i64,
    ends: i64,
}

/// Requests a certificate for exactly this user and waits for it.
fn issue(
    api: &dyn ClusterApi,
    user: &ClusterUser,
    key: &MadeKey,
    life: u64,
    limit: Duration,
) -> Result<MadeCertificate, Error> {
    let groups = user.own_groups();
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let group = group.clone();
        return Err(NotIssued::OwnGroup { group }.into());
    }
    let applicant = Applicant::new(user.name.clone(), groups.clone())?;
    let signed = sign_request(&applicant, &key.public, |scheme, digest| {
        let signature: Result<Signature, _> = SigningKey::from(&key.secret).sign_prehash(digest);
        let der = signature.ok().map(|it| it.to_der().as_bytes().to_vec());
        der.and_then(|der| verify(&key.public, &scheme, digest, der))
            .ok_or_else(|| Error::internal("a signature of a key that was just made"))
    })?;
    let name = format!("credential-{}", random_id()?);
    let wish =
        NewSigningRequest { name: &name, pem: signed.pem(), seconds: u32::try_from(life).ok() };
    let request = signing_request::create(api, &wish)?;
    report::note(&format!("waiting for the CertificateSigningRequest {name} to be approved"));
    let end = signing_request::wait(api, &request, limit)?;
    let RequestEnd::Reached(request) = end else {
        return Err(NotIssued::Removed { name }.into());
    };
    let pem = match request.state() {
        RequestState::Issued(pem) => pem,
        RequestState::Denied { reason, message } => {
            return Err(NotIssued::Denied { name, reason, message }.into());
        }
        RequestState::Failed { reason, message } => {
            return Err(NotIssued::Failed { name, reason, message }.into());
        }
        state @ (RequestState::Approved | RequestState::Pending) => {
            // Its key ends with this process. Who may not remove it leaves it to the cluster.
            let _ = signing_request::remove(api, &request);
            let what = match state {
                RequestState::Approved => "signed",
                _ => "approved",
            };
            let waited = limit;
            return Err(NotIssued::TooSlow { name, what, waited }.into());
        }
    };
    let (certificate, chain) =
        Certificate::chain_from_pem_or_der(pem.as_bytes(), "what was issued")?;
    if *certificate.public_key() != key.public {
        let reason = "it is for another key".to_owned();
        return Err(NotIssued::Unusable { name, reason }.into());
    }
    let expected =
        ExpectedCertificate { user: Some(&user.name), groups: Some(&groups), duration: Some(life) };
    // Not when it was asked for: the approval takes time, and not every signer puts the beginning back.
    let now = unix_time();
    let remark = check_issued(&certificate, &expected, now)
        .map_err(|error| NotIssued::Unusable { name, reason: error.to_string() })?;
    if let Some(remark) = remark {
        report::warning(&format!("the certificate: {remark}"));
    }
    Ok(MadeCertificate {
        begins: now,
        ends: certificate.validity.not_after,
        // Not what stands between and behind them.
        pem: certificates_pem(certificate.der(), &chain)?,
    })
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
