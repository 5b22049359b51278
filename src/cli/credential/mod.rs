//! `credential`: the exec credential plugin. It has the tunnel process serve the client's cluster, and hands out a
//! certificate for the local connection. With `--as`, it hands out a credential that needs no tunnel.

mod short_lived;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use self::short_lived::ShortLivedOptions;
use super::key::options::{
    KeyOptions, KeySource, SelectedContext, kubeconfig_files, standard_input_is_the_clients,
};
use super::session::{CommandSession, StartingSession};
use crate::start::CLIENT_REQUEST;
use config::pin::NO_PIN;
use config::{Config, Keep, PinSource, key_selection};
use kubeconfig::exec_credential::{ExecRequest, VERSIONS};
use kubeconfig::{Kubeconfig, LocalCluster};
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::report;
use pin_entry::{self, Sources};
use system::process::parent;
use tunnel::ServerIdentity;
use tunnel::told;
use tunnel_process::{
    self, CallDigest, CredentialAnswer, RegisteredCluster, Registration, RepeatableCall,
    caller_error,
};

/// The time after which a client asks again. So a client whose tunnel was killed is connected again after this time.
const LIFETIME: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod   # kubectl runs it
  pkcs11-external-signer credential --context prod           # by hand")]
#[command(after_long_help = "\
Examples:
  pkcs11-external-signer kubeconfig --write --context prod   # kubectl runs it
  pkcs11-external-signer credential --context prod           # by hand
  pkcs11-external-signer credential --as jwt --output raw \\
      --issuer https://keys.example/jane

Clients run this before they connect. It starts the tunnel process if none is running, asks for the PIN if the \
key isn't open, and prints a certificate that only your own tunnel accepts. With --as, it prints a short-lived \
credential, which needs no tunnel.")]
pub(super) struct CredentialArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// How long the key stays open: command, terminal, or a time after its last use such as 15m
    #[arg(long, value_name = "HOW LONG", conflicts_with = "kind")]
    keep: Option<Keep>,
    #[command(flatten)]
    short_lived: ShortLivedOptions,
}

pub(super) fn run(
    arguments: &CredentialArguments,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    let digest = CallDigest::of_this_process();
    let request = start.take(CLIENT_REQUEST);
    let client = request.as_ref().and_then(|_| parent()).filter(|process| *process > 0);
    let request = match request {
        Some(text) => Some(ExecRequest::decode(text.as_bytes())?),
        None => None,
    };
    let outcome = match arguments.short_lived.kind {
        None => answer(arguments, request.as_ref(), digest, start),
        Some(kind) => short_lived::hand_out(kind, arguments, request, start),
    };
    outcome.map_err(|error| {
        pin_entry::failed(&error);
        for_client(error, &arguments.key, client)
    })
}

/// The error for the client's user. Its commands name the context whose plugin this is, and it is short if the client
/// was told the same a moment ago.
fn for_client(mut error: Error, options: &KeyOptions, client: Option<i32>) -> Error {
    let kubeconfig = entries(options);
    let context = kubeconfig.and_then(|kubeconfig| kubeconfig.context_of_call(&own_arguments()));
    match context {
        Some(name) => KeyOptions::of_context(&options.kubeconfig, Some(name)).set_call(),
        None => options.set_call(),
    }
    if error.is(&NO_PIN) {
        error = error.help(where_to_ask());
    }
    // Most clients run a plugin that fails once more for each thing that they want to know.
    let was_told = client.is_some_and(|client| told::times_told(client, &error.sentence()) > 0);
    if was_told { error.again() } else { error }
}

/// The help for a PIN that nobody can be asked for. It is for whoever types the client's command, and not this one.
fn where_to_ask() -> Help {
    let write = command("kubeconfig --write")
        .and(HelpPart::Kubeconfig)
        .and(" --context ")
        .and(HelpPart::Context)
        .and(" --pin-source=SOURCE");
    Help::from(
        "run it from a terminal (with ssh: -t), or write down where the PIN comes from, which is askpass, file:/path or \
         env:NAME: ",
    )
    .and(write)
}

/// The kubeconfig that may have this plugin's entry.
fn entries(options: &KeyOptions) -> Option<Kubeconfig> {
    Kubeconfig::load(&kubeconfig_files(options.kubeconfig.as_deref())).ok()
}

/// The absolute paths of the files of the kubeconfig that may have this plugin's entry, joined as in KUBECONFIG.
fn kubeconfig_of_call(options: &KeyOptions) -> String {
    let mut paths = Vec::new();
    for file in kubeconfig_files(options.kubeconfig.as_deref()) {
        let absolute = std::path::absolute(&file).unwrap_or(file);
        paths.push(absolute.to_string_lossy().into_owned());
    }
    paths.join(":")
}

/// The arguments that the client has called the plugin with.
fn own_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// Has the tunnel process serve the client's cluster with the key, and prints the certificate for the local connection.
fn answer(
    arguments: &CredentialArguments,
    request: Option<&ExecRequest>,
    digest: Option<CallDigest>,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    // The caller is looked at before anything takes time.
    let caller = parent().ok_or_else(|| caller_error("it has ended"))?;
    let options = &arguments.key;
    let (PluginKey { selection, keep, mut pins, context }, session) =
        PluginKey::of(arguments, start)?;
    let identity = tunnel_process::identity()?;
    let credential = CredentialAnswer {
        version: version(request, options).to_owned(),
        lifetime: lifetime(keep),
    };
    let request_alone = request.filter(|_| context.is_none());
    let registration = Registration {
        call: repeatable(digest, request_alone, &credential),
        configuration: selection,
        keep,
        caller: Some(caller),
        kubeconfig: kubeconfig_of_call(options),
        clusters: wanted_clusters(request, options, context, &identity)?,
        authority: Some(identity.authority_pem().to_owned()),
        ..Registration::default()
    };
    let (registered, _) = tunnel_process::register(registration, &mut pins)?;
    for warning in &registered.warnings {
        report::warning(warning);
    }
    // If the caller had ended, a later process with its number may have been watched instead.
    if parent() != Some(caller) {
        return Err(caller_error("it has ended"));
    }
    let client = registered.client.ok_or_else(|| {
        Error::internal("clusters are served, and there is no certificate for them")
    })?;
    session.output.print_document(&credential.document(client))
}

/// The call, if it may be repeated: the client's request says all, and nobody wants to see the steps.
fn repeatable(
    digest: Option<CallDigest>,
    request: Option<&ExecRequest>,
    answer: &CredentialAnswer,
) -> Option<RepeatableCall> {
    let request = request.filter(|request| request.is_complete())?;
    if log::max_level() != log::LevelFilter::Off {
        return None;
    }
    let authority_file = request.authority_file();
    Some(RepeatableCall { digest: digest?, answer: answer.clone(), authority_file })
}

/// The key with which the client's connections are made.
struct PluginKey {
    /// The configuration that selects the key, for the tunnel process.
    selection: Vec<(String, String)>,
    /// How long the key stays open.
    keep: Keep,
    pins: Sources,
    /// The context that names the key; `None` if the options do.
    context: Option<SelectedContext>,
}

impl PluginKey {
    /// The key that the plugin's arguments name, and the session.
    fn of<'a>(
        arguments: &CredentialArguments,
        start: StartingSession<'a>,
    ) -> Result<(Self, &'a mut CommandSession), Error> {
        let options = &arguments.key;
        if options.names_a_key() && options.context.is_some() {
            let text = "both --context and other options name the key";
            return Err(Error::new(Exit::Request, text).help("leave one of them out"));
        }
        let KeySource { mut configuration, context, .. } = options.source()?;
        let (session, variables) = start.take_pin_variable(configuration.clone());
        let selection = key_selection(&configuration);
        let config = Config::from_map(&mut configuration)?;
        if matches!(config.pin, PinSource::StandardInput) {
            return Err(standard_input_is_the_clients());
        }
        let keep = arguments.keep.or(config.keep).unwrap_or_default();
        let pins = Sources::new(config.pin, &variables);
        Ok((Self { selection, keep, pins, context }, session))
    }
}

/// The version of the answer: that of the request. For a client that sets no request, it is that of the user's entry.
fn version(request: Option<&ExecRequest>, options: &KeyOptions) -> &'static str {
    if let Some(request) = request {
        return request.version;
    }
    let kubeconfig = entries(options);
    let arguments = own_arguments();
    let of_entry = kubeconfig.as_ref().and_then(|known| known.version_of_call(&arguments));
    let known = VERSIONS.into_iter().find(|version| Some(*version) == of_entry);
    known.unwrap_or(VERSIONS[0])
}

/// The clusters that are to be served: the one that the client requests, or all of the kubeconfig. `context` is the
/// context that has named the key, with its kubeconfig.
fn wanted_clusters(
    request: Option<&ExecRequest>,
    options: &KeyOptions,
    context: Option<SelectedContext>,
    identity: &ServerIdentity,
) -> Result<Vec<RegisteredCluster>, Error> {
    let kubeconfig = || match context {
        Some(selected) => Ok(selected.kubeconfig),
        None => options.kubeconfig(),
    };
    let Some(entry) = request.and_then(|request| request.cluster.as_ref()) else {
        return local_clusters(kubeconfig(), identity);
    };
    let mut requested = LocalCluster::requested(entry)?;
    // The entry in the kubeconfig has no proxy. This one is the client's --proxy-url, which counts for the address in
    // the entry.
    if requested.cluster.proxy_url.is_some() {
        report::warning(
            "the client goes to the tunnel, which is on this machine, through a proxy: leave --proxy-url out, and set \
             proxy-url of the real cluster, which the tunnel uses",
        );
    }
    if requested.extension.is_null()
        && let Some(known) = known_cluster(kubeconfig(), &requested)
    {
        requested = known;
    }
    Ok(vec![RegisteredCluster::of(&requested, identity)?])
}

/// The kubeconfig's entry of the cluster, for a client that doesn't pass the extension on: one local address belongs to
/// one cluster.
fn known_cluster(
    kubeconfig: Result<Kubeconfig, Error>,
    requested: &LocalCluster,
) -> Option<LocalCluster> {
    let known = kubeconfig.ok()?.local_clusters().ok()?;
    known.into_iter().find(|known| known.cluster.server == requested.cluster.server)
}

/// All clusters of the kubeconfig that lead to this program, for a client that names none. An error if there is none.
fn local_clusters(
    kubeconfig: Result<Kubeconfig, Error>,
    identity: &ServerIdentity,
) -> Result<Vec<RegisteredCluster>, Error> {
    let clusters = match kubeconfig {
        Ok(kubeconfig) => kubeconfig.local_clusters()?,
        Err(error) => return Err(no_cluster(&error.to_string())),
    };
    if clusters.is_empty() {
        return Err(no_cluster("the kubeconfig has none for this program"));
    }
    clusters.iter().map(|cluster| RegisteredCluster::of(cluster, identity)).collect()
}

/// The error for a client that names no cluster; `why` is the reason why the kubeconfig doesn't help.
fn no_cluster(why: &str) -> Error {
    let text = format!("the client doesn't say which cluster it wants, and {why}");
    let help = Help::from(
        "set provideClusterInfo of the user's exec to true, or have the entry name the client's kubeconfig: ",
    )
    .and(command("kubeconfig --write --context NAME --kubeconfig FILE"));
    Error::new(Exit::Configuration, text).help(help)
}

/// The time after which the client has to ask again. It keeps the certificate until then.
fn lifetime(keep: Keep) -> Duration {
    match keep {
        Keep::For(limit) => limit.min(LIFETIME),
        Keep::Command | Keep::Terminal => LIFETIME,
    }
}
