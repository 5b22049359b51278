//! `enroll` with the cluster's own CA: the key, the certificate that the cluster issues for it, and the context that uses
//! both, once the cluster knows their bearer.
//!
//! The phases, each a type: a [`KeyEnrollment`] has the key on its token, a [`CertifiedKey`] has its new certificate, too,
//! and a [`ContextEnrollment`] leads from one to the other and has the context use the key.

use std::path::PathBuf;

use super::choice::{choose, chosen_yubikey};
use super::cluster::{IssuingCluster, is_applicant, known_as};
use super::key::{AttestedApplicant, EnrolledKey};
use super::plan::CertifyPlan;
use super::token::Enrollment;
use crate::cli::issuance::Issuance;
use crate::cli::key::context::{ContextEntries, check_change};
use crate::cli::key::options::SelectedContext;
use crate::cli::session::{CommandSession, StartingSession, Step};
use crate::enrollment::Applicant;
use cluster_api::{ClusterUser, Kubectl, kind};
use config::Config;
use config::pin::Pin;
use messages::error::Error;
use messages::report;
use protocol::Configuration;
use system::environment::TakenVariables;
use token::KeyReference;

/// The context that is to use the key, once its cluster knows the bearer.
pub(super) struct ContextEnrollment<'a> {
    plan: &'a CertifyPlan,
    selected: SelectedContext,
    /// The URL of the context's API server.
    server: String,
    variables: TakenVariables,
}

/// The applicant's key on its token, which no other process uses.
struct KeyEnrollment<'a> {
    enrollment: Enrollment<'a>,
    key: KeyReference,
    /// Whether the key has a valid certificate already, and the plan names no other one.
    is_certified: bool,
    attested: AttestedApplicant,
}

/// The result of trying the certificate that the key had already.
enum Trial<'a> {
    /// The context uses it.
    Finished,
    /// The key has none, or the cluster takes its bearer for nobody, or for somebody else.
    Unsuited(Box<KeyEnrollment<'a>>),
}

/// A key on its token, with a certificate that the cluster has just issued.
struct CertifiedKey<'a> {
    enrollment: Enrollment<'a>,
    key: KeyReference,
    /// Where the certificate is, if it isn't on the token.
    file: Option<PathBuf>,
    applicant: Applicant,
}

impl<'a> ContextEnrollment<'a> {
    /// Prepares the enrollment for the context that the plan selects, and returns it with the session in which it can
    /// [run](Self::run).
    pub(super) fn begin<'s>(
        plan: &'a CertifyPlan,
        start: StartingSession<'s>,
    ) -> Result<(Self, &'s mut CommandSession), Error> {
        let options = &plan.token.options;
        let selected = options.selected()?;
        let server = selected.target()?.cluster.server;
        // The context's own key may be the one with which the cluster is asked.
        let present = options.key_of_context(&selected).ok().filter(|_| !options.names_a_key());
        let (session, variables) =
            start.take_pin_variable(present.unwrap_or_else(|| options.configuration()));
        Ok((Self { plan, selected, server, variables }, session))
    }

    /// Finds or makes the key, has the cluster issue its certificate, and has the context use both. Says so if nothing is
    /// left to do.
    pub(super) fn run(&self, session: &mut CommandSession) -> Result<(), Error> {
        let chosen = chosen_yubikey(&self.plan.token, session)?;
        let found = IssuingCluster::find(self.plan, &self.selected, &self.variables, session)?;
        let Some(mut cluster) = found else { return self.show_present(session) };
        // This comes before anybody is asked to approve.
        check_change(self.plan.token.options.kubeconfig.as_deref(), self.name())?;
        let config = match cluster.key.take().or(chosen) {
            Some(config) => config,
            None => choose(&self.plan.token, None, session)?,
        };
        let subject = self.enroll_key(&cluster, config, session)?;
        match self.try_present_certificate(subject, session)? {
            Trial::Finished => Ok(()),
            Trial::Unsuited(subject) => {
                let certified = subject.obtain(self.plan, &cluster.kubectl, session)?;
                self.use_new_certificate(certified, session)
            }
        }
    }

    fn name(&self) -> &str {
        &self.selected.context.name
    }

    /// Says that nothing is left to do: the context has the key, and the cluster knows its bearer.
    fn show_present(&self, session: &mut CommandSession) -> Result<(), Error> {
        let key = self.plan.token.options.key_of_context(&self.selected)?;
        let known = self.known_as(key, None, session)?;
        let text = format!("\"{}\" uses a key on a token already", self.name());
        session.output.step(&Step { title: "context", text })?;
        self.show_user(&known, session)
    }

    /// Opens the token of this configuration, and finds or makes the key there.
    fn enroll_key(
        &self,
        cluster: &IssuingCluster,
        config: Config,
        session: &mut CommandSession,
    ) -> Result<KeyEnrollment<'a>, Error> {
        let (plan, applicant) = (self.plan, &cluster.applicant);
        let user = applicant.user();
        let mut enrollment = Enrollment::open(&plan.token, config, user, &self.variables, session)?;
        let EnrolledKey { key, is_certified } =
            match replaced_before(&mut enrollment, plan, cluster)? {
                Some(replaced) => replaced,
                None => enrollment.key(&plan.key, applicant)?,
            };
        enrollment.show(&mut session.output)?;
        let attested = enrollment.attest(&plan.attestation, &key, applicant)?;
        enrollment.show(&mut session.output)?;
        Ok(KeyEnrollment { enrollment, key, is_certified, attested })
    }

    /// Tries the certificate that the key has already with the cluster, and has the context use it if the cluster knows the
    /// applicant by it. An earlier call may have got so far, or the certificate may be for another cluster.
    fn try_present_certificate(
        &self,
        subject: KeyEnrollment<'a>,
        session: &mut CommandSession,
    ) -> Result<Trial<'a>, Error> {
        if !subject.is_certified {
            return Ok(Trial::Unsuited(Box::new(subject)));
        }
        let KeyEnrollment { enrollment, key, attested, .. } = subject;
        let applicant = &attested.applicant;
        let user = applicant.user();
        let certificate = enrollment.installed(&key, Some(user))?;
        let ready = enrollment.key_for_context(&key, None, session)?;
        let entries = ready.entries(self.name(), user, self.plan.keep)?;
        let paused = enrollment.pause();
        let known = self.known_as(entries.configuration(), paused.accepted_pin(), session);
        let Some(reason) = self.why_unsuited(&known, applicant) else {
            let known = known?;
            session.output.step(&certificate)?;
            self.finish(&entries, &known, session)?;
            return Ok(Trial::Finished);
        };
        report::note(&format!(
            "another certificate is asked for: with the key's own one, {reason}"
        ));
        let mut enrollment = paused.resume(user, session)?;
        let key = enrollment.key_again(&key)?;
        let subject = KeyEnrollment { enrollment, key, is_certified: false, attested };
        Ok(Trial::Unsuited(Box::new(subject)))
    }

    /// Why the certificate with which the cluster was asked doesn't suit: the cluster knows nobody by it, or somebody else.
    /// `None` if the cluster knows the applicant, or if asking has failed.
    fn why_unsuited(
        &self,
        known: &Result<ClusterUser, Error>,
        applicant: &Applicant,
    ) -> Option<String> {
        match known {
            Ok(known) if is_applicant(known, applicant) => None,
            Ok(known) => Some(known.describe(&self.server)),
            Err(error) if error.is(&kind::NOT_RECOGNISED) => Some(error.to_string()),
            Err(_) => None,
        }
    }

    /// Has the context use the key with its new certificate, once the cluster knows the bearer.
    fn use_new_certificate(
        &self,
        certified: CertifiedKey<'_>,
        session: &mut CommandSession,
    ) -> Result<(), Error> {
        let CertifiedKey { enrollment, key, file, applicant } = certified;
        let ready = enrollment.key_for_context(&key, file, session)?;
        let entries = ready.entries(self.name(), applicant.user(), self.plan.keep)?;
        let paused = enrollment.pause();
        match self.known_as(entries.configuration(), paused.accepted_pin(), session) {
            Ok(known) => self.finish(&entries, &known, session),
            Err(error) => {
                report::note(&format!("context \"{}\" stays as it was", self.name()));
                Err(error)
            }
        }
    }

    /// Asks the context's cluster for which user it takes the bearer of this key.
    fn known_as(
        &self,
        key: Configuration,
        accepted: Option<Pin>,
        session: &mut CommandSession,
    ) -> Result<ClusterUser, Error> {
        known_as(self.selected.target()?, key, accepted, &self.variables, session)
    }

    /// Writes the context, and says what can be done next.
    fn finish(
        &self,
        entries: &ContextEntries<'_>,
        known: &ClusterUser,
        session: &mut CommandSession,
    ) -> Result<(), Error> {
        self.show_user(known, session)?;
        entries.write(&mut session.output)
    }

    /// Prints for whom the cluster takes the bearer of the key.
    fn show_user(&self, known: &ClusterUser, session: &mut CommandSession) -> Result<(), Error> {
        session.output.step(&Step { title: "cluster", text: known.describe(&self.server) })
    }
}

impl<'a> KeyEnrollment<'a> {
    /// Has the cluster issue the key's certificate, and puts it beside the key or into a file. Other processes can use the
    /// token while this waits for the approval.
    fn obtain(
        self,
        plan: &CertifyPlan,
        kubectl: &Kubectl,
        session: &mut CommandSession,
    ) -> Result<CertifiedKey<'a>, Error> {
        let Self { enrollment, key, attested, .. } = self;
        let AttestedApplicant { applicant, attestation } = attested;
        let issuance = Issuance {
            api: kubectl,
            applicant: &applicant,
            public_key: &key.public_key,
            duration: plan.issuance.duration,
            renewed: None,
            attestation: attestation.as_ref(),
        };
        let mut shared = enrollment.share();
        let issued = issuance.obtain(&plan.issuance, &mut session.output, || {
            shared.while_locked(|token| token.sign_request(&applicant, attestation.as_ref(), &key))
        })?;
        let mut enrollment = shared.lock()?;
        let installed = enrollment.install(&issued, &key, plan.other);
        enrollment.show(&mut session.output)?;
        Ok(CertifiedKey { enrollment, key, file: installed?, applicant })
    }
}

/// The key that the same command has made before in the place of another one; `None` if there is no such key, or the
/// cluster has no request for it.
fn replaced_before(
    enrollment: &mut Enrollment<'_>,
    plan: &CertifyPlan,
    cluster: &IssuingCluster,
) -> Result<Option<EnrolledKey>, Error> {
    let applicant = &cluster.applicant;
    let Some(key) = enrollment.replacement(&plan.key, applicant) else { return Ok(None) };
    let issuance = Issuance {
        api: &cluster.kubectl,
        applicant,
        public_key: &key.public_key,
        duration: plan.issuance.duration,
        renewed: None,
        attestation: None,
    };
    let Some(request) = issuance.requested()?.last else { return Ok(None) };
    let request = format!("the request {}", request.metadata.name);
    enrollment.go_on_with(&plan.key, key, &request).map(Some)
}
