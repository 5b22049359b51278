//! The entries with which a context works for stock clients: a user whose exec plugin is this program,
//! and a cluster at a local address; an extension names the real one to the plugin.
//!
//! The context notes what it had before. The real cluster and the user before stay as they are.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entries::{ServerUrl, without_user};
use super::error::{error, unwritable};
use super::redirect::point_at;
use super::{
    Cluster, Context, EntryKind, Kubeconfig, TunnelEndpoint, exec, extension, name_of,
    set_extension, text, tunnelled, yaml,
};
use messages::error::Error;
use messages::help::{Help, HelpPart};
use messages::printable::shell_word;
use protocol::Configuration;

/// The extension of a context that notes what the context had before.
const ORIGINAL: &str = "pkcs11-external-signer";

/// The fields of a cluster's entry that the plugin needs to reach and know the real cluster.
const CONNECTION_FIELDS: [&str; 6] = [
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "proxy-url",
];

/// The fields of a cluster's entry that say how clients use a connection, wherever it leads.
const TRANSPORT_FIELDS: [&str; 2] = ["disable-compression", "min-connection-pool-size"];

/// Where the plugin's tunnel serves clusters, and how clients know it.
pub struct LocalEndpoint<'a> {
    /// The tunnel; its address is a host without a port.
    pub tunnel: TunnelEndpoint<'a>,
    /// The ports that follow from what the cluster's entry says, the best one first.
    pub ports: &'a dyn Fn(&Cluster) -> Vec<u16>,
    /// Whether nothing but this cluster is served at the port.
    pub is_free: &'a dyn Fn(u16, &Cluster) -> bool,
}

/// The user that a context gets.
pub struct PluginUser<'a> {
    /// The user's name, if no other entry has it.
    pub name: &'a str,
    /// Whether a person asked for this name. If so, no other one that the context has will do.
    pub is_named: bool,
    /// The configuration of the key, which the plugin's arguments are to have.
    pub configuration: &'a Configuration,
}

/// The entries of a context with this program as its plugin: a cluster at a local address, a user, and the context.
pub struct PluginEntries {
    context: String,
    original: OriginalContext,
    cluster: NamedEntry,
    user: NamedEntry,
}

/// An element of a kubeconfig's list.
struct NamedEntry {
    kind: EntryKind,
    name: String,
    /// The content of the entry, without its name.
    content: Value,
}

/// The kind and the name of an entry.
struct EntryName {
    kind: EntryKind,
    name: String,
}

/// The cluster and the user that a context had before it was given a plugin.
#[derive(Clone, Deserialize, Serialize)]
pub struct OriginalContext {
    /// The name of the real cluster.
    pub cluster: String,
    /// The user's name, unless the context had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What a context notes of itself, in its extension [`ORIGINAL`].
#[derive(Deserialize, Serialize)]
struct Note {
    #[serde(flatten)]
    original: OriginalContext,
    /// The cluster at a local address that the context was given.
    #[serde(rename = "plugin-cluster")]
    plugin_cluster: String,
    /// The user with the plugin that the context was given.
    #[serde(rename = "plugin-user")]
    plugin_user: String,
}

/// The address of this user's tunnels. On Linux each user has an own one, which keeps users apart.
pub fn local_address() -> Ipv4Addr {
    let user = rustix::process::geteuid().as_raw();
    let [_, _, third, fourth] = user.to_be_bytes();
    let second = u8::try_from(1 + (user >> 16) % 254).unwrap_or(1);
    if cfg!(target_os = "linux") {
        Ipv4Addr::new(127, second, third, fourth)
    } else {
        // macOS has only this address.
        Ipv4Addr::LOCALHOST
    }
}

impl Kubeconfig {
    /// The cluster and the user that the context had before it was given this program as its plugin. If somebody else
    /// has given it another user since, that one counts. An error if the context was given no plugin, or leads to
    /// another cluster by now.
    pub fn original(&self, context: &str) -> Result<OriginalContext, Error> {
        let now = self.context(context)?;
        let Note { mut original, plugin_user, .. } = self.note(&now)?;
        if now.user != plugin_user {
            original.user = Some(now.user).filter(|user| !user.is_empty());
        }
        Ok(original)
    }

    /// The context's note of what it had before. The note counts only as long as the context leads to the cluster that
    /// it was written for: the context may have been pointed at another one since, or be a copy of another context.
    fn note(&self, now: &Context) -> Result<Note, Error> {
        let noted = extension(self.entry(EntryKind::Context, &now.name), ORIGINAL);
        let note = Note::deserialize(noted).map_err(|_| {
            error(
                format!("context \"{}\" was not written for the credential plugin", now.name),
                "nothing to undo there; `kubectl config get-contexts` lists the others",
            )
        })?;
        if self.leads_to_noted_cluster(now, &note) { Ok(note) } else { Err(led_away(now, &note)) }
    }

    /// Whether the context's cluster is the one that the note was written for.
    fn leads_to_noted_cluster(&self, now: &Context, note: &Note) -> bool {
        match tunnelled::of(self.entry(EntryKind::Cluster, &now.cluster)) {
            Some(real) => real["name"] == *note.original.cluster,
            // The entry was written here and its extension has been damaged since. It is written anew.
            None => now.cluster == note.plugin_cluster,
        }
    }

    /// The entries of the context that were made by this program and can go with it: no other context uses them, and
    /// the context didn't have them before. Empty if the context has no note that counts.
    fn entries_of_plugin(&self, context: &str) -> Vec<EntryName> {
        let Ok(now) = self.context(context) else { return Vec::new() };
        let Ok(Note { original, plugin_user, .. }) = self.note(&now) else { return Vec::new() };
        let mut others = self.contexts();
        others.retain(|other| other.name != context);
        let mut entries = Vec::new();
        if others.iter().all(|other| other.cluster != now.cluster) {
            entries.push(EntryName { kind: EntryKind::Cluster, name: now.cluster });
        }
        if self.has_plugin(&plugin_user)
            && original.user.as_ref() != Some(&plugin_user)
            && others.iter().all(|other| other.user != plugin_user)
        {
            entries.push(EntryName { kind: EntryKind::User, name: plugin_user });
        }
        entries
    }

    /// Whether the user's exec plugin is this program, and leads through the tunnel.
    pub fn has_plugin(&self, user: &str) -> bool {
        exec::is_ours(&self.entry(EntryKind::User, user)["exec"])
    }

    /// Gives a context back what it had before it was given this program as its plugin. Removes the entries that were
    /// made for it, unless others of `all` files use them.
    pub fn restore(&mut self, context: &str, all: &Self) -> Result<(), Error> {
        let OriginalContext { cluster, user } = self.original(context)?;
        if let Some(entry) = self.entry_mut(EntryKind::Context, context) {
            set_extension(entry, ORIGINAL, None);
            entry["cluster"] = cluster.into();
            match user {
                Some(user) => entry["user"] = user.into(),
                None => super::remove(entry, &["user"]),
            }
        }
        for unused in all.entries_of_plugin(context) {
            self.retain(unused.kind, |name| name != unused.name);
        }
        Ok(())
    }
}

/// The error for a context whose note is about another cluster than the one that it leads to.
fn led_away(now: &Context, note: &Note) -> Error {
    let Context { name, cluster, .. } = now;
    let text = format!(
        "context \"{name}\" leads to cluster \"{cluster}\" by now, and was written for \"{}\"",
        note.original.cluster
    );
    let help = Help::from(format!(
        "nothing is undone there; give it the user that it is to have: `kubectl config set-context {}",
        shell_word(name)
    ));
    error(text, help.and(HelpPart::Kubeconfig).and(" --user=NAME`"))
}

impl PluginEntries {
    /// Chooses the entries with which the context uses this user and a local address. Entries that exist stay if they
    /// can.
    pub fn of(
        kubeconfig: &Kubeconfig,
        context: &str,
        user: &PluginUser<'_>,
        local: &LocalEndpoint<'_>,
    ) -> Result<Self, Error> {
        let before = ContextBefore::of(kubeconfig, context)?;
        let cluster = before.local_cluster(local)?;
        let user = before.plugin_user(user);
        Ok(Self { context: before.now.name, original: before.original, cluster, user })
    }

    /// The name of the user with the plugin.
    pub fn user(&self) -> &str {
        &self.user.name
    }

    /// The entries in YAML, as the lists of a kubeconfig, for pasting.
    pub fn as_excerpt(&self) -> Result<String, Error> {
        let mut context = Value::Null;
        self.point(&mut context);
        yaml::excerpt(&json!({
            "clusters": [{"name": self.cluster.name, "cluster": self.cluster.content}],
            "users": [{"name": self.user.name, "user": self.user.content}],
            "contexts": [{"name": self.context, "context": context}],
        }))
    }

    /// Puts the entries into the kubeconfig of the file at this path, which has the context. Entries that `all` files
    /// together have already stay where they are. Entries that this program made for the context before, and that
    /// nothing needs any more, are removed.
    pub fn put_into(
        &self,
        file: &mut Kubeconfig,
        all: &Kubeconfig,
        path: &Path,
    ) -> Result<(), Error> {
        self.cluster.put_into(file, all, path)?;
        self.user.put_into(file, all, path)?;
        if let Some(entry) = file.entry_mut(EntryKind::Context, &self.context) {
            self.point(entry);
        }
        for former in all.entries_of_plugin(&self.context) {
            if former.name != self.cluster.name && former.name != self.user.name {
                file.retain(former.kind, |name| name != former.name);
            }
        }
        Ok(())
    }

    /// Points a context at the entries, and notes in it what it had before.
    fn point(&self, context: &mut Value) {
        context["cluster"] = self.cluster.name.as_str().into();
        context["user"] = self.user.name.as_str().into();
        let note = Note {
            original: self.original.clone(),
            plugin_cluster: self.cluster.name.clone(),
            plugin_user: self.user.name.clone(),
        };
        set_extension(context, ORIGINAL, Some(json!(note)));
    }
}

impl NamedEntry {
    /// Puts the entry into the kubeconfig of the file at this path, unless `all` files together have the same one.
    /// Fails if another file has a different entry of this name, since that one would count.
    fn put_into(&self, file: &mut Kubeconfig, all: &Kubeconfig, path: &Path) -> Result<(), Error> {
        let Self { kind, name, content } = self;
        if all.entry(*kind, name) == content {
            return Ok(());
        }
        if all.has(*kind, name) && !file.has(*kind, name) {
            let reason = format!("{} \"{name}\" stands in another file", kind.name());
            return Err(unwritable(path, reason));
        }
        file.set_entry(*kind, name, content.clone());
        Ok(())
    }
}

/// A context that is to get a plugin, with its kubeconfig. Its entries are chosen here.
struct ContextBefore<'a> {
    kubeconfig: &'a Kubeconfig,
    /// The context's present names. It may have a plugin already.
    now: Context,
    original: OriginalContext,
}

impl<'a> ContextBefore<'a> {
    /// Finds the context of this name. An error if there is none.
    fn of(kubeconfig: &'a Kubeconfig, context: &str) -> Result<Self, Error> {
        let now = kubeconfig.context(context)?;
        let original = match kubeconfig.original(context) {
            Ok(noted) => noted,
            Err(_) => unnoted_original(kubeconfig, &now),
        };
        Ok(Self { kubeconfig, now, original })
    }

    /// The entry of the cluster at a local address that leads to the real one. An entry that leads there already keeps
    /// its name, its port and its other fields.
    fn local_cluster(&self, local: &LocalEndpoint<'_>) -> Result<NamedEntry, Error> {
        let real_name = &self.original.cluster;
        let mut chosen = self.present_local_cluster().unwrap_or_else(|| self.new_local_cluster());
        let real = self.kubeconfig.cluster(real_name)?.cluster;
        let real_entry = self.kubeconfig.entry(EntryKind::Cluster, real_name);
        let port = local.port_for(&real, port_of(&chosen.content), self.kubeconfig)?;
        let content = &mut chosen.content;
        content["server"] = real.server.as_str().into();
        let address = &format!("{}:{port}", local.tunnel.address);
        point_at(content, &TunnelEndpoint { address, ..local.tunnel });
        for field in TRANSPORT_FIELDS {
            match real_entry.get(field) {
                Some(value) => content[field] = value.clone(),
                None => super::remove(content, &[field]),
            }
        }
        let description = described(real_entry, real_name);
        set_extension(content, tunnelled::EXTENSION, Some(description));
        Ok(chosen)
    }

    /// The entry that leads to the real cluster by a local address: the context's own if possible, or else that of
    /// another context.
    fn present_local_cluster(&self) -> Option<NamedEntry> {
        let names = self.kubeconfig.names(EntryKind::Cluster);
        for name in [&self.now.cluster].into_iter().chain(&names) {
            let entry = self.kubeconfig.entry(EntryKind::Cluster, name);
            if tunnelled::of(entry).is_some_and(|real| real["name"] == *self.original.cluster) {
                return Some(NamedEntry {
                    kind: EntryKind::Cluster,
                    name: name.clone(),
                    content: entry.clone(),
                });
            }
        }
        None
    }

    /// An empty entry for a cluster at a local address, under a name that is free.
    fn new_local_cluster(&self) -> NamedEntry {
        let kind = EntryKind::Cluster;
        let name = self.kubeconfig.free_name(kind, &format!("{}+token", self.original.cluster));
        NamedEntry { kind, name, content: json!({"server": null}) }
    }

    /// The entry of the user with the plugin. It is the context's present user if that was made by this program, or
    /// else a new one. The user that the context had before isn't changed, whether it exists or not.
    fn plugin_user(&self, user: &PluginUser<'_>) -> NamedEntry {
        let name = self.plugin_user_name(user);
        let content = with_plugin(self.kubeconfig, &name, user.configuration);
        NamedEntry { kind: EntryKind::User, name, content }
    }

    /// The name of the user with the plugin. The context's present user is taken if it will do, or else the first of
    /// `NAME`, `NAME+token`, `NAME+token+2` and so on that can be.
    fn plugin_user_name(&self, user: &PluginUser<'_>) -> String {
        let present = &*self.now.user;
        let keeps_present =
            self.kubeconfig.has_plugin(present) && (!user.is_named || present == user.name);
        if keeps_present && self.can_write_user(present, user.configuration) {
            return present.to_owned();
        }
        let with_token = format!("{}+token", user.name);
        for name in [user.name, &with_token] {
            if self.can_write_user(name, user.configuration) {
                return name.to_owned();
            }
        }
        let mut count = 2_u64;
        loop {
            let counted = format!("{with_token}+{count}");
            if self.can_write_user(&counted, user.configuration) {
                return counted;
            }
            count += 1;
        }
    }

    /// Whether a user of this name can be written for the context. Entries of others are never changed, nor is the
    /// context's former user.
    fn can_write_user(&self, name: &str, configuration: &Configuration) -> bool {
        let was_original = self.original.user.as_deref() == Some(name);
        if !self.kubeconfig.has(EntryKind::User, name) {
            return !was_original;
        }
        let entry = self.kubeconfig.entry(EntryKind::User, name);
        if !self.kubeconfig.has_plugin(name) || !entry["auth-provider"].is_null() {
            return false;
        }
        let contexts = self.kubeconfig.contexts();
        let is_of_others =
            contexts.iter().any(|other| other.name != self.now.name && other.user == name);
        if !was_original && !is_of_others {
            return true;
        }
        // Writing the user would change nothing.
        with_plugin(self.kubeconfig, name, configuration) == *entry
    }
}

/// The original of a context without a note that counts: its present entries. If somebody has pointed it at a local
/// address by hand, its cluster is the one behind that address.
fn unnoted_original(kubeconfig: &Kubeconfig, now: &Context) -> OriginalContext {
    let real = tunnelled::of(kubeconfig.entry(EntryKind::Cluster, &now.cluster));
    let cluster = real.and_then(|real| real["name"].as_str()).unwrap_or(&now.cluster);
    let user = kubeconfig.entry(EntryKind::Context, &now.name)["user"].as_str();
    OriginalContext { cluster: cluster.to_owned(), user: user.map(str::to_owned) }
}

/// The extension of a cluster at a local address, which describes the real cluster to the plugin.
fn described(real: &Value, name: &str) -> Value {
    let mut described = json!({"plugin": tunnelled::PLUGIN, "name": name});
    for field in CONNECTION_FIELDS {
        if let Some(value) = real.get(field) {
            described[field] = value.clone();
        }
    }
    described["server"] = without_user(text(real, "server").unwrap_or_default()).into();
    described
}

impl LocalEndpoint<'_> {
    /// The first of the cluster's ports that leads to no other cluster; if all do, the first of them. The port `kept`,
    /// which the cluster's local entry has already, comes first: clients cache what they learn of a cluster under its
    /// address.
    fn port_for(
        &self,
        cluster: &Cluster,
        kept: Option<u16>,
        kubeconfig: &Kubeconfig,
    ) -> Result<u16, Error> {
        let mut ports = (self.ports)(cluster);
        ports.sort_by_key(|port| Some(*port) != kept);
        for port in &ports {
            if !self.leads_elsewhere(*port, cluster, kubeconfig) && (self.is_free)(*port, cluster) {
                return Ok(*port);
            }
        }
        ports.first().copied().ok_or_else(|| Error::internal("a cluster has no port"))
    }

    /// Whether another cluster of the kubeconfig is at this port of the tunnel's host.
    fn leads_elsewhere(&self, port: u16, cluster: &Cluster, kubeconfig: &Kubeconfig) -> bool {
        let prefix = format!("https://{}:", self.tunnel.address);
        kubeconfig.elements(EntryKind::Cluster).any(|element| {
            let entry = &element["cluster"];
            let is_at_port = text(entry, "server").is_some_and(|url| url.starts_with(&prefix))
                && port_of(entry) == Some(port);
            is_at_port
                && kubeconfig.cluster(name_of(element)).is_ok_and(|other| other.cluster != *cluster)
        })
    }
}

/// The port in the address of a cluster's entry; `None` if there is none.
fn port_of(entry: &Value) -> Option<u16> {
    let (_, port) = ServerUrl::of(entry["server"].as_str()?).host.rsplit_once(':')?;
    port.parse().ok()
}

/// The content of the user of this name, with the plugin and this configuration. Its other fields stay, except for a
/// command that clients can't start.
fn with_plugin(kubeconfig: &Kubeconfig, name: &str, configuration: &Configuration) -> Value {
    let mut entry = kubeconfig.entry(EntryKind::User, name).clone();
    let mut old = Value::Null;
    if exec::is_ours(&entry["exec"]) {
        old = entry["exec"].clone();
    }
    if text(&old, "command").is_some_and(|command| exec::program_of(command).is_err()) {
        super::remove(&mut old, &["command"]);
    }
    entry["exec"] = exec::with(configuration, &old);
    entry
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    /// Two clusters may have a port in common by chance.
    #[test]
    fn a_port_that_leads_elsewhere_is_left_to_that() {
        let config = config(
            "clusters: [{name: real, cluster: {server: 'https://real'}}, \
             {name: other, cluster: {server: 'https://127.0.0.1:2'}}]",
        );
        let real = config.cluster("real").unwrap_or_else(|error| panic!("{error}"));
        let cluster = real.cluster;
        let port = |kept, served: &[u16]| {
            let local = LocalEndpoint {
                tunnel: TunnelEndpoint { address: "127.0.0.1", server_name: "", authority_pem: "" },
                ports: &|_| vec![1, 2, 3, 4],
                is_free: &|port, _| !served.contains(&port),
            };
            local.port_for(&cluster, kept, &config).unwrap()
        };
        for (kept, served, expected) in [
            (None, &[][..], 1),
            // As the tunnel process has it, and another entry.
            (None, &[1], 3),
            (Some(4), &[1], 4),
            (Some(2), &[1], 3),
            // Not one of this cluster's any more.
            (Some(9), &[1], 3),
            (None, &[1, 2, 3, 4], 1),
        ] {
            assert_eq!(port(kept, served), expected, "{kept:?} {served:?}");
        }
    }
}
