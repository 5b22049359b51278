//! Which contexts are led through tunnels, and that all else is as kubectl would read it.

use super::{run, written};
use crate::fixture::*;

/// What kubectl reads in a run with these files.
fn view(store: &Store, files: &[PathBuf]) -> Value {
    let list = std::env::join_paths(files).unwrap();
    let arguments = ["kubectl", "config", "view", "--raw", "-o", "json"];
    run(store, &arguments).variable("KUBECONFIG", &list).run().json()
}

/// How they are merged is shown in `crate::kubeconfig`.
#[test]
fn several_files_are_one_kubeconfig_and_stay_as_they_are() {
    let store = token_with_pair(Kind::P256);
    drop(run(&store, &["true"]));
    let more = json!({
        "current-context": "late",
        "clusters": [
            {"name": "second", "cluster": {"server": "https://second"}},
            {"name": "test", "cluster": {"server": "https://lost"}},
        ],
        "users": [{"name": "token", "user": {"tokenFile": "t"}}],
        "contexts": [{"name": "late", "context": {"cluster": "second", "user": "token"}}],
    });
    fs::create_dir(store.path("elsewhere")).unwrap();
    let more = store.file("elsewhere/more", more.to_string(), 0o600);
    let files = [store.path("kubeconfig"), store.path("missing"), more];
    let before = files.each_ref().map(|file| fs::read(file).ok());
    let config = view(&store, &files);
    assert_eq!(config["current-context"], "test");
    let clusters: Vec<_> = config["clusters"].as_array().unwrap().iter().collect();
    assert_eq!((clusters.len(), &clusters[0]["name"]), (2, &json!("second")));
    assert!(clusters[1]["cluster"]["server"].as_str().unwrap().starts_with("https://127.0.0.1:"));
    assert_eq!(config["contexts"][0]["name"], "late");
    let users = config["users"].as_array().unwrap();
    let joe = users.iter().find(|it| it["name"] == "token");
    assert_eq!(joe.unwrap()["user"]["tokenFile"], json!(store.path("elsewhere/t")));
    assert!(files.map(|file| fs::read(file).ok()) == before);
}

#[test]
fn the_copy_is_complete_and_leads_nowhere_else() {
    let store = token_with_pair(Kind::P256);
    drop(run(&store, &["true"]));
    let config = view(&store, &[store.path("kubeconfig")]);
    let cluster = config["clusters"][0]["cluster"].as_object().unwrap();
    assert!(cluster["server"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{config}");
    assert!(!cluster.contains_key("certificate-authority"), "{config}");
    let user = config["users"][0]["user"].as_object().unwrap();
    let keys: Vec<_> = user.keys().collect();
    assert_eq!(keys, ["client-certificate-data", "client-key-data"]);
    // In the one form that every client reads.
    let pem = STANDARD.decode(user["client-key-data"].as_str().unwrap());
    let pem = String::from_utf8(pem.unwrap()).unwrap();
    assert!(pem.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
    let key = store.file("run.key", &pem, 0o600);
    openssl(["ec", "-in", key.to_str().unwrap(), "-noout", "-check"]);
}

#[test]
fn unknown_fields_survive_and_other_contexts_stay() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let mut config = written(&store);
    config["novelty"] = json!({"deep": [1, {"x": null}]});
    config["clusters"][0]["cluster"]["novelty"] = json!(true);
    let joe = json!({"client-certificate": "/joe.pem", "client-key": "/joe.key", "novelty": [6]});
    config["users"].as_array_mut().unwrap().push(json!({"name": "joe", "user": joe}));
    config["contexts"].as_array_mut().unwrap().push(
        json!({"name": "plain", "context": {"cluster": "test", "user": "joe", "novelty": "yes"}}),
    );
    let script = "kubectl get namespace default -o name >&2 && cat \"$KUBECONFIG\"";
    let outcome = run_with(&store, &config, &["sh", "-c", script]);
    let copy = outcome.json();
    assert_eq!(outcome.stderr, "namespace/default\n");
    assert_eq!(copy["novelty"], config["novelty"]);
    // The tunnel can't show Joe's certificate: his way to the cluster is the old one, under another name.
    assert_eq!(copy["clusters"][1]["name"], "test+direct");
    assert_eq!(copy["clusters"][1]["cluster"], config["clusters"][0]["cluster"]);
    assert_eq!(copy["contexts"][1]["context"]["cluster"], "test+direct");
    assert_eq!(copy["contexts"][1]["context"]["user"], "joe");
    assert_eq!(copy["contexts"][1]["context"]["novelty"], "yes");
    assert_eq!(copy["users"][1], config["users"][1]);
    assert_eq!(copy["clusters"][0]["cluster"]["novelty"], json!(true));
    assert_eq!(copy["contexts"][0], config["contexts"][0]);
}

/// A run with this kubeconfig, behind further options of the run's.
fn run_with(store: &Store, config: &Value, arguments: &[&str]) -> Outcome {
    let file = store.file("changed", config.to_string(), 0o600);
    run(store, &["--kubeconfig", file.to_str().unwrap()]).arguments(arguments).run()
}

#[test]
fn nothing_is_started_where_there_is_nothing_to_serve() {
    let store = token_with_pair(Kind::P256);
    let refused = |content: &str, code: i32, fragments: &[&str]| {
        let file = store.file("refused", content, 0o600);
        let arguments = ["--kubeconfig", file.to_str().unwrap(), "echo", "started"];
        run(&store, &arguments).run().fails(code, fragments);
    };
    refused("", 3, &["no context", "kubeconfig --write", "--context NAME"]);
    refused("clusters: []\nusers: [{name: a, user: {token: t}}]\n", 3, &["no context"]);
    refused("a: b: c\n", 3, &["refused, line 1"]);
    refused(&format!("x: {}", "[".repeat(100_000)), 3, &["kubeconfig"]);
    let user = |config: &str| {
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: \"https://127.0.0.1:1\"}}}}]\n\
             users: [{{name: u, user: {{auth-provider: {{name: externalSigner, config: {config}}}}}}}]\n"
        )
    };
    refused(&user("{}"), 3, &["pathLib"]);
    refused(&user("{pathLib: lib.so, slotId: \"x\"}"), 3, &["not an absolute path"]);
    refused(&user("{pin: 0471}"), 3, &["\"u\"", "pin is not a string", "quotes"]);
    refused(&user("{}").replace("cluster: k,", "cluster: lost,"), 3, &["pathLib"]);
    for (arguments, fragment) in [
        (["--kubeconfig", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--kubeconfig", "/"], "Is a directory"),
        (["--context", "neverland"], "neverland"),
    ] {
        run(&store, &[&arguments[..], &["echo", "started"]].concat()).run().fails(3, &[fragment]);
    }
}

/// A kubeconfig that is decrypted into a pipe is never a file.
#[test]
fn what_can_be_read_only_once_is_a_kubeconfig() {
    let store = cluster().token(Kind::P256, JANE);
    rustix::fs::mkfifoat(rustix::fs::CWD, store.path("fifo"), 0o600.into()).unwrap();
    let whoami = "auth whoami -o jsonpath={.status.userInfo.username}";
    for script in [
        "\"$SIGNER\" run --kubeconfig <(cat \"$FILE\") -- kubectl WHOAMI",
        "KUBECONFIG=<(cat \"$FILE\") \"$SIGNER\" run -- kubectl WHOAMI",
        "KUBECONFIG=/dev/null:$FILE \"$SIGNER\" run -- kubectl WHOAMI",
        "cat \"$FILE\" | \"$SIGNER\" run --kubeconfig /dev/stdin -- kubectl WHOAMI",
        "\"$SIGNER\" run --kubeconfig /dev/stdin -- kubectl WHOAMI < \"$FILE\"",
        "cat \"$FILE\" > fifo & \"$SIGNER\" run --kubeconfig fifo -- kubectl WHOAMI",
    ] {
        let script = format!("cd \"$HOME\" || exit; {}", script.replace("WHOAMI", whoami));
        let file = store.path("kubeconfig");
        let outcome = run(&store, &[])
            .within("bash", &script)
            .without_variable("KUBECONFIG")
            .variable("FILE", file)
            .run();
        outcome.silently();
        assert_eq!(outcome.printed(), "jane", "{script}");
    }
    // kubectl reads the same, and neither finds a context in /dev/null.
    for (script, code, told) in [
        ("kubectl --kubeconfig <(cat \"$FILE\") config current-context", 0, ""),
        ("KUBECONFIG=/dev/null kubectl config get-contexts -o name", 0, ""),
        ("KUBECONFIG=/dev/null \"$SIGNER\" run -- true", 3, "no context of /dev/null"),
        ("\"$SIGNER\" run --kubeconfig /dev/zero -- true", 3, "larger than 64 MiB"),
        (
            "\"$SIGNER\" check --no-login --kubeconfig <(cat \"$FILE\") | grep 'context \"test\"'",
            0,
            "",
        ),
    ] {
        let file = store.path("kubeconfig");
        let outcome = run(&store, &[]).within("bash", script).variable("FILE", file);
        let outcome = outcome.run();
        assert_eq!(outcome.status.code(), Some(code), "{script}: {outcome:?}");
        outcome.says(&[told]);
        assert_eq!(outcome.stderr.is_empty(), told.is_empty(), "{script}: {outcome:?}");
    }
}

#[test]
fn contexts_that_are_left_as_they_are_are_told() {
    let store = cluster().token(Kind::P256, JANE);
    let mut config = written(&store);
    for (name, provider) in [
        ("broken", json!({"name": "externalSigner", "config": {"pathLib": "relative"}})),
        ("foreign", json!({"name": "gcp"})),
    ] {
        let user = json!({"name": name, "user": {"auth-provider": provider}});
        config["users"].as_array_mut().unwrap().push(user);
        let context = json!({"name": name, "context": {"cluster": "test", "user": name}});
        config["contexts"].as_array_mut().unwrap().push(context);
    }
    let outcome = run_with(&store, &config, &["kubectl", "auth", "whoami"]);
    let printed = outcome.printed_beside(&[
        "context \"broken\"",
        "relative",
        "context \"foreign\"",
        "\"gcp\"",
    ]);
    assert!(printed.contains("jane"), "{outcome:?}");
    // Where one of them is what the command would use, it is not started.
    run_with(&store, &config, &["--context", "broken", "echo", "started"]).fails(3, &["relative"]);
}

#[test]
fn a_command_without_a_context_is_told_how_to_get_one() {
    let store = cluster().token(Kind::P256, JANE);
    let mut config = written(&store);
    config.as_object_mut().unwrap().remove("current-context");
    let outcome = run_with(&store, &config, &["kubectl", "get", "namespaces"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    outcome.says(&["no context is selected", "run --context NAME", "localhost:8080"]);
    let whoami = ["kubectl", "auth", "whoami", "--context=test"];
    for arguments in [
        &whoami[..],
        &["--context=test", "kubectl", "auth", "whoami"],
        &["--only-context=test", "kubectl", "auth", "whoami"],
    ] {
        assert!(run_with(&store, &config, arguments).silently().printed().contains("jane"));
    }
}

#[test]
fn whoever_skips_verification_for_two_users_is_warned_once() {
    let store = cluster().token(Kind::P256, JANE);
    drop(run(&store, &["true"]));
    cluster().add_context(&store, "1");
    let mut config = read_json(store.path("kubeconfig"));
    let entry = config["clusters"][0]["cluster"].as_object_mut().unwrap();
    entry.remove("certificate-authority");
    entry.insert("insecure-skip-tls-verify".to_owned(), json!(true));
    let outcome = run_with(&store, &config, &["true"]);
    outcome.printed_beside(&["insecure-skip-tls-verify"]);
    assert_eq!(outcome.stderr.matches("insecure-skip-tls-verify").count(), 1, "{outcome:?}");
}

/// Least privilege: whatever the command is or starts, it can reach this cluster as this user only.
#[cfg(target_os = "linux")]
#[test]
fn a_command_can_be_given_one_context_alone() {
    needs_isolation!();
    let store = cluster().token(Kind::P256, JANE);
    let mut config = written(&store);
    let mut add = |list: &str, entry: Value| config[list].as_array_mut().unwrap().push(entry);
    let prod = json!({"server": "https://127.0.0.1:1"});
    add("clusters", json!({"name": "prod", "cluster": prod}));
    add("users", json!({"name": "joe", "user": {"token": "secret"}}));
    add("contexts", json!({"name": "prod", "context": {"cluster": "prod", "user": "jane"}}));
    add("contexts", json!({"name": "joe", "context": {"cluster": "prod", "user": "joe"}}));
    config["x-base"] = json!({"token": "secret"});
    config["current-context"] = json!("prod");
    // The ports of the process above, which is the run.
    let script = "kubectl auth whoami -o jsonpath={.status.userInfo.username} >&2; \
        ss -Hltnp | grep -c \"pid=$PPID,\" >&2; cat \"$KUBECONFIG\"";
    let told = |options: &[&str], command: &[&str]| {
        run_with(&store, &config, &[options, &["--"], command].concat())
    };
    let alone = told(&["--only-context", "test"], &["sh", "-c", script]);
    let copy = alone.json();
    assert_eq!(alone.stderr, "jane1\n");
    for (list, name) in [("clusters", "test"), ("users", "jane"), ("contexts", "test")] {
        let names: Vec<_> = copy[list].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 1, "{copy}");
        assert_eq!(names[0]["name"], name, "{copy}");
    }
    assert_eq!(copy["current-context"], "test");
    assert!(!copy.to_string().contains("secret"), "{copy}");
    // With the others there are their ports, too.
    assert_eq!(told(&["--context", "test"], &["sh", "-c", script]).stderr, "jane2\n");
    let other = told(&["--only-context=test"], &["kubectl", "--context=prod", "get", "pods"]);
    other.says(&["context was not found"]);
    for (options, code, fragment) in [
        (
            &["--only-context=joe"][..],
            3,
            "user \"joe\" of context \"joe\" has no key for this program",
        ),
        (&["--only-context=nowhere"], 3, "no context \"nowhere\""),
    ] {
        told(options, &["echo", "started"]).fails(code, &[fragment]);
    }
    let both = told(&["--only-context=test", "--context=prod"], &["true"]);
    assert_eq!(both.status.code(), Some(2));
    both.says(&["cannot be used with '--context <NAME>'"]);
}

#[test]
fn a_changed_copy_is_told_of() {
    let store = token_with_pair(Kind::P256);
    let arguments = ["kubectl", "config", "set-context", "--current", "--namespace=web"];
    run(&store, &arguments).run().says(&["has changed its kubeconfig"]);
}

#[test]
fn a_run_inside_a_run_says_so() {
    let store = token_with_pair(Kind::P256);
    let outcome = run(&store, &["sh", "-c", &format!("'{PROGRAM}' run true")]).run();
    outcome.fails(3, &["inside a run already"]);
}
