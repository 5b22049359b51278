//! A context that stock kubectl uses with the key: given to it, printed, and taken from it again.

use std::path::{Path, PathBuf};

use super::{KubeconfigArguments, Place, names, provider_config, save};
use crate::cli::error::standard_input_is_the_clients;
use crate::error::Error;
use crate::kubeconfig::{
    Cluster, EntryKind, Kubeconfig, KubeconfigError, KubeconfigFile, LocalHop, Locations,
    PluginEntries, PluginUser, Provider, file_for, local_address,
};
use crate::printable::shell_word;
use crate::process::signals::{Deferral, is_interrupted};
use crate::protocol::Configuration;
use crate::report;
use crate::start;
use crate::tunnel::{ServerIdentity, check_port, preferred_ports};
use crate::tunnel_process::{self, identity_or_new};

/// What a context is to be given.
pub(super) struct Wanted<'a> {
    pub(super) arguments: &'a KubeconfigArguments,
    pub(super) context: &'a str,
    /// The user's, if no other entry has it.
    pub(super) name: &'a str,
    pub(super) place: Place<'a>,
    pub(super) pin_source: Option<&'a str>,
}

impl Wanted<'_> {
    /// The entries, for pasting.
    pub(super) fn excerpt(&self) -> Result<String, Error> {
        let kubeconfig = crate::cli::load(&self.locations().required())?;
        kubeconfig.context(self.context)?;
        let identity = identity_or_new(local_address().into())?;
        Ok(self.entries(&kubeconfig, &identity)?.as_excerpt())
    }

    /// Writes the entries that aren't there yet.
    pub(super) fn write(&self) -> Result<(), Error> {
        let context = self.context;
        let locations = self.locations();
        // Refused before anything is written.
        crate::cli::load(&locations.required())?.context(context)?;
        let identity = identity_or_new(local_address().into())?;
        // Locks that stay behind would keep kubectl from the files.
        let _deferral = Deferral::for_files();
        let mut files = OpenFiles::of_context(&locations, context)?;
        // As it is behind the lock.
        let before = Kubeconfig::load(&locations)?;
        let entries = self.entries(&before, &identity)?;
        let mut lost = Vec::new();
        for (kind, name) in [
            (EntryKind::Cluster, &*entries.cluster),
            (EntryKind::User, &*entries.user),
            (EntryKind::Context, context),
        ] {
            let file = files.holding(kind, name)?;
            lost.extend(file.set_entry(kind, &entries)?);
        }
        for (kind, name) in before.entries_of_plugin(context) {
            if name != entries.cluster && name != entries.user {
                files.holding(kind, &name)?.remove(kind, &name)?;
            }
        }
        for comments in lost {
            report::warning(&format!("the entries had {comments}, which the copy still has"));
        }
        // Entries come before the context that uses them.
        files.open.reverse();
        files.save()?;
        self.say_what_is_next(&entries.user);
        Ok(())
    }

    fn locations(&self) -> Locations {
        crate::cli::locations(self.arguments.kubeconfig.as_deref())
    }

    fn entries(
        &self,
        kubeconfig: &Kubeconfig,
        identity: &ServerIdentity,
    ) -> Result<PluginEntries, Error> {
        let arguments = self.arguments;
        let user = kubeconfig.context(self.context)?.user;
        let old = inherited(kubeconfig, &[&user, self.name], self.place).unwrap_or_default();
        if old.has("pin") && self.pin_source.is_none() {
            report::warning(
                "the PIN that stands in the kubeconfig is not taken over, since it would stand in the \
                 plugin's arguments: it will be asked for, unless --pin-source says where it comes from",
            );
        }
        let option = |given: Option<&str>, key| given.or_else(|| old.value(key)).map(str::to_owned);
        let file = option(arguments.certificate_file.as_deref(), "certificateFile");
        let pin_source = option(self.pin_source, "pinSource");
        if pin_source.as_deref() == Some("stdin") {
            return Err(standard_input_is_the_clients());
        }
        let mut config = provider_config(file.as_deref(), self.place, pin_source.as_deref());
        let keep = arguments.keep.map(|keep| keep.to_string());
        config.set("keep", option(keep.as_deref(), "keep"));
        // A client that passes no cluster on doesn't say either which file it was given.
        let file = arguments.kubeconfig.as_ref();
        let file = file.and_then(|it| Some(std::path::absolute(it).ok()?.to_str()?.to_owned()));
        config.set("kubeconfig", file);
        let process = tunnel_process::status().ok().flatten();
        let served = process.map(|it| it.clusters).unwrap_or_default();
        let hop = LocalHop {
            address: local_address(),
            server_name: identity.server_name(),
            authority_pem: identity.authority_pem(),
            ports: &|cluster: &Cluster| {
                preferred_ports(&cluster.identity(), Some(identity.server_name())).collect()
            },
            is_free: &|port, cluster| {
                let address = (local_address(), port).into();
                match served.iter().find(|it| it.is_at(address)) {
                    Some(served) => served.server == cluster.server,
                    None => check_port("", address).is_ok(),
                }
            },
        };
        let user =
            PluginUser { name: self.name, is_named: arguments.user.is_some(), config: &config };
        Ok(PluginEntries::of(kubeconfig, self.context, &user, &hop)?)
    }

    fn say_what_is_next(&self, user: &str) {
        let option = |name: &str, value: &str| format!(" {name}={}", shell_word(value));
        let file = self.arguments.kubeconfig.as_ref();
        let file = file.map(|file| option("--kubeconfig", &file.to_string_lossy()));
        let options = file.unwrap_or_default() + &option("--context", self.context);
        report::steps(
            &format!("context \"{}\" uses user \"{user}\"; next:", self.context),
            &[
                format!("{} check{options} --server", start::called()),
                format!("kubectl{options} get namespaces"),
            ],
        );
    }
}

/// Gives the context back what it had.
pub(super) fn undo(arguments: &KubeconfigArguments, context: &str) -> Result<(), Error> {
    let locations = crate::cli::locations(arguments.kubeconfig.as_deref());
    let kubeconfig = crate::cli::load(&locations.required())?;
    let original = kubeconfig.original(context)?;
    let _deferral = Deferral::for_files();
    restore(&locations, context)?;
    let user = original.user.unwrap_or_default();
    for (kind, what, name) in
        [(EntryKind::Cluster, "cluster", &original.cluster), (EntryKind::User, "user", &user)]
    {
        if !name.is_empty() && !kind.has(&kubeconfig, name) {
            report::warning(&format!(
                "{what} \"{name}\", which context \"{context}\" had, is not there any more"
            ));
        }
    }
    Ok(())
}

/// Gives a context back what it had, if it has a plugin: another form takes its place. Returns what its
/// user said of this key.
pub(super) fn replaced(
    locations: &Locations,
    context: &str,
    place: Place<'_>,
) -> Result<Option<Configuration>, Error> {
    let kubeconfig = Kubeconfig::load(locations)?;
    if kubeconfig.original(context).is_err() {
        return Ok(None);
    }
    let user = kubeconfig.context(context)?.user;
    let inherited = inherited(&kubeconfig, &[&user], place);
    restore(locations, context)?;
    Ok(inherited)
}

fn restore(locations: &Locations, context: &str) -> Result<(), Error> {
    let mut files = OpenFiles::of_context(locations, context)?;
    let entries = Kubeconfig::load(locations)?.entries_of_plugin(context);
    let file = files.holding(EntryKind::Context, context)?;
    file.restore_context(context)?;
    for (kind, name) in entries {
        files.holding(kind, &name)?.remove(kind, &name)?;
    }
    files.save()
}

/// What the first of these users that has this key says of it.
fn inherited(kubeconfig: &Kubeconfig, users: &[&str], place: Place<'_>) -> Option<Configuration> {
    users.iter().find_map(|user| match kubeconfig.provider(user) {
        Ok(Provider::ExternalSigner(mut map)) => names(&mut map, place).then_some(map),
        _ => None,
    })
}

/// The files that change, each locked from when it is first needed until it is saved.
struct OpenFiles<'a> {
    locations: &'a Locations,
    /// Where the context stands, and what has no place yet belongs.
    main: PathBuf,
    open: Vec<(KubeconfigFile, String)>,
}

impl<'a> OpenFiles<'a> {
    fn of_context(locations: &'a Locations, context: &str) -> Result<Self, Error> {
        let main = file_for(locations, |it| EntryKind::Context.has(it, context))?;
        let main = main.ok_or_else(|| KubeconfigError::Missing { paths: Vec::new() })?;
        let mut files = Self { locations, main: main.clone(), open: Vec::new() };
        files.at(&main, format!("context \"{context}\""))?;
        Ok(files)
    }

    /// The file in which the entry stands, or belongs.
    fn holding(&mut self, kind: EntryKind, name: &str) -> Result<&mut KubeconfigFile, Error> {
        let mut files = self.locations.files().iter();
        let holds = |path: &&PathBuf| {
            let one = Locations::new(Some(path), None, None).optional();
            Kubeconfig::load(&one).is_ok_and(|it| kind.has(&it, name))
        };
        let path = files.find(holds).unwrap_or(&self.main).clone();
        let kind = match kind {
            EntryKind::Cluster => "cluster",
            EntryKind::User => "user",
            EntryKind::Context => "context",
        };
        self.at(&path, format!("{kind} \"{name}\""))
    }

    fn at(&mut self, path: &Path, what: String) -> Result<&mut KubeconfigFile, Error> {
        let place = self.open.iter().position(|(file, _)| file.path() == path);
        let place = match place {
            Some(place) => place,
            None => {
                let file = KubeconfigFile::open(path, is_interrupted)?;
                self.open.push((file, what));
                self.open.len() - 1
            }
        };
        let (file, _) = self
            .open
            .get_mut(place)
            .ok_or_else(|| Error::internal("a file that was opened is not there".to_owned()))?;
        Ok(file)
    }

    /// In the order in which they were opened: the context first.
    fn save(self) -> Result<(), Error> {
        for (file, what) in self.open {
            save(file, &what)?;
        }
        Ok(())
    }
}
