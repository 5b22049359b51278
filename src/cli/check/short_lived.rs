//! `check --as`: what the cluster still needs before `credential --as` works, with what an administrator applies.

use super::checklist::{CheckStep, Checklist, quoted};
use crate::cli::credential::ShortLived;
use crate::cluster_api::signing_request::SIGNER;
use crate::cluster_api::token_request::{ServiceAccount, account_exists};
use crate::cluster_api::{ClusterUser, ResourceAccess, TokenConnection, may};
use crate::error::{Error, Failure, Help, remedy};

/// What is handed out, and of which account.
pub(super) struct WantedCredential<'a> {
    pub(super) kind: ShortLived,
    pub(super) account: Option<&'a ServiceAccount>,
}

/// Exit code 9: what the cluster lacks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPrepared {
    /// The role allows the tokens of this account alone.
    #[error("user \"{user}\" may not ask for tokens of the service account {account}")]
    Account { user: String, account: String },
    /// It may have been deleted, or stand in another namespace.
    #[error("there is no service account {account}")]
    NoAccount { account: String },
    /// Nobody may request certificates without a role that says so.
    #[error("user \"{user}\" may not {verbs} CertificateSigningRequests")]
    Requests { user: String, verbs: String },
    /// No certificate is requested for the cluster's own groups.
    #[error("user \"{user}\" is in group {group}, for which no certificate is requested")]
    OwnGroup { user: String, group: String },
}

impl Failure for NotPrepared {
    fn exit_code(&self) -> u8 {
        9
    }

    fn remedy(&self) -> Help {
        match self {
            Self::Account { user, account } => {
                let (namespace, name) = account.split_once('/').unwrap_or_default();
                let place = format!("metadata: {{name: {name}-tokens, namespace: {namespace}}}");
                let subject = serde_json::json!(user);
                let lines = [
                    "apiVersion: rbac.authorization.k8s.io/v1".to_owned(),
                    "kind: Role".to_owned(),
                    place.clone(),
                    "rules:".to_owned(),
                    format!(
                        "- {{apiGroups: [\"\"], resources: [serviceaccounts/token], resourceNames: [{name}], verbs: [create]}}"
                    ),
                    "---".to_owned(),
                    "apiVersion: rbac.authorization.k8s.io/v1".to_owned(),
                    "kind: RoleBinding".to_owned(),
                    place,
                    format!(
                        "subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {subject}}}]"
                    ),
                    format!(
                        "roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}-tokens}}"
                    ),
                ];
                remedy!("have an administrator apply:").with_candidates(&lines)
            }
            Self::NoAccount { account } => {
                let (namespace, name) = account.split_once('/').unwrap_or_default();
                let lines = [
                    "apiVersion: v1".to_owned(),
                    "kind: ServiceAccount".to_owned(),
                    format!("metadata: {{name: {name}, namespace: {namespace}}}"),
                ];
                remedy!("name another one, or have an administrator apply:").with_candidates(&lines)
            }
            Self::Requests { user, .. } => {
                let subject = serde_json::json!(user);
                let lines = [
                    "apiVersion: rbac.authorization.k8s.io/v1".to_owned(),
                    "kind: ClusterRole".to_owned(),
                    "metadata: {name: certificate-requester}".to_owned(),
                    "rules:".to_owned(),
                    "- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create, get, delete]}"
                        .to_owned(),
                    "---".to_owned(),
                    "apiVersion: rbac.authorization.k8s.io/v1".to_owned(),
                    "kind: ClusterRoleBinding".to_owned(),
                    "metadata: {name: certificate-requester}".to_owned(),
                    format!("subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {subject}}}]"),
                    "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: certificate-requester}"
                        .to_owned(),
                ];
                remedy!("have an administrator apply:").with_candidates(&lines)
            }
            Self::OwnGroup { .. } => {
                remedy!("use --as token for a service account with these rights, or the tunnel")
            }
        }
    }
}

/// Asks the cluster, as this user, and reports what is missing.
pub(super) fn check_short_lived(
    wanted: &WantedCredential<'_>,
    api: &TokenConnection,
    user: &ClusterUser,
    checklist: &mut Checklist,
) {
    let outcome = match (wanted.kind, wanted.account) {
        (ShortLived::Token, Some(account)) => token(api, user, account, checklist),
        (ShortLived::Certificate, _) => certificate(api, user, checklist),
        (ShortLived::Jwt | ShortLived::Token, _) => Ok(()),
    };
    if let Err(error) = outcome {
        checklist.bad(CheckStep::Server, &error);
    }
}

fn token(
    api: &TokenConnection,
    user: &ClusterUser,
    account: &ServiceAccount,
    checklist: &mut Checklist,
) -> Result<(), Error> {
    let access = ResourceAccess {
        verb: "create",
        group: "",
        resource: "serviceaccounts",
        subresource: "token",
        namespace: account.namespace(),
        name: account.name(),
    };
    if !may(api, &access)? {
        return Err(
            NotPrepared::Account { user: user.name.clone(), account: account.to_string() }.into()
        );
    }
    if !account_exists(api, account)? {
        let account = account.to_string();
        return Err(NotPrepared::NoAccount { account }.into());
    }
    let text =
        format!("user \"{}\" may ask for tokens of the service account {account}", user.name);
    checklist.good(CheckStep::Server, text);
    Ok(())
}

fn certificate(
    api: &TokenConnection,
    user: &ClusterUser,
    checklist: &mut Checklist,
) -> Result<(), Error> {
    let name = || user.name.clone();
    let groups = user.own_groups();
    if let Some(group) = groups.iter().find(|group| group.starts_with("system:")) {
        let group = group.clone();
        return Err(NotPrepared::OwnGroup { user: name(), group }.into());
    }
    let access = |verb, subresource, resource, name| ResourceAccess {
        verb,
        group: "certificates.k8s.io",
        resource,
        subresource,
        namespace: "",
        name,
    };
    let requests = "certificatesigningrequests";
    let mut missing = Vec::new();
    for verb in ["create", "get"] {
        if !may(api, &access(verb, "", requests, ""))? {
            missing.push(verb);
        }
    }
    if !missing.is_empty() {
        let verbs = missing.join(" and ");
        return Err(NotPrepared::Requests { user: name(), verbs }.into());
    }
    let text =
        format!("user \"{}\" may request a certificate with groups {}", user.name, quoted(&groups));
    checklist.good(CheckStep::Server, text);
    let approves = may(api, &access("update", "approval", requests, ""))?
        && may(api, &access("approve", "", "signers", SIGNER))?;
    match approves {
        true => checklist.concern(
            CheckStep::Server,
            format!(
                "user \"{}\" may approve requests, too, and so can be everybody",
                user.name
            ),
            "take one of the two rights away: an approver is somebody else",
        ),
        false => checklist.concern(
            CheckStep::Server,
            "somebody else has to approve each request",
            "they compare and approve with `pkcs11-external-signer approve`, which shows this certificate",
        ),
    }
    Ok(())
}
