//! The kubeconfig as real kubectl sees it: what our library reads, merges and redirects, written
//! out again, must look the same to kubectl as the files it came from.

use std::ffi::OsString;
use std::process::Output;

use kubeconfig::{Context, Kubeconfig, TunnelEndpoint, files};
use tempfile::TempDir;

use crate::fixture::*;

/// Files in a directory of their own, and those that KUBECONFIG names.
struct Files {
    directory: TempDir,
    variable: OsString,
}

impl Files {
    /// `files` are paths and contents; `chain` is what KUBECONFIG lists.
    fn new(files: &[(&str, &str)], chain: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, content).unwrap(),
            }
        }
        let paths = chain.iter().map(|name| match *name {
            "" => PathBuf::new(),
            name => directory.path().join(name),
        });
        let variable = std::env::join_paths(paths).unwrap();
        Self { directory, variable }
    }

    fn one(content: &str) -> Self {
        Self::new(&[("config", content)], &["config"])
    }

    fn load(&self) -> Result<Kubeconfig, String> {
        Kubeconfig::load(&files(None, Some(&self.variable), None))
            .map_err(|error| error.to_string())
    }

    fn loaded(&self) -> Kubeconfig {
        match self.load() {
            Ok(config) => config,
            Err(error) => panic!("{error}"),
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        kubectl(&self.variable, arguments)
    }
}

/// What comes out of ours, in a directory where nothing relative leads anywhere.
struct Written {
    _directory: TempDir,
    path: PathBuf,
}

impl Written {
    fn new(config: &Kubeconfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("written");
        fs::write(&path, config.to_json().as_bytes()).unwrap();
        Self { _directory: directory, path }
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        kubectl(self.path.as_os_str(), arguments)
    }
}

fn kubectl(variable: &std::ffi::OsStr, arguments: &[&str]) -> Output {
    Command::new(crate::fixture::kubectl())
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("KUBECONFIG", variable)
        .output()
        .unwrap()
}

/// `kubectl config view`, with the contents of the files it names.
const VIEW: &[&str] = &["config", "view", "--raw", "--flatten", "-o", "json"];

fn viewed(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_alike(files: &Files, what: &str) {
    let config = files.loaded();
    let theirs = viewed(&files.kubectl(VIEW));
    assert_eq!(viewed(&Written::new(&config).kubectl(VIEW)), theirs, "{what}");
    let current = theirs["current-context"].as_str().unwrap();
    assert_eq!(config.current_context().unwrap_or_default(), current, "{what}");
    let contexts = theirs["contexts"].as_array().cloned().unwrap_or_default();
    let contexts: Vec<_> = contexts
        .iter()
        .map(|entry| {
            let of = |value: &Value| value.as_str().unwrap().to_owned();
            let context = &entry["context"];
            (of(&entry["name"]), of(&context["cluster"]), of(&context["user"]))
        })
        .collect();
    let ours: Vec<_> = config
        .contexts()
        .into_iter()
        .map(|context| (context.name, context.cluster, context.user))
        .collect();
    assert_eq!(ours, contexts, "{what}");
}

#[test]
fn several_files_are_merged_as_kubectl_merges_them() {
    let first = "
clusters:
- {name: one, cluster: {server: 'https://first', tls-server-name: kept}}
- {name: only-first, cluster: {server: 'https://only-first'}}
users:
- {name: jane, user: {as: first}}
contexts:
- {name: a, context: {cluster: one, user: jane}}
extensions: [{name: e, extension: {from: first}}, {name: e1, extension: [1]}]
";
    let second = "
apiVersion: v1
kind: Config
current-context: b
clusters:
- {name: one, cluster: {server: 'https://second', proxy-url: 'http://discarded'}}
users:
- {name: jane, user: {token: discarded}}
- {name: joe, user: {token: second}}
contexts:
- {name: b, context: {cluster: one, user: joe, namespace: here}}
- {name: a, context: {cluster: elsewhere, user: joe}}
preferences: {colors: true, extensions: [{name: p, extension: {from: second}}]}
extensions: [{name: e, extension: {from: second}}, {name: e2, extension: {a: b}}]
";
    let third = "{\"current-context\": \"a\", \"users\": null, \"clusters\": []}";
    let files = [
        ("first", first),
        ("sub/second", second),
        ("third", third),
        ("empty", ""),
        ("comment", "# nothing but this\n"),
        ("link", "-> sub/second"),
        ("dangling", "-> nowhere"),
        ("blank", "current-context: \"\"\n"),
    ];
    for chain in [
        &["first", "sub/second"][..],
        &["sub/second", "first"],
        &["first", "third", "sub/second"],
        &["missing", "first", "", "first", "missing2", "sub/second"],
        &["dangling", "link", "first"],
        &["empty", "comment", "blank", "sub/second", "third"],
        &["empty"],
        &["third"],
    ] {
        assert_alike(&Files::new(&files, chain), &chain.join(":"));
    }
}

#[test]
fn yaml_is_read_as_kubectl_reads_it() {
    let user = |value: &str| format!("users:\n- name: jane\n  user:\n    token: {value}\n");
    for content in [
        "clusters:\n- cluster:\n    server: https://a\n    insecure-skip-tls-verify: yes\n  name: a\n",
        "clusters:\n  - name: a\n    cluster:\n      server: &s https://a  # why\n      proxy-url: *s\n",
        "x-base: &base {server: 'https://a'}\nclusters:\n- {name: a, cluster: *base}\n- {name: b, cluster: *base}\n",
        "clusters:\n- {name: a, cluster: {server: '<<', \"<<\": {server: b}}}\n",
        "{\n\t\"clusters\": [\n\t\t{\"name\": \"a\\u00e9\", \"cluster\": {\"server\": \"https://a\"}}\n\t]\n}\n",
        "--- # first\nclusters:\n- name: 'a'\n  cluster: {server: first, server: last}\n...\n",
        "clusters: [null, {name: b, cluster: null}]\r\ncontexts:\r\n- name: \"0\"\r\n",
        "clusters:\n- name: a\n  cluster:\n    certificate-authority-data: >-\n      Zg==\n",
        "clusters:\n- name: a\n  cluster:\n    certificate-authority-data: |\n      Zm9v\n      Zg==\n",
        "clusters:\n- {name: a, cluster: {certificate-authority-data: Zh==}}\n",
        "clusters: [{name: a, cluster: {certificate-authority-data: !!binary WmdnPQ==}}]\n",
        "users: [{name: j, user: {as-user-extra: {1: [a], b: [b]}, as-groups: [\"1\", '2']}}]\n",
        "users: [{name: j, user: {auth-provider: {name: externalSigner, config: {pin: \"02\", x: }}}}]\n",
        "users: [{name: j, user: {exec: {command: c, args: [a], env: [{name: v, value: w}], provideClusterInfo: on}}}]\n",
        "extensions: [{name: e, extension: {i: 0x1F, f: 1.5, big: 18446744073709551615, whole: 2., none: ~, b: Off, d: 2026-01-02, o: 0o7, u: 1_0}}]\n",
        "\u{feff}current-context: a\n",
        "unknown: {deep: [1]}\ncurrent-context: x\n",
        "clusters:\nusers: [null]\ncontexts: []\nfoo: [1]\npreferences: {colors: true}",
        "clusters:\n- name: b\n  cluster:\n    server: |\n      one\n      two\n",
        "extensions: [{name: e, extension: {i: 010, big: 1_000}}]",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(
        [
            "'02'", "\"\\x41\\u00e9\"", "a b", "2026-01-02", "1:30", "!!str 5", "0x", "_5", "=",
            "'yes'", "1.2.3", "~", "", "|-\n      a\n\n      b", "nULL",
        ]
        .map(user),
    ) {
        assert_alike(&Files::one(&content), &content);
    }
}

#[test]
fn what_kubectl_refuses_is_refused() {
    let pin = "4711";
    for (content, expected) in [
        ("clusters: [\n", "line "),
        ("a: 1\nb: c: 4711\n", "line 2, column "),
        ("users: [{name: \"4711\n", "line 1, column "),
        ("- 4711\n", "line 1, column 1: it is not a map"),
        ("4711\n", "line 1, column 1: it is not a map"),
        ("kind: Pod\n", "line 1, column 7: kind is not Config"),
        ("apiVersion: v2\n", "apiVersion is not v1"),
        ("clusters: [{name: a}, {name: a}]\n", "clusters[\"a\"] is not the only one of its name"),
        ("current-context: 4711\n", "column 18: current-context is not a string"),
        (
            "users:\n- name: j\n  user: {token: 4711}\n",
            "line 3, column 17: users[\"j\"].user.token is not a string",
        ),
        (
            "users: [{name: j, user: {password: yes}}]\n",
            "users[\"j\"].user.password is not a string",
        ),
        (
            "users: [{name: j, user: {auth-provider: {name: x, config: {pin: 04711}}}}]\n",
            "users[\"j\"].user.auth-provider.config.pin is not a string",
        ),
        (
            "users: [{name: j, user: {auth-provider: {name: x, config: {pin: [4711]}}}}]\n",
            "users[\"j\"].user.auth-provider.config.pin is not a string",
        ),
        ("users: [{name: j, user: {client-key-data: \"4711=\"}}]\n", "is not base64"),
        ("users: [{name: j, user: {as-groups: 4711}}]\n", "as-groups is not a list"),
        ("clusters: {}", "column 11: clusters is not a list"),
        ("clusters: [5]", "column 12: clusters[0] is not a map"),
        ("clusters: [{name: 5}]", "column 19: clusters[0].name is not a string"),
        ("clusters: [{name: a, cluster: {insecure-skip-tls-verify: 1}}]", "is not a boolean"),
        ("clusters: [{name: a, cluster: 5}]", "column 31: clusters[\"a\"].cluster is not a map"),
        (
            "users: [{name: j, user: {exec: {env: [{name: 1}]}}}]",
            "column 46: users[\"j\"].user.exec.env[0].name is not a string",
        ),
        ("extensions: [{name: e, extension: .inf}]\n", "line 1, column 35"),
        ("a: *nowhere\n", "line 1, column 4"),
        ("? [4711]\n: b\n", "line 1"),
        ("a: &a [*a]\n", "line 1"),
    ] {
        let files = Files::one(content);
        let error = files.load().err().unwrap_or_else(|| panic!("{content}"));
        assert!(error.contains(expected), "{content}: {error}");
        let path = files.directory.path().join("config");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(!error.replace(path.to_str().unwrap(), "").contains(pin), "{error}");
        assert!(!files.kubectl(VIEW).status.success(), "{content}");
    }
    assert!(!Files::new(&[("d/f", "")], &["d"]).kubectl(VIEW).status.success());
    assert!(Files::new(&[("d/f", "")], &["d"]).load().is_err());
}

/// kubectl takes a merge key for the members that it stands for, at its place: what comes later wins. As YAML has it, what is
/// merged never wins. A kubeconfig that leads elsewhere than kubectl's isn't read at all.
#[test]
fn merge_keys_are_refused_since_kubectl_reads_them_in_its_own_way() {
    let with = |cluster: &str| {
        format!(
            "x: &x {{server: 'https://x'}}\ny: &y {{server: 'https://y'}}\nclusters:\n- name: a\n  cluster: {cluster}\n"
        )
    };
    for (cluster, kubectls) in [
        ("{server: 'https://a', <<: *x}", "https://x"),
        ("{<<: *x, server: 'https://a'}", "https://a"),
        ("{<<: *x, <<: *y}", "https://y"),
        ("{server: 'https://a', <<: [*x, *y]}", "https://x"),
        ("{server: 'https://a', !!merge <<: *y}", "https://y"),
    ] {
        let files = Files::one(&with(cluster));
        let error = files.load().err().unwrap_or_else(|| panic!("{cluster} is read"));
        assert!(error.contains("line 5, column "), "{error}");
        assert!(error.contains("it has a merge key (<<)"), "{error}");
        // What the error says shows what it stands for.
        let view = viewed(&files.kubectl(&["config", "view", "--raw", "-o", "json"]));
        assert_eq!(view["clusters"][0]["cluster"]["server"], kubectls, "{cluster}");
    }
}

#[test]
fn relative_paths_start_where_kubectl_has_them_start() {
    let config = "
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1', certificate-authority: ../ca.pem}}]
users: [{name: j, user: {client-certificate: ./cert.pem, client-key: keys/../key.pem}}]
";
    let files = [
        ("sub/config", config),
        ("link/config", "-> ../sub/config"),
        ("ca.pem", "ca beside sub"),
        ("sub/cert.pem", "certificate in sub"),
        ("sub/key.pem", "key in sub"),
        ("link/cert.pem", "certificate beside the link"),
        ("link/key.pem", "key beside the link"),
    ];
    assert_alike(&Files::new(&files, &["sub/config"]), "file");
    assert_alike(&Files::new(&files, &["link/config"]), "link");
    assert_alike(&Files::new(&files, &["sub/../link/config"]), "parent");
    let linked = Files::new(&files, &["link/config"]);
    assert_eq!(
        linked.loaded().cluster("a").ok().unwrap().cluster.authority.unwrap(),
        b"ca beside sub"
    );

    // Where kubectl shows no content, its complaint about a missing file shows the path.
    for field in [
        "tokenFile: ../none",
        "tokenFile: /none",
        "client-certificate: none",
        "exec: {command: ./none, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
        "exec: {command: a/../none, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
        "exec: {command: /none, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
        "exec: {command: none, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
    ] {
        let config = format!(
            "clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: j, user: {{{field}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: a, user: j}}}}]\n\
             current-context: c\n"
        );
        let files = Files::new(&[("sub/config", &config)], &["sub/config"]);
        let theirs = files.kubectl(&["get", "--raw", "/"]);
        let ours = Written::new(&files.loaded()).kubectl(&["get", "--raw", "/"]);
        let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text(&theirs).contains("none"), "{field}: {}", text(&theirs));
        assert_eq!(text(&ours), text(&theirs), "{field}");
    }
}

#[test]
fn of_what_kubectl_does_not_know_the_first_one_counts_too() {
    let texts = [("first", "x-top: [1]\n"), ("second", "x-top: lost\nx-second: 4\n")];
    let copy = Files::new(&texts, &["first", "second"]).loaded().to_json();
    assert!(copy.contains("\"x-top\":[1]") && copy.contains("\"x-second\":4"), "{copy}");
}

#[test]
fn the_copy_for_a_command_says_what_kubectl_reads() {
    for (name, content) in CORPUS {
        let beside = [("ca.crt", "ca"), ("client.crt", "certificate"), ("client.key", "key")];
        let files = [&[("config", content)][..], &beside].concat();
        assert_alike(&Files::new(&files, &["config"]), name);
    }
}

#[test]
fn a_redirection_changes_what_it_must_and_no_more() {
    let files = Files::one(
        "
clusters:
- name: prod
  cluster:
    server: https://prod:6443/k8s/clusters/c-x?q
    certificate-authority-data: Zm9v
    tls-server-name: prod
    proxy-url: http://proxy
    disable-compression: true
    extensions:
    - {name: e, extension: {kept: true}}
    - {name: client.authentication.k8s.io/exec, extension: {plugin: pkcs11-external-signer, name: r, server: 'https://r'}}
- name: other
  cluster:
    server: https://other
    insecure-skip-tls-verify: true
    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: another plugin's}}]
- {name: prod+direct, cluster: {server: 'https://direct'}}
users:
- name: jane
  user:
    auth-provider: {name: externalSigner, config: {pin: '1234', pathLib: /lib}}
    exec: {apiVersion: client.authentication.k8s.io/v1, command: kubectl-pkcs11, args: [credential], interactiveMode: Never}
    client-key: /nowhere
    as: admin
- {name: joe, user: {token: t}}
contexts:
- {name: jane@prod, context: {cluster: prod, user: jane, namespace: here}}
- {name: joe@prod, context: {cluster: prod, user: joe}}
- {name: jane@other, context: {cluster: other, user: jane}}
current-context: jane@prod
",
    );
    let endpoint =
        |address| TunnelEndpoint { address, server_name: "tunnel", authority_pem: "authority" };
    let view = &["config", "view", "--raw", "-o", "json"];
    let mut expected = viewed(&files.kubectl(view));
    let mut config = files.loaded();
    // What was written for the plugin leads to the real cluster.
    for (name, server) in [("prod", "https://r"), ("other", "https://other")] {
        assert_eq!(config.cluster(name).ok().unwrap().cluster.server, server);
    }
    let contexts = config.contexts();
    let without_key = |cluster: &str| {
        let is_other = |context: &&Context| context.cluster == cluster && context.user != "jane";
        contexts.iter().filter(is_other).collect::<Vec<_>>()
    };
    config.redirect("prod", &endpoint("127.0.0.1:1001"), &without_key("prod"));
    config.redirect("other", &endpoint("[::1]:1002"), &without_key("other"));
    config.identify("jane", "certificate", "key");
    config.set_current_context("joe@prod").unwrap();

    // base64 of the tunnel's texts
    let (authority, certificate, key) = ("YXV0aG9yaXR5", "Y2VydGlmaWNhdGU=", "a2V5");
    let mut old = expected["clusters"][1].clone();
    assert_eq!(old["name"], "prod");
    old["name"] = json!("prod+direct+2");
    let redirected = &mut expected["clusters"][1]["cluster"];
    redirected["server"] = json!("https://127.0.0.1:1001/k8s/clusters/c-x");
    redirected["certificate-authority-data"] = json!(authority);
    redirected["tls-server-name"] = json!("tunnel");
    redirected.as_object_mut().unwrap().remove("proxy-url");
    redirected["extensions"].as_array_mut().unwrap().remove(0);
    expected["clusters"].as_array_mut().unwrap().push(old);
    let extensions = expected["clusters"][0]["cluster"]["extensions"].clone();
    expected["clusters"][0]["cluster"] = json!({
        "extensions": extensions,
        "server": "https://[::1]:1002",
        "certificate-authority-data": authority,
        "tls-server-name": "tunnel",
    });
    expected["users"][0]["user"] = json!({
        "client-certificate-data": certificate,
        "client-key-data": key,
        "as": "admin",
    });
    let contexts = expected["contexts"].as_array_mut().unwrap();
    let other = contexts.iter_mut().find(|entry| entry["name"] == "joe@prod");
    other.unwrap()["context"]["cluster"] = json!("prod+direct+2");
    expected["current-context"] = json!("joe@prod");
    assert_eq!(viewed(&Written::new(&config).kubectl(view)), expected);
    assert!(!config.to_json().contains("1234"));
}
