//! A user whose exec credential plugin is this program, and what the plugin's arguments say of the key.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::error::KubeconfigError;
use super::model::{Exec, Kubeconfig};
use crate::printable::excerpt;
use crate::protocol::Configuration;

pub(super) const PROGRAM: &str = "pkcs11-external-signer";

/// What this program is called as a plugin.
const PROGRAMS: [&str; 2] = [PROGRAM, "kubectl-pkcs11"];

/// The command that answers exec credential requests.
pub(super) const COMMAND: &str = "credential";

/// The keys of a configuration that select, and their options.
pub const SELECTORS: [(&str, &str); 7] = [
    ("pathLib", "--module"),
    ("initArgs", "--init-args"),
    ("slotId", "--slot-id"),
    ("tokenLabel", "--token-label"),
    ("tokenSerial", "--token-serial"),
    ("objectId", "--object-id"),
    ("objectLabel", "--object-label"),
];

/// The others that can be given as options.
const OTHERS: [(&str, &str); 4] = [
    ("certificateFile", "--certificate-file"),
    ("pinSource", "--pin-source"),
    ("uri", "--uri"),
    ("keep", "--keep"),
];

/// Where a client's cluster is looked for, if the client doesn't say it: an option, and no key of a
/// configuration.
pub(super) const KUBECONFIG: (&str, &str) = ("kubeconfig", "--kubeconfig");

/// The keys of a configuration that can be given as options, and the options.
pub fn options() -> impl Iterator<Item = (&'static str, &'static str)> {
    SELECTORS.into_iter().chain(OTHERS)
}

/// What clients heed of a user whose plugin is this program, beside the arguments.
pub struct Plugin<'a> {
    /// A path, or a name without a slash.
    pub command: &'a str,
    pub api_version: &'a str,
    pub interactive_mode: &'a str,
    pub provides_cluster: bool,
    /// The user's own credential, which clients use without running the plugin: the field's name.
    pub other_credential: Option<&'static str>,
}

impl Kubeconfig {
    /// The version that a plugin which is called with these arguments has in its entry.
    pub fn version_of_call(&self, arguments: &[OsString]) -> Option<&str> {
        let users = self.users.0.values();
        let mut plugins = users.filter_map(|it| it.user.as_ref()?.exec.as_ref());
        let entry = plugins.find(|exec| words(exec).map(OsStr::new).eq(arguments))?;
        entry.api_version.as_deref()
    }

    /// The plugin of the user of this name; `None` if it is no user, or not this program.
    pub fn plugin(&self, user: &str) -> Option<Plugin<'_>> {
        let entry = self.user(user)?;
        let exec = entry.exec.as_ref().filter(|exec| is_ours(exec))?;
        let credentials = [
            ("client-certificate", &entry.client_certificate),
            ("client-certificate-data", &entry.client_certificate_data),
            ("token", &entry.token),
            ("tokenFile", &entry.token_file),
            ("username", &entry.username),
        ];
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|it| !it.is_empty());
        let mut credentials = credentials.into_iter();
        Some(Plugin {
            command: exec.command.as_deref().unwrap_or_default(),
            api_version: exec.api_version.as_deref().unwrap_or_default(),
            interactive_mode: exec.interactive_mode.as_deref().unwrap_or_default(),
            provides_cluster: exec.provide_cluster_info == Some(true),
            other_credential: credentials.find_map(|(name, value)| is_given(value).then_some(name)),
        })
    }
}

/// Whether the plugin leads clients through the tunnel. With `--as` it doesn't, and is as another's: it may
/// stand for somebody else than the key's own user.
pub(super) fn is_ours(exec: &Exec) -> bool {
    names_key(exec) && !is_short_lived(exec)
}

/// Whether the plugin is this program, whatever it hands out.
pub(super) fn names_key(exec: &Exec) -> bool {
    let command = exec.command.as_deref().unwrap_or_default();
    let program = Path::new(command).file_name();
    program.is_some_and(|name| PROGRAMS.iter().any(|it| name == *it))
        && words(exec).next() == Some(COMMAND)
}

fn is_short_lived(exec: &Exec) -> bool {
    words(exec).any(|word| word == "--as" || word.starts_with("--as="))
}

/// What the plugin's arguments say of the key, as a configuration.
///
/// # Errors
///
/// One of them is no option of `credential`, has no value or is given twice.
pub(super) fn configuration(exec: &Exec, user: &str) -> Result<Configuration, KubeconfigError> {
    let refused =
        |problem: String| KubeconfigError::PluginArguments { user: user.to_owned(), problem };
    let mut configuration = Configuration::default();
    let mut words = words(exec).skip(1);
    while let Some(word) = words.next() {
        if is_verbosity(word) {
            continue;
        }
        // A word that is no option could be a PIN.
        if !word.starts_with("--") {
            return Err(refused("a word is no option".to_owned()));
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        let value = value.or_else(|| words.next());
        let known = options().find(|(_, known)| *known == option);
        let Some((key, option)) = known else {
            // It says where the cluster is, or what is handed out.
            if option == KUBECONFIG.1 || is_short_lived(exec) {
                continue;
            }
            return Err(refused(format!("{} is not known", excerpt(option))));
        };
        let Some(value) = value else {
            return Err(refused(format!("{option} has no value")));
        };
        if configuration.has(key) {
            return Err(refused(format!("{option} is there twice")));
        }
        configuration.set(key, value);
    }
    Ok(configuration)
}

/// The options that every command takes, and that say nothing of a key.
fn is_verbosity(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    word == "--verbose" || !letters.is_empty() && letters.bytes().all(|it| it == b'v')
}

/// The plugin's arguments with others in the place of those for these keys of a configuration.
pub(super) fn arguments_with(
    exec: &Exec,
    without: &[&str],
    others: impl Iterator<Item = String>,
) -> Vec<Option<String>> {
    let is_gone = |word: &str| {
        let mut options = options();
        options.any(|(key, option)| option == word && without.contains(&key))
    };
    let mut arguments = Vec::new();
    let mut place = None;
    let mut words = words(exec);
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            _ if !word.starts_with("--") || is_verbosity(word) => (word, None),
            Some((option, _)) => (option, None),
            None => (word, words.next()),
        };
        if is_gone(option) {
            place.get_or_insert(arguments.len());
        } else {
            let own = [Some(word), value].into_iter().flatten();
            arguments.extend(own.map(|word| Some(word.to_owned())));
        }
    }
    let place = place.unwrap_or(arguments.len());
    arguments.splice(place..place, others.map(Some));
    arguments
}

fn words(exec: &Exec) -> impl Iterator<Item = &str> {
    let words = exec.args.iter().flatten();
    words.map(|word| word.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::super::{Kubeconfig, Provider};

    fn with(user: &str) -> Kubeconfig {
        config(&format!("users: [{{name: j, user: {user}}}]"))
    }

    fn values(user: &str, keys: &[&str]) -> Result<Vec<Option<String>>, String> {
        match with(user).provider("j") {
            Ok(Provider::ExternalSigner(mut map)) => {
                Ok(keys.iter().map(|key| map.take(key)).collect())
            }
            Ok(_) => Err("another's".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_arguments_are_a_configuration() {
        let said = |args: &str| {
            let user =
                format!("{{exec: {{command: /opt/bin/pkcs11-external-signer, args: {args}}}}}");
            values(&user, &["pathLib", "objectId", "pinSource", "keep"])
        };
        let expected = ["/a.so", "2", "prompt", "15m"].map(|it| Some(it.to_owned()));
        assert_eq!(
            said(
                "[credential, --module=/a.so, --object-id, '2', -vv, --pin-source=prompt, --keep=15m]"
            ),
            Ok(expected.to_vec())
        );
        assert_eq!(said("[credential]"), Ok(vec![None; 4]));
        for (args, problem) in [
            ("[credential, --modul=/a.so]", "--modul is not known"),
            ("[credential, --module]", "--module has no value"),
            ("[credential, '1234']", "a word is no option"),
            ("[credential, null]", "a word is no option"),
            ("[credential, --object-id=1, --object-id, '2']", "--object-id is there twice"),
        ] {
            let error = format!("in the plugin arguments of user \"j\", {problem}");
            assert_eq!(said(args), Err(error), "{args}");
        }
    }

    #[test]
    fn a_plugin_is_ours_by_its_name_and_command() {
        for (user, is_ours) in [
            ("{exec: {command: kubectl-pkcs11, args: [credential]}}", true),
            ("{exec: {command: ./pkcs11-external-signer, args: [credential]}}", true),
            ("{exec: {command: pkcs11-external-signer}}", false),
            ("{exec: {command: pkcs11-external-signer, args: [list]}}", false),
            ("{exec: {command: /pkcs11-external-signer/aws, args: [credential]}}", false),
            ("{exec: {args: [credential]}}", false),
            ("{exec: {command: kubectl-pkcs11, args: [credential, --as, jwt]}}", false),
            ("{exec: {command: kubectl-pkcs11, args: [credential, --as=token]}}", false),
        ] {
            assert_eq!(values(user, &[]).is_ok(), is_ours, "{user}");
        }
    }

    #[test]
    fn a_provider_beside_a_plugin_is_refused() {
        let ours = "exec: {command: pkcs11-external-signer, args: [credential]}";
        for user in [
            format!("{{{ours}, auth-provider: {{name: oidc}}}}"),
            format!("{{{ours}, auth-provider: {{name: externalSigner}}}}"),
            "{exec: {command: aws}, auth-provider: {name: externalSigner}}".to_owned(),
        ] {
            assert_eq!(
                values(&user, &[]),
                Err("user \"j\" has both exec and auth-provider".to_owned())
            );
        }
        // Neither is ours.
        let foreign = "{exec: {command: aws}, auth-provider: {name: oidc}}";
        assert_eq!(values(foreign, &[]), Err("another's".to_owned()));
    }
}
