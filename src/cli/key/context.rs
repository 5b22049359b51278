//! A context that stock kubectl uses with a key: how the key is written into it, printed for it, and taken from it
//! again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::slice;

use super::choice::{key_configuration, names_key};
use super::options::{
    KeyOptions, kubeconfig_files, load_kubeconfig, option, set, standard_input_is_the_clients,
};
use crate::cli::listing::SelectedKey;
use crate::cli::session::{CommandOutput, Step};
use crate::start;
use config::Keep;
use kubeconfig::{
    self, Change, Cluster, EntryKind, Kubeconfig, LocalEndpoint, PluginEntries, PluginUser,
    Provider, local_address,
};
use messages::error::Error;
use messages::printable::shell_word;
use messages::report;
use protocol::Configuration;
use system::signals::Deferral;
use tunnel::{ServerIdentity, check_port, preferred_ports};
use tunnel_process::{self, StatusDocument, identity_or_new};

/// What a context gets.
pub(in crate::cli) struct ContextEntries<'a> {
    pub(in crate::cli) context: &'a str,
    /// The options, of which the kubeconfig, the certificate's file and the PIN's source count.
    pub(in crate::cli) options: &'a KeyOptions,
    /// The name of the user, unless another entry has it.
    pub(in crate::cli) user: &'a str,
    pub(in crate::cli) is_user_named: bool,
    pub(in crate::cli) key: SelectedKey<'a>,
    pub(in crate::cli) keep: Option<Keep>,
    /// How long the key stays open, if neither an option nor the context's former entry says it.
    pub(in crate::cli) usual_keep: Option<Keep>,
}

impl ContextEntries<'_> {
    /// The entries as text for pasting.
    pub(in crate::cli) fn excerpt(&self, kubeconfig: &Kubeconfig) -> Result<String, Error> {
        self.entries(kubeconfig, &LocalTunnel::find()?)?.as_excerpt()
    }

    /// The configuration that selects the key, as the context's user will have it.
    pub(in crate::cli) fn configuration(&self) -> Configuration {
        let file = self.options.certificate_file.as_deref();
        key_configuration(file, self.key, self.options.pin_source.as_deref())
    }

    /// Writes the entries that aren't there yet. Says what was done, and what can be done next.
    pub(in crate::cli) fn write(&self, output: &mut CommandOutput) -> Result<(), Error> {
        let kubeconfig = self.options.kubeconfig.as_deref();
        // The tunnel process is asked before the file is locked, which keeps kubectl from it.
        let tunnel = LocalTunnel::find()?;
        let Change { outcome, path, copy } =
            change(kubeconfig, self.context, |file, all, path| {
                let entries = self.entries(all, &tunnel)?;
                entries.put_into(file, all, path)?;
                let former = all.context(self.context)?.user;
                let is_secret = all.is_secret_of_one(&former, self.context);
                Ok(WrittenUser {
                    name: entries.user().to_owned(),
                    former_with_secret: is_secret.then_some(former),
                })
            })?;
        let user = &outcome.name;
        let what_is_so = match copy {
            Some(_) => format!("uses the key, as user \"{user}\""),
            None => format!("is there already, with user \"{user}\""),
        };
        let text = format!("\"{}\" in {} {what_is_so}", self.context, path.display());
        output.step(&Step { title: "context", text })?;
        if let Some(copy) = &copy {
            output.detail(&format!("its old content is in {}", copy.display()))?;
        }
        let files = option("--kubeconfig", kubeconfig.map(Path::to_string_lossy));
        let options = files + &option("--context", Some(self.context));
        output.hint(
            "Next:",
            &[
                &format!("{} check{options} --server", start::called()),
                &format!("kubectl{options} auth whoami"),
            ],
        )?;
        match &outcome.former_with_secret {
            Some(former) => show_secret_left(former, &path, kubeconfig, output),
            None => Ok(()),
        }
    }

    fn entries(
        &self,
        kubeconfig: &Kubeconfig,
        tunnel: &LocalTunnel,
    ) -> Result<PluginEntries, Error> {
        let configuration = self.plugin_configuration(kubeconfig)?;
        let host = local_address().to_string();
        let identity = &tunnel.identity;
        let local = LocalEndpoint {
            tunnel: identity.endpoint(&host),
            ports: &|cluster: &Cluster| {
                preferred_ports(&cluster.identity(), Some(identity.server_name())).collect()
            },
            is_free: &|port, cluster| tunnel.is_free(port, cluster),
        };
        let user = PluginUser {
            name: self.user,
            is_named: self.is_user_named,
            configuration: &configuration,
        };
        PluginEntries::of(kubeconfig, self.context, &user, &local)
    }

    /// The configuration that the plugin's arguments have: the key, and what the options say or, if they don't, the
    /// user's present entry.
    fn plugin_configuration(&self, kubeconfig: &Kubeconfig) -> Result<Configuration, Error> {
        let old = self.present_configuration(kubeconfig)?;
        let options = self.options;
        if old.value("pin").is_some() && options.pin_source.is_none() {
            report::warning(
                "the PIN in the kubeconfig is not taken over, since it would be visible in the plugin's \
                 arguments: you will be asked for it, unless --pin-source says where it comes from",
            );
        }
        let pin_source = options.pin_source.as_deref().or_else(|| old.value("pinSource"));
        if pin_source == Some("stdin") {
            return Err(standard_input_is_the_clients());
        }
        let certificate_file =
            options.certificate_file.as_deref().or_else(|| old.value("certificateFile"));
        let mut configuration = key_configuration(certificate_file, self.key, pin_source);
        let wanted_keep = self.keep.map(|keep| keep.to_string());
        let usual_keep = self.usual_keep.map(|keep| keep.to_string());
        let keep = wanted_keep.as_deref().or_else(|| old.value("keep")).or(usual_keep.as_deref());
        set(&mut configuration, "keep", keep);
        // A client that doesn't pass the cluster on doesn't tell either which file it was given.
        let file = options.kubeconfig.as_ref().and_then(|file| std::path::absolute(file).ok());
        set(&mut configuration, "kubeconfig", file.as_deref().and_then(Path::to_str));
        Ok(configuration)
    }

    /// The configuration that the context's user has for this key, or else the one of the entry with the new user's
    /// name. It is empty if neither has the key.
    fn present_configuration(&self, kubeconfig: &Kubeconfig) -> Result<Configuration, Error> {
        let present_user = kubeconfig.context(self.context)?.user;
        for user in [&*present_user, self.user] {
            if let Ok(Provider::ExternalSigner(mut configuration)) = kubeconfig.provider(user)
                && names_key(&mut configuration, self.key)
            {
                return Ok(configuration);
            }
        }
        Ok(Configuration::default())
    }
}

/// The user that a context was given.
struct WrittenUser {
    name: String,
    /// The user that the context had before, if there is a secret in that entry and no other context needs it.
    former_with_secret: Option<String>,
}

/// Says that the entry that the context had contains a secret, and how to remove it. The context's file is at `path`.
fn show_secret_left(
    former: &str,
    path: &Path,
    kubeconfig: Option<&Path>,
    output: &mut CommandOutput,
) -> Result<(), Error> {
    let files = option("--kubeconfig", kubeconfig.map(Path::to_string_lossy));
    let mut place = holder_of(former, kubeconfig).unwrap_or_else(|| path.to_owned());
    let mut removal = format!("kubectl config{files} delete-user {}", shell_word(former));
    let mut copies = "";
    // A copy was made only of the context's own file.
    if place.canonicalize().is_ok_and(|place| place == path) {
        for (index, copy) in copies_with(path, former).iter().enumerate() {
            copies = " and its copies";
            removal += if index == 0 { " && rm " } else { " " };
            removal += &shell_word(&copy.to_string_lossy());
        }
        path.clone_into(&mut place);
    }
    output.hint(
        &format!(
            "User \"{former}\", which the context had, is still in {}{copies}, with its secret. \
             Once all works, and --undo isn't wanted any more:",
            place.display()
        ),
        &[&removal],
    )
}

/// The file that has the user's entry.
fn holder_of(user: &str, kubeconfig: Option<&Path>) -> Option<PathBuf> {
    kubeconfig_files(kubeconfig).into_iter().find(|path| holds(path, user))
}

/// The copies of this file that have the user's entry, too.
fn copies_with(path: &Path, user: &str) -> Vec<PathBuf> {
    let Some(Ok(files)) = path.parent().map(Path::read_dir) else { return Vec::new() };
    let prefix = format!("{}.backup-", path.to_string_lossy());
    let mut copies: Vec<_> = files
        .flatten()
        .map(|file| file.path())
        .filter(|copy| copy.to_string_lossy().starts_with(&prefix) && holds(copy, user))
        .collect();
    copies.sort();
    copies
}

fn holds(path: &PathBuf, user: &str) -> bool {
    Kubeconfig::load(slice::from_ref(path)).is_ok_and(|file| file.has(EntryKind::User, user))
}

/// The identity of this user's tunnels, and what the tunnel process serves if one runs.
struct LocalTunnel {
    identity: ServerIdentity,
    process: Option<StatusDocument>,
}

impl LocalTunnel {
    fn find() -> Result<Self, Error> {
        let process = tunnel_process::status().ok().flatten();
        Ok(Self { identity: identity_or_new()?, process })
    }

    /// Whether the port is free, or serves this very cluster.
    fn is_free(&self, port: u16, cluster: &Cluster) -> bool {
        let address = SocketAddr::from((local_address(), port));
        let mut served = self.process.iter().flat_map(|process| &process.clusters);
        match served.find(|served| served.address == address) {
            Some(served) => served.server == cluster.server,
            None => check_port("", address).is_ok(),
        }
    }
}

/// Gives the context back the user and the cluster that it had.
pub(in crate::cli) fn undo(kubeconfig: Option<&Path>, context: &str) -> Result<(), Error> {
    let files = kubeconfig;
    let kubeconfig = load_kubeconfig(files)?;
    let original = kubeconfig.original(context)?;
    let user = original.user.unwrap_or_default();
    let changed = change(files, context, |file, all, _| file.restore(context, all));
    changed.map(|change| report_change(&change, context)).map_err(|error| {
        let file = option("--kubeconfig", files.map(Path::to_string_lossy));
        let [cluster, user] = [&original.cluster, &user].map(|name| shell_word(name));
        error.help(format!(
            "correct that, or have kubectl do it: `kubectl config{file} set-context {} --cluster={cluster} --user={user}`",
            shell_word(context)
        ))
    })?;
    for (kind, name) in [(EntryKind::Cluster, &original.cluster), (EntryKind::User, &user)] {
        if !name.is_empty() && !kubeconfig.has(kind, name) {
            report::warning(&format!(
                "{} \"{name}\", which context \"{context}\" had, is not there any more",
                kind.name()
            ));
        }
    }
    Ok(())
}

/// Fails if the context's file can't be changed, before anything is made for it.
pub(in crate::cli) fn check_change(kubeconfig: Option<&Path>, context: &str) -> Result<(), Error> {
    let _deferral = Deferral::for_files();
    kubeconfig::check_change(&kubeconfig_files(kubeconfig), context).map_err(|error| {
        error.help(
            "nothing was made; correct that, or enroll with a copy of the file (--kubeconfig FILE), whose entries can be pasted",
        )
    })
}

/// Says what became of the context's file.
fn report_change<T>(change: &Change<T>, context: &str) {
    let path = change.path.display();
    report::note(&match &change.copy {
        Some(copy) => {
            let copy = copy.display();
            format!("{path}: context \"{context}\" written; its old content is in {copy}")
        }
        None => format!("{path}: context \"{context}\" is there already"),
    });
}

/// Changes the file of the context.
fn change<T>(
    kubeconfig: Option<&Path>,
    context: &str,
    edit: impl FnOnce(&mut Kubeconfig, &Kubeconfig, &Path) -> Result<T, Error>,
) -> Result<Change<T>, Error> {
    // A lock that stays behind would keep kubectl away from the file.
    let _deferral = Deferral::for_files();
    let files = kubeconfig_files(kubeconfig);
    kubeconfig::change(&files, context, edit)
}
