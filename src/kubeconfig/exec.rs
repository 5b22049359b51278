//! A user whose exec credential plugin is this program, and the key that the plugin's arguments name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::{Value, json};

use super::entries::EXTERNAL_SIGNER;
use super::error::{error, write_command};
use super::{EntryKind, Kubeconfig, name_of, text, yaml};
use config::OPTIONS;
use messages::error::{Error, PLUGIN, PROGRAM};
use messages::help::Help;
use messages::printable::excerpt;
use protocol::Configuration;

/// The names under which this program is a plugin.
const PROGRAMS: [&str; 2] = [PROGRAM, PLUGIN];

/// The command that answers exec credential requests.
pub(super) const COMMAND: &str = "credential";

/// The text that clients show if the program is missing.
const HINT: &str = "Install pkcs11-external-signer where this user's exec.command says.";

/// The kubeconfig in which the command looks for the cluster if the client doesn't name it: what it is called in the
/// arguments that are read here, and as an option. It is no key of a configuration.
pub(super) const KUBECONFIG: (&str, &str) = ("kubeconfig", "--kubeconfig");

impl Kubeconfig {
    /// The version of the API in the entry of a plugin that is called with these arguments.
    pub fn version_of_call(&self, arguments: &[OsString]) -> Option<&str> {
        self.user_of_call(arguments)?["user"]["exec"]["apiVersion"].as_str()
    }

    /// A context whose user's plugin is called with these arguments. It is the current one if possible.
    pub fn context_of_call(&self, arguments: &[OsString]) -> Option<String> {
        let user = name_of(self.user_of_call(arguments)?);
        let of_user = self.contexts().into_iter().filter(|context| context.user == user);
        of_user.map(|context| context.name).max_by_key(|name| self.current_context() == Some(name))
    }

    /// The path of the program that clients start for a user with this program as its plugin. An error if they can't
    /// start it, `None` for other users.
    pub fn plugin_program(&self, user: &str) -> Option<Result<PathBuf, Error>> {
        let exec = &self.entry(EntryKind::User, user)["exec"];
        let command = text(exec, "command").filter(|_| names_key(exec))?;
        Some(program_of(command).map_err(|reason| {
            error(
                format!("clients can't start the plugin of user \"{user}\": {command}: {reason}"),
                Help::from("install it there, or have the context's entries written again: ")
                    .and(write_command()),
            )
        }))
    }

    /// The first user whose plugin is called with these arguments: its element of the list.
    fn user_of_call(&self, arguments: &[OsString]) -> Option<&Value> {
        let is_called =
            |user: &&Value| args_of(&user["user"]["exec"]).map(OsStr::new).eq(arguments);
        self.elements(EntryKind::User).find(is_called)
    }
}

/// Whether the plugin is this program and leads clients through the tunnel. With `--as` it doesn't, and is treated as
/// another's, since it may stand for somebody else than the key's own user.
pub(super) fn is_ours(exec: &Value) -> bool {
    names_key(exec) && !is_short_lived(exec)
}

/// Whether the plugin is this program, whatever it hands out. It is known by its name or, under another one, by
/// arguments that name a key.
pub(super) fn names_key(exec: &Value) -> bool {
    if args_of(exec).next() != Some(COMMAND) {
        return false;
    }
    let command = text(exec, "command");
    let Some(file) = command.and_then(|path| Path::new(path).file_name()) else { return false };
    if PROGRAMS.iter().any(|program| file == *program) {
        return true;
    }
    let configuration = configuration(exec, "").unwrap_or_default();
    ["pathLib", "uri"].iter().any(|key| configuration.value(key).is_some())
}

/// The file that a plugin's command starts, as client-go finds it by Go's os/exec: the command itself if it has a
/// slash, or else the first file of that name in PATH. The error says why there is none.
pub(super) fn program_of(command: &str) -> Result<PathBuf, String> {
    if command.contains('/') {
        return executable(command.into()).map_err(|reason| reason.to_string());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let files = std::env::split_paths(&folders).map(|folder| folder.join(command));
    let found = files.filter_map(|file| executable(file).ok()).next();
    let found = found.ok_or("it is not in PATH")?;
    if found.is_relative() {
        return Err(
            "PATH has it in the working directory, from which clients start nothing".to_owned()
        );
    }
    Ok(found)
}

/// Checks that this user can execute the file.
fn executable(file: PathBuf) -> io::Result<PathBuf> {
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    access(&file, Access::EXEC_OK)?;
    Ok(file)
}

/// Whether the plugin's arguments ask for a short-lived credential.
fn is_short_lived(exec: &Value) -> bool {
    args_of(exec).any(|word| word == "--as" || word.starts_with("--as="))
}

/// The configuration of the key that the plugin's arguments name.
pub(super) fn configuration(exec: &Value, user: &str) -> Result<Configuration, Error> {
    configuration_of(exec).map_err(|problem| {
        error(
            format!("in the plugin arguments of user \"{user}\", {problem}"),
            Help::from("correct exec.args of that user, or have it written with ")
                .and(write_command()),
        )
    })
}

/// The configuration of the key that the plugin's arguments name. The error says what is wrong with the first wrong
/// one.
fn configuration_of(exec: &Value) -> Result<Configuration, String> {
    let mut configuration = Configuration::default();
    let mut words = args_of(exec).skip(1);
    while let Some(word) = words.next() {
        if is_verbose(word) {
            continue;
        }
        // A word that isn't an option could be a PIN.
        if !word.starts_with("--") {
            return Err("a word is not an option".to_owned());
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, words.next()),
        };
        if let Some((key, _)) = OPTIONS.iter().find(|(_, known)| *known == option) {
            let value = value.ok_or_else(|| format!("{option} has no value"))?;
            if configuration.value(key).is_some() {
                return Err(format!("{option} is there twice"));
            }
            configuration.set(key, value);
        } else if option != KUBECONFIG.1 && !is_short_lived(exec) {
            // The other options say where the cluster is, or what is handed out.
            return Err(format!("{} is not known", excerpt(option)));
        }
    }
    Ok(configuration)
}

/// Whether a word is `--verbose`, `-v`, `-vv` and so on.
fn is_verbose(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    word == "--verbose" || !letters.is_empty() && letters.bytes().all(|letter| letter == b'v')
}

/// The `exec` of a user with this configuration. `old` is one of ours, whose other fields stay; or null.
pub(super) fn with(configuration: &Configuration, old: &Value) -> Value {
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": configuration.value("pathExec").unwrap_or(PROGRAM),
        "args": null,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": null,
        "installHint": HINT,
    });
    for (key, value) in old.as_object().into_iter().flatten() {
        if !value.is_null() {
            exec[key] = value.clone();
        }
    }
    let mut words = vec![COMMAND.to_owned()];
    for (key, option) in OPTIONS.into_iter().chain([KUBECONFIG]) {
        if let Some(value) = configuration.value(key).filter(|value| !value.is_empty()) {
            // Option and value are one word, since a value could begin with a hyphen.
            words.push(format!("{option}={value}"));
        }
    }
    exec["args"] = words.into();
    exec["provideClusterInfo"] = true.into();
    exec
}

/// The list `users` of a kubeconfig, with one user of this configuration. The user has this program as its plugin, or
/// is for clients with the auth provider.
pub fn user_excerpt(
    name: &str,
    configuration: &Configuration,
    is_plugin: bool,
) -> Result<String, Error> {
    let user = if is_plugin {
        json!({"exec": with(configuration, &Value::Null)})
    } else {
        let config: Value = configuration.pairs().collect();
        json!({"auth-provider": {"name": EXTERNAL_SIGNER, "config": config}})
    };
    yaml::excerpt(&json!({"users": [{"name": name, "user": user}]}))
}

/// The words of a plugin's arguments. A word that isn't text is empty.
fn args_of(exec: &Value) -> impl Iterator<Item = &str> {
    exec["args"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::config;
    use super::super::{Kubeconfig, Provider};
    use super::program_of;

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
        let parsed = |args: &str| {
            let user =
                format!("{{exec: {{command: /opt/bin/pkcs11-external-signer, args: {args}}}}}");
            values(&user, &["pathLib", "objectId", "pinSource", "keep"])
        };
        let expected = ["/a.so", "2", "prompt", "15m"].map(|value| Some(value.to_owned()));
        assert_eq!(
            parsed(
                "[credential, --module=/a.so, --object-id, '2', -vv, --pin-source=prompt, --keep=15m]"
            ),
            Ok(expected.to_vec())
        );
        assert_eq!(parsed("[credential]"), Ok(vec![None; 4]));
        for (args, problem) in [
            ("[credential, --modul=/a.so]", "--modul is not known"),
            ("[credential, --module]", "--module has no value"),
            ("[credential, '1234']", "a word is not an option"),
            ("[credential, null]", "a word is not an option"),
            ("[credential, --object-id=1, --object-id, '2']", "--object-id is there twice"),
        ] {
            let error = format!("in the plugin arguments of user \"j\", {problem}");
            assert_eq!(parsed(args), Err(error), "{args}");
        }
    }

    #[test]
    fn a_plugin_is_ours_by_its_name_or_by_a_key_in_its_arguments() {
        for (user, is_ours) in [
            ("{exec: {command: kubectl-pkcs11, args: [credential]}}", true),
            ("{exec: {command: ./pkcs11-external-signer, args: [credential]}}", true),
            ("{exec: {command: pkcs11-external-signer}}", false),
            ("{exec: {command: pkcs11-external-signer, args: [list]}}", false),
            ("{exec: {command: /pkcs11-external-signer/aws, args: [credential]}}", false),
            ("{exec: {args: [credential]}}", false),
            ("{exec: {command: /opt/pkcs11, args: [credential, --module=/a.so]}}", true),
            ("{exec: {command: /opt/pkcs11, args: [credential, --uri, 'pkcs11:']}}", true),
            ("{exec: {command: /opt/pkcs11, args: [credential, --profile=a]}}", false),
            ("{exec: {command: kubectl-pkcs11, args: [credential, --as, jwt]}}", false),
            ("{exec: {command: kubectl-pkcs11, args: [credential, --as=token]}}", false),
        ] {
            assert_eq!(values(user, &[]).is_ok(), is_ours, "{user}");
        }
    }

    #[test]
    fn what_clients_start_is_a_file_that_can_be_executed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugin");
        let program = || program_of(path.to_str().unwrap());
        assert!(program().unwrap_err().contains("No such file"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(program().unwrap_err().contains("Permission denied"));
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(program().unwrap(), path);
        assert!(program_of(directory.path().to_str().unwrap()).is_err());
        assert_eq!(program_of("sh").unwrap().file_name().unwrap(), "sh");
        assert_eq!(program_of("no-such-program").unwrap_err(), "it is not in PATH");
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
