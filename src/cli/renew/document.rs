//! What `renew` prints: what it has done, or would do, as lines or as a JSON document.

use serde::Serialize;

use super::key_in_use::KeyInUse;
use crate::certificate::Certificate;
use crate::cli::issuance::RequestStanding;
use crate::cli::listing::CertificateEntry;
use crate::cli::output::CommandOutput;
use crate::cluster_api::{ClusterUser, Recognition};
use crate::error::Error;
use crate::process::unix_time;

/// What `--json` prints, described in docs/commands.md.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenewalDocument<'a> {
    api_version: &'static str,
    state: RenewalState,
    /// The CertificateSigningRequest's name; `None` as long as it follows from a key that is to be made.
    request: Option<&'a str>,
    /// With `--new-key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a NewKeyEntry>,
    /// The new one, or with `--dry-run` the present one.
    certificate: CertificateEntry,
    /// Whom the cluster takes the bearer for.
    known_as: Option<KnownUser>,
}

/// The key that takes the present one's place.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewKeyEntry {
    pub(super) object_id: String,
    /// As in `ECDSA P-256`.
    pub(super) kind: String,
    /// Where the certificate is, if not beside it.
    pub(super) certificate_file: Option<String>,
}

#[derive(Serialize)]
struct KnownUser {
    user: String,
    groups: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RenewalState {
    Planned,
    Renewed,
}

impl RenewalDocument<'_> {
    const API_VERSION: &'static str = "pkcs11-external-signer/v1";
}

/// Where it is printed.
pub(super) struct Report<'a> {
    pub(super) output: &'a mut CommandOutput,
    pub(super) is_json: bool,
}

impl Report<'_> {
    /// What would be done, step by step.
    ///
    /// # Errors
    /// Standard output takes nothing.
    pub(super) fn plan(
        &mut self,
        present: &Certificate,
        request: Option<&str>,
        steps: &[String],
        key: Option<&NewKeyEntry>,
    ) -> Result<(), Error> {
        if self.is_json {
            return self.output.print_json(&RenewalDocument {
                api_version: RenewalDocument::API_VERSION,
                state: RenewalState::Planned,
                request,
                key,
                certificate: CertificateEntry::from(present),
                known_as: None,
            });
        }
        let expiry = present.validity.expiry(unix_time());
        let steps: String = steps.iter().map(|step| format!("it would {step}\n")).collect();
        Ok(self.output.print(&format!(
            "the certificate of {} expires {expiry}; nothing is changed\n{steps}",
            present.subject
        ))?)
    }

    /// What was done.
    ///
    /// # Errors
    /// Standard output takes nothing.
    pub(super) fn renewed(
        &mut self,
        key: &KeyInUse<'_>,
        name: &str,
        certificate: &Certificate,
        known: Recognition,
        new: Option<&NewKeyEntry>,
    ) -> Result<(), Error> {
        let user = match known {
            Recognition::User(ClusterUser { name, groups, .. }) => {
                Some(KnownUser { user: name, groups })
            }
            Recognition::NotTold => None,
        };
        if self.is_json {
            return self.output.print_json(&RenewalDocument {
                api_version: RenewalDocument::API_VERSION,
                state: RenewalState::Renewed,
                request: Some(name),
                key: new,
                certificate: CertificateEntry::from(certificate),
                known_as: user,
            });
        }
        let expiry = certificate.validity.expiry(unix_time());
        let server = key.target()?.cluster.server;
        let proof = match user {
            Some(user) => {
                let groups = user.groups.join(", ");
                format!("{server} knows us as user \"{}\", groups {groups}", user.user)
            }
            None => format!("{server} was reached"),
        };
        let new = new.map(|new| format!("key: {}, objectId {}\n", new.kind, new.object_id));
        Ok(self.output.print(&format!(
            "the certificate of {} is renewed: it expires {expiry}, {}\n{}{proof}\n",
            certificate.subject,
            certificate.credential_id(),
            new.unwrap_or_default()
        ))?)
    }
}

/// What would be done about the request, in words.
pub(super) fn step_of(standing: &RequestStanding, user: &str) -> String {
    let name = standing.name();
    match standing {
        RequestStanding::Absent(_) => format!("make the request {name} for user \"{user}\""),
        RequestStanding::Open(_) => format!("wait for the request {name}, which is there"),
        RequestStanding::Issued(_) => {
            format!("take the certificate that the request {name} was answered with")
        }
    }
}
