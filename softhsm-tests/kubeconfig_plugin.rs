//! `kubeconfig --context`: what a context needs so that stock clients use a key with it, written and taken out
//! again, with nothing else in the file changed but its comments and its layout.

use std::collections::BTreeSet;
use std::os::unix::fs::chown;

use crate::fixture::*;

/// As kubectl writes it, with another context and with fields that it doesn't know.
const BEFORE: &str = "\
x-note:
- 1
- \"0x3\"
- true
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Zm9v
    server: https://10.0.0.1:6443/k8s/clusters/c-x
  name: prod
- cluster:
    insecure-skip-tls-verify: true
    proxy-url: socks5://proxy:1080
    server: https://10.0.0.2:6443
    tls-server-name: api
  name: lab
contexts:
- context:
    cluster: lab
    namespace: web
    user: jane
  name: lab
- context:
    cluster: prod
    user: jane
  name: prod
  x-entry: \"12:30\"
current-context: lab
kind: Config
preferences: {}
users:
- name: jane
  user:
    token: abc
    x-user: null
";

fn token() -> Store {
    token_of("/CN=jane", 100, 2)
}

fn command(store: &Store, path: &Path, arguments: &[&str]) -> Invocation {
    store.command(&["kubeconfig"]).arguments(arguments).variable("KUBECONFIG", path)
}

fn write(store: &Store, path: &Path, context: &str, arguments: &[&str]) -> Outcome {
    command(store, path, &["--write", "--context", context])
        .argument(softhsm_option())
        .arguments(arguments)
        .run()
}

#[track_caller]
fn undo(store: &Store, path: &Path, context: &str) {
    command(store, path, &["--undo", "--context", context]).run().succeeded();
}

fn file(store: &Store, text: &str) -> PathBuf {
    let path = store.path("config");
    fs::write(&path, text).unwrap();
    path
}

/// A token, and a kubeconfig with [`BEFORE`].
fn token_and_file() -> (Store, PathBuf) {
    let store = token();
    let path = file(&store, BEFORE);
    (store, path)
}

/// What stock kubectl reads.
#[track_caller]
fn view(store: &Store, path: &Path) -> Value {
    let view = store
        .command(&[])
        .program(kubectl())
        .arguments(&["config", "view", "--raw", "--output=json"])
        .variable("KUBECONFIG", path)
        .run();
    view.json()
}

fn entry<'a>(view: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut entries = view[list].as_array().unwrap().iter();
    let kind = list.strip_suffix('s').unwrap();
    let entry = entries.find(|entry| entry["name"] == name);
    &entry.unwrap_or_else(|| panic!("no {name} in {view}"))[kind]
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The address of root's tunnels, or that of the user who runs the tests.
fn address() -> String {
    let [_, _, third, fourth] = rustix::process::getuid().as_raw().to_be_bytes();
    format!("127.1.{third}.{fourth}")
}

#[test]
fn what_is_written_is_what_stock_kubectl_reads() {
    let (store, path) = token_and_file();
    let outcome = write(&store, &path, "prod", &["--keep=terminal"]).succeeded();
    let printed = outcome.silently().printed();
    let written = step_of(&printed, "context");
    assert!(written.ends_with(" uses the key, as user \"jane+token\""), "{printed}");
    assert!(printed.contains("\n  kubectl --context=prod auth whoami\n"), "{printed}");
    let view = view(&store, &path);
    let local = entry(&view, "clusters", "prod+token");
    let server = local["server"].as_str().unwrap();
    let port = server.strip_prefix(&format!("https://{}:", address()));
    let port = port.and_then(|it| it.strip_suffix("/k8s/clusters/c-x"));
    let port = port.and_then(|it| it.parse::<u16>().ok());
    assert!(port.is_some_and(|it| (20_000..32_000).contains(&it)), "{server}");
    assert!(local.get("proxy-url").is_none(), "{local}");
    let authority = local["certificate-authority-data"].as_str().unwrap();
    let authority = STANDARD.decode(authority).unwrap();
    assert!(authority.starts_with(b"-----BEGIN CERTIFICATE-----\n"));
    let extension = &local["extensions"][0];
    assert_eq!(extension["name"], "client.authentication.k8s.io/exec");
    assert_eq!(
        extension["extension"],
        json!({
            "plugin": "pkcs11-external-signer",
            "name": "prod",
            "server": "https://10.0.0.1:6443/k8s/clusters/c-x",
            "certificate-authority-data": "Zm9v",
        })
    );
    assert_eq!(
        entry(&view, "contexts", "prod"),
        &json!({
            "cluster": "prod+token",
            "user": "jane+token",
            "extensions": [{
                "name": "pkcs11-external-signer",
                "extension": {
                    "cluster": "prod",
                    "user": "jane",
                    "plugin-cluster": "prod+token",
                    "plugin-user": "jane+token",
                },
            }],
        })
    );
    let exec = &entry(&view, "users", "jane+token")["exec"];
    let token = &store.tokens[0];
    assert_eq!(exec["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(exec["command"], PROGRAM);
    assert_eq!(
        exec["args"],
        json!([
            "credential",
            "--keep=terminal",
            softhsm_option(),
            format!("--token-serial={}", token.serial),
            "--object-id=2",
        ])
    );
    assert_eq!(exec["interactiveMode"], "IfAvailable");
    assert_eq!(exec["provideClusterInfo"], true);
    assert!(exec["installHint"].as_str().unwrap().ends_with('.'));
}

/// The kubeconfigs that clusters' tools write, and some that are hard to read.
#[test]
fn everything_else_stays_and_comes_back() {
    let store = token();
    let path = store.path("config");
    for (name, content) in CORPUS {
        fs::write(&path, content).unwrap();
        fs::write(store.path("ca.crt"), "ca").unwrap();
        let before = view(&store, &path);
        write(&store, &path, "prod", &[]).succeeded();
        let written = view(&store, &path);
        let now = entry(&written, "contexts", "prod");
        assert!(entry(&written, "clusters", now["cluster"].as_str().unwrap()).is_object());
        assert!(entry(&written, "users", now["user"].as_str().unwrap())["exec"].is_object());
        // What kubectl leaves out is still there, too.
        let unknown = |text: &str| text.lines().filter(|it| it.contains("x-")).count();
        assert_eq!(unknown(&text(&path)), unknown(content), "{name}");
        undo(&store, &path, "prod");
        assert_eq!(view(&store, &path), before, "{name}");
        let copies = fs::read_dir(store.directory.path()).unwrap().map(|it| it.unwrap().path());
        let copies = copies.filter(|it| it.to_string_lossy().contains("config.backup-"));
        let copies: Vec<_> = copies.collect();
        assert!(copies.iter().any(|copy| text(copy) == content), "{name}: {copies:?}");
        copies.iter().for_each(|copy| fs::remove_file(copy).unwrap());
    }
}

#[test]
fn a_context_is_written_once_and_others_beside_it() {
    let (store, path) = token_and_file();
    write(&store, &path, "prod", &[]);
    let once = text(&path);
    let again = write(&store, &path, "prod", &[]).step("context");
    assert!(again.contains(" is there already, with user \"jane+token\""), "{again}");
    assert_eq!(text(&path), once);
    // What is wrong is put right.
    let local = local_server(&path);
    let foreign = "    server: https://127.0.0.1:30000/k8s/clusters/c-x";
    for (good, wrong) in [("--object-id=", "--object="), (&local, foreign)] {
        fs::write(&path, once.replace(good, wrong)).unwrap();
        write(&store, &path, "prod", &[]);
        assert_eq!(text(&path), once);
    }
    write(&store, &path, "lab", &["--pin-source=askpass"]);
    let extension = json!({
        "plugin": "pkcs11-external-signer",
        "name": "lab",
        "server": "https://10.0.0.2:6443",
        "tls-server-name": "api",
        "insecure-skip-tls-verify": true,
        "proxy-url": "socks5://proxy:1080",
    });
    let both = view(&store, &path);
    let lab = entry(&both, "clusters", "lab+token");
    assert_eq!(lab["extensions"][0]["extension"], extension);
    assert!(lab.get("insecure-skip-tls-verify").is_none(), "{lab}");
    assert_eq!(entry(&both, "contexts", "lab")["namespace"], "web");
    // The other context's user isn't given another source of its PIN.
    assert_eq!(entry(&both, "contexts", "lab")["user"], "jane+token+2");
    undo(&store, &path, "lab");
    assert_eq!(text(&path), once);
    undo(&store, &path, "prod");
    assert_eq!(text(&path), BEFORE);
    command(&store, &path, &["--undo", "--context=prod"])
        .run()
        .fails(3, &["was not written for the credential plugin"]);
}

/// As it is printed: the entry with the secret goes, and the copies that have it.
#[test]
fn the_secret_that_no_context_needs_any_more_is_named_with_its_removal() {
    let (store, path) = token_and_file();
    let removal = |context: &str| {
        let written = write(&store, &path, context, &[]).printed();
        let mut lines = written.lines();
        lines
            .find(|it| it.starts_with("  kubectl config delete-user "))
            .unwrap_or_default()
            .to_owned()
    };
    // From before jane was there.
    let joe = BEFORE.replace("name: jane", "name: joe").replace("token: abc", "token: xyz");
    let older = store.file("config.backup-1", joe, 0o600);
    // The other context has it still.
    assert_eq!(removal("prod"), "");
    let programs = kubectl().parent().unwrap().display();
    let script = format!("PATH={programs}:$PATH; {}", removal("lab"));
    store.command(&[]).within("sh", &script).variable("KUBECONFIG", &path).run().succeeded();
    let left = below(store.directory.path());
    assert!(
        left.iter()
            .filter(|it| it.is_file())
            .all(|it| !fs::read(it).unwrap().windows(10).any(|it| it == b"token: abc"))
    );
    assert!(older.exists());
}

/// What the context had before is noted for the cluster that it led to then: where it leads by now is not sent back there.
#[test]
fn a_context_that_was_pointed_at_another_cluster_stays_with_that() {
    let (store, path) = token_and_file();
    write(&store, &path, "prod", &[]).succeeded();
    let written = text(&path);
    // As kubectl does it, which keeps the note.
    let point = |context: &str, cluster: &str| {
        let kubectl = store.command(&[]).program(kubectl()).variable("KUBECONFIG", &path);
        let cluster = format!("--cluster={cluster}");
        kubectl.arguments(&["config", "set-context", context, &cluster]).run().succeeded();
    };
    // The real cluster, and one that another context was given.
    for cluster in ["lab", "lab+token"] {
        fs::write(&path, &written).unwrap();
        if cluster == "lab+token" {
            write(&store, &path, "lab", &[]).succeeded();
        }
        point("prod", cluster);
        let before = view(&store, &path);
        command(&store, &path, &["--undo", "--context=prod"]).run().fails(
            3,
            &[
                &format!("context \"prod\" leads to cluster \"{cluster}\" by now"),
                "kubectl config set-context prod --user=NAME",
            ],
        );
        assert_eq!(view(&store, &path), before);
        write(&store, &path, "prod", &[]).succeeded();
        let now = view(&store, &path);
        assert_eq!(leads_to(&now, "prod"), "lab");
        undo(&store, &path, "prod");
        let prod = view(&store, &path);
        let prod = entry(&prod, "contexts", "prod");
        assert_eq!((&prod["cluster"], &prod["user"]), (&json!("lab"), &json!("jane+token")));
    }
}

/// With the note of the context that it was copied from.
#[test]
fn a_copied_context_leads_where_it_says() {
    let (store, path) = token_and_file();
    write(&store, &path, "prod", &[]).succeeded();
    let mut config = view(&store, &path);
    let prod = entry(&config, "contexts", "prod").clone();
    for (name, cluster) in [("same", "prod+token"), ("other", "lab")] {
        let mut context = prod.clone();
        context["cluster"] = json!(cluster);
        let contexts = config["contexts"].as_array_mut().unwrap();
        contexts.push(json!({"name": name, "context": context}));
    }
    fs::write(&path, config.to_string()).unwrap();
    for (name, cluster) in [("same", "prod"), ("other", "lab")] {
        write(&store, &path, name, &[]).succeeded();
        assert_eq!(leads_to(&view(&store, &path), name), cluster);
    }
    undo(&store, &path, "same");
    let now = view(&store, &path);
    assert_eq!(entry(&now, "contexts", "same"), &json!({"cluster": "prod", "user": "jane"}));
    assert_eq!(leads_to(&now, "prod"), "prod");
}

/// Also one whose plugin is this program.
#[test]
fn a_user_that_the_context_was_given_since_is_the_one_that_it_gets_back() {
    let (store, path) = token_and_file();
    write(&store, &path, "prod", &[]).succeeded();
    let kubectl = |arguments: &[&str]| {
        let kubectl = store.command(&[]).program(kubectl()).variable("KUBECONFIG", &path);
        kubectl.argument("config").arguments(arguments).run().succeeded();
    };
    kubectl(&[
        "set-credentials",
        "joe",
        "--exec-command=pkcs11-external-signer",
        "--exec-api-version=client.authentication.k8s.io/v1",
        "--exec-arg=credential",
        "--exec-arg=--object-id=7",
    ]);
    let written = text(&path);
    for user in ["joe", "missing"] {
        for writes in [false, true] {
            fs::write(&path, &written).unwrap();
            kubectl(&["set-context", "prod", &format!("--user={user}")]);
            if writes {
                write(&store, &path, "prod", &[]).succeeded();
            }
            undo(&store, &path, "prod");
            let now = view(&store, &path);
            assert_eq!(entry(&now, "contexts", "prod"), &json!({"cluster": "prod", "user": user}));
            assert!(entry(&now, "users", "joe")["exec"].is_object());
            assert!(!now.to_string().contains("+token"), "{now}");
        }
    }
}

/// As whom another certificate would be asked for is nobody's guess.
#[test]
fn the_expired_key_itself_is_no_former_user() {
    let store = token_of("/CN=jane", -1, 2);
    let path = file(&store, BEFORE);
    write(&store, &path, "prod", &["--object-id=2"]).succeeded();
    let pointed = text(&path).replace(" cluster: prod+token\n", " cluster: lab\n");
    fs::write(&path, pointed).unwrap();
    for _ in 0..2 {
        let enroll = store.command(&["enroll", "--context=prod"]).variable("KUBECONFIG", &path);
        enroll.run().fails(6, &["and context \"prod\" had no other user before"]);
        write(&store, &path, "prod", &["--object-id=2"]).succeeded();
    }
}

/// The real cluster that a context leads to by way of a tunnel.
fn leads_to(view: &Value, context: &str) -> String {
    let cluster = entry(view, "contexts", context)["cluster"].as_str().unwrap();
    let extension = &entry(view, "clusters", cluster)["extensions"][0]["extension"];
    extension["name"].as_str().unwrap().to_owned()
}

/// A service account's, and one with another key, called as the certificate is.
#[test]
fn a_plugin_that_was_written_by_hand_stays_and_comes_back() {
    let store = token();
    for (user, exec) in [
        (
            "deploy",
            &["credential", "--as=token", "--service-account=ci/deployer", "--object-id=2"][..],
        ),
        ("jane", &["credential", "--module=/a.so", "--object-id=7"]),
    ] {
        let args: String = exec.iter().map(|word| format!("      - {word}\n")).collect();
        let exec = format!(
            "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      \
             command: pkcs11-external-signer\n      args:\n{args}"
        );
        let before = BEFORE
            .replace("web\n    user: jane", "web\n    user: other")
            .replace("    token: abc\n", &exec)
            .replace(": jane\n", &format!(": {user}\n"));
        let path = file(&store, &before);
        write(&store, &path, "prod", &[]).succeeded();
        let written = text(&path);
        assert!(written.contains(&exec), "{written}");
        assert!(written.matches("--object-id=2").count() > before.matches("--object-id=2").count());
        undo(&store, &path, "prod");
        assert_eq!(text(&path), before);
    }
}

#[test]
fn how_clients_use_connections_is_taken_over_and_refused_where_kubectl_refuses_it() {
    let store = token();
    let fields = "disable-compression: true\n    min-connection-pool-size: 5\n";
    let before = BEFORE.replace(
        "    server: https://10.0.0.1",
        &format!("    {fields}    server: https://10.0.0.1"),
    );
    let path = file(&store, &before);
    write(&store, &path, "prod", &[]);
    assert_eq!(text(&path).matches("min-connection-pool-size: 5").count(), 2, "{}", text(&path));
    assert_eq!(text(&path).matches("disable-compression: true").count(), 2);
    // What the real cluster doesn't say any more, the local one doesn't either.
    fs::write(&path, text(&path).replacen("    min-connection-pool-size: 5\n", "", 1)).unwrap();
    write(&store, &path, "prod", &[]);
    assert_eq!(text(&path).matches("min-connection-pool-size").count(), 0, "{}", text(&path));

    let path = file(&store, &before.replace("size: 5", "size: many"));
    let arguments = ["--write", "--context", "prod"];
    command(&store, &path, &arguments)
        .run()
        .fails(3, &["clusters[\"prod\"].cluster.min-connection-pool-size is not an integer"]);
}

#[test]
fn contexts_share_the_cluster_and_the_user_that_are_the_same() {
    let store = token();
    let before = BEFORE.replace("cluster: lab\n", "cluster: prod\n");
    let path = file(&store, &before);
    write(&store, &path, "prod", &[]);
    let once = text(&path);
    write(&store, &path, "lab", &[]);
    let both = view(&store, &path);
    assert_eq!(both["clusters"].as_array().unwrap().len(), 3);
    assert_eq!(both["users"].as_array().unwrap().len(), 2);
    undo(&store, &path, "prod");
    let one = view(&store, &path);
    assert_eq!(entry(&one, "contexts", "lab")["cluster"], "prod+token");
    entry(&one, "clusters", "prod+token");
    entry(&one, "users", "jane+token");
    write(&store, &path, "prod", &[]);
    undo(&store, &path, "lab");
    assert_eq!(text(&path), once);
    // What a context says is changed in place, and its port stays.
    write(&store, &path, "prod", &["--keep=15m"]);
    assert_eq!(text(&path).replace("      - --keep=15m\n", ""), once, "{}", text(&path));
    let kept = text(&path);
    write(&store, &path, "prod", &[]);
    assert_eq!(text(&path), kept);
}

#[test]
fn a_port_of_another_entry_is_not_taken_and_ones_own_stays() {
    let (store, path) = token_and_file();
    write(&store, &path, "prod", &[]);
    let first = local_server(&path);
    let taken = format!("clusters:\n- cluster:\n{first}\n  name: taken\n");
    fs::write(&path, BEFORE.replace("clusters:\n", &taken)).unwrap();
    write(&store, &path, "prod", &[]);
    assert_eq!(text(&path).matches(&first).count(), 1, "{}", text(&path));
    // Though the first one is free again.
    fs::write(&path, text(&path).replace(&first, "    server: https://10.0.0.3")).unwrap();
    let before = local_server(&path);
    write(&store, &path, "prod", &["--keep=15m"]);
    assert_eq!(local_server(&path), before);
    assert!(text(&path).contains("--keep=15m"));
}

#[test]
fn an_excerpt_is_what_would_be_written() {
    let (store, path) = token_and_file();
    let module = softhsm_option();
    let user = command(&store, &path, &[module]).run();
    let user = user.silently().printed();
    assert!(user.starts_with("users:\n- name: jane\n  user:\n    exec:\n"), "{user}");
    let printed = command(&store, &path, &[module, "--context=prod"]).run();
    let printed = printed.silently().printed();
    assert_eq!(text(&path), BEFORE);
    let excerpt = store.path("config-excerpt");
    fs::write(&excerpt, printed).unwrap();
    let shown = view(&store, &excerpt);
    write(&store, &path, "prod", &[]);
    let written = view(&store, &path);
    for (list, name) in [("clusters", "prod+token"), ("users", "jane+token"), ("contexts", "prod")]
    {
        assert_eq!(entry(&shown, list, name), entry(&written, list, name));
    }
}

#[test]
fn each_entry_is_found_in_the_file_it_stands_in() {
    let store = token();
    let directory = store.directory.path();
    fs::create_dir(directory.join("sub")).unwrap();
    let [first, second] = ["config-1", "sub/config-2"].map(|name| directory.join(name));
    let contexts = "contexts:\n- context:\n    cluster: prod\n    user: jane\n  name: prod\n";
    let clusters = "clusters:\n- cluster:\n    certificate-authority: ca.pem\n    \
                    server: https://10.0.0.1:6443\n  name: prod\n";
    fs::write(&first, contexts).unwrap();
    fs::write(&second, clusters).unwrap();
    fs::write(directory.join("sub/ca.pem"), "foo").unwrap();
    let list = std::env::join_paths([&first, &second]).unwrap();
    let list = Path::new(&list);
    write(&store, list, "prod", &[]).succeeded();
    assert_eq!(text(&second), clusters);
    let merged = view(&store, list);
    let real = &entry(&merged, "clusters", "prod+token")["extensions"][0]["extension"];
    let authority = directory.join("sub/ca.pem");
    assert_eq!(real["certificate-authority"], authority.to_str().unwrap());
    // Moved to another file, it would be read there.
    let written = text(&first);
    let (contexts_alone, moved) = written.split_once("users:").unwrap();
    fs::write(&first, contexts_alone).unwrap();
    fs::write(&second, format!("{clusters}users:{moved}")).unwrap();
    write(&store, list, "prod", &["--keep=terminal"])
        .fails(3, &["can't be written: user \"jane+token\" stands in another file"]);
    assert_eq!(text(&first), contexts_alone);
    fs::write(&first, &written).unwrap();
    fs::write(&second, clusters).unwrap();
    undo(&store, list, "prod");
    assert!(text(&first).contains(contexts), "{}", text(&first));
    assert_eq!(text(&second), clusters);
}

/// Only a file that was written has copies.
#[test]
fn a_secret_is_named_with_the_file_that_it_stands_in() {
    let store = token();
    let (contexts, users) = BEFORE.split_once("users:\n").unwrap();
    let [first, second] = ["config-1", "config-2"].map(|name| store.path(name));
    fs::write(&first, contexts.replace("web\n    user: jane", "web\n    user: joe")).unwrap();
    fs::write(&second, format!("users:\n{users}")).unwrap();
    let list = std::env::join_paths([&first, &second]).unwrap();
    let written = write(&store, Path::new(&list), "prod", &[]).printed();
    let place = format!(
        "User \"jane\", which the context had, is still in {}, with its secret",
        second.display()
    );
    assert!(written.contains(&place), "{written}");
    let removal = written.lines().find(|it| it.contains("delete-user")).unwrap();
    assert_eq!(removal.trim(), "kubectl config delete-user jane");
}

#[test]
fn a_pin_is_not_taken_over() {
    let store = token();
    let before = BEFORE.replace(
        "    token: abc\n",
        &format!(
            "    auth-provider:\n      name: externalSigner\n      config:\n        tokenLabel: test token\n        \
             objectId: \"2\"\n        pin: \"{PIN}\"\n"
        ),
    );
    let path = file(&store, &before);
    let outcome = write(&store, &path, "prod", &[]);
    let told = "the PIN in the kubeconfig is not taken over";
    outcome.says(&[told]);
    assert_eq!(text(&path).matches(PIN).count(), 1);
    let outcome = write(&store, &path, "prod", &["--pin-source=prompt"]);
    assert!(!outcome.stderr.contains(told), "{}", outcome.stderr);
    undo(&store, &path, "prod");
    assert!(text(&path).contains(PIN) && !text(&path).contains("+token"));
}

/// Of several that can be used, no option needs to name it once more.
#[test]
fn the_key_that_the_context_has_is_taken_of_several() {
    let pair = |kind, id| {
        let key = key(kind);
        [Object::key(key, id), Object::public_key(key, id), Object::certificate(key, id)]
    };
    let objects = [pair(Kind::P256, &[1]), pair(Kind::P384, &[2])].concat();
    let store = Store::new([blueprint("test token", objects)]);
    let user = "    auth-provider:\n      name: externalSigner\n      config:\n        tokenLabel: test token\n        \
                objectId: \"2\"\n";
    let path = file(&store, &BEFORE.replace("    token: abc\n", user));
    write(&store, &path, "prod", &["--user=new"]).printed();
    let written = view(&store, &path);
    let arguments = entry(&written, "users", "new")["exec"]["args"].to_string();
    assert!(arguments.contains("--object-id=2"), "{arguments}");
    // Where the context has none, the person is asked which.
    fs::write(&path, BEFORE).unwrap();
    write(&store, &path, "prod", &[]).fails(6, &["2 keys match"]);
}

/// A run leads to the real cluster, not to the local address.
#[test]
fn a_run_understands_what_is_written() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    // It writes the file anew, and takes it as it is.
    let run = cluster().run(&store, &store.configuration(), &["--", "kubectl", "auth", "whoami"]);
    let path = store.path("kubeconfig");
    write(&store, &path, "test", &["--pin-source=env:TOKEN_PIN"]).succeeded();
    assert!(text(&path).contains("test+token"), "{}", text(&path));
    assert!(run.run().printed().contains("jane"));
}

#[test]
fn what_can_not_be_written_leaves_everything_as_it_was() {
    let (store, path) = token_and_file();
    let refused = |outcome: Outcome, code: i32, fragments: &[&str]| {
        outcome.fails(code, fragments);
        assert_eq!(text(&path), BEFORE);
    };
    refused(
        write(&store, &path, "prod", &["--pin-source=stdin"]),
        3,
        &["pinSource is stdin, and standard input is the client's"],
    );
    refused(
        write(&store, &path, "gone", &[]),
        3,
        &["no context \"gone\"", "`kubectl config get-contexts`"],
    );
    let module = softhsm_option();
    assert_eq!(command(&store, &path, &["--write", module]).run().status.code(), Some(2));
    let lock = store.path("config.lock");
    fs::write(&lock, "").unwrap();
    refused(write(&store, &path, "prod", &[]), 3, &["another program is writing it"]);
    fs::remove_file(lock).unwrap();
    let broken = BEFORE.replace("server: https://10.0.0.1:6443", "x: y");
    fs::write(&path, &broken).unwrap();
    write(&store, &path, "prod", &[]).fails(3, &["cluster \"prod\" has no server"]);
    assert_eq!(text(&path), broken);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nobody else is here")]
fn what_the_tunnel_is_known_by_is_this_users_alone() {
    needs_isolation!();
    let (store, path) = token_and_file();
    let place = store.path("data");
    let identity = place.join("tunnel.pem");
    write(&store, &path, "prod", &[]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&identity), fs::read_dir(&place).unwrap().count()), (0o600, 1));
    let first = text(&identity);
    let written = text(&path);
    write(&store, &path, "lab", &[]);
    assert_eq!(text(&identity), first);
    // Each of these could have been put there, or read, by another user.
    fs::write(&path, &written).unwrap();
    let refused = |fragments: &[&str]| {
        write(&store, &path, "lab", &[]).fails(9, fragments);
        assert_eq!(text(&path), written);
    };
    chown(&identity, Some(1), None).unwrap();
    refused(&[
        "the tunnel's own key can't be used",
        "tunnel.pem belongs to another user (uid 1)",
        "kubeconfig --write --context lab`",
    ]);
    chown(&identity, Some(0), None).unwrap();
    fs::set_permissions(&identity, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&["is open to other users (mode 0644)"]);
    fs::set_permissions(&identity, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&identity, "garbage").unwrap();
    refused(&["tunnel.pem: it does not hold two certificates"]);
    fs::remove_file(&identity).unwrap();
    chown(&place, Some(1), None).unwrap();
    refused(&["belongs to another user (uid 1)"]);
    chown(&place, Some(0), None).unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_full_or_read_only_home_leaves_nothing_half_written() {
    needs_isolation!();
    let (store, path) = token_and_file();
    for (mount, told) in [
        ("mount -t tmpfs -o size=4k,mode=700 none $machine", "No space left"),
        ("mount -t tmpfs -o ro,mode=700 none $machine", "Read-only file system"),
    ] {
        let script = format!(
            "echo root:x:0:0::/root:/bin/sh > passwd; mkdir -p $machine{1}; {0}{1} && {2}",
            mount,
            data(),
            if mount.contains("size") {
                format!("head -c 4096 /dev/zero > $machine{}/full", data())
            } else {
                "true".to_owned()
            }
        );
        let outcome = command(&store, &path, &["--write", "--context=prod"])
            .argument(softhsm_option())
            .with_etc(&script)
            .run();
        outcome.fails(9, &["the tunnel's own key can't be kept", told]);
        assert_eq!(text(&path), BEFORE);
    }
}

/// The local address that the file leads to.
fn local_server(path: &Path) -> String {
    let config = fs::read_to_string(path).unwrap();
    config.lines().find(|line| line.contains("server: https://127.")).unwrap().to_owned()
}

#[test]
fn the_local_address_follows_from_what_the_entry_says_and_not_from_its_name() {
    let store = token();
    let written = |name: &str, text: &str, other: &str| {
        let path = store.path(name);
        // The context keeps its name.
        let config = BEFORE.replace(text, other);
        fs::write(&path, config.replace("  name: c\n  x-", "  name: prod\n  x-")).unwrap();
        write(&store, &path, "prod", &[]).printed();
        local_server(&path)
    };
    let local = written("config", "", "");
    assert_eq!(written("renamed", ": prod", ": c"), local);
    let others = [
        ("https://10.0.0.1", "https://10.0.0.3"),
        ("Zm9v", "YmFy"),
        ("Zm9v", "Zm9v\n    tls-server-name: api"),
        ("Zm9v", "Zm9v\n    proxy-url: http://proxy"),
    ];
    let others = others.map(|(text, other)| written("other", text, other));
    let different: BTreeSet<_> = others.iter().chain([&local]).collect();
    assert_eq!(different.len(), 5, "{different:?}");
    // A copy that was pointed at another server.
    let path = store.path("config");
    let copy = fs::read_to_string(&path).unwrap();
    fs::write(&path, copy.replace("https://10.0.0.1", "https://10.0.0.3")).unwrap();
    write(&store, &path, "prod", &[]).printed();
    assert_eq!(local_server(&path), others[0]);
}

/// The names of what is in a directory beside these.
fn others(directory: &Path, known: &[&str]) -> Vec<String> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("config") && !known.contains(&name.as_str()))
        .collect()
}

fn writing(store: &Store, path: &Path) -> Invocation {
    command(store, path, &["--write", "--context=prod", softhsm_option()])
}

#[test]
fn what_is_no_file_is_not_written() {
    let (store, path) = token_and_file();
    for (files, named) in [
        ("<(cat config)", "/dev/fd/"),
        ("config:/dev/null", "/dev/null"),
        ("/dev/stdin", "/dev/stdin"),
    ] {
        let script = format!(
            "cd \"$HOME\" && cat config | KUBECONFIG={files} \"$SIGNER\" kubeconfig --write --context=prod {}",
            softhsm_option()
        );
        let outcome = Invocation::new(store.directory.path()).within("bash", &script).run();
        let told = format!("kubeconfig {named}");
        outcome.fails(3, &[&told, "can't be written: it is not a regular file", "paste what `"]);
        assert_eq!(text(&path), BEFORE);
    }
    assert_eq!(others(store.directory.path(), &["config"]), [""; 0]);
}

#[test]
fn interruptions_at_any_moment_leave_the_old_file_or_the_new_one_and_nothing_else() {
    let (store, path) = token_and_file();
    let took = writing(&store, &path).run().took;
    let new = text(&path);
    for signal in [Signal::INT, Signal::KILL] {
        let (mut old_ones, mut new_ones) = (0, 0);
        // On a machine that is busier than it was, no new file may be left so early.
        for moment in (0..60).chain((2..=20).map(|times| 40 * times)) {
            if moment >= 60 && new_ones > 0 {
                break;
            }
            for name in others(store.directory.path(), &["config"]) {
                fs::remove_file(store.path(name)).unwrap();
            }
            fs::write(&path, BEFORE).unwrap();
            let running = writing(&store, &path).start(None);
            thread::sleep(took * moment / 40);
            kill_process(running.pid(), signal).unwrap();
            let outcome = running.finish();
            let left = others(store.directory.path(), &["config"]);
            let copies: Vec<_> =
                left.iter().filter(|it| it.starts_with("config.backup-")).collect();
            let is_old = text(&path) == BEFORE;
            if is_old {
                assert_eq!(outcome.status.signal(), Some(signal.as_raw()), "{outcome:?}");
                old_ones += 1;
            } else {
                assert_eq!(text(&path), new);
                assert_eq!(copies.len(), 1, "{left:?}");
                assert_eq!(text(&store.path(copies[0])), BEFORE);
                new_ones += 1;
            }
            // Nothing can be tidied up after SIGKILL.
            if signal == Signal::INT {
                assert_eq!(left.len(), usize::from(!is_old), "{left:?}");
            }
        }
        assert!(old_ones > 0 && new_ones > 0, "{signal:?}: {old_ones} old, {new_ones} new");
    }
}

/// While it waits for another program's lock.
#[test]
fn an_interruption_leaves_the_file_alone_and_no_lock_behind() {
    needs_isolation!();
    let (store, path) = token_and_file();
    fs::write(store.path("config.lock"), "").unwrap();
    let strace = tool("strace", "strace");
    let trace = store.path("trace");
    let options = ["-f", "-e", "trace=openat", "-o", trace.to_str().unwrap()];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let traced =
            writing(&store, &path).through(strace.get_program().to_str().unwrap(), &options);
        let mut running = traced.start(None);
        let process = wait_for("it finds the lock taken", || {
            assert!(!running.has_ended(), "it did not wait");
            let calls = fs::read_to_string(&trace).unwrap_or_default();
            let mut calls = calls.lines();
            let found = calls.find(|it| it.contains("config.lock") && it.contains("EEXIST"))?;
            Pid::from_raw(found.split(' ').next()?.parse().unwrap())
        });
        kill_process(process, signal).unwrap();
        let outcome = running.finish();
        fs::remove_file(&trace).unwrap();
        assert_eq!(outcome.status.signal(), Some(signal.as_raw()), "{outcome:?}");
        assert_eq!(others(store.directory.path(), &["config", "config.lock"]), [""; 0]);
        assert_eq!(text(&path), BEFORE);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nobody else is here")]
fn what_can_not_be_replaced_as_it_was_is_left_alone() {
    needs_isolation!();
    let store = token();
    let place = store.path("place");
    fs::create_dir(&place).unwrap();
    let path = place.join("config");
    fs::write(&path, BEFORE).unwrap();
    let refused = |invocation: Invocation, fragments: &[&str]| {
        let help = "paste what `pkcs11-external-signer kubeconfig --module=";
        invocation.run().fails(3, &[help]).fails(3, fragments);
        assert_eq!(text(&path), BEFORE);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    };
    // As a container has it.
    let alone = format!(
        "echo root:x:0:0::/root:/bin/sh > passwd; install -d -m 700 $machine{1}; mount --bind {0} $machine{0}",
        path.display(),
        data()
    );
    refused(writing(&store, &path).with_etc(&alone), &["can't be written: it is a mount point"]);
    let read_only = format!(
        "echo root:x:0:0::/root:/bin/sh > passwd; install -d -m 700 $machine{1}; mount --bind {0} $machine{0} && mount \
         -o remount,bind,ro $machine{0}",
        place.display(),
        data()
    );
    let fragments = &["config can't be written", "Read-only file system"];
    refused(writing(&store, &path).with_etc(&read_only), fragments);
    // Of a group that its owner isn't in.
    chown(&path, None, Some(12345)).unwrap();
    let writing = writing(&store, &path).through("setpriv", &["--bounding-set=-chown"]);
    refused(writing, &["the owner and group of the file can't be kept"]);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let store = token();
    let names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
    let contexts = names.iter().map(|it| format!("- {{name: {it}, context: {{cluster: prod}}}}\n"));
    let before =
        BEFORE.replace("contexts:\n", &format!("contexts:\n{}", contexts.collect::<String>()));
    let path = file(&store, &before);
    thread::scope(|scope| {
        for name in &names {
            let (store, path) = (&store, &path);
            scope.spawn(move || {
                write(store, path, name, &[]).succeeded();
            });
        }
    });
    let view = view(&store, &path);
    for name in &names {
        assert_eq!(entry(&view, "contexts", name)["cluster"], "prod+token");
    }
}
