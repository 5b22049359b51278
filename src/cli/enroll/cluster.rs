//! The cluster's own CA: whom it takes the person for, the request that it answers, and the context that uses
//! the key in the end.

use std::sync::Arc;

use super::EnrollArguments;
use super::file::IssuedFile;
use crate::certificate::PublicKey;
use crate::cli::connection_log::ConnectionLog;
use crate::cli::issuance::{
    Inquiry, IssuanceError, RequestStanding, WantedCertificate, obtain, request_name, standing,
};
use crate::cli::kubeconfig::{ContextKey, use_in_context};
use crate::cli::selection::Selection;
use crate::cluster_api::{
    ClusterUser, Kubectl, Recognition, may_with_signing_requests, self_subject_review, whoami,
};
use crate::config::{Config, TokenName};
use crate::enrollment::{Applicant, Csr};
use crate::error::Error;
use crate::keyring::Keyring;
use crate::kubeconfig::{Context, Provider};
use crate::pipeline::Library;
use crate::process::environment::TakenVariables;
use crate::process::watchdog;
use crate::report;
use crate::token::{AcceptedPin, FoundKey};
use crate::tunnel::{TunnelObserver, TunnelTarget};

/// A cluster that is asked with the credentials that the person has now.
pub(super) struct AskedCluster {
    kubectl: Kubectl,
    context: Context,
    applicant: Applicant,
}

impl AskedCluster {
    /// Asks who the person is and what they may do; `None` if the context uses a key on a token already.
    ///
    /// # Errors
    /// No kubectl, no context, a cluster that doesn't know the person, names that can't be asked for, or no
    /// right to make requests.
    pub(super) fn find(arguments: &EnrollArguments) -> Result<Option<Self>, Error> {
        let options = &arguments.key_options;
        let kubeconfig = options.kubeconfig()?;
        let context = kubeconfig.selected_context()?;
        if matches!(kubeconfig.provider(&context.user)?, Provider::ExternalSigner(_)) {
            return Ok(None);
        }
        let kubectl = Kubectl::find(
            &kubeconfig,
            options.kubeconfig.as_deref(),
            options.context.as_deref(),
            report::passed_on,
        )?;
        let known = match self_subject_review(&kubectl)? {
            Recognition::User(user) => user,
            Recognition::NotTold => ClusterUser::default(),
        };
        let is_same = arguments.user.as_ref().is_none_or(|it| *it == known.name);
        let user = arguments.user.clone().unwrap_or_else(|| known.name.clone());
        let groups = match arguments.groups.as_slice() {
            [] if is_same => known.own_groups(),
            groups => groups.to_owned(),
        };
        let applicant = Applicant::new(user, groups)?;
        for verb in ["create", "get"] {
            if !may_with_signing_requests(&kubectl, verb)? {
                let user = known.name;
                return Err(IssuanceError::NotAllowed { user, verb }.into());
            }
        }
        Ok(Some(Self { kubectl, context, applicant }))
    }

    pub(super) fn context(&self) -> &str {
        &self.context.name
    }

    pub(super) fn applicant(&self) -> &Applicant {
        &self.applicant
    }

    fn wanted<'a>(
        &'a self,
        arguments: &EnrollArguments,
        key: &'a PublicKey,
    ) -> Result<WantedCertificate<'a>, Error> {
        Ok(WantedCertificate {
            name: request_name(self.applicant.user(), key, None)?,
            applicant: &self.applicant,
            public_key: key,
            duration: arguments.duration,
        })
    }

    fn inquiry<'a>(&'a self, arguments: &'a EnrollArguments) -> Inquiry<'a> {
        Inquiry {
            api: &self.kubectl,
            context: &self.context.name,
            kubeconfig: arguments.key_options.kubeconfig.as_deref(),
            wait: arguments.wait,
            again: arguments.again,
        }
    }

    /// The name of the key's request, and whether it is in the cluster already.
    ///
    /// # Errors
    /// It has come to nothing; those of the cluster.
    pub(super) fn request(
        &self,
        arguments: &EnrollArguments,
        key: &PublicKey,
    ) -> Result<(String, bool), Error> {
        let wanted = self.wanted(arguments, key)?;
        let standing = standing(&wanted, &self.inquiry(arguments))?;
        let is_there = !matches!(standing, RequestStanding::Absent(_));
        Ok((standing.name().to_owned(), is_there))
    }

    /// The certificate that the cluster issues for the key.
    ///
    /// # Errors
    /// Those of the cluster and of `sign`; it issues none.
    pub(super) fn obtain(
        &self,
        arguments: &EnrollArguments,
        key: &PublicKey,
        sign: impl FnOnce() -> Result<Csr, Error>,
    ) -> Result<IssuedFile, Error> {
        let wanted = self.wanted(arguments, key)?;
        let issued = obtain(&wanted, &self.inquiry(arguments), sign)?;
        Ok(IssuedFile::of_cluster(&issued))
    }
}

/// What names the key.
pub(super) fn selection(library: &Library, token: &TokenName, key: &FoundKey) -> Selection {
    let object = key.selector();
    let said = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
    Selection {
        module: Some(library.module.path().to_string_lossy().into_owned()),
        token_label: said(&token.label),
        token_serial: said(&token.serial),
        object_id: object.id.map(|id| id.to_string()),
        object_label: object.label,
        ..Selection::default()
    }
}

/// Has the context use the key from now on.
///
/// # Errors
/// Those of `kubeconfig --write --context`.
pub(super) fn write_context(
    arguments: &EnrollArguments,
    selection: Selection,
    certificate_file: Option<String>,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let options = &arguments.key_options;
    let context = options.kubeconfig()?.selected_context()?.name;
    let key = ContextKey {
        selection: Selection {
            module: options.selection.module.clone().or(selection.module),
            init_args: options.selection.init_args.clone(),
            ..selection
        },
        certificate_file,
        pin_source: options.pin_source.clone(),
        context,
        kubeconfig: options.kubeconfig.clone(),
    };
    use_in_context(key, opened)
}

/// Connects to the cluster with the key that the context uses: the last line of an enrollment.
///
/// # Errors
/// Those of the key and the connection; the cluster knows the key's user by another name.
pub(super) fn proof(
    arguments: &EnrollArguments,
    opened: &mut Option<Library>,
    accepted: Option<AcceptedPin>,
    variables: &TakenVariables,
    keyring: &Arc<Keyring>,
) -> Result<String, Error> {
    let options = &arguments.key_options;
    let mut source = options.source_of_context()?;
    let selected =
        source.context.ok_or_else(|| Error::internal("a context's key without the context"))?;
    let name = &selected.context.cluster;
    let target = TunnelTarget {
        name: name.clone(),
        cluster: selected.kubeconfig.cluster(name)?,
        heeds_environment: true,
    };
    let server = target.cluster.server.clone();
    let config = Config::from_map(&mut source.configuration)?;
    watchdog::stop();
    let key = match opened.take() {
        Some(library) => keyring.add_open(config, library, accepted)?,
        None => keyring.add(config, variables)?,
    };
    let observer: Arc<dyn TunnelObserver> = Arc::new(ConnectionLog);
    match whoami(target, key, keyring, &observer)? {
        Recognition::User(user) => Ok(format!(
            "{server} knows us as user \"{}\", groups {}",
            user.name,
            user.groups.join(", ")
        )),
        Recognition::NotTold => Ok(format!("{server} was reached")),
    }
}
