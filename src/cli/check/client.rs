//! The local address that a context's cluster has for clients with the credential plugin: whether it is this user's,
//! and whether its entry still fits the cluster that it leads to. No PIN is needed for that, and nothing is started.

use super::checklist::Checklist;
use crate::error::Error;
use crate::kubeconfig::{Cluster, Context, EntryKind, Kubeconfig, local_address, write_command};
use crate::printable::shell_word;
use crate::tunnel::check_port;
use crate::tunnel_process::{self, RegisteredCluster};

impl Checklist<'_> {
    /// Does nothing for a context whose user has another plugin, or none.
    pub(super) fn check_client(&mut self, kubeconfig: &Kubeconfig, context: &Context) {
        if !kubeconfig.has_plugin(&context.user) {
            return;
        }
        let Some(served) = self.keep("client", served(kubeconfig, context)) else {
            return;
        };
        let RegisteredCluster { address, name, cluster, .. } = &served;
        let concerns = concerns(kubeconfig, context, &served);
        for text in &concerns {
            let write = write_command(&shell_word(&context.name));
            let help = format!("have the context's entries written again: {write}");
            self.concern("client", text, help);
        }
        if concerns.is_empty() {
            let (local, server) = (&context.cluster, &cluster.server);
            let text = format!(
                "cluster \"{local}\" leads by {address} to cluster \"{name}\" ({server}), and is this user's"
            );
            self.good("client", text);
        }
    }
}

/// What the tunnel process would serve, at an address that nobody else has.
fn served(kubeconfig: &Kubeconfig, context: &Context) -> Result<RegisteredCluster, Error> {
    let identity = tunnel_process::identity()?;
    let served = RegisteredCluster::of(&kubeconfig.local_cluster(&context.cluster)?, &identity)?;
    let is_ours = || -> Result<bool, Error> {
        let status = tunnel_process::status()?;
        Ok(status.iter().flat_map(|it| &it.clusters).any(|it| it.address == served.address))
    };
    // The tunnel process may begin to serve it between the two looks.
    if !is_ours()?
        && let Err(error) = check_port(&served.name, served.address)
        && !is_ours()?
    {
        return Err(error);
    }
    Ok(served)
}

fn concerns(kubeconfig: &Kubeconfig, context: &Context, served: &RegisteredCluster) -> Vec<String> {
    let (ip, name) = (served.address.ip(), &served.name);
    let local = local_address();
    let foreign = (ip != local).then(|| {
        format!("{ip} is not this user's own address, {local}: another user can listen there")
    });
    // The copy, without the proxy that the environment would add.
    let copy = kubeconfig.cluster(&context.cluster).ok();
    let copy = copy.filter(|_| kubeconfig.has(EntryKind::Cluster, name));
    let changed = copy.and_then(|copy| match kubeconfig.cluster(name) {
        Ok(real) => Some(differences(&copy, &real)).filter(|it| !it.is_empty()),
        Err(error) => Some(error.to_string()),
    });
    let changed = changed.map(|what| {
        format!("the entry of cluster \"{name}\" has changed since it was copied: {what}")
    });
    foreign.into_iter().chain(changed).collect()
}

/// The fields that two entries have differently.
fn differences(one: &Cluster, other: &Cluster) -> String {
    let fields = [
        ("server", one.server != other.server),
        ("certificate-authority", one.authority != other.authority),
        ("tls-server-name", one.tls_server_name != other.tls_server_name),
        ("insecure-skip-tls-verify", one.insecure != other.insecure),
        ("proxy-url", one.proxy_url != other.proxy_url),
    ];
    let changed: Vec<_> = fields.iter().filter(|(_, is_other)| *is_other).map(|it| it.0).collect();
    changed.join(", ")
}
