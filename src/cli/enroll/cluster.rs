//! The cluster's own CA: whom it takes the person for, and the context that uses the key in the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EnrollArguments;
use crate::cli::context_key::ContextEntries;
use crate::cli::issuance::prove;
use crate::cli::key_choice::{tried, user_name};
use crate::cli::key_options::KeyOptions;
use crate::cli::listing::ListQuery;
use crate::cli::selection::Selection;
use crate::cluster_api::Kubectl;
use crate::config::{Config, Filter, TokenName};
use crate::enrollment::Applicant;
use crate::error::{Error, Exit};
use crate::keyring::Keyring;
use crate::kubeconfig::Provider;
use crate::library::Library;
use crate::process::environment::TakenVariables;
use crate::process::watchdog;
use crate::token::{AcceptedPin, KeyReference};

/// A cluster that is asked with the credentials that the person has now.
pub(super) struct IssuingCluster {
    pub(super) kubectl: Kubectl,
    pub(super) context: String,
    pub(super) applicant: Applicant,
}

impl IssuingCluster {
    /// Asks who the person is and what they may do; `None` if the context uses this key, or unless one is named any key
    /// on a token already.
    pub(super) fn find(arguments: &EnrollArguments) -> Result<Option<Self>, Error> {
        let options = &arguments.key_options;
        let kubeconfig = options.kubeconfig()?;
        let context = kubeconfig.selected_context()?;
        if let Provider::ExternalSigner(mut present) = kubeconfig.provider(&context.user)? {
            let named = Filter::from_map(&mut options.configuration())?.object.id;
            let named = named.or_else(|| arguments.piv.slot.map(|slot| slot.id()));
            if named.is_none() || Filter::from_map(&mut present)?.object.id == named {
                return Ok(None);
            }
        }
        let (file, name) = (options.kubeconfig.as_deref(), options.context.as_deref());
        let kubectl = Kubectl::find(&kubeconfig, file, name)?;
        let known = kubectl.whoami()?;
        let is_same = arguments.user.as_ref().is_none_or(|it| *it == known.name);
        let user = arguments.user.clone().unwrap_or_else(|| known.name.clone());
        let groups = match arguments.groups.as_slice() {
            [] if is_same => known.assigned_groups(),
            groups => groups.to_owned(),
        };
        let applicant = Applicant::new(user, groups)?;
        for verb in ["create", "get"] {
            if !kubectl.may(verb)? {
                let text = format!(
                    "user \"{}\" may not {verb} CertificateSigningRequests in the cluster",
                    known.name
                );
                return Err(Error::new(Exit::Cluster, text).help(
                    "have an administrator of the cluster allow create and get on \
                     certificatesigningrequests.certificates.k8s.io; with --csr the request goes to another CA",
                ));
            }
        }
        Ok(Some(Self { kubectl, context: context.name, applicant }))
    }
}

/// Has the context use the key of this token from now on.
pub(super) fn write_context(
    arguments: &EnrollArguments,
    context: &str,
    token: TokenName,
    key: &KeyReference,
    certificate_file: Option<PathBuf>,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let KeyOptions { selection, pin_source, kubeconfig, .. } = &arguments.key_options;
    let object = key.selector.clone();
    let given = |text: String| Some(text).filter(|it| !it.is_empty());
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let found = opened.as_ref().map(|library| path(library.module.path()));
    let selection = Selection {
        module: selection.module.clone().or(found),
        init_args: selection.init_args.clone(),
        token_label: given(token.label),
        token_serial: given(token.serial),
        object_id: object.id.map(|id| id.to_string()),
        object_label: object.label,
        ..Selection::default()
    };
    let certificate_file = certificate_file.as_deref().map(path);
    let options = &KeyOptions { selection, certificate_file, ..KeyOptions::default() };
    let query = ListQuery { options, login: None, verbosity: 0 };
    let listing = query.look(opened)?;
    let (library, token, key) = query.choose(&listing)?;
    let certificate_file = options.certificate_file.as_deref();
    let key = &tried(certificate_file, (library, token, key), opened)?;
    ContextEntries {
        context,
        kubeconfig: kubeconfig.as_deref(),
        user: user_name(None, key)?,
        is_user_named: false,
        key: (library, token, key),
        certificate_file,
        pin_source: pin_source.as_deref(),
        keep: None,
    }
    .write()
}

/// Connects to the cluster with the key that the context uses: the last line of an enrollment.
pub(super) fn proof(
    arguments: &EnrollArguments,
    opened: &mut Option<Library>,
    accepted: Option<AcceptedPin>,
    variables: &TakenVariables,
    keyring: &Arc<Keyring>,
) -> Result<String, Error> {
    let mut source = arguments.key_options.source_of_context()?;
    let context = source.context.ok_or_else(|| Error::internal("a key without its context"))?;
    let config = Config::from_map(&mut source.configuration)?;
    watchdog::stop();
    if let Some(library) = opened.take() {
        keyring.take_over(&config, library, accepted)?;
    }
    let key = keyring.add(config, variables)?;
    let known = prove(&context, key, keyring, None)?;
    Ok(known.describe(&context.target()?.cluster.server))
}
