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
    /// The CertificateSigningRequest's name.
    request: &'a str,
    /// The new one, or with `--dry-run` the present one.
    certificate: CertificateEntry,
    /// Whom the cluster takes the bearer for.
    known_as: Option<KnownUser>,
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
    /// What would be done. `place` is what with the certificate.
    ///
    /// # Errors
    /// Standard output takes nothing.
    pub(super) fn plan(
        &mut self,
        present: &Certificate,
        found: &RequestStanding,
        user: &str,
        place: &str,
    ) -> Result<(), Error> {
        let (name, first) = match found {
            RequestStanding::Absent(name) => (
                name.as_str(),
                format!("make the request {name} for user \"{user}\""),
            ),
            RequestStanding::Open(request) => {
                let name = request.name();
                (name, format!("wait for the request {name}, which is there"))
            }
            RequestStanding::Issued(issued) => {
                let name = issued.name.as_str();
                (
                    name,
                    format!("take the certificate that the request {name} was answered with"),
                )
            }
        };
        if self.is_json {
            return self.output.print_json(&RenewalDocument {
                api_version: RenewalDocument::API_VERSION,
                state: RenewalState::Planned,
                request: name,
                certificate: CertificateEntry::from(present),
                known_as: None,
            });
        }
        let expiry = present.validity.expiry(unix_time());
        Ok(self.output.print(&format!(
            "the certificate of {} expires {expiry}; nothing is changed\nit would {first}\nit would {place}\n",
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
                request: name,
                certificate: CertificateEntry::from(certificate),
                known_as: user,
            });
        }
        let expiry = certificate.validity.expiry(unix_time());
        let server = key.target()?.cluster.server;
        let proof = match user {
            Some(user) => {
                let groups = user.groups.join(", ");
                format!(
                    "{server} knows us as user \"{}\", groups {groups}",
                    user.user
                )
            }
            None => format!("{server} was reached"),
        };
        Ok(self.output.print(&format!(
            "the certificate of {} is renewed: it expires {expiry}, {}\n{proof}\n",
            certificate.subject,
            certificate.credential_id()
        ))?)
    }
}
