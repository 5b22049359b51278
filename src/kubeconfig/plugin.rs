//! The entries with which a context works for stock clients: a user whose exec plugin is this program,
//! and a cluster at a local address; an extension names the real one to the plugin.
//!
//! The context notes what it had before. The real cluster and the user before stay as they are.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entries::{parts, without_user};
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

/// The extension of a context that notes what it had before.
const ORIGINAL: &str = "pkcs11-external-signer";

/// Where the plugin's tunnel serves clusters, and how clients know it.
pub struct LocalEndpoint<'a> {
    /// With the host alone as its address.
    pub tunnel: TunnelEndpoint<'a>,
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
    pub configuration: &'a Configuration,
}

/// What a context with this program as its plugin consists of: names and contents of its entries.
pub struct PluginEntries {
    context: String,
    local: Value,
    with_plugin: Value,
    note: Note,
}

/// A cluster or a user of a kubeconfig.
struct NamedEntry {
    name: String,
    entry: Value,
}

/// What a context had before it was given a plugin; the user can be missing.
#[derive(Deserialize, Serialize)]
pub struct OriginalContext {
    pub cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What a context notes of itself.
#[derive(Deserialize, Serialize)]
struct Note {
    #[serde(flatten)]
    original: OriginalContext,
    /// The cluster at a local address that it was given.
    #[serde(rename = "plugin-cluster")]
    plugin_cluster: String,
    /// The user that it was given.
    #[serde(rename = "plugin-user")]
    plugin_user: String,
}

/// The address of this user's tunnels: on Linux one of its own, which keeps users apart.
pub fn local_address() -> Ipv4Addr {
    let user = rustix::process::geteuid().as_raw();
    let [_, _, third, fourth] = user.to_be_bytes();
    let second = u8::try_from(1 + (user >> 16) % 254).unwrap_or(1);
    if cfg!(target_os = "linux") {
        Ipv4Addr::new(127, second, third, fourth)
    } else {
        // There is only this one.
        Ipv4Addr::LOCALHOST
    }
}

impl Kubeconfig {
    /// What the context had before it was given this program as its plugin. A user that it was given by others since stays.
    pub fn original(&self, context: &str) -> Result<OriginalContext, Error> {
        let now = self.context(context)?;
        let Note { mut original, plugin_user, .. } = self.note(&now)?;
        if now.user != plugin_user {
            original.user = Some(now.user).filter(|it| !it.is_empty());
        }
        Ok(original)
    }

    /// What the context notes. It counts only as long as the context leads to the cluster that it was written for: it could
    /// have been pointed at another one since, or be a copy of another context.
    fn note(&self, now: &Context) -> Result<Note, Error> {
        let Context { name, cluster, .. } = now;
        let noted = extension(self.entry(EntryKind::Context, name), ORIGINAL);
        let note = Note::deserialize(noted).map_err(|_| {
            error(
                format!("context \"{name}\" was not written for the credential plugin"),
                "nothing to undo there; `kubectl config get-contexts` lists the others",
            )
        })?;
        let counts = match tunnelled::of(self.entry(EntryKind::Cluster, cluster)) {
            Some(real) => real["name"] == *note.original.cluster,
            // The entry that was written, if its extension is damaged: it is written anew.
            None => *cluster == note.plugin_cluster,
        };
        if counts {
            return Ok(note);
        }
        Err(error(
            format!(
                "context \"{name}\" leads to cluster \"{cluster}\" by now, and was written for \"{}\"",
                note.original.cluster
            ),
            Help::from(format!(
                "nothing is undone there; give it the user that it is to have: `kubectl config set-context {}",
                shell_word(name)
            ))
            .and(HelpPart::Kubeconfig)
            .and(" --user=NAME`"),
        ))
    }

    /// Which of the entries that the context has from this program can go with it, since no other
    /// context uses them and it didn't have them before.
    fn entries_of_plugin(&self, context: &str) -> Vec<(EntryKind, String)> {
        let Ok(now) = self.context(context) else { return Vec::new() };
        let Ok(Note { original, plugin_user, .. }) = self.note(&now) else { return Vec::new() };
        let mut others = self.contexts();
        others.retain(|other| other.name != context);
        let mut entries = Vec::new();
        if others.iter().all(|other| other.cluster != now.cluster) {
            entries.push((EntryKind::Cluster, now.cluster));
        }
        if self.has_plugin(&plugin_user)
            && original.user.as_ref() != Some(&plugin_user)
            && others.iter().all(|other| other.user != plugin_user)
        {
            entries.push((EntryKind::User, plugin_user));
        }
        entries
    }

    /// Whether the user's exec plugin is this program, for the tunnel.
    pub fn has_plugin(&self, user: &str) -> bool {
        exec::is_ours(&self.entry(EntryKind::User, user)["exec"])
    }

    /// Gives a context back what it had before it was given this program as its plugin, and takes the entries that it had
    /// from it, unless others of `all` files use them.
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
        for (kind, name) in all.entries_of_plugin(context) {
            self.retain(kind, |other| other != name);
        }
        Ok(())
    }
}

impl PluginEntries {
    /// The context's entries with this user and a local address. What is there stays if it can.
    pub fn of(
        kubeconfig: &Kubeconfig,
        context: &str,
        user: &PluginUser<'_>,
        hop: &LocalEndpoint<'_>,
    ) -> Result<Self, Error> {
        let now = kubeconfig.context(context)?;
        let original = kubeconfig.original(context).unwrap_or_else(|_| {
            let entry = kubeconfig.entry(EntryKind::Context, context);
            // A context that was pointed at a local address by hand.
            let real = tunnelled::of(kubeconfig.entry(EntryKind::Cluster, &now.cluster));
            let real = real.and_then(|led| led["name"].as_str()).unwrap_or(&now.cluster);
            let user = entry["user"].as_str();
            OriginalContext { cluster: real.to_owned(), user: user.map(str::to_owned) }
        });
        let cluster = local_cluster(kubeconfig, &now.cluster, &original.cluster, hop)?;
        let user = plugin_user(kubeconfig, context, original.user.as_deref(), user);
        let note = Note { original, plugin_cluster: cluster.name, plugin_user: user.name };
        let context = context.to_owned();
        Ok(Self { context, local: cluster.entry, with_plugin: user.entry, note })
    }

    /// The name of the cluster at the local address.
    fn cluster(&self) -> &str {
        &self.note.plugin_cluster
    }

    /// The name of the user with the plugin.
    pub fn user(&self) -> &str {
        &self.note.plugin_user
    }

    /// As the lists of a kubeconfig.
    pub fn as_excerpt(&self) -> Result<String, Error> {
        let mut context = Value::Null;
        self.point(&mut context);
        yaml::excerpt(&json!({
            "clusters": [{"name": self.cluster(), "cluster": self.local}],
            "users": [{"name": self.user(), "user": self.with_plugin}],
            "contexts": [{"name": self.context, "context": context}],
        }))
    }

    /// Puts the entries into the kubeconfig of the file at this path, which has the context. Those that are the same in
    /// `all` files stay where they are.
    pub fn put_into(
        &self,
        file: &mut Kubeconfig,
        all: &Kubeconfig,
        path: &Path,
    ) -> Result<(), Error> {
        for (kind, name, content) in [
            (EntryKind::Cluster, self.cluster(), &self.local),
            (EntryKind::User, self.user(), &self.with_plugin),
        ] {
            if all.entry(kind, name) == content {
                continue;
            }
            if all.has(kind, name) && !file.has(kind, name) {
                let reason = format!("{} \"{name}\" stands in another file", kind.name());
                return Err(unwritable(path, reason));
            }
            file.set_entry(kind, name, content.clone());
        }
        if let Some(entry) = file.entry_mut(EntryKind::Context, &self.context) {
            self.point(entry);
        }
        for (kind, name) in all.entries_of_plugin(&self.context) {
            if name != self.cluster() && name != self.user() {
                file.retain(kind, |other| other != name);
            }
        }
        Ok(())
    }

    /// Points a context at the entries.
    fn point(&self, context: &mut Value) {
        context["cluster"] = self.note.plugin_cluster.as_str().into();
        context["user"] = self.note.plugin_user.as_str().into();
        set_extension(context, ORIGINAL, Some(json!(self.note)));
    }
}

/// The cluster at a local address for the real one: the context's, another context's, or a new one.
fn local_cluster(
    kubeconfig: &Kubeconfig,
    now: &str,
    real: &str,
    hop: &LocalEndpoint<'_>,
) -> Result<NamedEntry, Error> {
    let names = kubeconfig.names(EntryKind::Cluster);
    let entries = [now].into_iter().chain(names.iter().map(String::as_str));
    let mut entries = entries.map(|name| (name, kubeconfig.entry(EntryKind::Cluster, name)));
    let known =
        entries.find(|(_, entry)| tunnelled::of(entry).is_some_and(|led| led["name"] == real));
    let (name, mut local) = match known {
        Some((name, local)) => (name.to_owned(), local.clone()),
        None => {
            let name = format!("{real}+token");
            (kubeconfig.free_name(EntryKind::Cluster, &name), json!({"server": null}))
        }
    };
    let (_, cluster) = kubeconfig.cluster(real)?;
    let entry = kubeconfig.entry(EntryKind::Cluster, real);
    let port = free_port(kubeconfig, &cluster, port_of(&local), hop);
    local["server"] = cluster.server.as_str().into();
    let address = &format!("{}:{port}", hop.tunnel.address);
    point_at(&mut local, &TunnelEndpoint { address, ..hop.tunnel });
    match entry.get("disable-compression") {
        Some(value) => local["disable-compression"] = value.clone(),
        None => super::remove(&mut local, &["disable-compression"]),
    }
    set_extension(&mut local, tunnelled::EXTENSION, Some(described(entry, real)));
    Ok(NamedEntry { name, entry: local })
}

/// The real cluster, for the plugin.
fn described(entry: &Value, name: &str) -> Value {
    let mut described = json!({"plugin": tunnelled::PLUGIN, "name": name});
    for key in [
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "proxy-url",
    ] {
        if let Some(value) = entry.get(key) {
            described[key] = value.clone();
        }
    }
    described["server"] = without_user(text(entry, "server").unwrap_or_default()).into();
    described
}

/// The first of the cluster's ports that leads nowhere else. One that it has already comes first: clients cache what
/// they learn of a cluster under its address.
fn free_port(
    kubeconfig: &Kubeconfig,
    cluster: &Cluster,
    kept: Option<u16>,
    hop: &LocalEndpoint<'_>,
) -> u16 {
    let prefix = format!("https://{}:", hop.tunnel.address);
    let leads_elsewhere = |port| {
        kubeconfig.elements(EntryKind::Cluster).any(|element| {
            let server = text(&element["cluster"], "server").unwrap_or_default();
            server.starts_with(&prefix)
                && port_of(&element["cluster"]) == Some(port)
                && kubeconfig.cluster(name_of(element)).is_ok_and(|(_, it)| it != *cluster)
        })
    };
    let mut ports = (hop.ports)(cluster);
    ports.sort_by_key(|port| Some(*port) != kept);
    let is_free = |port: &&u16| !leads_elsewhere(**port) && (hop.is_free)(**port, cluster);
    ports.iter().find(is_free).or_else(|| ports.first()).copied().unwrap_or_default()
}

/// The port of a local address.
fn port_of(entry: &Value) -> Option<u16> {
    let (_, host, _) = parts(entry["server"].as_str()?);
    host.rsplit_once(':')?.1.parse().ok()
}

/// The user with the plugin: that of the context if it was given one already, or a new one where an entry of the name is
/// another's. What the context had `before` is left as it was, missing or not.
fn plugin_user(
    kubeconfig: &Kubeconfig,
    context: &str,
    before: Option<&str>,
    user: &PluginUser<'_>,
) -> NamedEntry {
    let contexts = kubeconfig.contexts();
    let can_stay = |now: &&str| kubeconfig.has_plugin(now) && (!user.is_named || *now == user.name);
    let now = contexts.iter().find(|known| known.name == context);
    let now = now.map(|known| known.user.as_str()).filter(can_stay);
    let with_token = format!("{}+token", user.name);
    let is_free = |name: &str| is_free_for(kubeconfig, context, before, name, user.configuration);
    let preferred = [now, Some(user.name), Some(&*with_token)].into_iter().flatten();
    let name = match preferred.into_iter().find(|name| is_free(name)) {
        Some(name) => name.to_owned(),
        None => {
            let mut count = 2_u64;
            loop {
                let counted = format!("{with_token}+{count}");
                if is_free(&counted) {
                    break counted;
                }
                count += 1;
            }
        }
    };
    let entry = with_plugin(kubeconfig, &name, user.configuration);
    NamedEntry { name, entry }
}

/// Whether the context can have a user of this name that is written for it: no entry that is another's is changed.
fn is_free_for(
    kubeconfig: &Kubeconfig,
    context: &str,
    before: Option<&str>,
    name: &str,
    configuration: &Configuration,
) -> bool {
    let had_before = before == Some(name);
    if !kubeconfig.has(EntryKind::User, name) {
        return !had_before;
    }
    let entry = kubeconfig.entry(EntryKind::User, name);
    if !kubeconfig.has_plugin(name) || !entry["auth-provider"].is_null() {
        return false;
    }
    let is_others =
        kubeconfig.contexts().iter().any(|other| other.name != context && other.user == name);
    let may_change = !had_before && !is_others;
    may_change || with_plugin(kubeconfig, name, configuration) == *entry
}

/// The entry of the user of this name, with the plugin and this configuration. What else it says stays, but for a command
/// that isn't to be run.
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
        let (_, cluster) = config.cluster("real").unwrap_or_else(|error| panic!("{error}"));
        let port = |kept, served: &[u16]| {
            let hop = LocalEndpoint {
                tunnel: TunnelEndpoint { address: "127.0.0.1", server_name: "", authority_pem: "" },
                ports: &|_| vec![1, 2, 3, 4],
                is_free: &|port, _| !served.contains(&port),
            };
            free_port(&config, &cluster, kept, &hop)
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
