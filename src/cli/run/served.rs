//! Which clusters and users of a kubeconfig a run serves.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::config::Config;
use crate::error::Error;
use crate::kubeconfig::{Context, EntryKind, Kubeconfig, Provider};
use crate::report;
use crate::tunnel::TunnelTarget;

/// What the tunnels serve.
#[derive(Default)]
pub(super) struct ServedEntries {
    /// Each with the name of its entry, which the cluster itself need not have.
    pub(super) clusters: Vec<(String, TunnelTarget)>,
    /// Those with a key.
    pub(super) users: Vec<(String, Config)>,
}

impl ServedEntries {
    /// The users with a key, and the clusters that a context joins with one of them.
    pub(super) fn of(kubeconfig: &Kubeconfig, selected: Option<&Context>) -> Result<Self, Error> {
        let mut served = Self::default();
        let contexts = kubeconfig.contexts();
        for user in kubeconfig.names(EntryKind::User) {
            let mut of_user = contexts.iter().filter(|it| it.user == user).peekable();
            let is_needed = match selected {
                Some(selected) => selected.user == user,
                None => of_user.peek().is_some(),
            };
            let config = match kubeconfig.provider(&user) {
                Ok(Provider::None) => continue,
                Ok(Provider::Other(name)) => {
                    leave(of_user, &format!("its user needs the auth provider \"{name}\""));
                    continue;
                }
                Ok(Provider::ExternalSigner(mut map)) => Config::from_map(&mut map),
                Err(error) => Err(error),
            };
            match config {
                Ok(config) => served.users.push((user, config)),
                Err(error) if is_needed => return Err(error),
                Err(error) => leave(of_user, &error),
            }
        }
        // A context can name a cluster that doesn't exist.
        let named = contexts.iter().map(|context| context.cluster.clone());
        let names: BTreeSet<_> =
            kubeconfig.names(EntryKind::Cluster).into_iter().chain(named).collect();
        for name in names {
            let has_key = |it: &&Context| {
                it.cluster == name && served.users.iter().any(|(user, _)| *user == it.user)
            };
            let with_key: Vec<_> = contexts.iter().filter(has_key).collect();
            let is_selected = selected.as_ref().is_some_and(has_key);
            // One that only other users need is not changed.
            if with_key.is_empty() && !is_selected {
                continue;
            }
            match kubeconfig.real_cluster(&name) {
                Ok((real_name, cluster)) => {
                    served.clusters.push((name, TunnelTarget::new(real_name, cluster)));
                }
                Err(error) if is_selected || selected.is_none() => return Err(error),
                Err(error) => leave(with_key, &error),
            }
        }
        Ok(served)
    }
}

fn leave<'a>(contexts: impl IntoIterator<Item = &'a Context>, reason: &dyn Display) {
    for context in contexts {
        report::warning(&format!(
            "context \"{}\" is left as it is, and kubectl may not be able to use it: {reason}",
            context.name
        ));
    }
}
