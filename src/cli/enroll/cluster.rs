//! The cluster's own CA: whom it takes the person for, and the context that uses the key in the end.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;

use super::EnrollArguments;
use super::token::Enrollment;
use crate::certificate::{Certificate, of_subject};
use crate::cli::context_key::ContextEntries;
use crate::cli::issuance::{APPLY, right_to_request};
use crate::cli::key_choice::names_key;
use crate::cli::key_options::{KeyOptions, SelectedContext, Selection};
use crate::cli::listing::{Listing, list_library};
use crate::cli::session::CommandSession;
use crate::cluster_api::{ClusterUser, Kubectl, ResourceAttributes, may, whoami};
use crate::config::{Config, Filter, Keep, TokenSelector, key_selection};
use crate::enrollment::Applicant;
use crate::error::{Error, Exit, Help, PROGRAM};
use crate::kubeconfig::{EntryKind, Kubeconfig, OriginalContext, Provider};
use crate::pin::Pin;
use crate::pin_entry::Sources;
use crate::process::environment::TakenVariables;
use crate::process::unix_time;
use crate::protocol::Configuration;
use crate::report;
use crate::token::{KeyReference, PivSlot};
use crate::tunnel::TunnelTarget;

/// A cluster that is asked with the credentials that the person has now.
pub(super) struct IssuingCluster {
    pub(super) kubectl: Kubectl,
    pub(super) applicant: Applicant,
    /// The context's key, if its certificate has expired.
    pub(super) key: Option<Config>,
}

impl IssuingCluster {
    /// Asks who the person is and what they may do; `None` if the context uses the key that is named, or unless one is named
    /// any key on a token already. If that key's certificate has expired, the user is asked that the context had before.
    pub(super) fn find(
        arguments: &EnrollArguments,
        SelectedContext { kubeconfig, context }: &SelectedContext,
        variables: &TakenVariables,
        session: &mut CommandSession,
    ) -> Result<Option<Self>, Error> {
        let options = &arguments.key_options;
        let mut expired = None;
        if let Provider::ExternalSigner(present) = kubeconfig.provider(&context.user)?
            && is_meant(arguments, &present, session)?
        {
            expired = expired_key(options.overridden(present), variables, session)?;
            if expired.is_none() {
                return Ok(None);
            }
        }
        let before = expired.as_ref().map(|(_, it)| before(kubeconfig, &context.name, it));
        let before = before.transpose()?;
        let kubectl = Kubectl::new(&context.name, options.kubeconfig.as_deref(), before.as_ref());
        let known = whoami(&kubectl)?;
        let (key, (user, groups)) = match expired {
            Some((key, Certificate { user, groups, .. })) => {
                (Some(key), (user.unwrap_or_default(), groups))
            }
            None => (None, (known.name.clone(), known.assigned_groups())),
        };
        let is_same = arguments.user.as_ref().is_none_or(|it| *it == user);
        let groups = match arguments.groups.as_slice() {
            [] if is_same => groups,
            groups => groups.to_owned(),
        };
        let applicant = Applicant::new(arguments.user.clone().unwrap_or(user), groups)?;
        for verb in ["create", "get"] {
            if !may(&kubectl, &ResourceAttributes::of_requests(verb))? {
                let text = format!(
                    "user \"{}\" may not {verb} CertificateSigningRequests in the cluster",
                    known.name
                );
                let help = Help::from(format!(
                    "have any other CA issue the certificate, for the request that `{PROGRAM} enroll --user NAME --csr FILE` writes; or {APPLY}:"
                ));
                let help = help.with_candidates(&right_to_request(&known.name));
                return Err(Error::new(Exit::Cluster, text).help(help));
            }
        }
        Ok(Some(Self { kubectl, applicant, key }))
    }
}

/// Whether the options name the key that the context has, which is at hand then, or none.
fn is_meant(
    arguments: &EnrollArguments,
    present: &Configuration,
    session: &mut CommandSession,
) -> Result<bool, Error> {
    let options = &arguments.key_options;
    if !options.names_a_key() && arguments.slot.is_none() {
        return Ok(true);
    }
    let mut wanted = options.filter()?.object;
    wanted.id = wanted.id.or_else(|| arguments.slot.map(PivSlot::id));
    let listing = options.of_token().list(None, session)?;
    // The present key may be in another one.
    session.close_library();
    Ok(listing.keys().any(|it| it.2.fits(&wanted) && names_key(&mut present.clone(), it)))
}

/// The key of this configuration and its certificate, if that has expired.
fn expired_key(
    mut map: Configuration,
    variables: &TakenVariables,
    session: &mut CommandSession,
) -> Result<Option<(Config, Certificate)>, Error> {
    let config = Config::from_map(&mut map.clone())?;
    let library = session.open(&config)?;
    // Where the certificate is hidden.
    let pins = Sources::new(Config::from_map(&mut map)?.pin, variables);
    let mut pins = library.lock.asking_unlocked(&config.library, pins);
    let mut token = library.token(&config.token)?;
    let identity = token.identity(&config, Some(&mut pins));
    token.close();
    // kubectl may need it, too.
    library.lock.release();
    let certificate = identity?.certificate;
    Ok(certificate.check_end(unix_time()).is_err().then_some((config, certificate)))
}

/// Whom the cluster is asked by, in place of the key with this certificate.
fn before(
    kubeconfig: &Kubeconfig,
    context: &str,
    certificate: &Certificate,
) -> Result<OriginalContext, Error> {
    let concern = certificate.validity.concern(unix_time()).unwrap_or_default();
    let expired = of_subject(&certificate.subject, concern);
    let present = kubeconfig.context(context)?.user;
    let has_user = |it: &OriginalContext| {
        let user = it.user.as_ref().filter(|user| **user != present);
        user.is_some_and(|user| kubeconfig.has(EntryKind::User, user))
    };
    let Some(original) = kubeconfig.original(context).ok().filter(has_user) else {
        let text = format!("{expired}, and context \"{context}\" had no other user before");
        return Err(Error::new(Exit::Object, text).help(format!(
            "have its CA issue another one: `{PROGRAM} enroll --user NAME --csr FILE`, then `{PROGRAM} enroll \
             --certificate FILE`"
        )));
    };
    let user = original.user.as_deref().unwrap_or_default();
    report::note(&format!(
        "{expired}; another one is asked for by user \"{user}\", which context \"{context}\" had before"
    ));
    Ok(original)
}

/// A key of the token that is enrolled, as a context is to use it.
pub(super) struct KeyForContext {
    options: KeyOptions,
    listing: Listing,
}

impl Enrollment<'_> {
    /// This key, with the certificate in the file if there is one.
    pub(super) fn key_for_context(
        &mut self,
        key: &KeyReference,
        file: Option<PathBuf>,
        session: &mut CommandSession,
    ) -> Result<KeyForContext, Error> {
        let mut options = self.arguments.key_options.clone();
        options.certificate_file = file.map(|it| it.to_string_lossy().into_owned());
        options.selection = Selection {
            object_id: key.selector.id.as_ref().map(ToString::to_string),
            object_label: key.selector.label.clone(),
            ..Selection::default()
        };
        let Config { library, init_args, .. } = &self.config;
        let named = self.arguments.key_options.library();
        let path = named.unwrap_or_else(|| library.path().to_string_lossy().into());
        let slot = Some(self.token.state().name.slot);
        let filter = Filter {
            library: None,
            init_args: init_args.clone(),
            token: TokenSelector { slot, ..TokenSelector::default() },
            object: key.selector.clone(),
        };
        let library = list_library(&path, library, &filter, None, Some(&self.token), session)?;
        Ok(KeyForContext { options, listing: Listing::new(vec![library]) })
    }
}

impl KeyForContext {
    /// What the context is given.
    pub(super) fn entries<'a>(
        &'a self,
        context: &'a str,
        user: &'a str,
        keep: Option<Keep>,
    ) -> Result<ContextEntries<'a>, Error> {
        let usual_keep = File::open("/dev/tty").is_ok().then_some(Keep::Terminal);
        Ok(ContextEntries {
            context,
            options: &self.options,
            user,
            is_user_named: false,
            key: self.options.choose(&self.listing)?,
            keep,
            usual_keep,
        })
    }
}

/// For whom the cluster takes the bearer of this key, which is connected to with it.
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

/// Whether this is the user, in the groups, that a certificate is asked for.
pub(super) fn is_applicant(known: &ClusterUser, applicant: &Applicant) -> bool {
    let groups = known.assigned_groups();
    let [groups, wanted] =
        [&*groups, applicant.groups()].map(|it| it.iter().collect::<BTreeSet<_>>());
    known.name == applicant.user() && groups == wanted
}
