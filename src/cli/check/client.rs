//! A context that clients use with this program as their credential plugin: what stands between such a client
//! and the tunnel process, for which no PIN is needed and nothing is started.

use std::net::IpAddr;

use super::checklist::{CheckStep, Checklist};
use super::error::{ClientError, write_again};
use crate::cli::credential::registered;
use crate::cli::error::CredentialError;
use crate::error::Error;
use crate::exec_credential::ApiVersion;
use crate::kubeconfig::{Cluster, Context, Kubeconfig, Plugin, find_program, local_address};
use crate::printable::excerpt;
use crate::tunnel::check_port;
use crate::tunnel_process::{self, RegisteredCluster};

const STEP: CheckStep = CheckStep::Client;

/// Reports what a client meets on its way to the context's cluster, if the context's user has this
/// program as its plugin.
pub(super) fn check_client(
    kubeconfig: &Kubeconfig,
    context: &Context,
    checklist: &mut Checklist,
) -> Option<()> {
    let plugin = kubeconfig.plugin(&context.user)?;
    check_plugin(&plugin, context, checklist);
    let identity = tunnel_process::identity().map_err(Error::from);
    let identity =
        identity.and_then(|identity| identity.ok_or_else(|| CredentialError::NoIdentity.into()));
    let identity = checklist.keep(STEP, identity)?;
    let entry = checklist.keep(STEP, kubeconfig.handed_over(&context.cluster))?;
    let served = checklist.keep(STEP, registered(&entry, &identity))?;
    check_entry(kubeconfig, context, &served, checklist);
    check_address(&served, checklist);
    Some(())
}

/// The user's entry, as client-go validates it (tools/clientcmd, validation.go; plugin/pkg/client/auth/exec).
fn check_plugin(plugin: &Plugin<'_>, context: &Context, checklist: &mut Checklist) {
    let refused = |problem: String| ClientError::Refused {
        user: context.user.clone(),
        problem,
        context: context.name.clone(),
    };
    let mut errors = Vec::new();
    if find_program(plugin.command).is_none() {
        errors.push(ClientError::Command {
            command: excerpt(plugin.command),
            context: context.name.clone(),
        });
    }
    let version = ApiVersion::named(plugin.api_version);
    match (version, plugin.interactive_mode) {
        (None, _) => {
            let version = excerpt(plugin.api_version);
            errors.push(refused(format!("they know no apiVersion \"{version}\"")));
        }
        (Some(ApiVersion::V1), "") => {
            errors.push(refused("it has no interactiveMode".to_owned()));
        }
        (_, "" | "Never" | "IfAvailable" | "Always") => {}
        (_, mode) => {
            let mode = excerpt(mode);
            errors.push(refused(format!("they know no interactiveMode \"{mode}\"")));
        }
    }
    if let Some(field) = plugin.other_credential {
        errors.push(ClientError::OtherCredential { field });
    }
    let is_good = errors.is_empty();
    for error in errors {
        checklist.bad(STEP, &error.into());
    }
    let mut concerns = Vec::new();
    if version == Some(ApiVersion::V1Alpha1) {
        concerns.push(
            "the plugin's apiVersion is v1alpha1, which clients from Kubernetes 1.24 on refuse",
        );
    } else if !plugin.provides_cluster {
        concerns.push(
            "provideClusterInfo is not true: the plugin looks for the cluster in KUBECONFIG, and not in a \
             file that a client is given by an option",
        );
    }
    if plugin.interactive_mode == "Always" {
        concerns.push(
            "interactiveMode is Always: clients refuse the plugin where standard input is no terminal",
        );
    }
    for text in &concerns {
        checklist.concern(STEP, *text, write_again(&context.name));
    }
    if is_good && concerns.is_empty() {
        let text = format!("clients run {} as the plugin", excerpt(plugin.command));
        checklist.good(STEP, text);
    }
}

/// The cluster's entry, beside what the plugin itself refuses.
fn check_entry(
    kubeconfig: &Kubeconfig,
    context: &Context,
    served: &RegisteredCluster,
    checklist: &mut Checklist,
) {
    let RegisteredCluster { address, name, .. } = served;
    let mut is_good = true;
    let mut concern = |text: String| {
        is_good = false;
        checklist.concern(STEP, text, write_again(&context.name));
    };
    let own = local_address();
    if address.ip() != IpAddr::from(own) {
        concern(format!(
            "{} is not this user's own address, {own}: another user can listen there",
            address.ip()
        ));
    }
    // The copy, without the proxy that the environment would add.
    let copy = kubeconfig.cluster(&context.cluster);
    if kubeconfig.cluster_names().contains(name)
        && let Ok(copy) = copy
    {
        match kubeconfig.cluster(name) {
            Ok(real) => {
                let changed = differences(&copy, &real).join(", ");
                if !changed.is_empty() {
                    concern(format!(
                        "the entry of cluster \"{name}\" has changed since it was copied: {changed}"
                    ));
                }
            }
            Err(error) => concern(format!("the entry that was copied has changed since: {error}")),
        }
    }
    if is_good {
        let (local, server) = (&context.cluster, &served.cluster.server);
        let text = format!(
            "cluster \"{local}\" leads by {address} to cluster \"{name}\" ({server}), and is this user's"
        );
        checklist.good(STEP, text);
    }
}

/// The fields that two entries have differently.
fn differences(one: &Cluster, other: &Cluster) -> Vec<&'static str> {
    let fields = [
        ("server", one.server != other.server),
        ("certificate-authority", one.authority != other.authority),
        ("tls-server-name", one.tls_server_name != other.tls_server_name),
        ("insecure-skip-tls-verify", one.insecure != other.insecure),
        ("proxy-url", one.proxy_url != other.proxy_url),
    ];
    let fields = fields.into_iter();
    fields.filter_map(|(name, is_other)| is_other.then_some(name)).collect()
}

/// What is at the local address.
fn check_address(served: &RegisteredCluster, checklist: &mut Checklist) {
    let RegisteredCluster { address, name, .. } = served;
    let process = tunnel_process::status();
    let Some(process) = checklist.keep(STEP, process) else {
        return;
    };
    let cluster = process.as_ref().and_then(|it| it.clusters.iter().find(|it| it.is_at(*address)));
    let outcome = match (&process, cluster) {
        (Some(process), Some(cluster)) if cluster.server == served.cluster.server => {
            Ok(format!("the tunnel process (process {}) serves {address}", process.pid))
        }
        (_, Some(cluster)) => Err(tunnel_process::address_of_another(served, cluster)),
        (_, None) => check_port(name, *address)
            .map(|()| format!("{address} is free: the first command has it served")),
    };
    match outcome {
        Ok(text) => checklist.good(STEP, text),
        Err(error) => checklist.bad(STEP, &error),
    }
}
