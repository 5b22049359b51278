//! Clusters behind a proxy: real ones, named by the kubeconfig or by the environment.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::trouble::{assert_told, server_certificate, whoami_with, whoami_within};
use crate::fixture::cluster::{JANE, cluster};
use crate::fixture::keys::Kind;
use crate::fixture::softhsm::Store;

/// A proxy that ends with the value.
struct Proxy {
    process: Child,
    address: SocketAddr,
}

impl Proxy {
    /// `prepare` gets the address to listen at.
    fn start(prepare: impl FnOnce(SocketAddr) -> Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = prepare(address);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/setup installs it"));
        while TcpStream::connect(address).is_err() {
            assert!(
                process.try_wait().unwrap().is_none(),
                "{command:?} has ended"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Self { process, address }
    }

    /// HTTP with CONNECT, for `joe` with the password `secret` only.
    fn http(directory: &Path) -> Self {
        Self::start(|address| {
            let file = directory.join("tinyproxy.conf");
            let settings = format!(
                "Port {}\nListen 127.0.0.1\nMaxClients 20\nBasicAuth joe secret\n",
                address.port()
            );
            fs::write(&file, settings).unwrap();
            let mut command = Command::new("tinyproxy");
            command.arg("-d").arg("-c").arg(file);
            command
        })
    }

    fn socks() -> Self {
        Self::start(|address| {
            let mut command = Command::new("microsocks");
            command.args(["-i", "127.0.0.1", "-u", "joe", "-P", "secret"]);
            command.args(["-p", &address.port().to_string()]);
            command
        })
    }

    /// TLS before another proxy, with a certificate of the cluster's authority.
    fn encrypted(directory: &Path, inner: SocketAddr) -> Self {
        let [certificate, key] = server_certificate(directory);
        Self::start(|address| {
            let file = directory.join("stunnel.conf");
            let settings = format!(
                "foreground = yes\npid =\n[proxy]\naccept = {address}\nconnect = {inner}\n\
                 cert = {certificate}\nkey = {key}\n"
            );
            fs::write(&file, settings).unwrap();
            let mut command = Command::new("stunnel4");
            command.arg(file);
            command
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn through(store: &Store, url: &str) -> crate::fixture::program::Outcome {
    let [authority, _] = cluster().authority();
    whoami_within(
        store,
        |cluster| cluster["proxy-url"] = json!(url),
        &[("SSL_CERT_FILE", authority.to_str().unwrap())],
    )
}

#[test]
fn the_three_kinds_lead_to_the_server() {
    let store = cluster().token(Kind::P256, JANE);
    let directory = store.directory.path();
    let (http, socks) = (Proxy::http(directory), Proxy::socks());
    let encrypted = Proxy::encrypted(directory, http.address);
    for url in [
        format!("http://joe:secr%65t@{}", http.address),
        format!("https://joe:secr%65t@{}", encrypted.address),
        format!("socks5://joe:secret@{}", socks.address),
    ] {
        let outcome = through(&store, &url);
        assert!(outcome.printed().contains("jane"), "{url}: {outcome:?}");
    }
}

#[test]
fn a_proxy_that_refuses_is_told_without_its_password() {
    let store = cluster().token(Kind::P256, JANE);
    let directory = store.directory.path();
    let http = Proxy::http(directory);
    let outcome = through(&store, &format!("http://joe:hidden@{}", http.address));
    assert_told(&outcome, &["through the proxy", &http.address.to_string()]);
    assert!(!outcome.stderr.contains("hidden"), "{outcome:?}");
    let gone = http.address;
    drop(http);
    assert_told(
        &through(&store, &format!("http://{gone}")),
        &["through the proxy", "Connection refused", "proxy-url"],
    );
    assert_told(&through(&store, "ftp://proxy.example"), &["proxy-url"]);
}

#[test]
fn the_environments_proxy_counts_as_kubectl_has_it() {
    let store = cluster().token(Kind::P256, JANE);
    let proxy = ("HTTPS_PROXY", "http://127.0.0.1:1");
    let far = |variables: &[(&str, &str)]| {
        let away =
            |cluster: &mut serde_json::Value| cluster["server"] = json!("https://api.invalid");
        whoami_within(&store, away, variables)
    };
    assert_told(&far(&[proxy]), &["through the proxy http://127.0.0.1:1"]);
    assert_told(&far(&[proxy, ("NO_PROXY", ".invalid")]), &["no address"]);
    // What is on this machine needs none.
    let near = whoami_within(&store, |_| {}, &[proxy]);
    assert!(near.printed().contains("jane"), "{near:?}");
    let outcome = whoami_with(&store, |_| {});
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
}
