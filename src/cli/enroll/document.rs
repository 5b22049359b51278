//! What `enroll` prints: what is there now, or would be, as lines or as a JSON document.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::file::CsrTarget;
use crate::certificate::Certificate;
use crate::cli::listing::CertificateEntry;
use crate::config::{ObjectId, TokenName};
use crate::enrollment::{Applicant, Csr, EnrolledKey, fingerprint};
use crate::error::Error;
use crate::printable::printable;
use crate::token::{FoundKey, KeyKind};

/// The document's version; fields may be added to it, none is taken away or changes its meaning.
const API_VERSION: &str = "pkcs11-external-signer/v1";

/// Described in docs/commands.md.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnrollmentDocument {
    api_version: &'static str,
    dry_run: bool,
    token: TokenPlace,
    key: Option<KeyPart>,
    request: Option<RequestPart>,
    certificate: Option<CertificatePart>,
    cluster: Option<ClusterPart>,
}

/// The cluster that has issued the certificate.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterPart {
    context: String,
    user: String,
    groups: Vec<String>,
    /// The CertificateSigningRequest's name, and whether it is there.
    request: Option<String>,
    is_requested: bool,
    /// What the cluster has said to the key.
    proof: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenPlace {
    slot_id: u64,
    token_label: String,
    token_serial: String,
    #[serde(skip)]
    words: String,
}

/// Where the key comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyOrigin {
    Found,
    Made,
    Planned,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyPart {
    origin: KeyOrigin,
    object_id: Option<String>,
    object_label: String,
    kind: String,
    /// Of the public key, in hexadecimal digits.
    fingerprint: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestPart {
    user: String,
    groups: Vec<String>,
    file: Option<PathBuf>,
    pem: Option<String>,
}

/// What became of the certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CertificateStatus {
    InFile(PathBuf),
    Planned,
    Present,
    Written,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CertificatePart {
    /// `written`, `present`, `planned` or `in-file`.
    status: &'static str,
    file: Option<PathBuf>,
    /// The subjects of the CAs' certificates that are with it on the token.
    intermediates: Vec<String>,
    /// The serial numbers of those that it takes the place of.
    replaced: Vec<String>,
    #[serde(flatten)]
    certificate: CertificateEntry,
}

impl EnrollmentDocument {
    pub(super) fn new(token: &TokenName, dry_run: bool) -> Self {
        Self {
            api_version: API_VERSION,
            dry_run,
            token: TokenPlace {
                slot_id: token.slot,
                token_label: token.label.clone(),
                token_serial: token.serial.clone(),
                words: token.to_string(),
            },
            key: None,
            request: None,
            certificate: None,
            cluster: None,
        }
    }

    pub(super) fn set_cluster(&mut self, context: &str, applicant: &Applicant) {
        self.cluster = Some(ClusterPart {
            context: context.to_owned(),
            user: applicant.user().to_owned(),
            groups: applicant.groups().to_owned(),
            request: None,
            is_requested: false,
            proof: None,
        });
    }

    pub(super) fn set_cluster_request(&mut self, name: String, is_requested: bool) {
        if let Some(part) = &mut self.cluster {
            part.request = Some(name);
            part.is_requested = is_requested;
        }
    }

    pub(super) fn set_proof(&mut self, proof: String) {
        if let Some(part) = &mut self.cluster {
            part.proof = Some(proof);
        }
    }

    /// The file in which the certificate is kept, if it isn't on the token.
    pub(super) fn certificate_file(&self) -> Option<&Path> {
        self.certificate.as_ref()?.file.as_deref()
    }

    /// # Errors
    /// None that a key of a token has.
    pub(super) fn set_key(&mut self, key: &FoundKey, origin: KeyOrigin) -> Result<(), Error> {
        let EnrolledKey { id, label, kind } = EnrolledKey::from(key);
        self.key = Some(KeyPart {
            origin,
            object_id: id.map(|id| id.to_string()),
            object_label: label,
            kind,
            fingerprint: Some(fingerprint(&key.public_key)?),
        });
        Ok(())
    }

    pub(super) fn plan_key(&mut self, id: &ObjectId, label: &str, kind: KeyKind) {
        self.key = Some(KeyPart {
            origin: KeyOrigin::Planned,
            object_id: Some(id.to_string()),
            object_label: label.to_owned(),
            kind: kind.words().to_owned(),
            fingerprint: None,
        });
    }

    pub(super) fn set_request(&mut self, applicant: &Applicant, target: &CsrTarget<'_>) {
        self.request = Some(RequestPart {
            user: applicant.user().to_owned(),
            groups: applicant.groups().to_owned(),
            file: target.path().map(PathBuf::from),
            pem: None,
        });
    }

    pub(super) fn set_csr(&mut self, csr: Csr) {
        if let Some(request) = &mut self.request {
            request.pem = Some(csr.into_pem());
        }
    }

    /// The request, once it is signed.
    pub(super) fn request_text(&self) -> Option<&str> {
        self.request.as_ref()?.pem.as_deref()
    }

    pub(super) fn set_certificate(&mut self, certificate: &Certificate, status: CertificateStatus) {
        let (status, file) = match status {
            CertificateStatus::InFile(path) => ("in-file", Some(path)),
            CertificateStatus::Planned => ("planned", None),
            CertificateStatus::Present => ("present", None),
            CertificateStatus::Written => ("written", None),
        };
        self.certificate = Some(CertificatePart {
            status,
            file,
            intermediates: Vec::new(),
            replaced: Vec::new(),
            certificate: CertificateEntry::from(certificate),
        });
    }

    /// The file that has it beside the token.
    pub(super) fn set_file(&mut self, path: PathBuf) {
        if let Some(part) = &mut self.certificate {
            part.file = Some(path);
        }
    }

    pub(super) fn set_intermediates(&mut self, certificates: &[Certificate]) {
        if let Some(part) = &mut self.certificate {
            let subjects = certificates.iter().map(|it| it.subject.clone());
            part.intermediates = subjects.collect();
        }
    }

    pub(super) fn set_replaced(&mut self, serial_numbers: &[String]) {
        if let Some(part) = &mut self.certificate {
            part.replaced = serial_numbers.to_owned();
        }
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        if let Some(key) = &self.key {
            let id = key.object_id.as_deref().unwrap_or("none");
            let done = match key.origin {
                KeyOrigin::Found => "on",
                KeyOrigin::Made => "made on",
                KeyOrigin::Planned => "to be made on",
            };
            lines.push(format!(
                "key: {}, objectId {id}, label \"{}\", {done} token {}",
                key.kind, key.object_label, self.token.words
            ));
            let fingerprint = key.fingerprint.as_ref();
            lines.extend(fingerprint.map(|it| format!("fingerprint: SHA-256 {it}")));
        }
        if let Some(request) = &self.request {
            let place = match &request.file {
                Some(file) => file.display().to_string(),
                None => "standard output".to_owned(),
            };
            let done = match request.pem {
                Some(_) => "",
                None => "to be written to ",
            };
            let name = named(&request.user, &request.groups);
            lines.push(format!("request: {done}{place}, for {name}"));
        }
        if let Some(part) = &self.certificate {
            let own = &part.certificate;
            let name = named(own.user.as_deref().unwrap_or_default(), &own.groups);
            let place = match (&part.file, part.status) {
                (Some(file), "planned") => format!("to be kept in {}", file.display()),
                (Some(file), "in-file") => format!("in {}", file.display()),
                (Some(file), _) => format!("beside the key, and in {}", file.display()),
                (None, "planned") => "to be written beside the key".to_owned(),
                (None, _) => "beside the key".to_owned(),
            };
            lines.push(format!(
                "certificate: {name}, expires {}, issued by {}, {place}",
                own.expires, own.issuer
            ));
            let intermediates = part.intermediates.iter();
            lines.extend(intermediates.map(|it| format!("CA certificate: {it}, on the token")));
            for serial_number in &part.replaced {
                let done = match self.dry_run {
                    true => "to be removed",
                    false => "removed",
                };
                lines.push(format!("{done}: certificate with serial number {serial_number}"));
            }
        }
        if let Some(cluster) = &self.cluster {
            let named = named(&cluster.user, &cluster.groups);
            if self.dry_run && self.certificate.is_none() {
                let request = match (&cluster.request, cluster.is_requested) {
                    (Some(name), true) => format!("{name}, which is there"),
                    (Some(name), false) => format!("{name}, to be made"),
                    (None, _) => "to be made".to_owned(),
                };
                lines.push(format!("request: {request}, for {named}"));
            }
            let done = match self.dry_run {
                true => "to use the key",
                false => "uses the key",
            };
            lines.push(format!("context: \"{}\", {done}", cluster.context));
            lines.extend(cluster.proof.clone());
        }
        lines.iter().map(|line| format!("{}\n", printable(line))).collect()
    }
}

/// As in `user "jane", groups "dev", "ops"`.
fn named(user: &str, groups: &[String]) -> String {
    let quoted: Vec<_> = groups.iter().map(|group| format!("{group:?}")).collect();
    match quoted.as_slice() {
        [] => format!("user {user:?}, no groups"),
        [only] => format!("user {user:?}, group {only}"),
        several => format!("user {user:?}, groups {}", several.join(", ")),
    }
}
