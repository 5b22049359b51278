//! Clusters behind a proxy: real ones, named by the kubeconfig or by the environment.

use std::net::SocketAddr;
use std::sync::mpsc;

use super::trouble::{assert_told, namespace, server_certificate, whoami_with, whoami_within};
use crate::fixture::*;

/// A proxy that ends with the value.
struct Proxy {
    process: Child,
    address: SocketAddr,
}

impl Proxy {
    /// `prepare` gets the address to listen at.
    fn start(prepare: impl FnOnce(SocketAddr) -> Command) -> Self {
        let address = free_address();
        let mut command = prepare(address);
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/setup installs it"));
        wait_until("the proxy listens", || {
            assert!(process.try_wait().unwrap().is_none(), "{command:?} has ended");
            TcpStream::connect(address).is_ok()
        });
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
            let mut command = tool("tinyproxy", "tinyproxy-bin");
            command.arg("-d").arg("-c").arg(file);
            command
        })
    }

    fn socks() -> Self {
        Self::start(|address| {
            let mut command = tool("microsocks", "microsocks");
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
            let mut command = tool("stunnel", "stunnel4");
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

fn through(store: &Store, url: &str) -> Outcome {
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
    let refused = format!("no connection through the proxy http://{}: ", http.address);
    assert_told(&outcome, &[&refused, "may want a user and a password"]);
    let outcome = through(&store, &format!("http://{}", http.address));
    assert_told(&outcome, &["proxy authorization required", "may want a user and a password"]);
    assert!(!outcome.stderr.contains("hidden"), "{outcome:?}");
    let gone = http.address;
    drop(http);
    assert_told(
        &through(&store, &format!("http://{gone}")),
        &["through the proxy", "Connection refused", "proxy-url"],
    );
    for wrong in ["ftp://proxy.example", "http://127.0.0.1:99999"] {
        assert_told(&through(&store, wrong), &["is not the URL of an http"]);
    }
}

/// As kubectl's CONNECT is: some proxies refuse a request without a User-Agent.
#[test]
fn a_proxy_is_told_host_port_and_who_asks() {
    let store = cluster().token(Kind::P256, JANE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (said, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut request = Vec::new();
        let (mut connection, _) = listener.accept().unwrap();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        connection.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").unwrap();
        said.send(String::from_utf8(request).unwrap().to_lowercase())
    });
    let outcome = whoami_within(
        &store,
        |cluster| cluster["server"] = json!("https://api.invalid"),
        &[("HTTPS_PROXY", &format!("http://{address}"))],
    );
    outcome.says(&["through the proxy", "unsuccessful", "allow CONNECT"]);
    let request = heard.recv_timeout(PATIENCE).expect("a request");
    assert_contains(
        &request,
        &[
            "connect api.invalid:443 http/1.1\r\n",
            "\r\nhost: api.invalid:443\r\n",
            concat!("\r\nuser-agent: pkcs11-external-signer/", env!("CARGO_PKG_VERSION")),
        ],
    );
}

/// On a machine without a network, where both ways end at once and say so in other words.
const BOTH_WAYS: &str = r#"
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
export KUBECONFIG=$HOME/table HTTPS_PROXY=http://proxy.invalid:1 NO_PROXY
row=0
while IFS= read -r NO_PROXY; do
  row=$((row + 1))
  alone=$(kubectl --context "kubectl-$row" get --raw /version 2>&1)
  in_run=$("$SIGNER" run kubectl --context "run-$row" get --raw /version 2>&1)
  case $alone in *proxyconnect*) alone=proxy ;; *) alone=direct ;; esac
  case $in_run in *"through the proxy"*) in_run=proxy ;; *"(https://"*) in_run=direct ;; esac
  echo "$alone $in_run"
done
"#;

#[test]
fn no_proxy_means_to_a_run_what_it_means_to_kubectl() {
    needs_isolation!();
    let table = fs::read_to_string(at_root("softhsm-tests/no-proxy.txt")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<_> = rows
        .map(|row| <[&str; 3]>::try_from(row.splitn(3, ' ').collect::<Vec<_>>()).unwrap())
        .collect();
    let store = cluster().token(Kind::P256, JANE);
    let invocation = super::run(&store, &[]);
    let own = fs::read(store.path("kubeconfig")).unwrap();
    let mut config: Value = serde_json::from_slice(&own).unwrap();
    config["users"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "kubectl", "user": {"token": "none"}}));
    for (row, [_, server, _]) in (1..).zip(&rows) {
        let cluster = json!({"name": format!("{row}"), "cluster": {"server": server}});
        config["clusters"].as_array_mut().unwrap().push(cluster);
        for (name, user) in [("kubectl", "kubectl"), ("run", "jane")] {
            let context = json!({"cluster": format!("{row}"), "user": user});
            let context = json!({"name": format!("{name}-{row}"), "context": context});
            config["contexts"].as_array_mut().unwrap().push(context);
        }
    }
    fs::write(store.path("table"), config.to_string()).unwrap();
    let lists: String = rows.iter().map(|[.., list]| format!("{list}\n")).collect();
    let outcome =
        invocation.within("sh", BOTH_WAYS).through("unshare", &[namespace("n")]).piped(lists).run();
    let printed = outcome.printed();
    let mut lines = printed.lines();
    for row in &rows {
        let way = row[0];
        assert_eq!(lines.next(), Some(&*format!("{way} {way}")), "{row:?}");
    }
}

#[test]
fn the_environments_proxy_counts_as_kubectl_has_it() {
    let store = cluster().token(Kind::P256, JANE);
    let proxy = ("HTTPS_PROXY", "http://127.0.0.1:1");
    let far = |variables: &[(&str, &str)]| {
        let away = |cluster: &mut Value| cluster["server"] = json!("https://api.invalid");
        whoami_within(&store, away, variables)
    };
    assert_told(&far(&[proxy]), &["through the proxy http://127.0.0.1:1"]);
    assert_told(&far(&[proxy, ("NO_PROXY", ".invalid")]), &["no address"]);
    // Capitals come first, and what is empty isn't set.
    for [first, second] in [["HTTPS_PROXY", "https_proxy"], ["https_proxy", "HTTPS_PROXY"]] {
        let told = far(&[(first, "http://127.0.0.1:1"), (second, "")]);
        assert_told(&told, &["through the proxy http://127.0.0.1:1"]);
    }
    let both = far(&[proxy, ("https_proxy", "http://127.0.0.1:2")]);
    assert_told(&both, &["through the proxy http://127.0.0.1:1"]);
    let both = [proxy, ("NO_PROXY", ".invalid"), ("no_proxy", "other.example")];
    assert_told(&far(&both), &["no address"]);
    // What can't be a proxy is not passed by.
    for wrong in ["http://joe:hidden@127.0.0.1:99999", "ftp://joe:hidden@127.0.0.1"] {
        let outcome = far(&[("HTTPS_PROXY", wrong)]);
        assert_told(&outcome, &["HTTPS_PROXY is not the URL"]);
        assert!(!outcome.stderr.contains("hidden"), "{outcome:?}");
    }
    // What is on this machine needs none.
    let near = whoami_within(&store, |_| {}, &[proxy]);
    assert!(near.printed().contains("jane"), "{near:?}");
    let outcome = whoami_with(&store, |_| {});
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
}

/// curl and Python, unlike Go, would take the proxy also to what is on this machine.
#[test]
fn the_command_is_told_to_reach_its_ports_without_a_proxy() {
    let store = cluster().token(Kind::P256, JANE);
    let variables = |no_proxy: &str| {
        super::run(&store, &["sh", "-c", "echo \"$NO_PROXY $no_proxy\""])
            .variable("HTTPS_PROXY", "http://proxy.invalid:1")
            .variable("NO_PROXY", no_proxy)
            .run()
            .printed()
    };
    assert_eq!(variables(""), "127.0.0.1 127.0.0.1\n");
    assert_eq!(variables(".a"), ".a,127.0.0.1 .a,127.0.0.1\n");
    assert_eq!(variables("127.0.0.1,.a"), "127.0.0.1,.a 127.0.0.1,.a\n");
}
