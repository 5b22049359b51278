//! The cluster whose own CA issues the certificate: whom it takes the person for, and the context that uses the key in
//! the end.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

use super::plan::{CertifiedUser, CertifyPlan, TokenPlan, UsualUser};
use super::token::Enrollment;
use super::touch::SUFFIX;
use crate::cli::issuance::{APPLY, right_to_request};
use crate::cli::key::choice::names_key;
use crate::cli::key::context::ContextEntries;
use crate::cli::key::options::{KeyOptions, SelectedContext, Selection};
use crate::cli::listing::{Listing, list_library};
use crate::cli::session::CommandSession;
use crate::enrollment::{Applicant, for_any_key};
use cluster_api::{ClusterUser, Kubectl, ResourceAttributes, may, whoami};
use config::pin::Pin;
use config::{Config, Filter, Keep, TokenSelector, key_selection};
use crypto::certificate::{Certificate, of_subject};
use kubeconfig::{EntryKind, Kubeconfig, OriginalContext, Provider};
use messages::error::{Error, Exit};
use messages::help::{Help, command};
use messages::report;
use pin_entry::Sources;
use protocol::Configuration;
use system::clock::unix_time;
use system::environment::TakenVariables;
use token::{KeyReference, PivSlot};
use tunnel::TunnelTarget;

/// A cluster that is asked with the credentials that the person has now.
pub(super) struct IssuingCluster {
    pub(super) kubectl: Kubectl,
    pub(super) applicant: Applicant,
    /// The context's key, if its certificate has expired.
    pub(super) key: Option<Config>,
}

impl IssuingCluster {
    /// Asks the cluster who the person is and what they may do. `None` if the context already uses the key that the
    /// options name or, if they name none, any key on a token. If the certificate of that key has expired, the cluster
    /// is asked as the user that the context had before.
    pub(super) fn find(
        plan: &CertifyPlan,
        SelectedContext { kubeconfig, context }: &SelectedContext,
        variables: &TakenVariables,
        session: &mut CommandSession,
    ) -> Result<Option<Self>, Error> {
        let options = &plan.token.options;
        let mut expired = None;
        if let Provider::ExternalSigner(present) = kubeconfig.provider(&context.user)?
            && is_meant(&plan.token, &present, session)?
        {
            expired = ExpiredKey::of(options.overridden(present), variables, session)?;
            if expired.is_none() {
                return Ok(None);
            }
        }
        let before = match &expired {
            Some(expired) => Some(user_before(kubeconfig, &context.name, &expired.certificate)?),
            None => None,
        };
        let kubectl = Kubectl::new(&context.name, options.kubeconfig.as_deref(), before.as_ref());
        let known = whoami(&kubectl)?;
        let certificate = expired.as_ref().map(|expired| &expired.certificate);
        let applicant = applicant(&plan.whom, &known, certificate)?;
        check_right_to_request(&kubectl, &known.name)?;
        Ok(Some(Self { kubectl, applicant, key: expired.map(|expired| expired.config) }))
    }
}

/// The user and the groups that the certificate is for: those that the options name, or those of the certificate that
/// has expired, or those that the cluster knows. A user whom an option names doesn't get the groups of the present user, and
/// a new key doesn't get the groups that an attestation opened to the present key.
fn applicant(
    whom: &CertifiedUser,
    known: &ClusterUser,
    expired: Option<&Certificate>,
) -> Result<Applicant, Error> {
    let present_user = match expired {
        Some(certificate) => certificate.user.as_deref().unwrap_or_default(),
        None => &known.name,
    };
    let usual_user = match whom.usual {
        // The user of a certificate that has expired is the second one already.
        UsualUser::SecondOfRequester if expired.is_none() => format!("{present_user}{SUFFIX}"),
        UsualUser::SecondOfRequester | UsualUser::Requester => present_user.to_owned(),
    };
    let user = whom.named.as_ref().unwrap_or(&usual_user);
    let groups = if !whom.groups.is_empty() {
        whom.groups.clone()
    } else if user != present_user {
        Vec::new()
    } else if let Some(certificate) = expired {
        for_any_key(certificate.groups.clone())
    } else {
        for_any_key(known.assigned_groups())
    };
    Applicant::new(user.clone(), groups)
}

/// Fails unless the cluster lets this user make certificate requests and read them.
fn check_right_to_request(kubectl: &Kubectl, user: &str) -> Result<(), Error> {
    for verb in ["create", "get"] {
        if !may(kubectl, &ResourceAttributes::of_requests(verb))? {
            let text =
                format!("user \"{user}\" may not {verb} CertificateSigningRequests in the cluster");
            let help = Help::from("have any other CA issue the certificate, for the request that ")
                .and(command("enroll --user NAME --csr FILE"))
                .and(format!(" writes; or {APPLY}:"));
            let help = help.with_candidates(&right_to_request(user));
            return Err(Error::new(Exit::Cluster, text).help(help));
        }
    }
    Ok(())
}

/// Whether the options name the key that the context has, or none. In the first case the key's token has to be at hand.
fn is_meant(
    plan: &TokenPlan,
    present: &Configuration,
    session: &mut CommandSession,
) -> Result<bool, Error> {
    let options = &plan.options;
    if !options.names_a_key() && plan.slot.is_none() {
        return Ok(true);
    }
    let mut wanted = options.filter()?.object;
    wanted.id = wanted.id.or_else(|| plan.slot.map(PivSlot::id));
    let listing = options.of_token().list(None, session)?;
    // The context's key may be in another library.
    session.close_library();
    Ok(listing
        .keys()
        .any(|selected| selected.key.fits(&wanted) && names_key(&mut present.clone(), selected)))
}

/// A context's key whose certificate has expired.
struct ExpiredKey {
    config: Config,
    certificate: Certificate,
}

impl ExpiredKey {
    /// Reads the certificate of this configuration's key; `None` if it has not expired.
    fn of(
        mut configuration: Configuration,
        variables: &TakenVariables,
        session: &mut CommandSession,
    ) -> Result<Option<Self>, Error> {
        let config = Config::from_map(&mut configuration.clone())?;
        let library = session.open(&config)?;
        // Some tokens hide the certificate until a login.
        let pins = Sources::new(Config::from_map(&mut configuration)?.pin, variables);
        let mut pins = library.lock.asking_unlocked(&config.library, pins);
        let mut token = library.token(&config.token)?;
        let identity = token.identity(&config, Some(&mut pins));
        token.close();
        // kubectl's plugin may need the library, too.
        library.lock.release();
        let certificate = identity?.certificate;
        if certificate.check_end(unix_time()).is_ok() {
            return Ok(None);
        }
        Ok(Some(Self { config, certificate }))
    }
}

/// The user and cluster that the context had before it was given the key with this certificate. The cluster is asked as
/// that user.
fn user_before(
    kubeconfig: &Kubeconfig,
    context: &str,
    certificate: &Certificate,
) -> Result<OriginalContext, Error> {
    let concern = certificate.validity.concern(unix_time()).unwrap_or_default();
    let expired = of_subject(&certificate.subject, concern);
    let present = kubeconfig.context(context)?.user;
    let has_another_user = |original: &OriginalContext| {
        let user = original.user.as_ref();
        user.is_some_and(|user| *user != present && kubeconfig.has(EntryKind::User, user))
    };
    let Some(original) = kubeconfig.original(context).ok().filter(has_another_user) else {
        let text = format!("{expired}, and context \"{context}\" had no other user before");
        let help = Help::from("have its CA issue another one: ")
            .and(command("enroll --user NAME --csr FILE"))
            .and(", then ")
            .and(command("enroll --certificate FILE"));
        return Err(Error::new(Exit::Object, text).help(help));
    };
    let user = original.user.as_deref().unwrap_or_default();
    report::note(&format!(
        "{expired}; another one is asked for by user \"{user}\", which context \"{context}\" had before"
    ));
    Ok(original)
}

/// The enrolled key as a context is to use it.
pub(super) struct KeyForContext {
    options: KeyOptions,
    listing: Listing,
}

impl Enrollment<'_> {
    /// The key for a context, with the certificate of the file if one is given.
    pub(super) fn key_for_context(
        &self,
        key: &KeyReference,
        file: Option<PathBuf>,
        session: &mut CommandSession,
    ) -> Result<KeyForContext, Error> {
        let mut options = self.plan.options.clone();
        options.certificate_file = file.map(|path| path.to_string_lossy().into_owned());
        options.selection = Selection {
            object_id: key.selector.id.as_ref().map(ToString::to_string),
            object_label: key.selector.label.clone(),
            ..Selection::default()
        };
        let library = &self.config.library;
        let named = self.plan.options.library();
        let path = named.unwrap_or_else(|| library.path().to_string_lossy().into());
        let slot = Some(self.token.state().name.slot);
        let filter = Filter {
            library: None,
            init_args: self.config.init_args.clone(),
            token: TokenSelector { slot, ..TokenSelector::default() },
            object: key.selector.clone(),
        };
        let listed = list_library(&path, library, &filter, None, Some(&self.token), session)?;
        Ok(KeyForContext { options, listing: Listing::new(vec![listed]) })
    }
}

impl KeyForContext {
    /// What is written into the context.
    pub(super) fn entries<'a>(
        &'a self,
        context: &'a str,
        user: &'a str,
        keep: Option<Keep>,
    ) -> Result<ContextEntries<'a>, Error> {
        let has_terminal = File::open("/dev/tty").is_ok();
        Ok(ContextEntries {
            context,
            options: &self.options,
            user,
            is_user_named: false,
            key: self.options.choose(&self.listing)?,
            keep,
            usual_keep: has_terminal.then_some(Keep::Terminal),
        })
    }
}

/// Asks the cluster for which user it takes the bearer of this key, over a connection with the key.
pub(super) fn known_as(
    target: TunnelTarget,
    mut key: Configuration,
    accepted: Option<Pin>,
    variables: &TakenVariables,
    session: &mut CommandSession,
) -> Result<ClusterUser, Error> {
    let selection = key_selection(&key);
    let mut pins = Sources::new(Config::from_map(&mut key)?.pin, variables);
    pins.accepted(accepted);
    session.connect(target, selection, &mut pins)?.whoami()
}

/// Whether the cluster knows the bearer as the user, and in the groups, that a certificate is asked for.
pub(super) fn is_applicant(known: &ClusterUser, applicant: &Applicant) -> bool {
    let present: BTreeSet<_> = known.assigned_groups().into_iter().collect();
    let wanted: BTreeSet<_> = applicant.groups().iter().cloned().collect();
    known.name == applicant.user() && present == wanted
}
