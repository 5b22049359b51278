//! A context that clients use with this program as their credential plugin: what stands between such a client
//! and the tunnel process, for which no PIN is needed and nothing is started; and the cluster, asked as they do.

use std::net::{IpAddr, SocketAddr};
use std::process;

use super::checklist::{CheckStep, Checklist};
use super::error::{ClientError, write_again};
use crate::cli::credential::registered;
use crate::cli::error::CredentialError;
use crate::cluster_api::{Recognition, TokenConnection};
use crate::error::{Error, PROGRAM, remedy};
use crate::exec_credential::{ApiVersion, LocalCluster};
use crate::kubeconfig::{Cluster, Context, Kubeconfig, Plugin, find_program, local_address};
use crate::pin::PinProvider;
use crate::printable::excerpt;
use crate::tunnel::{
    ClientCertificate, ServedError, ServerIdentity, TunnelClient, check_port, is_proxied_elsewhere,
    shows_certificate,
};
use crate::tunnel_process::{
    self, ClusterStatus, RegisteredCluster, Registration, TunnelProcessError,
};

const STEP: CheckStep = CheckStep::Client;

/// Where such a client connects.
pub(super) struct PluginClient {
    entry: LocalCluster,
    served: RegisteredCluster,
    authority: String,
}

/// Reports what a client meets on its way to the context's cluster, if the context's user has this
/// program as its plugin.
pub(super) fn check_client(
    kubeconfig: &Kubeconfig,
    context: &Context,
    checklist: &mut Checklist,
) -> Option<PluginClient> {
    let plugin = kubeconfig.plugin(&context.user)?;
    check_plugin(&plugin, context, checklist);
    let identity = tunnel_process::identity().map_err(Error::from);
    let identity =
        identity.and_then(|identity| identity.ok_or_else(|| CredentialError::NoIdentity.into()));
    let identity = checklist.keep(STEP, identity)?;
    let entry = checklist.keep(STEP, kubeconfig.handed_over(&context.cluster))?;
    let served = checklist.keep(STEP, registered(&entry, &identity))?;
    check_entry(kubeconfig, context, &served, checklist);
    check_address(&identity, &served, checklist);
    Some(PluginClient { entry, served, authority: identity.authority_pem().to_owned() })
}

impl PluginClient {
    pub(super) fn address(&self) -> SocketAddr {
        self.served.address
    }

    pub(super) fn server(&self) -> &str {
        &self.served.cluster.server
    }

    /// Has the tunnel process serve the cluster for as long as this process runs, with the key of this
    /// selection, and asks the cluster there for whom it takes us.
    ///
    /// # Errors
    ///
    /// Those of [`tunnel_process::register`] and of [`TokenConnection::whoami`].
    pub(super) fn whoami(
        &self,
        selection: Vec<(String, String)>,
        pins: &mut dyn PinProvider,
    ) -> Result<Recognition, Error> {
        let registered = tunnel_process::register(
            Registration {
                configuration: selection,
                keep: None,
                caller: i32::try_from(process::id()).ok(),
                clusters: vec![self.served.clone()],
                authority: Some(self.authority.clone()),
                signs: false,
            },
            pins,
        )?;
        let certificate =
            ClientCertificate { certificate_pem: registered.certificate, key_pem: registered.key };
        let cluster = [&*self.served.name, self.server()];
        let client = TunnelClient::new(&self.entry, self.address(), cluster, &certificate)?;
        TokenConnection::through(client)?.whoami()
    }
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

/// What is at the local address, and which clients don't get there.
fn check_address(identity: &ServerIdentity, served: &RegisteredCluster, checklist: &mut Checklist) {
    let address = served.address;
    let process = || tunnel_process::status().map(|it| it.map(|it| (it.pid, it.clusters)));
    let Some(mut found) = checklist.keep(STEP, process()) else {
        return;
    };
    loop {
        let outcome = look_at(identity, served, found.as_ref());
        if outcome.is_err() {
            // A process that ends with its last command, or begins with another one, was met half-way.
            let Some(now) = checklist.keep(STEP, process()) else {
                return;
            };
            if now.as_ref().map(|it| it.0) != found.as_ref().map(|it| it.0) {
                found = now;
                continue;
            }
        }
        match outcome {
            Err(error) => checklist.bad(STEP, &error),
            Ok((true, text)) => checklist.good(STEP, text),
            Ok((false, text)) => checklist.concern(
                STEP,
                text,
                remedy!(
                    "tunnel.pem was made anew: the next command replaces the process, or end it with `",
                    format!("{PROGRAM} stop"),
                    "`"
                ),
            ),
        }
        break;
    }
    if is_proxied_elsewhere(address) {
        let ip = address.ip();
        checklist.concern(
            STEP,
            format!(
                "Python's and JavaScript's clients go to {ip} through HTTPS_PROXY, which has no tunnel \
                 there"
            ),
            format!("set NO_PROXY={ip}, added to what it has; kubectl, helm and k9s need no exception"),
        );
    }
}

/// What is found at the address, and whether it is good, beside this tunnel process and what it serves.
fn look_at(
    identity: &ServerIdentity,
    served: &RegisteredCluster,
    process: Option<&(u32, Vec<ClusterStatus>)>,
) -> Result<(bool, String), Error> {
    let RegisteredCluster { address, name, .. } = served;
    let address = *address;
    let found = process.and_then(|(pid, clusters)| {
        let cluster = clusters.iter().find(|it| it.is_at(address))?;
        Some((pid, cluster))
    });
    let Some((pid, cluster)) = found else {
        check_port(name, address)?;
        let text = format!("{address} is free: the first command has it served");
        return Ok((true, text));
    };
    if cluster.server != served.cluster.server {
        return Err(TunnelProcessError::AddressOfAnother {
            address,
            served: cluster.name.clone(),
            server: cluster.server.clone(),
            wanted: name.clone(),
        }
        .into());
    }
    let is_own = shows_certificate(identity, address).map_err(|reason| {
        let reason = reason.to_string();
        ServedError::Silent { address, reason }
    })?;
    let text = match is_own {
        true => format!("serves {address}, with the certificate that the entry names"),
        false => format!("shows another certificate at {address} than the entry names"),
    };
    Ok((is_own, format!("the tunnel process (process {pid}) {text}")))
}
