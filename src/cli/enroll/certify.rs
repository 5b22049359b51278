//! `enroll` with the cluster's own CA: the key, the certificate that the cluster issues for it, and the context that uses
//! both, once the cluster knows their bearer.

use std::path::PathBuf;

use super::choice::{choose, chosen_yubikey};
use super::cluster::{IssuingCluster, is_applicant, known_as};
use super::key::{AttestedApplicant, EnrolledKey};
use super::plan::CertifyPlan;
use super::token::{Enrollment, PausedEnrollment};
use crate::cli::issuance::{Issuance, IssuedCertificate};
use crate::cli::key::context::{ContextEntries, check_change};
use crate::cli::key::options::SelectedContext;
use crate::cli::session::{CommandSession, Step};
use crate::enrollment::Applicant;
use cluster_api::{ClusterUser, Kubectl, kind};
use config::pin::Pin;
use messages::error::Error;
use messages::report;
use protocol::Configuration;
use system::environment::TakenVariables;
use token::KeyReference;

/// A key, the certificate that the cluster issues for it, and the context that uses both, once the cluster knows their
/// bearer.
pub(super) fn certify(plan: &CertifyPlan, session: &mut CommandSession) -> Result<(), Error> {
    let options = &plan.token.options;
    let selected = &options.selected()?;
    let server = selected.target()?.cluster.server;
    let present = options.key_of_context(selected).ok().filter(|_| !options.names_a_key());
    let variables = &session.take_variables(present.unwrap_or_else(|| options.configuration()));
    let context = ContextEnrollment { plan, selected, server, variables };
    let chosen = chosen_yubikey(&plan.token, session)?;
    let Some(mut cluster) = IssuingCluster::find(plan, selected, variables, session)? else {
        return context.show_present(session);
    };
    // Before anybody is sent for.
    check_change(options.kubeconfig.as_deref(), context.name())?;
    let applicant = &cluster.applicant;
    let config = match cluster.key.take().or(chosen) {
        Some(config) => config,
        None => choose(options, None, session)?,
    };
    let mut enrollment =
        Enrollment::open(&plan.token, config, applicant.user(), variables, session)?;
    let EnrolledKey { mut key, is_certified } =
        match replaced_before(&mut enrollment, plan, &cluster)? {
            Some(replaced) => replaced,
            None => enrollment.key(&plan.key, applicant)?,
        };
    enrollment.show(&mut session.output)?;
    let attested = enrollment.attest(&plan.attestation, &key, applicant)?;
    enrollment.show(&mut session.output)?;
    if is_certified {
        // An earlier call has got so far, or the certificate is for another cluster.
        let applicant = &attested.applicant;
        match context.try_present_certificate(enrollment, &key, applicant, session)? {
            Trial::Finished => return Ok(()),
            Trial::Unsuited(paused) => {
                enrollment = paused.resume(applicant.user(), session)?;
                // It is the one that was shown.
                key = enrollment.key_again(&plan.key, applicant)?;
            }
        }
    }
    // Others can use the token while this waits for people.
    enrollment.lock.release();
    let issued = issue(&mut enrollment, &key, &attested, plan, &cluster.kubectl, session)?;
    let installed = enrollment.install(&issued, &key, plan.other);
    enrollment.show(&mut session.output)?;
    let file = installed?;
    context.use_new_certificate(enrollment, &key, file, &attested.applicant, session)
}

/// The certificate that the cluster issues for the key, once somebody has approved the request.
fn issue(
    enrollment: &mut Enrollment<'_>,
    key: &KeyReference,
    AttestedApplicant { applicant, attestation }: &AttestedApplicant,
    plan: &CertifyPlan,
    kubectl: &Kubectl,
    session: &mut CommandSession,
) -> Result<IssuedCertificate, Error> {
    let issuance = Issuance {
        api: kubectl,
        applicant,
        public_key: &key.public_key,
        duration: plan.issuance.duration,
        renewed: None,
        attestation: attestation.as_ref(),
    };
    issuance.obtain(&plan.issuance, &mut session.output, || {
        enrollment.sign_request(applicant, attestation.as_ref(), key)
    })
}

/// The key that the same command has made before in the place of another one, for a request that the cluster has.
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

/// The context that is to use the key, once its cluster knows the bearer.
struct ContextEnrollment<'a> {
    plan: &'a CertifyPlan,
    selected: &'a SelectedContext,
    /// The URL of the context's API server.
    server: String,
    variables: &'a TakenVariables,
}

/// What came of the certificate that the key had already.
enum Trial<'a> {
    /// The context uses it.
    Finished,
    /// The cluster takes its bearer for nobody, or for somebody else.
    Unsuited(Box<PausedEnrollment<'a>>),
}

impl<'a> ContextEnrollment<'a> {
    fn name(&self) -> &str {
        &self.selected.context.name
    }

    /// Says that nothing is left to do: the context has the key, and the cluster knows its bearer.
    fn show_present(&self, session: &mut CommandSession) -> Result<(), Error> {
        let key = self.plan.token.options.key_of_context(self.selected)?;
        let known = self.known_as(key, None, session)?;
        let text = format!("\"{}\" uses a key on a token already", self.name());
        session.output.step(&Step { title: "context", text })?;
        self.show_user(&known, session)
    }

    /// For whom the context's cluster takes the bearer of this key.
    fn known_as(
        &self,
        key: Configuration,
        accepted: Option<Pin>,
        session: &mut CommandSession,
    ) -> Result<ClusterUser, Error> {
        known_as(self.selected.target()?, key, accepted, self.variables, session)
    }

    /// Tries the certificate beside the key with the cluster, and has the context use it if that knows the applicant by it.
    fn try_present_certificate(
        &self,
        enrollment: Enrollment<'a>,
        key: &KeyReference,
        applicant: &Applicant,
        session: &mut CommandSession,
    ) -> Result<Trial<'a>, Error> {
        let user = applicant.user();
        let certificate = enrollment.installed(key, Some(user))?;
        let ready = enrollment.key_for_context(key, None, session)?;
        let entries = ready.entries(self.name(), user, self.plan.keep)?;
        let paused = enrollment.pause();
        let reason = match self.known_as(entries.configuration(), paused.accepted_pin(), session) {
            Ok(known) if is_applicant(&known, applicant) => {
                session.output.step(&certificate)?;
                self.finish(&entries, &known, session)?;
                return Ok(Trial::Finished);
            }
            Ok(known) => known.describe(&self.server),
            Err(error) if error.is(&kind::NOT_RECOGNISED) => error.to_string(),
            Err(error) => return Err(error),
        };
        report::note(&format!(
            "another certificate is asked for: with the key's own one, {reason}"
        ));
        Ok(Trial::Unsuited(Box::new(paused)))
    }

    /// Has the context use the key with the certificate that was installed, in `file` if the token doesn't hold it, once
    /// the cluster knows the bearer.
    fn use_new_certificate(
        &self,
        enrollment: Enrollment<'_>,
        key: &KeyReference,
        file: Option<PathBuf>,
        applicant: &Applicant,
        session: &mut CommandSession,
    ) -> Result<(), Error> {
        let ready = enrollment.key_for_context(key, file, session)?;
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
