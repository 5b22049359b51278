//! `check --as`: what the cluster still needs before `credential --as` works.

use serde_json::json;

use super::checklist::{CheckStep, Checklist};
use crate::cli::credential_kind::{ShortLived, applicant};
use crate::cluster_api::signing_request::SIGNER;
use crate::cluster_api::token_request::{ServiceAccount, account_exists};
use crate::cluster_api::{ClusterUser, TokenConnection, may};
use crate::error::{Error, Exit};
use crate::printable::quoted;

const ROLE: &str = "have an administrator apply the role in docs/short-lived.md";

/// Asks the cluster, as this user, and reports what is missing.
pub(super) fn check_short_lived(
    kind: ShortLived,
    account: Option<&ServiceAccount>,
    api: &TokenConnection,
    user: &ClusterUser,
    checklist: &mut Checklist<'_>,
) {
    let outcome = match (kind, account) {
        (ShortLived::Token, Some(account)) => token(api, user, account, checklist),
        (ShortLived::Certificate, _) => certificate(api, user, checklist),
        (ShortLived::Jwt | ShortLived::Token, _) => Ok(()),
    };
    if let Err(error) = outcome {
        checklist.bad(CheckStep::SERVER, &error);
    }
}

fn missing(text: String, help: &str) -> Result<(), Error> {
    Err(Error::new(Exit::Cluster, text).help(help))
}

fn token(
    api: &TokenConnection,
    user: &ClusterUser,
    account: &ServiceAccount,
    checklist: &mut Checklist<'_>,
) -> Result<(), Error> {
    let access = json!({
        "verb": "create",
        "resource": "serviceaccounts",
        "subresource": "token",
        "namespace": account.namespace,
        "name": account.name,
    });
    let name = &user.name;
    if !may(api, &access)? {
        let text =
            format!("user \"{name}\" may not ask for tokens of the service account {account}");
        return missing(text, ROLE);
    }
    if !account_exists(api, account)? {
        let text = format!("there is no service account {account}");
        let help =
            "name another one, or have an administrator make it: `kubectl create serviceaccount`";
        return missing(text, help);
    }
    let text = format!("user \"{name}\" may ask for tokens of the service account {account}");
    checklist.good(CheckStep::SERVER, text);
    Ok(())
}

fn certificate(
    api: &TokenConnection,
    user: &ClusterUser,
    checklist: &mut Checklist<'_>,
) -> Result<(), Error> {
    let (applicant, name) = (applicant(user)?, &user.name);
    let may = |verb: &str, resource: &str, subresource: &str, name: &str| {
        let group = "certificates.k8s.io";
        let access = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
        });
        may(api, &access)
    };
    let requests = "certificatesigningrequests";
    if !(may("create", requests, "", "")? && may("get", requests, "", "")?) {
        let text = format!("user \"{name}\" may not create and get CertificateSigningRequests");
        return missing(text, ROLE);
    }
    let groups = quoted(applicant.groups());
    let text = format!("user \"{name}\" may request a certificate with groups {groups}");
    checklist.good(CheckStep::SERVER, text);
    if may("update", requests, "approval", "")? && may("approve", "signers", "", SIGNER)? {
        let text = format!("user \"{name}\" may approve requests, too, and so can be everybody");
        let help = "take one of the two rights away: an approver is somebody else";
        checklist.concern(CheckStep::SERVER, text, help);
    } else {
        let help = "they compare and approve with `pkcs11-external-signer approve NAME`, which shows this certificate";
        checklist.concern(CheckStep::SERVER, "somebody else has to approve each request", help);
    }
    Ok(())
}
