//! The entries with which a context works for stock clients: a user whose exec plugin is this program,
//! and a cluster at a local address, of which the plugin is told the real one.
//!
//! The context notes what it had before. The real cluster and the user before stay as they are.

use std::net::Ipv4Addr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::entries::without_user;
use super::super::model::{
    ClusterEntry, ContextEntry, Kubeconfig, UserEntry, extension, set_extension,
};
use super::super::redirect::path_of;
use super::super::{exec, json, tunnelled};
use super::ProviderConfig;
use super::layout::Layout;
use crate::kubeconfig::{Cluster, KubeconfigError};

/// The extension of a context that notes what it had before.
const ORIGINAL: &str = "pkcs11-external-signer";

/// Where the plugin's tunnel serves clusters, and how clients know it.
pub struct LocalHop<'a> {
    pub address: Ipv4Addr,
    pub server_name: &'a str,
    pub authority_pem: &'a str,
    /// The ports that follow from what the cluster's entry says, the best one first.
    pub ports: &'a dyn Fn(&Cluster) -> Vec<u16>,
    /// Whether nothing but this cluster is served at the port.
    pub is_free: &'a dyn Fn(u16, &Cluster) -> bool,
}

/// The user to be written.
pub struct PluginUser<'a> {
    /// Its name, if no other entry has it.
    pub name: &'a str,
    /// The name was asked for.
    pub is_named: bool,
    pub config: &'a ProviderConfig,
}

/// A list of a kubeconfig.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum EntryKind {
    Cluster,
    User,
    Context,
}

/// What a context with this program as its plugin consists of.
pub struct PluginEntries {
    pub context: String,
    pub cluster: String,
    pub user: String,
    pub(super) layout: Layout,
    pub(super) local: ClusterEntry,
    pub(super) with_plugin: UserEntry,
    original: OriginalContext,
}

/// What a context had before it was given a plugin; the user can be missing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OriginalContext {
    pub cluster: String,
    pub user: Option<String>,
}

/// The address of this user's tunnels: on Linux one of its own, which keeps users apart.
pub fn local_address() -> Ipv4Addr {
    match cfg!(target_os = "linux") {
        true => address_of(rustix::process::geteuid().as_raw()),
        // There is only this one.
        false => Ipv4Addr::LOCALHOST,
    }
}

fn address_of(user: u32) -> Ipv4Addr {
    let [_, _, third, fourth] = user.to_be_bytes();
    let second = 1 + (user >> 16) % 254;
    Ipv4Addr::new(127, u8::try_from(second).unwrap_or(1), third, fourth)
}

impl EntryKind {
    /// Whether there is an entry of this name.
    pub fn has(self, kubeconfig: &Kubeconfig, name: &str) -> bool {
        match self {
            Self::Cluster => kubeconfig.clusters.0.contains_key(name),
            Self::User => kubeconfig.users.0.contains_key(name),
            Self::Context => kubeconfig.contexts.0.contains_key(name),
        }
    }
}

impl Kubeconfig {
    /// What the context had before it was given this program as its plugin.
    ///
    /// # Errors
    ///
    /// There is no such context, or it wasn't given one.
    pub fn original(&self, context: &str) -> Result<OriginalContext, KubeconfigError> {
        self.context(context)?;
        let entry = self.contexts.0.get(context);
        let noted = entry.and_then(|it| original(it.context.as_ref()?));
        noted.ok_or_else(|| KubeconfigError::NoPluginContext {
            name: context.to_owned(),
            candidates: self
                .contexts
                .0
                .iter()
                .filter(|(_, entry)| entry.context.as_ref().and_then(original).is_some())
                .map(|(name, _)| name.clone())
                .collect(),
        })
    }

    /// Which of the entries that the context has from this program can go with it, since no other
    /// context uses them and it didn't have them before.
    pub fn entries_of_plugin(&self, context: &str) -> Vec<(EntryKind, String)> {
        let (Ok(original), Ok(of_context)) = (self.original(context), self.context(context)) else {
            return Vec::new();
        };
        let mut others = self.contexts();
        others.retain(|it| it.name != context);
        let mut entries = Vec::new();
        let cluster = of_context.cluster;
        if self.local(&cluster).is_some() && others.iter().all(|it| it.cluster != cluster) {
            entries.push((EntryKind::Cluster, cluster));
        }
        let user = of_context.user;
        if self.has_plugin(&user)
            && original.user.as_ref() != Some(&user)
            && others.iter().all(|it| it.user != user)
        {
            entries.push((EntryKind::User, user));
        }
        entries
    }

    /// Whether the user's exec plugin is this program, for the tunnel.
    pub fn has_plugin(&self, user: &str) -> bool {
        let plugin = self.user(user).and_then(|it| it.exec.as_ref());
        plugin.is_some_and(exec::is_ours)
    }

    /// The cluster of this name, if it is a local address that this program has written.
    fn local(&self, name: &str) -> Option<&ClusterEntry> {
        let entry = self.clusters.0.get(name)?.cluster.as_ref()?;
        tunnelled::of(entry).map(|_| entry)
    }

    fn cluster_entry(&self, name: &str) -> Option<&ClusterEntry> {
        self.clusters.0.get(name)?.cluster.as_ref()
    }
}

impl PluginEntries {
    /// The entries that give the context this user and its cluster a local address. What is there
    /// already stays, as far as it can.
    ///
    /// # Errors
    ///
    /// There is no such context, or its cluster can't be used.
    pub fn of(
        kubeconfig: &Kubeconfig,
        context: &str,
        user: &PluginUser<'_>,
        hop: &LocalHop<'_>,
    ) -> Result<Self, KubeconfigError> {
        let now = kubeconfig.context(context)?;
        let original = kubeconfig.original(context).or_else(|_| {
            let entry = kubeconfig.contexts.0.get(context);
            let entry = entry.and_then(|it| it.context.clone()).unwrap_or_default();
            // A context that was pointed at a local address by hand.
            let real = kubeconfig.local(&now.cluster).and_then(tunnelled::of);
            let real = real.and_then(|it| it.get("name")?.as_str());
            Ok(OriginalContext {
                cluster: real.unwrap_or(&now.cluster).to_owned(),
                user: entry.user,
            })
        })?;
        let (cluster, local) = local_cluster(kubeconfig, &now.cluster, &original.cluster, hop)?;
        let before = original.user.as_deref();
        let (user_name, with_plugin) = plugin_user(kubeconfig, context, before, user);
        Ok(Self {
            context: context.to_owned(),
            cluster,
            user: user_name,
            layout: user.config.layout(),
            local,
            with_plugin,
            original,
        })
    }

    /// The entries as the lists of a kubeconfig.
    pub fn as_excerpt(&self) -> String {
        let mut context = ContextEntry::default();
        self.point(&mut context);
        [
            ("clusters", "cluster", &self.cluster, json::value(&self.local)),
            ("users", "user", &self.user, json::value(&self.with_plugin)),
            ("contexts", "context", &self.context, json::value(&context)),
        ]
        .into_iter()
        .map(|(list, kind, name, entry)| {
            let name = ("name".to_owned(), name.as_str().into());
            let entry = Map::from_iter([name, (kind.to_owned(), entry)]);
            self.layout.excerpt(list, &entry)
        })
        .collect()
    }

    /// Points a context at the entries.
    pub(super) fn point(&self, context: &mut ContextEntry) {
        context.cluster = Some(self.cluster.clone());
        context.user = Some(self.user.clone());
        let mut noted = json!({"cluster": self.original.cluster});
        if let Some(user) = &self.original.user {
            noted["user"] = user.as_str().into();
        }
        set_extension(&mut context.extensions, ORIGINAL, Some(noted));
    }
}

/// Gives a context back what it had before.
pub(super) fn restore(context: &mut ContextEntry, original: &OriginalContext) {
    context.cluster = Some(original.cluster.clone());
    context.user.clone_from(&original.user);
    set_extension(&mut context.extensions, ORIGINAL, None);
}

fn original(context: &ContextEntry) -> Option<OriginalContext> {
    let noted = extension(&context.extensions, ORIGINAL)?;
    let text = |member| noted.get(member)?.as_str().map(str::to_owned);
    Some(OriginalContext { cluster: text("cluster")?, user: text("user") })
}

/// The cluster at a local address for the real one, by its name: the one of the context, or of another
/// context, or a new one.
fn local_cluster(
    kubeconfig: &Kubeconfig,
    now: &str,
    real: &str,
    hop: &LocalHop<'_>,
) -> Result<(String, ClusterEntry), KubeconfigError> {
    let is_for = |entry: &ClusterEntry| {
        let extension = tunnelled::of(entry);
        extension.and_then(|it| it.get("name")?.as_str()) == Some(real)
    };
    let names = [now].into_iter().chain(kubeconfig.clusters.0.keys().map(String::as_str));
    let known = names
        .filter_map(|name| Some((name, kubeconfig.cluster_entry(name)?)))
        .find(|(_, entry)| is_for(entry));
    // One whose real entry is gone says what it said.
    let source = match (kubeconfig.cluster_entry(real), known) {
        (None, Some((name, _))) => name,
        _ => real,
    };
    let cluster = kubeconfig.cluster(source)?;
    let description = match (kubeconfig.cluster_entry(real), known) {
        (Some(entry), _) => described(entry, real),
        (None, Some((_, known))) => tunnelled::of(known).cloned().unwrap_or_default(),
        (None, None) => Value::Null,
    };
    let name = known.map_or_else(
        || free_name(real, |it| EntryKind::Cluster.has(kubeconfig, it)),
        |(name, _)| name.to_owned(),
    );
    let kept = known.and_then(|(_, entry)| port_of(entry));
    let port = free_port(kubeconfig, &cluster, kept, hop);
    let mut entry = known.map(|(_, entry)| entry.clone()).unwrap_or_default();
    entry.server = Some(format!("https://{}:{port}{}", hop.address, path_of(&cluster.server)));
    entry.tls_server_name = Some(hop.server_name.to_owned());
    entry.certificate_authority = None;
    entry.certificate_authority_data = Some(STANDARD.encode(hop.authority_pem));
    entry.insecure_skip_tls_verify = None;
    entry.proxy_url = None;
    let real = kubeconfig.cluster_entry(real);
    entry.disable_compression = real.map_or(entry.disable_compression, |it| it.disable_compression);
    tunnelled::describe(&mut entry, description);
    Ok((name, entry))
}

/// What the plugin is told of the real cluster.
fn described(entry: &ClusterEntry, name: &str) -> Value {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let data = given(&entry.certificate_authority_data);
    let file = given(&entry.certificate_authority).filter(|_| data.is_none());
    let server = given(&entry.server).map(|server| without_user(&server));
    let members = [
        ("plugin", Some(tunnelled::PLUGIN.to_owned())),
        ("name", Some(name.to_owned())),
        ("server", server),
        ("certificate-authority", file),
        ("certificate-authority-data", data),
        ("tls-server-name", given(&entry.tls_server_name)),
        ("proxy-url", given(&entry.proxy_url)),
    ];
    let members = members.into_iter();
    let mut members: Map<_, _> =
        members.filter_map(|(key, value)| Some((key.to_owned(), Value::String(value?)))).collect();
    if entry.insecure_skip_tls_verify == Some(true) {
        members.insert("insecure-skip-tls-verify".to_owned(), true.into());
    }
    members.into()
}

/// The first of the cluster's ports that leads nowhere else. One that it has already comes first: clients cache what
/// they learn of a cluster under its address.
fn free_port(
    kubeconfig: &Kubeconfig,
    cluster: &Cluster,
    kept: Option<u16>,
    hop: &LocalHop<'_>,
) -> u16 {
    let place = format!("https://{}:", hop.address);
    let entries = kubeconfig.clusters.0.iter();
    let others: Vec<_> = entries
        .filter_map(|(name, entry)| {
            let entry = entry.cluster.as_ref()?;
            let is_local = entry.server.as_deref()?.starts_with(&place);
            let leads_here = || kubeconfig.cluster(name).is_ok_and(|it| it == *cluster);
            port_of(entry).filter(|_| is_local && !leads_here())
        })
        .collect();
    let mut ports = (hop.ports)(cluster);
    ports.sort_by_key(|port| Some(*port) != kept);
    let mut free = ports.iter().filter(|port| !others.contains(port));
    let free = free.find(|port| (hop.is_free)(**port, cluster));
    free.or_else(|| ports.first()).copied().unwrap_or_default()
}

/// The port of a local address.
fn port_of(entry: &ClusterEntry) -> Option<u16> {
    let (_, rest) = entry.server.as_deref()?.split_once("://")?;
    let (address, _) = rest.split_once('/').unwrap_or((rest, ""));
    let (_, port) = address.rsplit_once(':')?;
    port.parse().ok()
}

/// The user with the plugin, by its name: that of the context if it was given one already, or a new one
/// where an entry of the name is another's. What the context had `before` is left as it was, missing or not.
fn plugin_user(
    kubeconfig: &Kubeconfig,
    context: &str,
    before: Option<&str>,
    user: &PluginUser<'_>,
) -> (String, UserEntry) {
    let contexts = kubeconfig.contexts();
    let written = |name: &str| {
        let mut entry = kubeconfig.user(name).cloned().unwrap_or_default();
        let mut old = entry.exec.take().filter(exec::is_ours);
        if let Some(old) = &mut old {
            old.command.take_if(|it| it.starts_with('/') && !Path::new(it).is_file());
        }
        let old = match old.map(|it| json::value(&it)) {
            Some(Value::Object(old)) => old,
            _ => Map::new(),
        };
        let exec = user.config.exec(old);
        entry.exec = serde_json::from_value(exec.into()).ok();
        entry
    };
    let is_fit = |name: &str| {
        let mut others = contexts.iter().filter(|it| it.name != context);
        match kubeconfig.user(name) {
            None => before != Some(name) && !EntryKind::User.has(kubeconfig, name),
            Some(entry) => {
                kubeconfig.has_plugin(name)
                    && entry.auth_provider.is_none()
                    && (before != Some(name) && others.all(|it| it.user != name)
                        || json::value(&written(name)) == json::value(entry))
            }
        }
    };
    let now = contexts.iter().find(|it| it.name == context);
    let now = now.map(|it| it.user.as_str());
    let now = now.filter(|now| kubeconfig.has_plugin(now) && (!user.is_named || *now == user.name));
    let name = match now {
        Some(now) if is_fit(now) => now.to_owned(),
        _ if is_fit(user.name) => user.name.to_owned(),
        _ => free_name(user.name, |name| !is_fit(name)),
    };
    let entry = written(&name);
    (name, entry)
}

/// The first of `NAME+token`, `NAME+token+2` … that isn't taken.
fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let name = format!("{name}+token");
    let counted = (2_u64..).map(|count| format!("{name}+{count}"));
    std::iter::once(name.clone()).chain(counted).find(|name| !is_taken(name)).unwrap_or_default()
}
