//! The contexts of the kubeconfig that use a key: one is given its successor, the others are named.

use std::path::{Path, PathBuf};

use super::key_in_use::KeyInUse;
use crate::cli::kubeconfig::save;
use crate::config::{Config, ObjectId, Uri};
use crate::error::Error;
use crate::kubeconfig::{
    Context, KubeconfigError, KubeconfigFile, OF_OBJECT, ProviderConfig, file_for,
};
use crate::printable::printable;
use crate::process::signals::{Deferral, is_interrupted};
use crate::protocol::Configuration;
use crate::report;

/// The key that a context is to use, and where its certificate is if not beside it.
pub(super) struct Successor<'a> {
    pub(super) id: &'a ObjectId,
    /// For the comment in the kubeconfig.
    pub(super) words: String,
    pub(super) certificate_file: Option<&'a Path>,
}

impl Successor<'_> {
    /// A configuration that names this key in place of another one of its token.
    pub(super) fn in_place(&self, mut map: Configuration) -> Configuration {
        let settings = self.settings(&map);
        for key in OF_OBJECT {
            drop(map.take(key));
        }
        for (key, value) in settings.pairs() {
            map.set(key, value);
        }
        map
    }

    /// What takes the place of what a configuration says of the object.
    fn settings(&self, old: &Configuration) -> ProviderConfig {
        let mut config = ProviderConfig::default();
        match old.value("uri").and_then(|uri| Uri::parse(uri).ok()) {
            Some(uri) => {
                let uri = Uri { id: Some(self.id.clone()), object: None, ..uri };
                config.set("uri", Some(uri.to_string()));
            }
            None => config.set_explained("objectId", &self.id.to_string(), self.words.clone()),
        }
        let file = self.certificate_file.map(Path::to_string_lossy);
        config.set("certificateFile", file);
        config
    }
}

/// The user of the key's context, and the file that it is in.
pub(super) struct ContextUser {
    path: PathBuf,
    name: String,
    configuration: Configuration,
}

impl ContextUser {
    /// # Errors
    /// The kubeconfig can't be written, or the context's user isn't one of this program.
    pub(super) fn of(key: &KeyInUse<'_>, kubeconfig: Option<&Path>) -> Result<Self, Error> {
        let context = &key.cluster.context;
        let configuration = key.cluster.kubeconfig.key_of(context)?;
        let locations = crate::cli::locations(kubeconfig);
        let path = file_for(&locations, |it| it.has_user(&context.user))?;
        Ok(Self {
            path: path.ok_or_else(|| KubeconfigError::Missing { paths: Vec::new() })?,
            name: context.user.clone(),
            configuration,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Has every context of this user use the successor.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn hand_over(&self, successor: &Successor<'_>) -> Result<(), Error> {
        let uri = self.configuration.value("uri").map(Uri::parse);
        if let Some(Ok(Uri { pin_value: Some(_), .. })) = uri {
            report::warning(
                "the PIN that stands in the kubeconfig's URI is not taken over: it will be asked for, \
                 unless pinSource says where it comes from",
            );
        }
        // A lock that stays behind would keep kubectl from the file.
        let _deferral = Deferral::for_files();
        let mut file = KubeconfigFile::open(&self.path, is_interrupted)?;
        file.set_object(&self.name, &successor.settings(&self.configuration))?;
        save(file, &format!("user \"{}\"", printable(&self.name)))
    }

    /// The contexts of other users that use the key with this CKA_ID on the same token.
    pub(super) fn others_with(&self, key: &KeyInUse<'_>, id: &[u8]) -> Vec<String> {
        let kubeconfig = &key.cluster.kubeconfig;
        let parsed = |map: &Configuration| Config::from_map(&mut map.clone()).ok();
        let Some(own) = parsed(&key.map) else {
            return Vec::new();
        };
        let uses = |context: &Context| {
            let other = kubeconfig.key_of(context).ok().and_then(|map| parsed(&map));
            other.is_some_and(|other| {
                other.library.path() == own.library.path()
                    && other.token == own.token
                    && other.object.id.is_some_and(|it| it.as_bytes() == id)
            })
        };
        let mut contexts = kubeconfig.contexts();
        contexts.retain(|it| it.user != self.name && uses(it));
        contexts.into_iter().map(|it| it.name).collect()
    }
}
