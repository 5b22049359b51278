//! `check --as`: what the cluster still needs before `credential --as` works.

use super::Checklist;
use crate::cli::issuance::{ShortLived, applicant};
use cluster_api::kind;
use cluster_api::signing_request::{SHORTEST, SIGNER};
use cluster_api::{
    CERTIFICATES, ClusterUser, ResourceAttributes, ServiceAccount, TokenConnection, may,
};
use crypto::certificate::PublicKey;
use crypto::jose::TokenAlgorithm;
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::quoted;
use token::Token;

const ROLE: &str = "have an administrator apply the role in docs/short-lived.md";

impl Checklist<'_> {
    /// Reports the algorithm with which tokens are signed, and that only the API server knows whether it takes them.
    pub(super) fn check_jwt(&mut self, token: &Token, key: &PublicKey) {
        let step = "mechanisms";
        let algorithm = TokenAlgorithm::of(key).and_then(|algorithm| {
            token.check_mechanism(&algorithm.scheme).map(|()| algorithm.name)
        });
        if let Some(algorithm) = self.keep(step, algorithm) {
            self.good(step, format!("tokens are signed with {algorithm}"));
            let text =
                "whether the API server takes them depends on its AuthenticationConfiguration";
            let help = Help::from(
                "have an administrator apply the configuration in docs/short-lived.md, with the key set that ",
            )
            .and(command("jwks").and(HelpPart::Key))
            .and(" prints");
            self.concern(step, text, help);
        }
    }

    /// Asks the cluster, as this user, and reports what is missing; `None` if nothing more is to be asked.
    pub(super) fn check_short_lived(
        &mut self,
        api: &TokenConnection,
        user: &ClusterUser,
    ) -> Option<()> {
        let step = "server";
        let outcome = match (self.arguments.kind?, &self.arguments.service_account) {
            (ShortLived::Token, Some(account)) => token(api, user, account),
            (ShortLived::Certificate, _) => certificate(api, user),
            (ShortLived::Jwt | ShortLived::Token, _) => return None,
        };
        let text = self.keep(step, outcome)?;
        self.good(step, text);
        if self.arguments.kind != Some(ShortLived::Certificate) {
            return None;
        }
        if self.keep(step, may_approve(api))? {
            let name = &user.name;
            let text =
                format!("user \"{name}\" may also approve requests, and could so become anyone");
            let help = "take one of the two rights away; somebody else has to approve";
            self.concern(step, text, help);
        } else {
            let help = Help::from("they do so with ")
                .and(command("approve NAME"))
                .and(", which shows them this certificate");
            self.concern(step, "somebody else has to approve each request", help);
        }
        Some(())
    }
}

/// Whether this user may approve requests for the signer of client certificates.
fn may_approve(api: &TokenConnection) -> Result<bool, Error> {
    let approval =
        ResourceAttributes { subresource: "approval", ..ResourceAttributes::of_requests("update") };
    let signer = ResourceAttributes {
        verb: "approve",
        group: CERTIFICATES,
        resource: "signers",
        name: SIGNER,
        ..ResourceAttributes::default()
    };
    Ok(may(api, &approval)? && may(api, &signer)?)
}

fn missing(text: String, help: &str) -> Result<String, Error> {
    Err(Error::new(Exit::Cluster, text).help(help))
}

fn token(
    api: &TokenConnection,
    user: &ClusterUser,
    account: &ServiceAccount,
) -> Result<String, Error> {
    let ServiceAccount { namespace, name } = account;
    let asking = ResourceAttributes {
        verb: "create",
        resource: "serviceaccounts",
        subresource: "token",
        namespace,
        name,
        ..ResourceAttributes::default()
    };
    let name = &user.name;
    if !may(api, &asking)? {
        let text =
            format!("user \"{name}\" may not ask for tokens of the service account {account}");
        return missing(text, ROLE);
    }
    // A token that is thrown away shows that the account exists; to read the account would need another right.
    match api.request_token(account, SHORTEST.into(), &[]) {
        Err(error) if error.is(&kind::NOT_FOUND) => missing(
            format!("there is no service account {account}"),
            "name another one, or have an administrator make it: `kubectl create serviceaccount`",
        ),
        made => made.map(|_| {
            format!("user \"{name}\" may ask for tokens of the service account {account}")
        }),
    }
}

fn certificate(api: &TokenConnection, user: &ClusterUser) -> Result<String, Error> {
    let (applicant, name) = (applicant(user)?, &user.name);
    let may_do = |verb| may(api, &ResourceAttributes::of_requests(verb));
    if !(may_do("create")? && may_do("get")?) {
        let text = format!("user \"{name}\" may not create and get CertificateSigningRequests");
        return missing(text, ROLE);
    }
    let groups = quoted(applicant.groups());
    Ok(format!("user \"{name}\" may request a certificate with groups {groups}"))
}
