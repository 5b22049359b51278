//! kubectl's kuberc, as far as it says which credential plugins kubectl runs (kubectl, pkg/kuberc;
//! client-go, plugin/pkg/client/auth/exec).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::decode::{self, Reason, YamlError};
use super::file::{self, ReadFailure};
use super::program::find_program;
use super::yaml;
use crate::printable::excerpt;

const V1BETA1: &str = "kubectl.config.k8s.io/v1beta1";
/// Has no policy.
const V1ALPHA1: &str = "kubectl.config.k8s.io/v1alpha1";

/// What the user's kuberc says of credential plugins.
pub struct Kuberc {
    pub path: PathBuf,
    policy: String,
    /// `None` where the field is missing, which is another fault than an empty list.
    allowlist: Option<Vec<String>>,
}

/// A kuberc that kubectl can't use either.
pub struct KubercFault {
    pub path: PathBuf,
    pub reason: String,
    /// KUBERC names it: kubectl ends with an error. It passes over the usual file with a warning.
    pub is_named: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", expecting = "a map")]
struct Preference {
    api_version: Option<String>,
    kind: Option<String>,
    credential_plugin_policy: Option<String>,
    credential_plugin_allowlist: Option<Vec<Option<AllowlistEntry>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "a map")]
struct AllowlistEntry {
    /// What `command` was called before kubectl 1.36.
    name: Option<String>,
    command: Option<String>,
}

impl Kuberc {
    /// The file that KUBERC names, or `~/.kube/kuberc`; `None` where there is none, kuberc is switched
    /// off, or the file is empty.
    ///
    /// # Errors
    /// It can't be read, or no document in it is what kubectl takes.
    pub fn load() -> Result<Option<Self>, KubercFault> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let switch = variable("KUBECTL_KUBERC");
        let is_off = switch.is_some_and(|it| it.eq_ignore_ascii_case("false"));
        let named = variable("KUBERC");
        if is_off || named.as_ref().is_some_and(|it| it == "off") {
            return Ok(None);
        }
        let is_named = named.is_some();
        let usual = || Some(PathBuf::from(variable("HOME")?).join(".kube/kuberc"));
        let Some(path) = named.map(PathBuf::from).or_else(usual) else {
            return Ok(None);
        };
        let read = match file::read(&path) {
            Ok(content) => Self::parse(&content.bytes, &path),
            Err(ReadFailure::Missing) if !is_named => Ok(None),
            Err(ReadFailure::Missing) => Err("there is no such file".to_owned()),
            Err(ReadFailure::Other(reason)) => Err(reason),
        };
        read.map_err(|reason| KubercFault { path, reason, is_named })
    }

    /// The first document that is of a known kind.
    fn parse(content: &[u8], path: &Path) -> Result<Option<Self>, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut fault = None;
        for (first_line, document) in documents(text) {
            if document.trim().is_empty() {
                continue;
            }
            match preference(document) {
                Ok((policy, allowlist)) => {
                    let path = path.to_owned();
                    return Ok(Some(Self { path, policy, allowlist }));
                }
                Err(error) => {
                    fault.get_or_insert_with(|| told(error, first_line));
                }
            }
        }
        fault.map_or(Ok(None), Err)
    }

    /// Why kubectl doesn't run this plugin; `None` if it does.
    pub fn refusal(&self, command: &str) -> Option<String> {
        let policy = &self.policy;
        match (policy.as_str(), &self.allowlist) {
            ("" | "AllowAll", None) => None,
            ("DenyAll", None) => Some("credentialPluginPolicy is DenyAll".to_owned()),
            ("" | "AllowAll" | "DenyAll", Some(_)) => Some(format!(
                "there is a credentialPluginAllowlist, and credentialPluginPolicy is \"{policy}\""
            )),
            ("Allowlist", Some(list)) => refusal_by(list, &cleaned(command)),
            ("Allowlist", None) => Some(
                "credentialPluginPolicy is Allowlist, and there is no credentialPluginAllowlist"
                    .to_owned(),
            ),
            (unknown, _) => Some(format!(
                "credentialPluginPolicy is \"{}\", which kubectl doesn't know",
                excerpt(unknown)
            )),
        }
    }
}

fn refusal_by(list: &[String], command: &str) -> Option<String> {
    if list.is_empty() {
        return Some("credentialPluginAllowlist is empty".to_owned());
    }
    if let Some(entry) = list.iter().find(|it| cleaned(it) != **it) {
        let entry = excerpt(entry);
        return Some(format!(
            "\"{entry}\" in credentialPluginAllowlist is no path in its shortest form"
        ));
    }
    let found = find_program(command);
    // As client-go: the same text, or the same program by the same name.
    let is_meant = |entry: &String| {
        let has_found = |found: &PathBuf| {
            let entry_path = Path::new(entry);
            let has_its_name = || entry_path.file_name() == found.file_name();
            found == entry_path || has_its_name() && find_program(entry).as_ref() == Some(found)
        };
        entry == command || found.as_ref().is_some_and(has_found)
    };
    (!list.iter().any(is_meant))
        .then(|| format!("credentialPluginAllowlist doesn't have {}", excerpt(command)))
}

fn preference(document: &str) -> Result<(String, Option<Vec<String>>), YamlError> {
    let root = yaml::parse(document)?;
    let preference = root.as_deref().map(decode::from_node::<Option<Preference>>);
    let preference = preference.transpose()?.flatten().unwrap_or_default();
    let version = preference.api_version.as_deref().unwrap_or_default();
    let is_known = [V1BETA1, V1ALPHA1].contains(&version);
    if !is_known || preference.kind.as_deref() != Some("Preference") {
        let reason = format!("it is no Preference of {V1BETA1}");
        return Err(YamlError::malformed(0, reason));
    }
    if version == V1ALPHA1 {
        return Ok((String::new(), None));
    }
    let entries = preference.credential_plugin_allowlist;
    let entries = entries.map(|entries| {
        let entries = entries.into_iter().map(Option::unwrap_or_default);
        entries.map(command).collect::<Result<_, _>>()
    });
    let policy = preference.credential_plugin_policy.unwrap_or_default();
    Ok((policy, entries.transpose()?))
}

fn command(entry: AllowlistEntry) -> Result<String, YamlError> {
    let given = |text: Option<String>| text.filter(|it| !it.is_empty());
    match (given(entry.name), given(entry.command)) {
        (Some(name), Some(command)) if name != command => Err(YamlError::malformed(
            0,
            "an entry of credentialPluginAllowlist has both name and command",
        )),
        (name, command) => Ok(command.or(name).unwrap_or_default()),
    }
}

/// The documents, each with the number of lines before it. Only a line that is `---` alone separates
/// them for kubectl (apimachinery, pkg/util/yaml, YAMLReader).
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut place) = (0, 0, 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let end = place;
        place += line.len();
        if line.strip_prefix("---").is_some_and(|it| it.trim().is_empty()) {
            documents.push((first_line, text.get(start..end).unwrap_or_default()));
            (start, first_line) = (place, number);
        }
    }
    documents.push((first_line, text.get(start..).unwrap_or_default()));
    documents
}

fn told(error: YamlError, lines_before: usize) -> String {
    let line = match error.line {
        0 => String::new(),
        line => format!("line {}: ", lines_before + line),
    };
    let field = error.field;
    match error.reason {
        Reason::Malformed(reason) => format!("{line}{reason}"),
        Reason::Expected(expected) => format!("{line}{field} is not {expected}"),
    }
}

/// Go's `filepath.Clean`.
fn cleaned(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match (part, parts.last()) {
            ("" | ".", _) => {}
            ("..", Some(last)) if *last != ".." => {
                parts.pop();
            }
            ("..", None) if !root.is_empty() => {}
            _ => parts.push(part),
        }
    }
    match format!("{root}{}", parts.join("/")) {
        nothing if nothing.is_empty() => ".".to_owned(),
        clean => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Kuberc>, String> {
        Kuberc::parse(text.as_bytes(), Path::new("/kuberc"))
    }

    fn refusal(fields: &str, command: &str) -> String {
        let text = format!("apiVersion: {V1BETA1}\nkind: Preference\n{fields}\n");
        let kuberc = read(&text).unwrap().unwrap();
        kuberc.refusal(command).unwrap_or_default()
    }

    #[test]
    fn a_policy_is_what_it_is_to_kubectl() {
        let allowed = |entries: &str| {
            let fields =
                format!("credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: {entries}");
            refusal(&fields, "/bin/sh")
        };
        for entries in [
            "[{command: /bin/sh}]",
            "[{name: /bin/sh}]",
            "[{command: /a/b}, {name: /bin/sh, command: /bin/sh, later: 1}]",
        ] {
            assert_eq!(allowed(entries), "", "{entries}");
        }
        for (entries, told) in [
            ("[]", "credentialPluginAllowlist is empty"),
            ("null", "there is no credentialPluginAllowlist"),
            ("[{command: /a/sh}]", "doesn't have /bin/sh"),
            ("[{command: dash}]", "doesn't have /bin/sh"),
            ("[null]", "\"\" in credentialPluginAllowlist is no path"),
            ("[{command: /bin//sh}]", "\"/bin//sh\" in"),
            ("[{command: /bin/sh}, {command: ./a}]", "\"./a\" in"),
        ] {
            assert!(allowed(entries).contains(told), "{}", allowed(entries));
        }
        for (fields, told) in [
            ("", ""),
            ("credentialPluginPolicy: ''", ""),
            ("credentialPluginPolicy: AllowAll", ""),
            ("credentialPluginPolicy: DenyAll", "is DenyAll"),
            ("credentialPluginPolicy: denyall", "doesn't know"),
            (
                "credentialPluginPolicy: AllowAll\ncredentialPluginAllowlist: []",
                "there is a credentialPluginAllowlist",
            ),
        ] {
            let refusal = refusal(fields, "/bin/sh");
            assert_eq!(refusal.is_empty(), told.is_empty(), "{fields}: {refusal}");
            assert!(refusal.contains(told), "{fields}: {refusal}");
        }
    }

    #[test]
    fn a_name_is_looked_for_in_path() {
        let list = |entry: &str| {
            format!(
                "credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{{command: {entry}}}]"
            )
        };
        let found = find_program("sh").unwrap();
        let found = found.to_str().unwrap();
        for (entry, command) in [("sh", "sh"), ("sh", found), (found, "sh")] {
            assert_eq!(refusal(&list(entry), command), "", "{entry} {command}");
        }
        assert_ne!(refusal(&list("cat"), "sh"), "");
        assert_ne!(refusal(&list("sh"), "/nowhere/sh"), "");
    }

    #[test]
    fn the_first_document_of_the_kind_counts() {
        let deny = "kind: Preference\ncredentialPluginPolicy: DenyAll\n";
        let is_denied =
            |text: &str| read(text).map(|it| it.map(|it| it.refusal("/bin/sh").is_some()));
        let beta = format!("apiVersion: {V1BETA1}\n{deny}");
        let alpha = format!("apiVersion: {V1ALPHA1}\n{deny}");
        assert_eq!(is_denied(""), Ok(None));
        assert_eq!(is_denied("---\n \n--- \n"), Ok(None));
        assert_eq!(is_denied(&beta), Ok(Some(true)));
        assert_eq!(is_denied(&alpha), Ok(Some(false)));
        assert_eq!(is_denied(&format!("{alpha}---\n{beta}")), Ok(Some(false)));
        let later = format!("a: [\n---\nkind: Other\n---\n{beta}");
        assert_eq!(is_denied(&later), Ok(Some(true)));
        for (text, told) in [
            ("# nothing\n", "no Preference"),
            (deny, "no Preference"),
            ("\n---\na: [1\n", "line "),
            (&beta.replace("DenyAll", "[1]"), "credentialPluginPolicy is not a string"),
            (
                &beta.replace(
                    "credentialPluginPolicy: DenyAll",
                    "credentialPluginAllowlist: [{name: a, command: b}]",
                ),
                "both name and command",
            ),
        ] {
            let fault = is_denied(text).unwrap_err();
            assert!(fault.contains(told), "{text}: {fault}");
        }
    }

    #[test]
    fn a_path_is_cleaned_as_go_does_it() {
        for (path, clean) in [
            ("/a/../b/./c//d/", "/b/c/d"),
            ("/..", "/"),
            ("a/..", "."),
            ("../a/../..", "../.."),
            ("", "."),
            ("name", "name"),
        ] {
            assert_eq!(cleaned(path), clean);
        }
    }
}
