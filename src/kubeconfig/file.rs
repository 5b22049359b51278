//! A kubeconfig file that is changed: read and written whole, under kubectl's lock.

use std::path::{Path, PathBuf};

use super::error::{NoContextKey, unwritable};
use super::replace::LockedFile;
use super::{EntryKind, Kubeconfig, Locations, PluginEntries, yaml};
use crate::error::Error;

/// A kubeconfig file that is locked against other writers.
pub struct KubeconfigFile {
    path: PathBuf,
    file: LockedFile,
    /// Relative paths are as they are written.
    before: Kubeconfig,
    after: Kubeconfig,
}

/// In which file the context of this name stands.
pub fn file_for(locations: &Locations, context: &str) -> Result<PathBuf, Error> {
    for path in locations.files() {
        // A pipe's content would be gone for its next reader.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unwritable(path, "it is not a regular file"));
        }
    }
    for path in locations.files().iter().filter(|path| path.exists()) {
        let one = Locations::new(Some(path), None, None);
        if Kubeconfig::load(&one)?.has(EntryKind::Context, context) {
            return Ok(path.clone());
        }
    }
    Err(NoContextKey::missing(locations.files()))
}

impl KubeconfigFile {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (file, content) = LockedFile::open(path).map_err(|reason| unwritable(path, reason))?;
        // What kubectl refuses is not for us to add to.
        let before = Kubeconfig::as_written(&content, path)?;
        Ok(Self { path: path.to_owned(), file, after: before.clone(), before })
    }

    /// Has the context use these entries; `all` is what all files say together.
    pub fn put(&mut self, entries: &PluginEntries, all: &Kubeconfig) -> Result<(), Error> {
        entries.put_into(&mut self.after, all).map_err(|reason| unwritable(&self.path, reason))
    }

    /// Gives a context back what it had before it was given this program as its plugin.
    pub fn restore(&mut self, context: &str, all: &Kubeconfig) -> Result<(), Error> {
        self.after.restore(context, &all.entries_of_plugin(context))
    }

    /// Writes what has changed. Returns the path of a copy of what was there, `None` if nothing has changed.
    pub fn save(self) -> Result<Option<PathBuf>, Error> {
        let Self { path, file, before, after } = self;
        if before.config == after.config {
            return Ok(None);
        }
        let text = yaml::write(&after.config);
        let text = text.ok_or_else(|| unwritable(&path, "it would be read otherwise"))?;
        file.replace(text.as_bytes()).map(Some).map_err(|reason| unwritable(&path, reason))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use super::super::{LocalHop, PluginUser};
    use super::*;
    use crate::protocol::Configuration;

    const HOP: LocalHop<'_> = LocalHop {
        address: Ipv4Addr::new(127, 1, 3, 232),
        server_name: "4f0c.tunnel.invalid",
        authority_pem: "ca",
        ports: &|_| vec![21_234, 21_235],
        is_free: &|port, _| port != 20_666,
    };

    /// What the text becomes with this change to its file.
    fn changed(
        text: &str,
        change: impl FnOnce(&mut KubeconfigFile, &Kubeconfig) -> Result<(), Error>,
    ) -> Result<String, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, text).unwrap();
        fs::write(directory.path().join("ca.pem"), "ca").unwrap();
        let mut file = KubeconfigFile::open(&path)?;
        let all = Kubeconfig::load(&Locations::new(Some(&path), None, None))?;
        change(&mut file, &all)?;
        let copy = file.save()?;
        assert_eq!(copy.is_some(), fs::read_to_string(&path).unwrap() != text);
        let written = fs::read_to_string(&path).unwrap();
        Ok(written.replace(directory.path().to_str().unwrap(), "DIRECTORY"))
    }

    fn written(text: &str) -> String {
        let configuration = Configuration::from_iter([("pathLib", "/a.so"), ("objectId", "2")]);
        let user = PluginUser { name: "jane", is_named: false, configuration: &configuration };
        changed(text, |file, all| file.put(&PluginEntries::of(all, "prod", &user, &HOP)?, all))
            .unwrap()
    }

    fn undone(text: &str) -> String {
        changed(text, |file, all| file.restore("prod", all)).unwrap()
    }

    const BEFORE: &str = "\
x-note: [1, 'two', '0x3', yes]
clusters:
- cluster:
    certificate-authority: ca.pem
    server: https://10.0.0.1:6443/k8s/clusters/c-x
  name: prod
contexts:
- context:
    cluster: prod
    user: jane
  name: prod
  x-entry: '12:30'
- {name: other, context: {cluster: prod, user: jane}}
users:
- name: jane
  user: {client-key: k, x-user: ~}
";

    const WRITTEN: &str = r#"x-note:
- 1
- two
- "0x3"
- true
clusters:
- cluster:
    certificate-authority: ca.pem
    server: https://10.0.0.1:6443/k8s/clusters/c-x
  name: prod
- name: prod+token
  cluster:
    server: https://127.1.3.232:21234/k8s/clusters/c-x
    certificate-authority-data: Y2E=
    tls-server-name: 4f0c.tunnel.invalid
    extensions:
    - name: client.authentication.k8s.io/exec
      extension:
        plugin: pkcs11-external-signer
        name: prod
        server: https://10.0.0.1:6443/k8s/clusters/c-x
        certificate-authority: DIRECTORY/ca.pem
contexts:
- context:
    cluster: prod+token
    user: jane+token
    extensions:
    - name: pkcs11-external-signer
      extension:
        cluster: prod
        user: jane
  name: prod
  x-entry: "12:30"
- name: other
  context:
    cluster: prod
    user: jane
users:
- name: jane
  user:
    client-key: k
    x-user: null
- name: jane+token
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: pkcs11-external-signer
      args:
      - credential
      - --module=/a.so
      - --object-id=2
      interactiveMode: IfAvailable
      provideClusterInfo: true
      installHint: Install pkcs11-external-signer where this user's exec.command says.
"#;

    #[test]
    fn a_context_is_given_a_plugin_and_what_it_had_comes_back() {
        assert_eq!(written(BEFORE), WRITTEN);
        let data = |text: &str| yaml::read(text).ok().unwrap().to_string();
        assert_eq!(data(&undone(WRITTEN)), data(BEFORE));
        for before in [
            "clusters: [{name: prod, cluster: {server: 'https://a'}}]\n\
             contexts: [{name: prod, context: {cluster: prod, user: ci}}]\nusers: [{name: x}]\n",
            "clusters: [{name: prod, cluster: {server: 'https://a'}}]\nusers: []\ncontexts: [{name: prod, \
             context: {cluster: prod, user: '', extensions: [{name: e, extension: {v: 1}}], namespace: web}}]\n",
            "clusters: [{name: a:b, cluster: {server: 'https://a'}}]\n\
             contexts: [{name: prod, context: {cluster: a:b}}]\nusers: [{name: x}]",
        ] {
            let written = written(before);
            assert!(written.contains("https://127.1.3.232:21234"), "{written}");
            assert_eq!(data(&undone(&written)), data(before), "{written}");
        }
    }

    #[test]
    fn a_context_with_a_plugin_stays_as_it_is() {
        let before = "clusters:\n- cluster:\n    server: https://a\n  name: prod\n- cluster:\n    server: \
                      https://127.1.3.232:21234\n  name: b\ncontexts:\n- context:\n    cluster: prod\n  \
                      name: prod\n";
        let once = written(before);
        // The port of another entry is not taken.
        assert!(once.contains("server: https://127.1.3.232:21235\n"), "{once}");
        assert_eq!(written(&once), once);
        // A port of the cluster's stays, though another one is free again; what isn't its own is corrected.
        let moved = once.replace("  name: b\n", "  name: c\n").replacen("21234", "21233", 1);
        assert_eq!(written(&moved), moved);
        let foreign = once
            .replace("127.1.3.232:21235", "127.0.0.1:30000")
            .replace("4f0c.tunnel", "abcd.tunnel");
        assert_eq!(written(&foreign), once);
        let error = changed(before, |file, all| file.restore("prod", all)).unwrap_err();
        assert_eq!(error.to_string(), "context \"prod\" was not written for the credential plugin");
    }
}
