//! What `credential --as` hands out and `check --as` looks at.

use clap::ValueEnum;

use crate::cluster_api::ClusterUser;
use crate::enrollment::{Applicant, RESERVED};
use crate::error::{Error, Exit};

/// What is handed out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum ShortLived {
    /// A certificate for a key that is made for it, from the cluster's signer
    Certificate,
    /// A JSON Web Token that the key signs
    Jwt,
    /// A token of a service account, from the API server
    Token,
}

/// This user of the cluster, unless no certificate is requested for it.
pub(super) fn applicant(user: &ClusterUser) -> Result<Applicant, Error> {
    let groups = user.assigned_groups();
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let text = format!(
            "user \"{}\" is in group {group}, for which no certificate is requested",
            user.name
        );
        return Err(Error::new(Exit::Cluster, text).help(
            "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)",
        ));
    }
    Applicant::new(user.name.clone(), groups)
}
