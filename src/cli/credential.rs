//! `credential`: the exec credential plugin. Has the tunnel process serve the client's cluster, and hands
//! out a certificate for the local connection.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::again::Invocation;
use super::completions::values;
use super::error::{ArgumentNeeds, CredentialError};
use super::output::CommandOutput;
use super::selection::{self, HEADING, Selection};
use crate::config::{Config, Keep, PinSource, key_selection};
use crate::error::Error;
use crate::exec_credential::{ExecCredential, ExecRequest, ExecRequestError, LocalCluster};
use crate::kubeconfig::{Cluster, Kubeconfig, KubeconfigError, Provider, tunnelled};
use crate::library;
use crate::pin_entry::Sources;
use crate::printable::excerpt;
use crate::process::environment::{NotUtf8, SingleThreaded};
use crate::process::watched::parent;
use crate::process::{session, unix_time};
use crate::protocol::Configuration;
use crate::report;
use crate::tunnel::{ServerIdentity, effective_proxy};
use crate::tunnel_process::{self, RegisteredCluster, Registration, TunnelProcessError};

/// The variable that holds a client's request.
pub(super) const REQUEST: &str = "KUBERNETES_EXEC_INFO";

/// The exit code of failed logins.
const NO_LOGIN: u8 = 7;

/// When a client asks again. One whose tunnel was killed is through again after this time.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Answer a client's request for a credential, as kubectl's credential plugin
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod   # has kubectl run this command
  pkcs11-external-signer credential --context prod           # by hand, to see what it answers

Clients run it before they connect. It starts the tunnel process if none runs, asks for the PIN if the \
key isn't open, and prints a certificate that only this user's tunnels accept.")]
pub(super) struct CredentialArguments {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// The certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, add = values::files())]
    certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, help_heading = HEADING, add = values::pin_sources())]
    pin_source: Option<String>,
    /// How long the key stays open: command (until the programs that use it have ended), terminal (until
    /// the shell ends) or a time after the last use, such as 15m
    #[arg(long, value_name = "HOW LONG")]
    keep: Option<Keep>,
    /// The kubeconfig that names the key, or the clusters where the client doesn't; without it KUBECONFIG,
    /// or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    kubeconfig: Option<PathBuf>,
    /// The context that names the key; without it the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    context: Option<String>,
}

impl CredentialArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            command: "credential",
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            pin_source: self.pin_source.as_deref(),
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.context.clone(),
        }
    }

    fn names_a_key(&self) -> bool {
        !self.selection.is_empty() || self.uri.is_some()
    }
}

/// Answers the request; the exit code.
#[cold]
pub(super) fn run(
    arguments: &CredentialArguments,
    request: Option<Result<String, NotUtf8>>,
    alone: SingleThreaded,
) -> u8 {
    match answer(arguments, request, alone) {
        Ok(()) => 0,
        Err(error) => report::error_in_one_line(&error),
    }
}

fn answer(
    arguments: &CredentialArguments,
    request: Option<Result<String, NotUtf8>>,
    alone: SingleThreaded,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let request = match request {
        None => ExecRequest::default(),
        Some(Err(NotUtf8)) => return Err(ExecRequestError::NotUtf8.into()),
        Some(Ok(text)) => ExecRequest::decode(&text)?,
    };
    // Before anything takes time.
    let caller = parent().ok_or_else(caller_has_ended)?;
    let kubeconfig = KeySource::of(arguments)?;
    let variables = super::take_variables(kubeconfig.configuration(arguments), alone);
    let config = Config::from_map(&mut kubeconfig.configuration(arguments))?;
    if matches!(config.pin, PinSource::StandardInput) {
        return Err(CredentialError::StandardInput.into());
    }
    let keep = arguments.keep.or(config.keep).unwrap_or_default();
    let mut pins = Sources::new(config.pin, &variables);
    pins.leave_input();
    pins.serve_client(caller);
    drop(variables);

    let identity = tunnel_process::identity()?;
    let identity = identity.ok_or(CredentialError::NoIdentity)?;
    let clusters = match request.cluster {
        Some(cluster) => vec![registered(&cluster, &identity)?],
        None => kubeconfig.clusters(arguments, &identity)?,
    };
    let registered = tunnel_process::register(
        Registration {
            configuration: key_selection(&kubeconfig.configuration(arguments)),
            keep,
            caller: Some(caller),
            leader: (keep == Keep::Terminal).then(session),
            clusters,
            authority: Some(authority(&identity).to_owned()),
            signs: false,
        },
        &mut pins,
        library::note_wait,
    );
    let registered = registered.inspect_err(|error| {
        // kubectl runs a plugin that has failed four times more.
        if error.exit_code() == NO_LOGIN {
            pins.refused();
        }
    })?;
    for warning in &registered.warnings {
        report::warning(warning);
    }
    // What was watched may have been a later process with the number of one that had ended.
    if parent() != Some(caller) {
        return Err(caller_has_ended().into());
    }
    let credential = ExecCredential {
        certificate: &registered.certificate,
        key: &registered.key,
        expires: &expiry(keep),
    };
    Ok(output.print(&credential.encode(request.api_version))?)
}

fn caller_has_ended() -> TunnelProcessError {
    TunnelProcessError::Caller {
        reason: "it has ended".to_owned(),
    }
}

/// The kubeconfig, where it names the key.
struct KeySource(Option<Kubeconfig>);

impl KeySource {
    fn of(arguments: &CredentialArguments) -> Result<Self, Error> {
        if !arguments.names_a_key() {
            let kubeconfig = load(arguments)?;
            let context = kubeconfig.selected_context()?;
            return match kubeconfig.provider(&context.user)? {
                Provider::ExternalSigner(_) => Ok(Self(Some(kubeconfig))),
                Provider::None | Provider::Other(_) => Err(KubeconfigError::NotExternalSigner {
                    context: context.name,
                    user: context.user,
                }
                .into()),
            };
        }
        match arguments.context {
            Some(_) => Err(ArgumentNeeds {
                argument: "--context beside options that name a key",
                other: "to be alone",
            }
            .into()),
            None => Ok(Self(None)),
        }
    }

    fn configuration(&self, arguments: &CredentialArguments) -> Configuration {
        let of_context = self.0.as_ref().and_then(|kubeconfig| {
            let context = kubeconfig.selected_context().ok()?;
            match kubeconfig.provider(&context.user) {
                Ok(Provider::ExternalSigner(map)) => Some(map),
                Ok(Provider::None | Provider::Other(_)) | Err(_) => None,
            }
        });
        let options = || {
            let uri = ("uri", arguments.uri.as_deref());
            arguments.selection.configuration([uri])
        };
        let mut map = of_context.unwrap_or_else(options);
        if let Some(path) = &arguments.certificate_file {
            map.set("certificateFile", path);
        }
        if let Some(source) = &arguments.pin_source {
            PinSource::override_in(&mut map, source);
        }
        map
    }

    /// Those of the kubeconfig, for a client that names none.
    fn clusters(
        &self,
        arguments: &CredentialArguments,
        identity: &ServerIdentity,
    ) -> Result<Vec<RegisteredCluster>, Error> {
        let loaded;
        let kubeconfig = match &self.0 {
            Some(kubeconfig) => kubeconfig,
            None => {
                loaded = load(arguments)?;
                &loaded
            }
        };
        let clusters = kubeconfig.local_clusters();
        if clusters.is_empty() {
            return Err(CredentialError::NoClusters.into());
        }
        clusters
            .iter()
            .map(|cluster| registered(cluster, identity))
            .collect()
    }
}

fn load(arguments: &CredentialArguments) -> Result<Kubeconfig, Error> {
    let locations = super::locations(arguments.kubeconfig.as_deref());
    let mut kubeconfig = super::load(&locations.required())?;
    if let Some(name) = &arguments.context {
        kubeconfig.set_current_context(name)?;
    }
    Ok(kubeconfig)
}

/// The cluster that is served at the local address of its entry, if the entry was made for this user on
/// this machine.
///
/// # Errors
/// [`CredentialError`], and those of [`tunnelled`].
pub(super) fn registered(
    cluster: &LocalCluster,
    identity: &ServerIdentity,
) -> Result<RegisteredCluster, Error> {
    let server = || excerpt(&cluster.server);
    let (name, real) = tunnelled(&cluster.config)?;
    let address = local_address(&cluster.server);
    let address = address.ok_or_else(|| CredentialError::NotLocal { server: server() })?;
    let known = identity.endpoint("");
    let is_own = cluster.authority.as_deref() == Some(known.authority_pem.as_bytes());
    // Without a name a client asks for the address's certificate.
    let name_asked = cluster.tls_server_name.as_deref();
    if !is_own || name_asked.is_some_and(|it| it != known.server_name) {
        return Err(CredentialError::OfAnother { server: server() }.into());
    }
    Ok(RegisteredCluster {
        address,
        name,
        cluster: Cluster {
            proxy_url: effective_proxy(&real),
            ..real
        },
    })
}

fn authority(identity: &ServerIdentity) -> &str {
    identity.endpoint("").authority_pem
}

fn local_address(server: &str) -> Option<SocketAddr> {
    let uri = Uri::try_from(server).ok()?;
    let address: SocketAddr = uri.authority()?.as_str().parse().ok()?;
    (uri.scheme_str() == Some("https") && address.ip().is_loopback()).then_some(address)
}

/// A client keeps the certificate until then.
fn expiry(keep: Keep) -> String {
    let lifetime = match keep {
        Keep::For(limit) => limit.min(LIFETIME),
        Keep::Command | Keep::Terminal => LIFETIME,
    };
    let seconds = i64::try_from(lifetime.as_secs()).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(unix_time().saturating_add(seconds));
    let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
    text.unwrap_or_default()
}
