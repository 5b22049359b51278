//! `credential --as token`: a token of a service account, which the API server makes for the user of the token's
//! key.

use super::connection::connect;
use super::short_lived::{IssuedCredential, Making, Proof};
use crate::cli::error::ArgumentNeeds;
use crate::cluster_api::token_request::{
    BoundObject, SHORTEST, ServiceAccount, TokenWish, request_token,
};
use crate::error::Error;
use crate::tunnel::TunnelTarget;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TokenOptions {
    /// token: the service account, whose rights the token has
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kind")]
    pub(super) service_account: Option<ServiceAccount>,
    /// token: an object with which it ends, such as Pod/runner-1, a Secret or a Node
    #[arg(long, value_name = "KIND/NAME", requires = "kind")]
    pub(super) bound_to: Option<BoundObject>,
}

/// Asks for the token, which begins `now`, in seconds since 1970.
pub(super) fn make(
    making: Making<'_>,
    target: TunnelTarget,
    now: i64,
) -> Result<IssuedCredential, Error> {
    let options = making.options;
    let TokenOptions { service_account, bound_to } = &options.token;
    let account = service_account
        .as_ref()
        .ok_or(ArgumentNeeds { argument: "--as token", other: "--service-account" })?;
    let wish = TokenWish {
        account,
        seconds: options.life("a service account's token", SHORTEST)?,
        audiences: &options.audience,
        bound_to: bound_to.as_ref(),
    };
    let api = connect(making, target)?;
    let made = request_token(&api, &wish)?;
    Ok(IssuedCredential {
        proof: Proof::Token(made.token),
        begins: now,
        ends: made.ends,
        user: account.to_string(),
    })
}
