//! `credential`: the exec credential plugin. Has the tunnel process serve the client's cluster, and hands
//! out a certificate for the local connection. With `--as`, hands out something that needs no tunnel.

mod short_lived;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use self::short_lived::ShortLivedOptions;
use super::key::options::{
    KeyOptions, KeySource, SelectedContext, kubeconfig_files, standard_input_is_the_clients,
};
use super::session::CommandSession;
use config::pin::NO_PIN;
use config::{Config, Keep, PinSource, key_selection};
use crypto::certificate::rfc_3339;
use kubeconfig::exec_credential::{ExecProof, ExecRequest, VERSIONS, exec_answer};
use kubeconfig::{Kubeconfig, LocalCluster};
use messages::error::{Error, Exit, PROGRAM};
use messages::help::{Help, HelpPart};
use messages::report;
use pin_entry::{self, Sources};
use system::clock::unix_time;
use system::process::parent;
use tunnel::ServerIdentity;
use tunnel::told;
use tunnel_process::{self, RegisteredCluster, Registration, caller_error};

/// The variable that holds a client's request.
const REQUEST: &str = "KUBERNETES_EXEC_INFO";

/// When a client asks again. One whose tunnel was killed is through again after this time.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod   # kubectl runs it
  pkcs11-external-signer credential --context prod           # by hand
  pkcs11-external-signer credential --as jwt --output raw \\
      --issuer https://keys.example/jane

Clients run it before they connect. It starts the tunnel process if none runs, asks for the PIN if the \
key isn't open, and prints a certificate that only this user's tunnels accept. With --as, it prints a short-lived credential that needs \
no tunnel.")]
pub(super) struct CredentialArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// How long the key stays open: command (until the programs that use it have ended), terminal (until
    /// the shell ends) or a time after the last use, such as 15m
    #[arg(long, value_name = "HOW LONG", conflicts_with = "kind")]
    keep: Option<Keep>,
    #[command(flatten)]
    short_lived: ShortLivedOptions,
}

pub(super) fn run(
    arguments: &CredentialArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    let request = session.take(REQUEST);
    let client = request.as_ref().and_then(|_| parent()).filter(|process| *process > 0);
    let request = request.map(|it| ExecRequest::decode(it.as_bytes())).transpose()?;
    let outcome = match arguments.short_lived.kind {
        None => answer(arguments, request, session),
        Some(kind) => short_lived::hand_out(kind, arguments, request, session),
    };
    outcome.map_err(|error| {
        pin_entry::failed(&error);
        let options = &arguments.key;
        let context = entries(options).and_then(|it| it.context_of_call(&own_arguments()));
        match context {
            Some(name) => KeyOptions::of_context(&options.kubeconfig, Some(name)).set_call(),
            None => options.set_call(),
        }
        let error = if error.is(&NO_PIN) { error.help(where_to_ask()) } else { error };
        // Most clients run a plugin that fails once more for each thing that they want to know.
        let was_told = client.is_some_and(|client| told::times_told(client, &error.sentence()) > 0);
        if was_told { error.again() } else { error }
    })
}

/// For whoever types the client's command, and not this one.
fn where_to_ask() -> Help {
    Help::from(format!(
        "run it from a terminal (with ssh: -t), or write down where the PIN comes from, which is askpass, file:/path or \
         env:NAME: `{PROGRAM} kubeconfig --write"
    ))
    .and(HelpPart::Kubeconfig)
    .and(" --context ")
    .and(HelpPart::Context)
    .and(" --pin-source=SOURCE`")
}

/// The kubeconfig in which this plugin's entry may stand.
fn entries(options: &KeyOptions) -> Option<Kubeconfig> {
    Kubeconfig::load(&kubeconfig_files(options.kubeconfig.as_deref())).ok()
}

/// The kubeconfig of that, as in KUBECONFIG.
fn kubeconfig_of_call(options: &KeyOptions) -> String {
    let files = kubeconfig_files(options.kubeconfig.as_deref()).into_iter();
    let absolute = files.map(|file| std::path::absolute(&file).unwrap_or(file));
    absolute.map(|file| file.to_string_lossy().into_owned()).collect::<Vec<_>>().join(":")
}

fn own_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

fn answer(
    arguments: &CredentialArguments,
    request: Option<ExecRequest>,
    session: &mut CommandSession,
) -> Result<(), Error> {
    // Before anything takes time.
    let caller = parent().ok_or_else(|| caller_error("it has ended"))?;
    let options = &arguments.key;
    if options.names_a_key() && options.context.is_some() {
        return Err(Error::new(Exit::Request, "both --context and other options name the key")
            .help("leave one of them out"));
    }
    let KeySource { mut configuration, context, .. } = options.source()?;
    let variables = session.take_variables(configuration.clone());
    let selection = key_selection(&configuration);
    let config = Config::from_map(&mut configuration)?;
    if matches!(config.pin, PinSource::StandardInput) {
        return Err(standard_input_is_the_clients());
    }
    let keep = arguments.keep.or(config.keep).unwrap_or_default();
    let mut pins = Sources::new(config.pin, &variables);
    drop(variables);

    let identity = tunnel_process::identity()?;
    let clusters = match request.as_ref().and_then(|it| it.cluster.as_ref()) {
        Some(cluster) => {
            let mut requested = LocalCluster::requested(cluster)?;
            if requested.extension.is_null()
                && let Some(known) = known_cluster(options, context, &requested)
            {
                requested = known;
            }
            vec![RegisteredCluster::of(&requested, &identity)?]
        }
        None => {
            let kubeconfig = match context {
                Some(selected) => Ok(selected.kubeconfig),
                None => options.kubeconfig(),
            };
            local_clusters(kubeconfig, &identity)?
        }
    };
    let registered = tunnel_process::register(
        Registration {
            configuration: selection,
            keep,
            caller: Some(caller),
            kubeconfig: kubeconfig_of_call(options),
            clusters,
            authority: Some(identity.authority_pem().to_owned()),
            ..Registration::default()
        },
        &mut pins,
    );
    let (registered, _) = registered?;
    for warning in &registered.warnings {
        report::warning(warning);
    }
    // What was watched may have been a later process with the number of one that had ended.
    if parent() != Some(caller) {
        return Err(caller_error("it has ended"));
    }
    let client = registered.client.unwrap_or_default();
    let proof = ExecProof::Certificate { certificate: client.certificate_pem, key: client.key_pem };
    let version = version(request.as_ref(), options);
    session.output.print_document(&exec_answer(version, &proof, &expiry(keep)))
}

/// The version of the answer: that of the request or, from clients that set none, that of their user's entry.
fn version(request: Option<&ExecRequest>, options: &KeyOptions) -> &'static str {
    let of_entry = || {
        let kubeconfig = entries(options)?;
        let version = kubeconfig.version_of_call(&own_arguments())?;
        VERSIONS.into_iter().find(|it| *it == version)
    };
    request.map(|it| it.version).or_else(of_entry).unwrap_or(VERSIONS[0])
}

/// The kubeconfig's entry of the cluster, for a client that hands no extension on: the local address is that of one
/// cluster.
fn known_cluster(
    options: &KeyOptions,
    context: Option<SelectedContext>,
    requested: &LocalCluster,
) -> Option<LocalCluster> {
    let kubeconfig = context.map_or_else(|| options.kubeconfig().ok(), |it| Some(it.kubeconfig));
    let known = kubeconfig?.local_clusters().ok()?.into_iter();
    known.into_iter().find(|it| it.cluster.server == requested.cluster.server)
}

/// Those of the kubeconfig, for a client that names none.
fn local_clusters(
    kubeconfig: Result<Kubeconfig, Error>,
    identity: &ServerIdentity,
) -> Result<Vec<RegisteredCluster>, Error> {
    let (clusters, why) = match kubeconfig {
        Ok(it) => (it.local_clusters()?, "the kubeconfig has none for this program".to_owned()),
        Err(error) => (Vec::new(), error.to_string()),
    };
    if clusters.is_empty() {
        let text = format!("the client doesn't say which cluster it wants, and {why}");
        return Err(Error::new(Exit::Configuration, text).help(format!(
            "set provideClusterInfo of the user's exec to true, or have the entry name the client's kubeconfig: `{PROGRAM} \
             kubeconfig --write --context NAME --kubeconfig FILE`"
        )));
    }
    clusters.iter().map(|cluster| RegisteredCluster::of(cluster, identity)).collect()
}

/// A client keeps the certificate until then.
fn expiry(keep: Keep) -> String {
    let lifetime = match keep {
        Keep::For(limit) => limit.min(LIFETIME),
        Keep::Command | Keep::Terminal => LIFETIME,
    };
    let seconds = i64::try_from(lifetime.as_secs()).unwrap_or_default();
    rfc_3339(unix_time().saturating_add(seconds))
}
