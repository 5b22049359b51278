//! A real registry, which lets in nobody else than the user whom the provider names.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use super::{CONFIG, IMAGE, asked, node, provider, sealed};
use crate::fixture::*;
use crate::seal::PASSWORD;

/// `registry.example:5000`, for the user "nodes"; it ends with the value.
struct Registry {
    directory: tempfile::TempDir,
    process: Child,
}

impl Registry {
    fn start() -> Self {
        static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| go_program("registry"));
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new(&*PROGRAM)
            .arg(directory.path())
            .arg("nodes")
            .env("PASSWORD", PASSWORD)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Self { directory, process };
        wait_until("the registry's socket", || registry.socket().exists());
        registry
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("registry.sock")
    }

    /// The status of its answer to a client with these options.
    fn status(&self, login: &[&str]) -> String {
        let output = tool("curl", "curl")
            .args(["--silent", "--output", "/dev/null", "--write-out"])
            .args(["%{http_code}", "--unix-socket"])
            .arg(self.socket())
            .args(login)
            .arg("http://registry.example:5000/v2/_catalog")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_registry_lets_in_what_the_provider_says_and_nothing_else() {
    let store = node(Kind::Rsa(2048));
    let file = sealed(&store, "registry.cms", CONFIG, &[Kind::Rsa(2048)]);
    let answer = asked(provider(&store, &file), IMAGE).answer();
    let auth = &answer["auth"]["registry.example:5000"];
    let said = |name: &str| auth[name].as_str().map(str::to_owned).unwrap();
    let login = format!("{}:{}", said("username"), said("password"));
    let registry = Registry::start();
    assert_eq!(registry.status(&[]), "401");
    assert_eq!(registry.status(&["--user", "nodes:another"]), "401");
    assert_eq!(registry.status(&["--user", &login]), "200");
}
