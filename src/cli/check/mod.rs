//! `check`: whether a configured key works, step by step, and what to do where it doesn't.

mod sealed;
mod short_lived;
mod steps;

use std::mem;
use std::path::PathBuf;

use clap::builder::styling::Style;
use serde_json::{Value, json};

use super::issuance::ShortLived;
use super::key::choice::NamedSource;
use super::key::options::{KeyOptions, KeySource, SELDOM, SelectedContext, needs};
use super::session::{BAD, CONCERN, CommandSession, GOOD, StartingSession, TITLE_WIDTH};
use cluster_api::ServiceAccount;
use config::{Config, PinSource, key_selection};
use kubeconfig::{Cluster, Context, EntryKind, Kubeconfig, write_command};
use messages::error::{DOCUMENT_VERSION, Error, Exit};
use messages::help::{Help, Remedy};
use messages::printable::{printable, quoted};
use pin_entry::Sources;
use system::environment::TakenVariables;
use token::AcceptedPin;
use tunnel::check_port;
use tunnel_process::{self, RegisteredCluster};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer check                # the current context
  pkcs11-external-signer check --context prod --server
  pkcs11-external-signer check --no-login     # without a PIN")]
#[command(after_long_help = "\
Examples:
  pkcs11-external-signer check                # the current context
  pkcs11-external-signer check --context prod --server
  pkcs11-external-signer check --no-login     # without a PIN
  pkcs11-external-signer check --sealed registry.cms --image a.example/b \\
      --module /usr/lib/softhsm/libsofthsm2.so --token-label node1
  pkcs11-external-signer check --token-serial 15873456 --object-id 2 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so

The exit code is that of the first step that fails, the same as for a client that wants a signature. At a terminal, details that work are only counted; -v shows them.")]
pub(super) struct CheckArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// Also ask the context's cluster who it thinks you are
    #[arg(long, conflicts_with = "no_login")]
    server: bool,
    /// Also check what `credential --as` needs: certificate, jwt or token
    #[arg(long = "as", value_name = "WHAT", conflicts_with = "no_login", help_heading = SELDOM)]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    kind: Option<ShortLived>,
    /// The service account for --as token
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kind", help_heading = SELDOM, hide_short_help = true)]
    service_account: Option<ServiceAccount>,
    /// Check only what needs no PIN
    #[arg(long)]
    no_login: bool,
    /// Send a stored PIN again after the token has refused one, because you have corrected it
    #[arg(long, conflicts_with = "no_login", help_heading = SELDOM, hide_short_help = true)]
    despite_refusal: bool,
    /// Open this sealed file, as kubelet-credential-provider does
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "kubeconfig", "context"], help_heading = SELDOM)]
    #[arg(hide_short_help = true)]
    sealed: Option<PathBuf>,
    /// Show what kubelet would be told for this image
    #[arg(long, value_name = "NAME", requires = "sealed", help_heading = SELDOM, hide_short_help = true)]
    image: Option<String>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl CheckArguments {
    /// Whether the cluster is asked.
    fn asks_server(&self) -> bool {
        self.server || matches!(self.kind, Some(ShortLived::Certificate | ShortLived::Token))
    }

    /// What names the key that is checked. Options that name a key and a context go together only if the cluster is
    /// asked, too.
    fn source(&self) -> Result<NamedSource, Error> {
        let (options, server) = (&self.key, self.asks_server());
        if self.kind == Some(ShortLived::Token) && self.service_account.is_none() {
            return Err(needs("--as token", "--service-account"));
        }
        if options.names_a_key() && !server {
            if options.context.is_some() {
                return Err(needs("--context beside options that name a key", "--server"));
            }
            if options.kubeconfig.is_some() {
                return Err(needs("--kubeconfig beside options that name a key", "--server"));
            }
        }
        options.named_source(!server)
    }
}

pub(super) fn run(arguments: &CheckArguments, start: StartingSession<'_>) -> Result<(), Error> {
    arguments.key.set_call();
    if let Some(path) = &arguments.sealed {
        let (session, variables) = start.take_pin_variable(arguments.key.configuration());
        let mut checklist = Checklist::new(arguments, session);
        checklist.check_sealed(path, &variables);
        return checklist.finish();
    }
    let source = arguments.source();
    let known = source.as_ref().map(NamedSource::configuration).unwrap_or_default();
    let (session, variables) = start.take_pin_variable(known);
    let mut checklist = Checklist::new(arguments, session);
    checklist.check(source, &variables);
    checklist.finish()
}

/// The result of a step.
enum Finding {
    Good,
    /// The step works, but not for long or not everywhere.
    Concern(Remedy),
    Bad {
        help: Remedy,
        exit_code: u8,
    },
}

impl Finding {
    /// The word for the finding in the JSON document.
    fn status(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Concern(_) => "concern",
            Self::Bad { .. } => "bad",
        }
    }

    /// The style and the text of the mark at the beginning of the step's line.
    fn mark(&self) -> (Style, &'static str) {
        match self {
            Self::Good => (GOOD, "✔"),
            Self::Concern(_) => (CONCERN, "!"),
            Self::Bad { .. } => (BAD, "✘"),
        }
    }

    fn help(&self) -> Option<&Remedy> {
        match self {
            Self::Good => None,
            Self::Concern(help) | Self::Bad { help, .. } => Some(help),
        }
    }

    fn exit_code(&self) -> Option<u8> {
        match self {
            Self::Good | Self::Concern(_) => None,
            Self::Bad { exit_code, .. } => Some(*exit_code),
        }
    }
}

/// The findings of a check, printed or kept for the document.
struct Checklist<'a> {
    arguments: &'a CheckArguments,
    session: &'a mut CommandSession,
    /// The first error of printing.
    failure: Option<Error>,
    /// How many steps have gone well and were not printed.
    unsaid: usize,
    /// The findings for the JSON document, as docs/commands.md describes them.
    findings: Vec<Value>,
}

impl<'a> Checklist<'a> {
    fn new(arguments: &'a CheckArguments, session: &'a mut CommandSession) -> Self {
        Self { arguments, session, failure: None, unsaid: 0, findings: Vec::new() }
    }

    fn good(&mut self, step: &'static str, text: impl Into<String>) {
        self.add(step, &text.into(), &Finding::Good);
    }

    fn concern(&mut self, step: &'static str, text: impl Into<String>, help: impl Into<Help>) {
        let help = help.into().in_this_call();
        self.add(step, &text.into(), &Finding::Concern(help));
    }

    fn bad(&mut self, step: &'static str, error: &Error) {
        let finding = Finding::Bad { help: error.remedy(), exit_code: error.exit_code() };
        self.add(step, &error.to_string(), &finding);
    }

    /// The result of a step that went well. An error is reported as that of the step, or of the login or the token in
    /// it.
    fn keep<T>(&mut self, step: &'static str, outcome: Result<T, Error>) -> Option<T> {
        let error = match outcome {
            Ok(found) => return Some(found),
            Err(error) => error,
        };
        let step = if error.exits_with(Exit::Login) {
            "login"
        } else if error.exits_with(Exit::Token) {
            "token"
        } else {
            step
        };
        self.bad(step, &error);
        None
    }

    fn add(&mut self, step: &'static str, text: &str, finding: &Finding) {
        if !self.arguments.json {
            self.print(step, text, finding);
        }
        self.findings.push(json!({
            "step": step,
            "status": finding.status(),
            "text": text,
            "help": finding.help().map(Remedy::to_string),
            "exitCode": finding.exit_code(),
        }));
        // The exit code is that of the first step that failed.
        if self.session.exit_code == 0 {
            self.session.exit_code = finding.exit_code().unwrap_or_default();
        }
    }

    /// Prints the finding as a line, and below it what to do. At a terminal, nothing is printed for details that are
    /// good.
    fn print(&mut self, step: &'static str, text: &str, finding: &Finding) {
        let output = &self.session.output;
        if matches!(finding, Finding::Good) && is_detail(step) && output.is_brief() {
            self.unsaid += 1;
            return;
        }
        let (style, mark) = finding.mark();
        let line = format!("{:TITLE_WIDTH$} {}", title(step), printable(text));
        let line = output.folded(&line, 2, TITLE_WIDTH + 3);
        let mut shown = format!("{} {}\n", output.paint(style, mark), line.trim_start());
        if let Some(help) = finding.help() {
            let text = format!("help: {}", printable(&help.text));
            shown += &format!("{}\n", output.folded(&text, 2, 4));
            for candidate in &help.candidates {
                shown += &format!("    {}\n", printable(candidate));
            }
        }
        self.print_text(&shown);
    }

    fn print_text(&mut self, text: &str) {
        if let Err(error) = self.session.output.print_painted(text) {
            self.failure.get_or_insert(error);
        }
    }

    /// Prints the document, if that is wanted. Fails if the document or a line couldn't be printed.
    fn finish(mut self) -> Result<(), Error> {
        match self.unsaid {
            0 => {}
            1 => self.print_text("\n1 more step works; -v shows it.\n"),
            count => self.print_text(&format!("\n{count} more steps work; -v shows them.\n")),
        }
        if !self.arguments.json {
            return self.failure.map_or(Ok(()), Err);
        }
        self.session.output.print_json(&json!({
            "apiVersion": DOCUMENT_VERSION,
            "exitCode": self.session.exit_code,
            "steps": self.findings,
        }))
    }

    /// Makes the steps for the key of this source; `None` after one that ends them.
    fn check(
        &mut self,
        source: Result<NamedSource, Error>,
        variables: &TakenVariables,
    ) -> Option<()> {
        let source = source.and_then(|named| self.arguments.key.completed(named, self.session));
        let mut source = self.keep("configuration", source)?;
        let selection = key_selection(&source.configuration);
        let config = Config::from_map(&mut source.configuration);
        let mut config = self.keep("configuration", config)?;
        self.report_source(&source, &config);
        // This comes before a PIN is asked for.
        if let Some(SelectedContext { kubeconfig, context }) = &source.context {
            self.check_client(kubeconfig, context);
        }
        let target =
            self.arguments.asks_server().then(|| self.arguments.key.target(source.context));
        let target = self.keep("server", target.transpose())?;
        let mut pins = Sources::new(mem::take(&mut config.pin), variables);
        let accepted = self.check_key(&config, &mut pins);
        if self.session.exit_code != 0 {
            return None;
        }
        let target = target?;
        let server = target.cluster.server.clone();
        pins.accepted(accepted.map(AcceptedPin::into_pin));
        let connection = self.session.connect(target, selection, &mut pins);
        let connection = self.keep("server", connection)?;
        let user = self.keep("server", connection.whoami())?;
        let groups = quoted(&user.groups);
        let text = format!("{server} knows us as user \"{}\", groups {groups}", user.name);
        self.good("server", text);
        self.check_short_lived(&connection, &user)
    }

    /// Reports where the configuration of the key comes from, and what is unwise in it.
    fn report_source(&mut self, source: &KeySource, config: &Config) {
        let step = "configuration";
        match (&source.found, &source.context) {
            (Some((uri, Some(why))), _) => self.concern(
                step,
                format!("{why}; the only key that can be used is checked: {uri}"),
                Help::from("to have a context use it: ").and(write_command()),
            ),
            (Some((uri, None)), _) => {
                self.good(step, format!("from the options, completed: {uri}"));
            }
            (None, Some(SelectedContext { context, .. })) => self.good(
                step,
                format!(
                    "context \"{}\", cluster \"{}\", user \"{}\"",
                    context.name, context.cluster, context.user
                ),
            ),
            (None, None) => self.good(step, "from the options"),
        }
        if let PinSource::Configuration(_) = config.pin {
            let readers = match source.context {
                Some(_) => "in the configuration, where every program of yours can read it",
                None => "on the command line, where every user of the machine can read it",
            };
            self.concern(
                step,
                format!("the PIN stands {readers}"),
                "leave pin out to be asked for it, or set pinSource (--pin-source)",
            );
        }
    }

    /// Checks the local address that a context's cluster has for clients with the credential plugin: whether it is this
    /// user's, whether its entry still fits the cluster that it leads to, and whether clients can start the plugin.
    /// That needs no PIN, and starts nothing. A context whose user has another plugin, or none, isn't checked.
    fn check_client(&mut self, kubeconfig: &Kubeconfig, context: &Context) {
        if let Some(program) = kubeconfig.plugin_program(&context.user) {
            self.keep("client", program);
        }
        if !kubeconfig.has_plugin(&context.user) {
            return;
        }
        let Some(served) = self.keep("client", served(kubeconfig, context)) else { return };
        let RegisteredCluster { address, name, cluster, .. } = &served;
        if let Some(text) = changed(kubeconfig, context, &served) {
            let help =
                Help::from("have the context's entries written again: ").and(write_command());
            self.concern("client", text, help);
        } else {
            let (local, server) = (&context.cluster, &cluster.server);
            let text = format!(
                "cluster \"{local}\" leads through {address} to cluster \"{name}\" ({server}), and is this user's"
            );
            self.good("client", text);
        }
    }
}

/// What the tunnel process would serve for the context. An error if another program uses the address.
fn served(kubeconfig: &Kubeconfig, context: &Context) -> Result<RegisteredCluster, Error> {
    let identity = tunnel_process::identity()?;
    let served = RegisteredCluster::of(&kubeconfig.local_cluster(&context.cluster)?, &identity)?;
    let is_ours = || -> Result<bool, Error> {
        let Some(status) = tunnel_process::status()? else { return Ok(false) };
        Ok(status.clusters.iter().any(|cluster| cluster.address == served.address))
    };
    // The tunnel process may begin to serve the address between the two looks.
    if !is_ours()?
        && let Err(error) = check_port(&served.name, served.address)
        && !is_ours()?
    {
        return Err(error);
    }
    Ok(served)
}

/// Says what has changed in the cluster's entry since the tunnel's copy of it was made; `None` if nothing has.
fn changed(
    kubeconfig: &Kubeconfig,
    context: &Context,
    served: &RegisteredCluster,
) -> Option<String> {
    let name = &served.name;
    // This is the copy itself, without the proxy that the environment would add.
    let copy = kubeconfig.cluster(&context.cluster).ok()?.cluster;
    if !kubeconfig.has(EntryKind::Cluster, name) {
        return None;
    }
    let what = match kubeconfig.cluster(name) {
        Ok(real) => differences(&copy, &real.cluster),
        Err(error) => error.to_string(),
    };
    if what.is_empty() {
        return None;
    }
    Some(format!("the entry of cluster \"{name}\" has changed since it was copied: {what}"))
}

/// The names of the fields in which two entries differ.
fn differences(one: &Cluster, other: &Cluster) -> String {
    let fields = [
        ("server", one.server != other.server),
        ("certificate-authority", one.authority != other.authority),
        ("tls-server-name", one.tls_server_name != other.tls_server_name),
        ("insecure-skip-tls-verify", one.insecure != other.insecure),
        ("proxy-url", one.proxy_url != other.proxy_url),
    ];
    let mut changed = Vec::new();
    for (field, is_other) in fields {
        if is_other {
            changed.push(field);
        }
    }
    changed.join(", ")
}

/// Whether a step that has gone well doesn't matter to the user of the key.
fn is_detail(step: &str) -> bool {
    let details = [
        "client",
        "library",
        "pin-tries",
        "credential-id",
        "public-key",
        "mechanisms",
        "login",
        "private-key",
        "signature",
    ];
    details.contains(&step)
}

/// The title of the step's lines.
fn title(step: &'static str) -> &'static str {
    match step {
        "pin-tries" => "PIN tries",
        "public-key" => "public key",
        "login" => "PIN",
        "private-key" => "private key",
        "tls-versions" => "TLS",
        "server" => "cluster",
        "sealed" => "sealed file",
        "answer" => "for kubelet",
        name => name,
    }
}
