//! The options that say which key a command uses. They name library, token and object, as the keys of a configuration
//! do, or a context of the kubeconfig.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use clap_complete::{ArgValueCandidates, CompletionCandidate};

use crate::{discovery, start};
use config::{OPTIONS, PinSource, Uri, without_object, without_pin};
use kubeconfig::{Context, Kubeconfig, NamedCluster, files};
use messages::error::{Error, Exit};
use messages::help::{self, Call};
use messages::printable::shell_word;
use messages::report;
use protocol::Configuration;
use tunnel::TunnelTarget;

/// The heading under which `--help` has these options, and others that say which key is meant.
pub(in crate::cli) const HEADING: &str = "Which key";
/// The heading under which `--help` has the options that few calls need.
pub(in crate::cli) const SELDOM: &str = "Seldom needed";

/// The kubeconfig's contexts, for completions. A shell inserts them unchanged, so that a name that needs quotes isn't
/// offered.
pub(in crate::cli) fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        // A pipe isn't read, since its next reader would find it empty.
        let files = kubeconfig_files(None);
        let is_file = |path: &PathBuf| !Path::exists(path) || path.is_file();
        let kubeconfig = files.iter().all(is_file).then(|| Kubeconfig::load(&files).ok()).flatten();
        let names = kubeconfig.iter().flat_map(Kubeconfig::contexts).map(|context| context.name);
        let plain = names.filter(|name| matches!(shell_word(name), Cow::Borrowed(_)));
        plain.map(CompletionCandidate::new).collect()
    })
}

/// Makes a path absolute, as a configuration wants it. What was typed may be relative.
pub(in crate::cli) fn path(value: &str) -> Result<String, io::Error> {
    // The configuration refuses an empty path.
    if value.is_empty() {
        return Ok(String::new());
    }
    let absolute = std::path::absolute(value)?;
    let not_text = |_| io::Error::other("the current directory's name is not UTF-8");
    absolute.into_os_string().into_string().map_err(not_text)
}

/// Makes the path of a PKCS#11 library absolute. A name alone is a file of the current directory, as it is everywhere
/// else: no loader's directories are searched. If there is no such file, but a library of this name is installed, the
/// error tells its path.
fn library_path(value: &str) -> Result<String, io::Error> {
    let given = Path::new(value);
    let is_name = given.file_name() == Some(given.as_os_str());
    if is_name && !given.exists() {
        let home = std::env::home_dir();
        let mut installed = discovery::libraries(home.as_deref()).into_iter();
        let found = installed.find(|library| library.path.file_name() == given.file_name());
        if let Some(library) = found {
            let path = library.path.to_string_lossy().into_owned();
            let text = format!(
                "there is no such file here; type its whole path: --module={}",
                shell_word(&path)
            );
            return Err(io::Error::other(text));
        }
    }
    path(value)
}

/// Makes the path in a `pinSource` absolute.
pub(in crate::cli) fn pin_source(value: &str) -> Result<String, io::Error> {
    match value.strip_prefix("file:") {
        Some(file) => Ok(format!("file:{}", path(file)?)),
        None => Ok(value.to_owned()),
    }
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct Selection {
    /// The token's PKCS#11 library
    #[arg(long, value_name = "FILE", value_parser = library_path, help_heading = HEADING, value_hint = ValueHint::FilePath)]
    pub(in crate::cli) module: Option<String>,
    /// A text that the library needs, such as configDir='sql:/path' for NSS
    #[arg(long, value_name = "TEXT", help_heading = HEADING, hide_short_help = true)]
    pub(in crate::cli) init_args: Option<String>,
    /// The number of the token's slot
    #[arg(long, value_name = "NUMBER", help_heading = HEADING, hide_short_help = true)]
    pub(in crate::cli) slot_id: Option<String>,
    /// The token's label
    #[arg(long, value_name = "LABEL", help_heading = HEADING)]
    pub(in crate::cli) token_label: Option<String>,
    /// The token's serial number
    #[arg(long, value_name = "SERIAL", help_heading = HEADING)]
    pub(in crate::cli) token_serial: Option<String>,
    /// The key's CKA_ID, such as 2, 0x0102 or 01:02
    #[arg(long, value_name = "ID", help_heading = HEADING)]
    pub(in crate::cli) object_id: Option<String>,
    /// The certificate's label
    #[arg(long, value_name = "LABEL", help_heading = HEADING, hide_short_help = true)]
    pub(in crate::cli) object_label: Option<String>,
    /// A pkcs11: URI that says all of this
    #[arg(long, value_name = "URI", help_heading = HEADING, hide_short_help = true)]
    pub(in crate::cli) uri: Option<String>,
}

impl Selection {
    /// The selection of the token alone: what it says of a library and a token.
    pub(in crate::cli) fn of_token(&self) -> Self {
        let uri = self.uri.as_deref().map(without_object);
        Self { object_id: None, object_label: None, uri, ..self.clone() }
    }

    /// Whether the selection says more than which library is meant.
    pub(in crate::cli) fn names_a_token_or_an_object(&self) -> bool {
        self.given().any(|given| !matches!(given.key, "pathLib" | "initArgs"))
    }

    /// The options that are given.
    fn given(&self) -> impl Iterator<Item = GivenOption<'_>> {
        OPTIONS
            .into_iter()
            .filter_map(|(key, option)| Some(GivenOption { option, key, value: self.value(key)? }))
    }

    /// The value of the option that stands for this key of the configuration.
    fn value(&self, key: &str) -> Option<&str> {
        let value = match key {
            "pathLib" => &self.module,
            "initArgs" => &self.init_args,
            "slotId" => &self.slot_id,
            "tokenLabel" => &self.token_label,
            "tokenSerial" => &self.token_serial,
            "objectId" => &self.object_id,
            "objectLabel" => &self.object_label,
            "uri" => &self.uri,
            _ => return None,
        };
        value.as_deref()
    }

    /// The configuration that says the same as the options.
    pub(in crate::cli) fn configuration(&self) -> Configuration {
        self.given().map(|GivenOption { key, value, .. }| (key, value)).collect()
    }

    /// The options that are given, each with its value. A URI is printed anew, without a PIN in it. One that can't be
    /// read is left out.
    pub(in crate::cli) fn options(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.given().filter_map(|GivenOption { option, key, value }| {
            let value = match key {
                "uri" => Uri::parse(value).ok()?.to_string(),
                _ => value.to_owned(),
            };
            Some((option, value))
        })
    }

    /// The options that are given, as arguments for another process of this program.
    pub(in crate::cli) fn arguments(&self) -> impl Iterator<Item = String> {
        // Option and value are one word, since a value could begin with a hyphen.
        self.options().map(|(option, value)| format!("{option}={value}"))
    }
}

/// An option that is given.
struct GivenOption<'a> {
    /// The option's name, such as `--module`.
    option: &'static str,
    /// The configuration's key that the option stands for, such as `pathLib`.
    key: &'static str,
    value: &'a str,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct KeyOptions {
    #[command(flatten)]
    pub(in crate::cli) selection: Selection,
    /// A file with the certificate, if the token has none
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = HEADING, hide_short_help = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(in crate::cli) certificate_file: Option<String>,
    /// Where the PIN comes from: prompt, askpass, stdin, file:/path or env:VAR
    #[arg(long, value_name = "SOURCE", value_parser = pin_source, help_heading = HEADING)]
    pub(in crate::cli) pin_source: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) kubeconfig: Option<PathBuf>,
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", add = contexts())]
    pub(in crate::cli) context: Option<String>,
}

/// A key's configuration, and where it comes from.
pub(in crate::cli) struct KeySource {
    pub(in crate::cli) configuration: Configuration,
    /// The context that names the key; `None` if the options do.
    pub(in crate::cli) context: Option<SelectedContext>,
    /// The URI of the key that was found on this machine, because the options don't say all. With it comes why the
    /// current context names no key, if no option does either.
    pub(in crate::cli) found: Option<(String, Option<Error>)>,
}

/// The context that `--context` names, or the current one.
pub(in crate::cli) struct SelectedContext {
    pub(in crate::cli) kubeconfig: Kubeconfig,
    pub(in crate::cli) context: Context,
}

impl SelectedContext {
    /// The context's cluster.
    pub(in crate::cli) fn target(&self) -> Result<TunnelTarget, Error> {
        let NamedCluster { name, cluster } = self.kubeconfig.cluster(&self.context.cluster)?;
        Ok(TunnelTarget::new(name, cluster))
    }
}

impl KeyOptions {
    /// The options that name this context of this kubeconfig.
    pub(in crate::cli) fn of_context(
        kubeconfig: &Option<PathBuf>,
        context: Option<String>,
    ) -> Self {
        Self { kubeconfig: kubeconfig.clone(), context, ..Self::default() }
    }

    /// Whether the options name a key, rather than have a context name it.
    pub(in crate::cli) fn names_a_key(&self) -> bool {
        self.selection.given().next().is_some()
    }

    /// The key that the options name, or else that of the context's user.
    pub(in crate::cli) fn source(&self) -> Result<KeySource, Error> {
        if self.names_a_key() {
            return Ok(self.options_source());
        }
        let selected = self.selected()?;
        let configuration = self.key_of_context(&selected)?;
        Ok(KeySource { configuration, context: Some(selected), found: None })
    }

    /// The key that the options name.
    pub(in crate::cli) fn options_source(&self) -> KeySource {
        KeySource { configuration: self.configuration(), context: None, found: None }
    }

    /// The key of the context's user.
    pub(in crate::cli) fn key_of_context(
        &self,
        found: &SelectedContext,
    ) -> Result<Configuration, Error> {
        Ok(self.overridden(found.kubeconfig.key_of(&found.context)?))
    }

    /// The configuration that the options give for the key.
    pub(in crate::cli) fn configuration(&self) -> Configuration {
        self.overridden(self.selection.configuration())
    }

    /// The options for the whole token, without what they say of an object.
    pub(in crate::cli) fn of_token(&self) -> Self {
        Self { selection: self.selection.of_token(), ..self.clone() }
    }

    /// The selected context, with its kubeconfig.
    pub(in crate::cli) fn selected(&self) -> Result<SelectedContext, Error> {
        let kubeconfig = self.kubeconfig()?;
        let context = kubeconfig.selected_context()?;
        help::set_context(&context.name);
        Ok(SelectedContext { kubeconfig, context })
    }

    /// The cluster of the context that names the key. If options name the key, it is that of the selected context.
    pub(in crate::cli) fn target(
        &self,
        context: Option<SelectedContext>,
    ) -> Result<TunnelTarget, Error> {
        context.map_or_else(|| self.selected(), Ok)?.target()
    }

    /// The kubeconfig, with the selected context as its current one.
    pub(in crate::cli) fn kubeconfig(&self) -> Result<Kubeconfig, Error> {
        let mut kubeconfig = load_kubeconfig(self.kubeconfig.as_deref())?;
        if let Some(name) = &self.context {
            kubeconfig.set_current_context(name)?;
        }
        Ok(kubeconfig)
    }

    /// The configuration, with the certificate's file and the PIN's source that the options name.
    pub(in crate::cli) fn overridden(&self, mut configuration: Configuration) -> Configuration {
        if let Some(path) = &self.certificate_file {
            configuration.set("certificateFile", path);
        }
        if let Some(source) = &self.pin_source {
            PinSource::override_in(&mut configuration, source);
        }
        configuration
    }

    /// Has help texts name commands with these options, and the program as it was called. For example, `check
    /// --pin-source prompt` logs in to the token of the current context, unless it gets the kubeconfig, context or
    /// token of this call.
    pub(in crate::cli) fn set_call(&self) {
        help::set_call(self.call());
        if let Some(context) = &self.context {
            help::set_context(context);
        }
    }

    fn call(&self) -> Call {
        let kubeconfig =
            option("--kubeconfig", self.kubeconfig.as_deref().map(Path::to_string_lossy));
        // A text that is no source may be the PIN itself.
        let pin_source = self.pin_source.as_ref().filter(|source| PinSource::parse(source).is_ok());
        let key = [
            options(&self.selection),
            kubeconfig.clone(),
            option("--context", self.context.as_ref()),
            option("--certificate-file", self.certificate_file.as_ref()),
        ];
        let mut token = self.selection.of_token();
        token.uri = token.uri.as_deref().map(without_pin);
        Call {
            program: Some(start::called()),
            key: key.concat(),
            token: options(&token),
            pin_source: option("--pin-source", pin_source),
            kubeconfig,
        }
    }
}

fn options(selection: &Selection) -> String {
    selection.options().map(|(name, value)| option(name, Some(value))).collect()
}

/// An option for a shell, with a space before it: ` --name='value'`. It is one word, since the value could begin with a
/// hyphen.
pub(in crate::cli) fn option(name: &str, value: Option<impl AsRef<str>>) -> String {
    value.map_or_else(String::new, |value| format!(" {name}={}", shell_word(value.as_ref())))
}

/// The error for arguments that don't go together.
pub(in crate::cli) fn needs(argument: &str, other: &str) -> Error {
    Error::new(Exit::Request, format!("missing argument: {argument} needs {other}"))
        .help("--help shows what goes with what")
}

/// The error for a PIN from standard input where that belongs to the client: `kubectl apply -f -` reads the manifest
/// from it.
pub(in crate::cli) fn standard_input_is_the_clients() -> Error {
    Error::new(Exit::Configuration, "pinSource is stdin, and standard input is the client's")
        .help("choose another pinSource (--pin-source): prompt, askpass, file:/path or env:NAME")
}

/// Loads the kubeconfig from this file, or from those that kubectl would read. Warns of each file that somebody else
/// can change.
pub(in crate::cli) fn load_kubeconfig(explicit: Option<&Path>) -> Result<Kubeconfig, Error> {
    let kubeconfig = Kubeconfig::load(&kubeconfig_files(explicit))?;
    for concern in &kubeconfig.concerns {
        report::warning(concern);
    }
    Ok(kubeconfig)
}

/// The file of the kubeconfig that is named, or the files that kubectl would read.
pub(in crate::cli) fn kubeconfig_files(explicit: Option<&Path>) -> Vec<PathBuf> {
    let variable = std::env::var_os("KUBECONFIG");
    let home = std::env::var_os("HOME").map(PathBuf::from);
    files(explicit, variable.as_deref(), home.as_deref())
}

/// Sets the configuration's key to this value. An empty value is the same as none.
pub(in crate::cli) fn set(configuration: &mut Configuration, key: &str, value: Option<&str>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        configuration.set(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_and_a_context_are_repeated() {
        let call = KeyOptions {
            kubeconfig: Some("a b.yaml".into()),
            context: Some("it's".to_owned()),
            ..KeyOptions::default()
        }
        .call();
        assert_eq!(call.key, r" --kubeconfig='a b.yaml' --context='it'\''s'");
        assert_eq!(call.kubeconfig, " --kubeconfig='a b.yaml'");
    }

    #[test]
    fn a_pin_in_a_uri_is_not_repeated() {
        let uri = Some("pkcs11:token=prod;id=%01?pin-value=123456".to_owned());
        let call = KeyOptions {
            selection: Selection { uri, ..Selection::default() },
            pin_source: Some("env:PIN".to_owned()),
            ..KeyOptions::default()
        }
        .call();
        assert_eq!(call.key, " --uri='pkcs11:token=prod;id=%01'");
        assert_eq!(call.token, " --uri='pkcs11:token=prod'");
        assert_eq!(call.pin_source, " --pin-source=env:PIN");
        let pin = Some("123456".to_owned());
        let call = KeyOptions { pin_source: pin, ..KeyOptions::default() }.call();
        assert_eq!(call.pin_source, "");
    }
}
