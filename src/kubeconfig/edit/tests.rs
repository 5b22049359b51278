//! The text before and after, side by side.

use std::fs;

use super::*;

fn config() -> ProviderConfig {
    let mut config = ProviderConfig::default();
    config.set("slotId", Some("0"));
    config
}

/// The edited text, or the error.
fn edited(text: &str, edit: impl Fn(&mut KubeconfigFile) -> Result<(), KubeconfigError>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    fs::write(&path, text).unwrap();
    fs::write(directory.path().join("ca.pem"), "ca").unwrap();
    let outcome = KubeconfigFile::open(&path, || false).and_then(|mut document| {
        edit(&mut document)?;
        document.save()
    });
    let after = fs::read_to_string(&path).unwrap();
    match outcome {
        Ok(_) => after,
        Err(error) => {
            assert_eq!(after, text);
            let error = error.to_string();
            error.replace(path.to_str().unwrap(), "FILE")
        }
    }
}

fn with_user(text: &str) -> String {
    with_user_keeping(text, &[])
}

fn with_user_keeping(text: &str, stays: &[&str]) -> String {
    edited(text, |document| {
        let stays = |key: &str, _: &str| stays.contains(&key);
        document.set_user("jane", &config(), stays).map(drop)
    })
}

fn with_context(text: &str) -> String {
    edited(text, |document| document.set_context("c", "jane"))
}

/// The entry, its lines after the first so far from the margin.
fn entry(indent: &str) -> String {
    format!(
        "- name: jane\n{indent}user:\n{indent}  auth-provider:\n{indent}    name: externalSigner\n\
         {indent}    config:\n{indent}      slotId: \"0\"\n"
    )
}

const FLOW: &str =
    r#"{"name":"jane","user":{"auth-provider":{"config":{"slotId":"0"},"name":"externalSigner"}}}"#;

#[test]
fn a_user_is_added_where_the_files_own_style_has_it() {
    let block = entry("  ");
    for (before, after) in [
        (String::new(), format!("apiVersion: v1\nkind: Config\nusers:\n{block}")),
        ("# mine\n".into(), format!("# mine\napiVersion: v1\nkind: Config\nusers:\n{block}")),
        ("null\n".into(), format!("apiVersion: v1\nkind: Config\nusers:\n{block}")),
        ("~".into(), format!("apiVersion: v1\nkind: Config\nusers:\n{block}")),
        ("---\n".into(), format!("---\napiVersion: v1\nkind: Config\nusers:\n{block}")),
        (
            "# mine\n--- # c\nnull # none\n...\n".into(),
            format!(
                "# mine\n--- # c\napiVersion: v1\nkind: Config\nusers:\n{} # none\n...\n",
                block.trim_end()
            ),
        ),
        ("kind: Config".into(), format!("kind: Config\nusers:\n{block}")),
        (
            "kind: Config # why\n# end\n".into(),
            format!("kind: Config # why\nusers:\n{block}# end\n"),
        ),
        ("users: []\nkind: Config\n".into(), format!("users:\n{block}kind: Config\n")),
        ("users:\nkind: Config\n".into(), format!("users:\n{block}kind: Config\n")),
        ("users: null # none\n".into(), format!("users:\n{} # none\n", block.trim_end())),
        (
            "users:\n- name: b # last\n# before contexts\ncontexts: []\n".into(),
            format!("users:\n- name: b # last\n{block}# before contexts\ncontexts: []\n"),
        ),
        (
            "users:\n  -   name: b\n      user: {token: t}\n".into(),
            format!(
                "users:\n  -   name: b\n      user: {{token: t}}\n  -   {}",
                entry("      ").trim_start_matches("- ")
            ),
        ),
        (
            "users:\n- name: b\n  user:\n    token: |\n      t\nkind: Config\n".into(),
            format!("users:\n- name: b\n  user:\n    token: |\n      t\n{block}kind: Config\n"),
        ),
        (
            "users:\r\n- name: b\r\n".into(),
            format!("users:\r\n- name: b\r\n{}", block.replace('\n', "\r\n")),
        ),
        (r#"{"kind":"Config"}"#.into(), format!(r#"{{"users":[{FLOW}],"kind":"Config"}}"#)),
        ("{}".into(), format!(r#"{{"users":[{FLOW}]}}"#)),
        (r#"{"users":[]}"#.into(), format!(r#"{{"users":[{FLOW}]}}"#)),
        (r#"{"users":null}"#.into(), format!(r#"{{"users":[{FLOW}]}}"#)),
        (
            "{\n  \"users\": [\n    {\"name\": \"b\"}\n  ]\n}\n".into(),
            format!("{{\n  \"users\": [\n    {{\"name\": \"b\"}}\n  ,{FLOW}]\n}}\n"),
        ),
        ("users: [{name: b}]\n".into(), format!("users: [{{name: b}},{FLOW}]\n")),
        (
            "---\nusers:\n- name: b\n...\n---\nother: document\n".into(),
            format!("---\nusers:\n- name: b\n{block}...\n---\nother: document\n"),
        ),
        ("\"users\":\n- name: b\n".into(), format!("\"users\":\n- name: b\n{block}")),
    ] {
        assert_eq!(with_user(&before), after, "{before:?}");
    }
}

#[test]
fn a_user_that_is_there_keeps_what_is_no_credential() {
    let before = "users:\n# first\n- name: a\n- name: jane # admin\n  user:\n    as: root\n    \
                  token: secret\n    foo: [1, {b: 2}]\n    client-key: k\n- name: z # last\n";
    assert_eq!(
        with_user(before),
        "users:\n# first\n- name: a\n- name: jane # admin\n  user:\n    as: root\n    \
         foo: [1, {b: 2}]\n    auth-provider:\n      name: externalSigner\n      config:\n        \
         slotId: \"0\"\n- name: z # last\n"
    );
    let flow = r#"{"users":[{"name":"jane","user":{"as":"root","token":"t"}},{"name":"z"}]}"#;
    assert_eq!(
        with_user(flow),
        r#"{"users":[{"name":"jane","user":{"as":"root","auth-provider":{"config":{"slotId":"0"},"name":"externalSigner"}}},{"name":"z"}]}"#
    );
    assert_eq!(
        with_user("users:\r\n- name: jane # j\r\n- name: z\r\n"),
        format!("users:\n{}- name: z\n", entry("  "))
            .replace("jane\n", "jane # j\n")
            .replace('\n', "\r\n")
    );
    // Once more changes nothing.
    let once = with_user("users:\n- name: b\n");
    assert_eq!(with_user(&once), once);
}

#[test]
fn a_configuration_that_is_there_loses_only_what_does_not_stay() {
    let before = "users:\n- name: jane\n  user:\n    auth-provider:\n      config:\n        \
                  uri: 'pkcs11:'\n        x: \"a # b\"\n        pathExec: /own # mine\n      \
                  name: externalSigner\n      version: 1\n";
    let after = with_user_keeping(before, &["x", "pathExec"]);
    assert_eq!(
        after,
        "users:\n- name: jane\n  user:\n    auth-provider:\n      config:\n        \
         x: \"a # b\"\n        pathExec: /own # mine\n        slotId: \"0\"\n      \
         name: externalSigner\n      version: 1\n"
    );
    let block = "users:\n- name: jane\n  user:\n    auth-provider:\n      name: externalSigner\n      \
                 config:\n        x: |\n          a\n        pathExec: >-\n          /own\n";
    assert_eq!(
        with_user_keeping(block, &["x", "pathExec"]),
        format!("{block}        slotId: \"0\"\n")
    );
    // What says the same already isn't touched, its comments included.
    for text in [
        &after,
        "users:\n- user: {auth-provider: {name: externalSigner, config: {slotId: 0}}} # mine\n  \
         name: jane\n",
    ] {
        assert_eq!(with_user_keeping(text, &["x", "pathExec"]), *text);
    }
    // Another provider's is no configuration of ours.
    assert_eq!(
        with_user_keeping(
            "users:\n- name: jane\n  user: {auth-provider: {name: oidc, config: {x: old}}}\n",
            &["x"],
        ),
        format!("users:\n{}", entry("  "))
    );
}

#[test]
fn what_a_user_loses_is_told() {
    let lost = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, format!("users: [{{name: jane, user: {text}}}]")).unwrap();
        let mut document = KubeconfigFile::open(&path, || false).ok().unwrap();
        let stays = |key: &str, value: &str| key == "x" && value == "kept";
        document.set_user("jane", &config(), stays).ok().unwrap()
    };
    for (user, names) in [
        ("{as: root}", &[][..]),
        ("{token: t, auth-provider: {name: oidc}}", &["auth-provider", "token"]),
        ("{auth-provider: {name: externalSigner, config: {x: kept, slotId: 1}}}", &[]),
        (
            "{password: p, auth-provider: {name: externalSigner, config: {x: lost, uri: z}}}",
            &["password", "uri", "x"],
        ),
    ] {
        assert_eq!(lost(user), names, "{user}");
    }
}

#[test]
fn comments_stay_where_they_are() {
    // What goes, and what comes, stands in lines of its own.
    for (before, after) in [
        (
            "users:\n  - name: jane   # key\n    # inner A\n    user:\n      # inner B\n      \
             as-groups: [a, b]  # imp\n      extensions:\n      - name: e\n        \
             extension: {v: 1}  # ext\n      token: t\n      auth-provider:\n        \
             # ours\n        name: externalSigner # really\n        config:\n          \
             # the second slot\n          slotId: \"1\"\n          # the end\n  - name: b\n",
            "users:\n  - name: jane   # key\n    # inner A\n    user:\n      # inner B\n      \
             as-groups: [a, b]  # imp\n      extensions:\n      - name: e\n        \
             extension: {v: 1}  # ext\n      auth-provider:\n        \
             # ours\n        name: externalSigner # really\n        config:\n          \
             # the second slot\n          slotId: \"0\"\n          # the end\n  - name: b\n",
        ),
        (
            "users:\n- x-note: sib\n  name: jane # é\n  user: {as: root}\nkind: Config\n",
            "users:\n- x-note: sib\n  name: jane # é\n  user:\n    as: root\n    \
             auth-provider:\n      name: externalSigner\n      config:\n        slotId: \"0\"\n\
             kind: Config\n",
        ),
        (
            "users:\n- name: jane\n  user:\n    as:\n    password: |\n      p\n    foo: >-\n      \
             # f\n\n    # end",
            "users:\n- name: jane\n  user:\n    as:\n    foo: >-\n      # f\n\n    auth-provider:\n      \
             name: externalSigner\n      config:\n        slotId: \"0\"\n    # end\n",
        ),
        (
            "users:\n- name: jane\n  user:\n    token: t",
            "users:\n- name: jane\n  user:\n    auth-provider:\n      name: externalSigner\n      \
             config:\n        slotId: \"0\"\n",
        ),
        (
            "users:\n- user:\n    as: a\n    exec:\n      env:\n  # n\n  name: jane\n",
            "users:\n- user:\n    as: a\n    auth-provider:\n      name: externalSigner\n      \
             config:\n        slotId: \"0\"\n  # n\n  name: jane\n",
        ),
    ] {
        assert_eq!(with_user(before), after, "{before}");
    }
}

#[test]
fn comments_that_go_are_told_by_their_lines() {
    let lost = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        fs::write(&path, text).unwrap();
        let mut document =
            KubeconfigFile::open(&path, || false).map_err(|error| error.to_string()).unwrap();
        let mut config = ProviderConfig::default();
        config.set_explained("slotId", "0", "token \"a\"".to_owned());
        document.set_user("jane", &config, |_, _| false).ok().unwrap()
    };
    for (text, names) in [
        ("# a\nusers:\n- name: jane # b\n", &[][..]),
        (
            "users:\n- {name: jane, user: {token: t, # a\n   as: '#x #y'}} # b\n",
            &["token", "a comment in line 2"],
        ),
        (
            "# z\nusers:\n- name: jane\n  user:\n    token: |\n      # t\n      t#t # t\n    \
             username: u # a\n    auth-provider:\n      # b\n      name: oidc\n",
            &["auth-provider", "token", "username", "comments in lines 8 and 10"],
        ),
        (
            "users:\n- name: jane\n  user:\n    auth-provider:\n      name: externalSigner\n      \
             config:\n        slotId: \"0\" # mine\n        x: z\n",
            &["x", "a comment in line 7"],
        ),
    ] {
        assert_eq!(lost(text), names, "{text}");
    }
}

#[test]
fn a_context_is_pointed_at_the_user() {
    for (before, after) in [
        (
            "contexts:\n- name: c\n  context:\n    user: old # was\n    cluster: k\n",
            "contexts:\n- name: c\n  context:\n    user: jane # was\n    cluster: k\n",
        ),
        (
            "contexts:\n- context:\n    cluster: k # here\n  name: c\n",
            "contexts:\n- context:\n    cluster: k # here\n    user: jane\n  name: c\n",
        ),
        (
            "contexts: [{name: c, context: {user: 'old', cluster: k}}]\n",
            "contexts: [{name: c, context: {user: 'jane', cluster: k}}]\n",
        ),
        (
            r#"{"contexts":[{"name":"c","context":{"cluster":"k"}}]}"#,
            r#"{"contexts":[{"name":"c","context":{"user":"jane","cluster":"k"}}]}"#,
        ),
        (
            "contexts:\n- context:\n    cluster: k\n    user: \"\"\n  name: c\n",
            "contexts:\n- context:\n    cluster: k\n    user: \"jane\"\n  name: c\n",
        ),
        (
            "contexts:\n- context:\n    user: # none\n    cluster: k\n  name: c\n",
            "contexts:\n- context:\n    user: jane # none\n    cluster: k\n  name: c\n",
        ),
        (
            "contexts:\n- context:\n    cluster: k\n    user: null\n  name: c\n",
            "contexts:\n- context:\n    cluster: k\n    user: jane\n  name: c\n",
        ),
        (
            "contexts: [{name: c, context: {user: , cluster: k}}]\n",
            "contexts: [{name: c, context: {user: \"jane\" , cluster: k}}]\n",
        ),
    ] {
        assert_eq!(with_context(before), after);
    }
    assert_eq!(with_context("contexts: [{name: d}]\n"), "the kubeconfig has no context \"c\"");
}

#[test]
fn what_can_not_be_edited_for_sure_is_left_alone() {
    let refused = "kubeconfig FILE can't be edited without a risk to what else it says";
    for text in [
        // The entry is needed elsewhere, or is a copy itself.
        "users:\n- &j\n  name: jane\n  user: {token: t}\n- <<: *j\n  name: b\n",
        "x: &list\n- name: b\nusers: *list\n",
        "users:\n- <<: {name: jane}\n  user: {token: t}\n",
    ] {
        assert_eq!(with_user(text), refused, "{text}");
    }
    assert_eq!(with_context("contexts:\n- name: c\n"), refused);
    assert!(with_user("users: [{name: a}, {name: a}]").contains("is there twice"));
    assert!(with_user("users: [").contains("line 1"));
}

#[test]
fn a_context_keeps_its_comments_and_may_name_its_user_by_an_alias() {
    let flow = "contexts:\n- name: c\n  context: {cluster: a, # ask first\n    namespace: web}\n";
    let edited = with_context(flow);
    assert!(edited.contains("# ask first"), "{edited}");
    assert!(edited.contains("jane"), "{edited}");
    let alias = "contexts:\n- name: c\n  context: {cluster: &me a, user: *me}\n";
    let edited = with_context(alias);
    assert!(!edited.contains("*me") && edited.contains("jane"), "{edited}");
}

const HOP: LocalHop<'_> = LocalHop {
    address: std::net::Ipv4Addr::new(127, 1, 3, 232),
    server_name: "4f0c.tunnel.invalid",
    authority_pem: "ca",
    ports: &|_| vec![21_234, 21_235],
    is_free: &|port, _| port != 20_666,
};

/// What `kubeconfig --write` makes of a file for its context `prod`, and what is taken out again.
fn with_plugin(text: &str) -> (String, String) {
    let mut config = ProviderConfig::default();
    config.set("pathLib", Some("/a.so"));
    config.set_explained("objectId", "2", "jane's".to_owned());
    let written = edited(text, |file| {
        let model = file.model()?;
        let user = PluginUser { name: "jane", is_named: false, config: &config };
        let entries = PluginEntries::of(&model, "prod", &user, &HOP)?;
        for kind in [EntryKind::Cluster, EntryKind::User, EntryKind::Context] {
            file.set_entry(kind, &entries)?;
        }
        Ok(())
    });
    let undone = edited(&written, |file| {
        let entries = file.model()?.entries_of_plugin("prod");
        file.restore_context("prod")?;
        for (kind, name) in entries {
            file.remove(kind, &name)?;
        }
        Ok(())
    });
    (written, undone)
}

const WRITTEN: &str = "\
# ours
clusters:
- cluster: # the real one
    certificate-authority: ca.pem
    server: https://10.0.0.1:6443/k8s/clusters/c-x # mind
  name: prod # stays
- name: prod+token
  cluster:
    server: https://127.1.3.232:21234/k8s/clusters/c-x
    tls-server-name: \"4f0c.tunnel.invalid\"
    certificate-authority-data: Y2E=
    extensions:
    - name: client.authentication.k8s.io/exec
      extension:
        plugin: pkcs11-external-signer
        name: prod
        server: https://10.0.0.1:6443/k8s/clusters/c-x
        certificate-authority: DIRECTORY/ca.pem
contexts:
- context:
    cluster: prod+token # here
    user: jane+token
    extensions:
    - name: pkcs11-external-signer
      extension:
        cluster: prod
        user: jane
  name: prod
- {name: other, context: {cluster: prod, user: jane}}
users:
- name: jane
  user: {client-key: k}
- name: jane+token
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: pkcs11-external-signer
      args:
      - credential
      - --module=/a.so
      - --object-id=2   # jane's
      interactiveMode: IfAvailable
      provideClusterInfo: true
      installHint: \"Install pkcs11-external-signer where this user's exec.command says.\"
# the end
";

#[test]
fn a_context_is_given_a_plugin_and_all_else_stays() {
    let before = "# ours\nclusters:\n- cluster: # the real one\n    certificate-authority: ca.pem\n    \
                  server: https://10.0.0.1:6443/k8s/clusters/c-x # mind\n  name: prod # stays\n\
                  contexts:\n- context:\n    cluster: prod # here\n    user: jane\n  name: prod\n\
                  - {name: other, context: {cluster: prod, user: jane}}\n\
                  users:\n- name: jane\n  user: {client-key: k}\n# the end\n";
    let (written, undone) = with_plugin(before);
    let line = written.lines().find(|line| line.ends_with("/ca.pem"));
    let path = line.unwrap().split(": ").nth(1).unwrap();
    let directory = path.strip_suffix("/ca.pem").unwrap();
    assert_eq!(written.replace(directory, "DIRECTORY"), WRITTEN);
    assert_eq!(undone, before);
}

/// In whatever style it is written.
#[test]
fn what_a_context_had_comes_back_byte_for_byte() {
    for before in [
        "clusters: [{name: prod, cluster: {server: 'https://a'}}]\n\
         contexts: [{name: prod, context: {cluster: prod, user: ci}}]\nusers: [{name: x}]\n",
        r#"{"clusters":[{"name":"prod","cluster":{"server":"https://a"}}],"users":[{"name":"x"}],
            "contexts":[{"name":"prod","context":{"cluster":"prod","user":"ci"}}]}"#,
        "clusters:\n- cluster:\n    server: https://a\n  name: prod\ncontexts:\n- name: prod\n  \
         context:\n    cluster: 'prod' # a\n    user: \"ci\"\n    extensions:\n    - name: e\n      \
         extension: {v: 1} # mine\n    namespace: web\nusers:\n- name: x\n",
        "clusters:\n- cluster:\n    server: https://a\n  name: prod\ncontexts:\n- context:\n    \
         cluster: prod\n    user: \"\"\n  name: prod\nusers: []\n",
        "clusters:\r\n- cluster:\r\n    server: https://a\r\n  name: prod\r\ncontexts:\r\n\
         - context:\r\n    cluster: prod\r\n  name: prod\r\nusers:\r\n- name: x\r\n",
    ] {
        let (written, undone) = with_plugin(before);
        assert!(written.contains("https://127.1.3.232:21234"), "{written}");
        assert_eq!(undone, before, "{written}");
    }
    // Lists that were not there stay as empty ones.
    let (written, undone) = with_plugin(
        "clusters: [{name: a:b, cluster: {server: 'https://a'}}]\n\
         contexts: [{name: prod, context: {cluster: a:b}}]\n",
    );
    assert!(undone.ends_with("users: []\n"), "{written}{undone}");
}

#[test]
fn a_context_with_a_plugin_stays_as_it_is() {
    let before = "clusters:\n- cluster:\n    server: https://a\n  name: prod\n- cluster:\n    server: \
                  https://127.1.3.232:21234\n  name: b\ncontexts:\n- context:\n    cluster: prod\n  \
                  name: prod\n";
    let (once, _) = with_plugin(before);
    // The port of another entry is not taken.
    assert!(once.contains("server: https://127.1.3.232:21235\n"), "{once}");
    assert_eq!(with_plugin(&once).0, once);
    // A port of the cluster's stays, though another one is free again; what isn't its own is corrected.
    let moved = once.replace("  name: b\n", "  name: c\n").replacen("21234", "21233", 1);
    assert_eq!(with_plugin(&moved).0, moved);
    let foreign =
        once.replace("127.1.3.232:21235", "127.0.0.1:30000").replace("4f0c.tunnel", "abcd.tunnel");
    assert_eq!(with_plugin(&foreign).0, once);
    let error = edited(before, |file| file.restore_context("prod"));
    assert_eq!(error, "context \"prod\" was not written for the credential plugin");
}

#[test]
fn a_user_of_either_form_is_given_another_object_and_all_else_of_it_stays() {
    let mut config = ProviderConfig::default();
    config.set_explained("objectId", "0x0102", "jane's".to_owned());
    let with_object = |text: &str| edited(text, |document| document.set_object("jane", &config));
    let plugin = |args: &str| {
        format!(
            "users:\n- name: jane\n  user:\n    exec:\n      command: /opt/pkcs11-external-signer\n      \
             args:\n      - credential\n      - --keep=1h   # long\n{args}"
        )
    };
    let module = "      - --module=/a.so\n";
    let before = plugin(&format!("{module}      - --object-id=1   # old\n"));
    let after = plugin(&format!("{module}      - --object-id=0x0102   # jane's\n"));
    assert_eq!(with_object(&before), after);
    let before = "users: [{name: jane, user: {exec: {command: pkcs11-external-signer, args: [credential, -v, --as, \
                  token, --object-id, '1', --token-label, --uri, --certificate-file=/jane.crt]}}}]\n";
    let after = before
        .replace("--object-id, '1'", "--object-id=0x0102")
        .replace(", --certificate-file=/jane.crt", "");
    let plain = |text: &str| text.replace(['"', '\'', '\n', ' '], "");
    assert_eq!(plain(&with_object(before)), plain(&after));
    let provider = "users:\n- name: jane\n  user:\n    auth-provider:\n      name: externalSigner\n      \
                    config:\n        pathLib: /a.so\n        objectId: \"1\"\n        objectLabel: old\n        \
                    pin: \"123456\"\n";
    let written = with_object(provider);
    assert!(written.contains("pin: \"123456\"\n"), "{written}");
    assert!(written.contains("pathLib: /a.so\n"), "{written}");
    assert!(
        written.contains("objectId: \"0x0102\"") && !written.contains("objectLabel"),
        "{written}"
    );
    let refused = with_object("users:\n- name: bob\n");
    assert!(refused.contains("can't be edited"), "{refused}");
}

#[test]
fn nothing_is_written_where_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    fs::write(&path, "contexts: [{name: c, context: {user: 'jane'}}]\n").unwrap();
    let mut document = KubeconfigFile::open(&path, || false).ok().unwrap();
    document.set_context("c", "jane").ok().unwrap();
    assert_eq!(document.save().ok().unwrap(), Saved::Unchanged);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
