//! `renew`: a new certificate for the same key, asked for with the one that is about to expire.
//!
//! The present certificate is removed only after the new one was read back from the token and the cluster has
//! let it in. What was done is read from the token and the cluster, so that the same command goes on after an
//! interruption.

mod key_in_use;

use std::sync::Arc;

use self::key_in_use::{KeyInUse, check_user};
use super::connection::connect;
use super::issuance::{Issuance, IssuanceOptions};
use super::key_options::{KeyOptions, KeySource};
use super::session::CommandSession;
use crate::certificate::{Certificate, minute};
use crate::cluster_api::ClusterUser;
use crate::config::Config;
use crate::enrollment::{Applicant, sign_request};
use crate::error::Error;
use crate::keyring::{Keyring, OpenKeys as _};
use crate::token::KeyPurpose;

/// Have the cluster issue a new certificate for the key, before the present one expires
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer renew                # the key of the current context
  pkcs11-external-signer renew --context prod

The request is made with the present certificate, and a person has to approve it: the command to type is
printed. Left before that, the same command goes on later. The present certificate stays until the
cluster has let the new one in.")]
pub(super) struct RenewArguments {
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    issuance: IssuanceOptions,
}

pub(super) fn run(arguments: &RenewArguments, session: &mut CommandSession) -> Result<(), Error> {
    arguments.key.set_call();
    session.keyring = Arc::new(Keyring::to_write());
    let (source, variables) = arguments.key.whole_source(false, session)?;
    let CommandSession { output, keyring, .. } = session;
    let KeySource { configuration: map, context, .. } = source;
    let context = context.map_or_else(|| arguments.key.selected(), Ok)?;
    let number = keyring.add(Config::from_map(&mut map.clone())?, &variables)?;
    let open = keyring.open(number, None)?;
    // What is being done needn't be said.
    let _ = open.take_warnings();
    let der = open.chain.first().map(Vec::as_slice).unwrap_or_default();
    let present = Certificate::from_der(der, "the certificate")?;
    let user = present.user.clone().unwrap_or_default();
    let applicant = Applicant::new(user, present.groups.clone())?;
    let target = context.target()?;
    let server = target.cluster.server.clone();
    let api = connect(target, number, keyring)?;
    let key = KeyInUse { keyring, map, number, context };
    let (public_key, options, applicant) = (present.public_key(), &arguments.issuance, &applicant);
    let (api, duration) = (&api, options.duration);
    let issuance = Issuance { api, applicant, public_key, duration, renewed: Some(&present) };
    // An earlier call may have been interrupted before it removed what it had renewed.
    for old in key.others(&present)? {
        let issued = Issuance { renewed: Some(&old), ..issuance }.found().ok().flatten();
        if issued.is_some_and(|it| it.certificate.der() == present.der()) {
            let known = api.whoami()?;
            check_user(&known, &present)?;
            key.remove(&old, &present)?;
            return output.print(&renewed(&present, &known, &server));
        }
    }
    let (name, file) = (&key.context.context.name, arguments.key.kubeconfig.as_deref());
    let issued = issuance.obtain(options, name, file, || {
        sign_request(KeyPurpose::Signing, applicant, public_key, |scheme, digest| {
            keyring.sign(number, scheme, digest.to_owned())
        })
    })?;
    let known = key.replace(&present, &issued)?;
    output.print(&renewed(&issued.certificate, &known, &server))
}

/// What was done.
fn renewed(certificate: &Certificate, known: &ClusterUser, server: &str) -> String {
    let expiry = minute(certificate.validity.not_after);
    let Certificate { subject, .. } = certificate;
    let id = certificate.credential_id();
    let known = known.describe(server);
    format!("the certificate of {subject} is renewed: it expires {expiry}, {id}\n{known}\n")
}
