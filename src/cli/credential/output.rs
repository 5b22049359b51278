//! The forms in which a short-lived credential is handed out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::CredentialArguments;
use super::short_lived::{IssuedCredential, OutputForm};
use crate::certificate::rfc_3339;
use crate::cli::key_options::SelectedContext;
use crate::error::Error;
use crate::exec_credential::{ExecProof, ExecRequest, exec_answer};
use crate::kubeconfig::{Cluster, LocalCluster, tunnelled};
use crate::tunnel::TunnelTarget;

/// The cluster that the credential is for: the client's, the context's with the key, or the current context's.
pub(super) fn target(
    arguments: &CredentialArguments,
    request: Option<&ExecRequest>,
    of_key: Option<SelectedContext>,
) -> Result<TunnelTarget, Error> {
    if let Some(entry) = request.and_then(|request| request.cluster.as_ref()) {
        let LocalCluster { cluster, extension } = LocalCluster::requested(entry)?;
        let (name, cluster) = match extension.is_null() {
            true => (cluster.server.clone(), cluster),
            false => tunnelled(&extension)?,
        };
        return Ok(TunnelTarget::new(name, cluster));
    }
    match of_key {
        Some(selected) => selected.target(),
        None => arguments.key.selected()?.target(),
    }
}

/// The document; `target` is needed for a kubeconfig.
pub(super) fn text(
    credential: &IssuedCredential,
    form: OutputForm,
    version: &str,
    target: Option<&TunnelTarget>,
) -> String {
    match (form, target) {
        (OutputForm::Kubeconfig, Some(target)) => kubeconfig(credential, target),
        (OutputForm::Exec | OutputForm::Kubeconfig, _) => {
            exec_answer(version, &credential.proof, &credential.renewal())
        }
        (OutputForm::Raw, _) => match &credential.proof {
            ExecProof::Certificate { certificate, key } => {
                format!("{}\n{}\n", certificate.trim_end(), key.trim_end())
            }
            ExecProof::Token(token) => format!("{token}\n"),
        },
    }
}

/// JSON is YAML, but for the comment.
fn kubeconfig(credential: &IssuedCredential, target: &TunnelTarget) -> String {
    let Cluster { server, authority, tls_server_name, insecure, proxy_url } = &target.cluster;
    let mut cluster = json!({
        "server": server,
        "certificate-authority-data": authority.as_ref().map(|pem| STANDARD.encode(pem)),
        "tls-server-name": tls_server_name,
        "insecure-skip-tls-verify": insecure.then_some(true),
        "proxy-url": proxy_url,
    });
    if let Some(members) = cluster.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let user = match &credential.proof {
        ExecProof::Certificate { certificate, key } => json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }),
        ExecProof::Token(token) => json!({ "token": token }),
    };
    let (name, who) = (&target.name, &credential.user);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": who, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": who}}],
        "current-context": name,
    });
    let ends = rfc_3339(credential.ends);
    format!("# Ends at {ends}, and is of no use afterwards.\n{config:#}\n")
}
