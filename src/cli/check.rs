//! `check`: whether a configured key works, step by step, and what to do where it doesn't.

#![forbid(unsafe_code)]

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::again::Invocation;
use super::completions::values;
use super::error::ArgumentNeeds;
use super::kubeconfig::{Search, set_token, stanza};
use super::selection::{self, HEADING, Selection};
use super::style::{Palette, Style};
use super::turn;
use crate::config::{Config, Filter, PinSource};
use crate::diagnosis::{self, Finding, Observer, Opened, Step, Way};
use crate::error::{Error, Remedy};
use crate::keyring::{self, Keyring};
use crate::kubeconfig::KubeconfigError;
use crate::kubeconfig::{Cluster, Context, Kubeconfig, Provider, Stanza};
use crate::pin::PinProvider;
use crate::pin_entry::Sources;
use crate::printable::{excerpt, line, printable_json};
use crate::process::answer::AnswerChannel;
use crate::process::environment::{SingleThreaded, TakenVariables};
use crate::process::watchdog;
use crate::protocol::Configuration;
use crate::report;
use crate::token::AcceptedPin;
use crate::token::ObjectError;
use crate::tunnel::{self, Destination, Recognition};

/// Test each step up to a signature: what works, what doesn't, and what to do about it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer check                # the current context
  pkcs11-external-signer check --context prod --server
  pkcs11-external-signer check --no-login     # without a PIN
  pkcs11-external-signer check --token-serial 15873456 --object-id 2 \\
      --module /usr/lib/x86_64-linux-gnu/libykcs11.so

The exit code is the one a signature would have ended with: that of the first step that failed.")]
pub(super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// All of it as a pkcs11: URI
    #[arg(long, value_name = "URI", help_heading = HEADING)]
    uri: Option<String>,
    /// The certificate, for a token that holds none
    #[arg(long, value_name = "FILE", value_parser = selection::path, help_heading = HEADING, add = values::files())]
    certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:NAME
    #[arg(long, value_name = "SOURCE", value_parser = selection::pin_source, help_heading = HEADING, add = values::pin_sources())]
    pin_source: Option<String>,
    /// The kubeconfig; without it KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", add = values::files())]
    kubeconfig: Option<PathBuf>,
    /// The context; without it the current one
    #[arg(long, value_name = "NAME", add = values::contexts())]
    context: Option<String>,
    /// Connect to the context's cluster, too, and ask as whom it knows us
    #[arg(long, conflicts_with = "no_login")]
    server: bool,
    /// Stop before the PIN
    #[arg(long)]
    no_login: bool,
    /// Send a stored PIN although the token has refused one, because it is another PIN now
    #[arg(long, conflicts_with = "no_login")]
    despite_refusal: bool,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        Invocation {
            command: "check",
            selection: Some(&self.selection),
            uri: self.uri.as_deref(),
            certificate_file: self.certificate_file.as_deref(),
            pin_source: self.pin_source.as_deref(),
            kubeconfig: self.kubeconfig.as_deref(),
            context: self.context.clone(),
        }
    }

    /// Rather than have the kubeconfig name it.
    fn names_a_key(&self) -> bool {
        !self.selection.is_empty() || self.uri.is_some()
    }
}

/// Tells of each step; the exit code.
#[cold]
pub(super) fn run(arguments: &Arguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let palette = Palette::for_standard_output();
    let columns = report::columns(&io::stdout());
    let channel = match AnswerChannel::open() {
        Ok(channel) => channel,
        Err(error) => {
            let error = Error::from(error);
            report::error(&error);
            return error.exit_code();
        }
    };
    let mut teller = Teller {
        channel,
        columns,
        palette,
        is_json: arguments.json,
        lost: None,
        steps: Vec::new(),
    };
    let mut open = Open::default();
    check(arguments, verbosity, alone, &mut open, &mut teller);
    let code = teller.finish();
    open.finish(code);
    code
}

/// `None` where it ended before the way to the token began.
fn check(
    arguments: &Arguments,
    verbosity: u8,
    alone: SingleThreaded,
    open: &mut Open,
    teller: &mut Teller,
) -> Option<()> {
    let source = diagnosis::keep(teller, Step::Configuration, Source::of(arguments))?;
    let mut map = source.configuration(arguments);
    let variables = super::take_variables(source.configuration(arguments), alone);
    let found = match source.is_kubeconfigs {
        true => Ok(None),
        false => complete(&mut map, arguments, verbosity),
    };
    // That nothing names a key is said where there isn't just one, either.
    let found = match (found, source.no_key) {
        (Err(error), Some(why))
            if !matches!(error.downcast_ref(), Some(ObjectError::Choice { .. })) =>
        {
            Err(why)
        }
        (found, why) => found.map(|found| (found, why)),
    };
    let (found, why) = diagnosis::keep(teller, Step::Configuration, found)?;
    let mut config = diagnosis::keep(teller, Step::Configuration, Config::from_map(&mut map))?;
    let finding = match (&source.context, found, why) {
        (_, Some(uri), Some(why)) => Finding::Concern(
            format!("{why}; the only key that can be used is checked: {uri}"),
            "have a context use it: `pkcs11-external-signer kubeconfig --write --context NAME`"
                .to_owned(),
        ),
        (_, Some(uri), None) => Finding::Good(format!("from the options, completed: {uri}")),
        (Some(context), ..) if source.is_kubeconfigs => Finding::Good(format!(
            "context \"{}\", cluster \"{}\", user \"{}\"",
            context.name, context.cluster, context.user
        )),
        _ => Finding::Good("from the options".to_owned()),
    };
    teller.found(Step::Configuration, finding);
    if let Some(program) = map.value("pathExec")
        && !Path::new(program).is_file()
    {
        teller.found(
            Step::Configuration,
            Finding::Concern(
                format!("pathExec {} is no program that is there", excerpt(program)),
                "clients with the provider need it: pkcs11-external-signer kubeconfig prints the \
                 right one; `run` does without"
                    .to_owned(),
            ),
        );
    }
    if matches!(config.pin, PinSource::Configuration(_)) {
        teller.found(
            Step::Configuration,
            Finding::Concern(
                match source.is_kubeconfigs {
                    true => {
                        "the PIN stands in the configuration, where every program of yours can \
                         read it"
                    }
                    false => {
                        "the PIN stands on the command line, where every user of the machine can \
                         read it"
                    }
                }
                .to_owned(),
                "leave pin out to be asked, or set pinSource".to_owned(),
            ),
        );
    }
    // Before anybody is asked for a PIN.
    let cluster = match arguments.server {
        true => {
            let cluster = cluster_of(&source.kubeconfig, source.context.as_ref());
            Some(diagnosis::keep(teller, Step::Server, cluster)?)
        }
        false => None,
    };
    // Of this process's two ways to the token, the second gets the PIN that the first one used.
    let mut pins = Sources::new(mem::replace(&mut config.pin, PinSource::Prompt), &variables);
    let turn = diagnosis::keep(teller, Step::Token, turn::take(&config.library))?;
    let asked: Option<&mut dyn PinProvider> = if arguments.no_login {
        None
    } else {
        Some(&mut pins)
    };
    let way = Way {
        config: &config,
        disregards_refusals: arguments.despite_refusal,
    };
    let accepted = diagnosis::examine(&way, turn, asked, &mut open.library, teller);
    if let Some(cluster) = cluster
        && teller.exit_code() == 0
    {
        // The keyring keeps the time from here.
        watchdog::stop();
        server(config, accepted, cluster, open, teller);
    }
    Some(())
}

/// What is open when the check has been told.
#[derive(Default)]
struct Open {
    library: Opened,
    keyring: Option<Arc<Keyring>>,
}

impl Open {
    /// The process ends with this code, whatever the libraries think of their end.
    fn finish(self, code: u8) {
        if let Some((module, _lock)) = self.library {
            module.finalize(code);
        }
        if let Some(keyring) = self.keyring {
            keyring.finish(code);
        }
    }
}

/// Where the configuration comes from.
struct Source {
    kubeconfig: Kubeconfig,
    context: Option<Context>,
    /// The key's configuration is the context's.
    is_kubeconfigs: bool,
    /// Why it isn't, where no option names a key.
    no_key: Option<Error>,
}

impl Source {
    fn of(arguments: &Arguments) -> Result<Self, Error> {
        let names_a_key = arguments.names_a_key();
        let without_kubeconfig = |no_key| Self {
            kubeconfig: Kubeconfig::default(),
            context: None,
            is_kubeconfigs: false,
            no_key,
        };
        let (context, file) = (arguments.context.is_some(), arguments.kubeconfig.is_some());
        if names_a_key && !arguments.server {
            let argument = match (context, file) {
                (true, _) => "--context beside options that name a key",
                (_, true) => "--kubeconfig beside options that name a key",
                _ => return Ok(without_kubeconfig(None)),
            };
            let other = "--server";
            return Err(ArgumentNeeds { argument, other }.into());
        }
        let wants_kubeconfig = arguments.server || context || file;
        match Self::of_kubeconfig(arguments, !names_a_key) {
            Err(error)
                if !wants_kubeconfig
                    && matches!(
                        error.downcast_ref(),
                        Some(
                            KubeconfigError::Missing { .. }
                                | KubeconfigError::NoCurrentContext { .. }
                                | KubeconfigError::NotExternalSigner { .. }
                        )
                    ) =>
            {
                Ok(without_kubeconfig(Some(error)))
            }
            source => source,
        }
    }

    fn of_kubeconfig(arguments: &Arguments, is_kubeconfigs: bool) -> Result<Self, Error> {
        let locations = super::locations(arguments.kubeconfig.as_deref());
        let mut kubeconfig = super::load(&locations.required())?;
        if let Some(name) = &arguments.context {
            kubeconfig.set_current_context(name)?;
        }
        let context = kubeconfig.selected_context()?;
        if is_kubeconfigs
            && !matches!(
                kubeconfig.provider(&context.user),
                Provider::ExternalSigner(_)
            )
        {
            return Err(KubeconfigError::NotExternalSigner {
                context: context.name,
                user: context.user,
            }
            .into());
        }
        Ok(Self {
            kubeconfig,
            context: Some(context),
            is_kubeconfigs,
            no_key: None,
        })
    }

    fn configuration(&self, arguments: &Arguments) -> Configuration {
        let mut map = match &self.context {
            Some(context) if self.is_kubeconfigs => match self.kubeconfig.provider(&context.user) {
                Provider::ExternalSigner(map) => map,
                Provider::None | Provider::Other(_) => Configuration::default(),
            },
            _ => arguments
                .selection
                .configuration([("uri", arguments.uri.as_deref())]),
        };
        if let Some(path) = &arguments.certificate_file {
            map.set("certificateFile", path);
        }
        if let Some(source) = &arguments.pin_source {
            PinSource::override_in(&mut map, source);
        }
        map
    }
}

fn cluster_of(
    kubeconfig: &Kubeconfig,
    context: Option<&Context>,
) -> Result<(String, Cluster), KubeconfigError> {
    let name = context.map_or("", |context| context.cluster.as_str());
    Ok((name.to_owned(), kubeconfig.cluster(name)?))
}

/// Adds what the options leave out of library, token and key where there is one of it, or somebody
/// picks one; the URI of what was found, `None` where nothing was left out.
fn complete(
    map: &mut Configuration,
    arguments: &Arguments,
    verbosity: u8,
) -> Result<Option<String>, Error> {
    let uri = arguments.uri.as_deref();
    let said = Filter::from_map(&mut arguments.selection.configuration([("uri", uri)]))?;
    let is_whole = said.library.is_some() && said.token.is_given() && said.object.is_given();
    if is_whole {
        return Ok(None);
    }
    let search = Search {
        selection: &arguments.selection,
        uri,
        wanted: said.object,
        has_certificate: arguments.certificate_file.is_some(),
        login: false,
        pin_source: None,
        variables: &TakenVariables::default(),
        verbosity,
    };
    let mut opened = None;
    let survey = search.look(&mut opened);
    if let Some((module, _lock)) = opened {
        let _step = watchdog::step("closing the library (C_Finalize)");
        module.close();
    }
    let survey = survey?;
    // What is wrong with the only key is for the check to tell.
    let mut keys = survey.keys();
    let only_key = keys.next().filter(|_| keys.next().is_none());
    let chosen = search
        .choose(&survey)
        .or_else(|error| match error.downcast_ref() {
            Some(ObjectError::NoUsable { .. }) => only_key.ok_or(error),
            _ => Err(error),
        });
    let (stanza, uri) = match (chosen, survey.only_token()) {
        (Ok(place @ (_, _, key)), _) => (stanza(None, place, None), key.uri.clone()),
        // It can be one that the token hides.
        (Err(error), Some((library, token)))
            if matches!(error.downcast_ref(), Some(ObjectError::NoneFits { .. })) =>
        {
            let mut stanza = Stanza::default();
            set_token(&mut stanza, library, token);
            (stanza, format!("token {}", token.name()))
        }
        (Err(error), _) => return Err(error),
    };
    for (key, value) in stanza.pairs() {
        if key != "pathExec" && !map.has(key) {
            map.set(key, value);
        }
    }
    Ok(Some(uri))
}

/// The connection that `run` would make.
fn server(
    config: Config,
    accepted: Option<AcceptedPin>,
    (name, cluster): (String, Cluster),
    open: &mut Open,
    teller: &mut Teller,
) {
    // The library stays open: some see no token any more after C_Finalize.
    let Some((module, lock)) = open.library.take() else {
        return;
    };
    let opened = keyring::Opened {
        module,
        lock,
        accepted,
    };
    let notes = Arc::new(Notes::default());
    let observer: Arc<dyn tunnel::Observer> = Arc::clone(&notes) as _;
    let asked = Keyring::of_open(config, opened, turn::tell).and_then(|(keyring, keys)| {
        let keyring = Arc::clone(open.keyring.insert(Arc::new(keyring)));
        let key = keys
            .first()
            .copied()
            .ok_or_else(|| Error::internal("a keyring without keys".to_owned()))?;
        let server = cluster.server.clone();
        let destination = Destination { name, cluster };
        let recognition = tunnel::whoami(destination, key, &keyring, &observer)?;
        Ok((server, recognition))
    });
    for line in notes.take() {
        teller.found(Step::Server, Finding::Good(line));
    }
    teller.found(
        Step::Server,
        match asked {
            Err(error) => Finding::Bad(error),
            Ok((server, Recognition::User { name, groups })) => Finding::Good(format!(
                "{server} knows us as user \"{name}\", groups {}",
                diagnosis::quoted(&groups)
            )),
            Ok((server, Recognition::NotTold)) => Finding::Concern(
                format!("{server} was reached, but is too old to tell as whom it knows us"),
                "try `run -- kubectl get namespaces`".to_owned(),
            ),
        },
    );
}

/// What the connection tells of itself.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl tunnel::Observer for Notes {
    fn connection(&self, line: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.to_owned());
    }

    fn trouble(&self, _: &Error) {}

    fn concern(&self, _: &str) {}

    fn waiting(&self, text: &str) {
        report::warning(text);
    }
}

/// Prints each finding, or keeps it for the document.
struct Teller {
    channel: AnswerChannel,
    palette: Palette,
    /// How wide standard output is, where it is a terminal.
    columns: Option<usize>,
    is_json: bool,
    /// That standard output takes nothing any more.
    lost: Option<Error>,
    steps: Vec<Told>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    step: &'static str,
    status: Status,
    text: String,
    help: Option<String>,
    /// Of a step that failed.
    exit_code: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Good,
    Concern,
    Bad,
}

/// What `check --json` prints, described in docs/commands.md.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    exit_code: u8,
    steps: &'a [Told],
}

impl Observer for Teller {
    fn found(&mut self, step: Step, finding: Finding) {
        let (status, text, help, exit_code) = match finding {
            Finding::Good(text) => (Status::Good, text, None, None),
            Finding::Concern(text, remedy) => (
                Status::Concern,
                text,
                Some(Remedy::from(report::spoken(&remedy))),
                None,
            ),
            Finding::Bad(error) => (
                Status::Bad,
                error.to_string(),
                Some(report::help(&error)),
                Some(error.exit_code()),
            ),
        };
        if !self.is_json {
            let shown = self.shown(step, status, &text, help.as_ref());
            self.write(&shown);
        }
        self.steps.push(Told {
            step: step.name(),
            status,
            text,
            help: help.map(|help| help.to_string()),
            exit_code,
        });
    }
}

impl Teller {
    fn shown(&self, step: Step, status: Status, text: &str, help: Option<&Remedy>) -> String {
        let (mark, style) = match status {
            Status::Good => ("✔", Style::Good),
            Status::Concern => ("!", Style::Concern),
            Status::Bad => ("✘", Style::Bad),
        };
        let folded = |line: String| match self.columns {
            Some(columns) => report::hanging(&line, columns),
            None => line,
        };
        let mark = self.palette.paint(style, mark);
        let told = folded(format!("  {:14} {}", step.title(), line(text)));
        let mut shown = format!("{mark} {}\n", told.trim_start());
        if let Some(help) = help {
            shown.push_str(&folded(format!("  help: {}", line(&help.text))));
            shown.push('\n');
            for candidate in &help.candidates {
                shown.push_str(&format!("    {}\n", line(candidate)));
            }
        }
        shown
    }

    fn write(&mut self, text: &str) {
        if let Err(error) = self.channel.show(text) {
            self.lost.get_or_insert_with(|| error.into());
        }
    }

    /// That of the first step that failed.
    fn exit_code(&self) -> u8 {
        self.steps
            .iter()
            .find_map(|told| told.exit_code)
            .unwrap_or(0)
    }

    fn finish(mut self) -> u8 {
        let code = self.exit_code();
        if self.is_json {
            let document = serde_json::to_string_pretty(&Document {
                api_version: "pkcs11-external-signer/v1",
                exit_code: code,
                steps: &self.steps,
            });
            match document {
                Ok(document) => self.write(&format!("{}\n", printable_json(&document))),
                Err(error) => self.lost = Some(Error::internal(format!("JSON: {error}"))),
            }
        }
        match self.lost {
            Some(error) => {
                report::error(&error);
                error.exit_code()
            }
            None => code,
        }
    }
}
