//! The libraries that the machine's administrator allows, in a file that only root can have put
//! there; each run has an `/etc` of its own.

use crate::fixture::*;

const PLACE: &str = "/etc/pkcs11-external-signer/libraries";

/// SoftHSM's library as one of the user's own, which is trusted on the machines of these tests.
fn library(store: &Store, name: &str) -> PathBuf {
    store.library(&format!("modules/{name}"), 0o755)
}

/// The file with this content, as an administrator makes it.
fn file(content: &str) -> String {
    format!(
        "mkdir pkcs11-external-signer; cat >pkcs11-external-signer/libraries <<'E'\n{content}\nE\n"
    )
}

fn modules(listed: &[&str]) -> String {
    file(&format!("# Ours.\n{}", listed.join("\n")))
}

/// A request for the certificate, with this `pathLib`.
fn ask(store: &Store, library: &str, etc: &str) -> Outcome {
    store.certificate_through(library).with_etc(etc).run()
}

#[test]
fn without_the_file_any_library_of_roots_or_ones_own_is_loaded() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    let library = library.to_str().unwrap();
    for etc in [":", "mkdir pkcs11-external-signer"] {
        ask(&store, library, etc).certificate();
    }
}

#[test]
fn the_list_of_an_earlier_release_allows_nothing() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    let etc = "mkdir pkcs11-external-signer; touch pkcs11-external-signer/config.toml";
    ask(&store, library.to_str().unwrap(), etc).fails(3, &["config.toml is no longer read", PLACE]);
}

#[test]
fn only_what_is_listed_is_loaded() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    let directory = library.parent().unwrap().to_owned();
    let link = store.path("link.so");
    symlink(&library, &link).unwrap();
    let above = format!("{}/", store.directory.path().display());
    let inside = format!("{}/", directory.display());
    let [library, link] = [library, link].map(|path| path.to_str().unwrap().to_owned());
    for listed in [&library, &link, &inside, &above] {
        let etc = modules(&["/usr/lib/other.so", listed]);
        for way in [&library, &link] {
            ask(&store, way, &etc).certificate();
        }
    }
    let bare = directory.to_str().unwrap();
    for listed in [&[][..], &["/usr/lib/other.so"], &[bare], &["/usr/"]] {
        let etc = modules(listed);
        let outcome = ask(&store, &library, &etc);
        let told = format!("pathLib \"{library}\" is not allowed by {PLACE}");
        outcome.fails(3, &[&told, "administrator"]);
        for entry in listed {
            assert!(outcome.stderr.contains(entry), "{}", outcome.stderr);
        }
        ask(&store, &link, &etc).fails(3, &[&link, &format!("it is {library}"), PLACE]);
    }
    for missing in ["x.so", "no/../../x.so"] {
        let missing = format!("{inside}{missing}");
        ask(&store, &missing, &modules(&[&inside])).fails(4, &["No such file"]);
    }
}

#[test]
fn a_listed_library_that_others_can_change_is_not_loaded() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o666)).unwrap();
    let library = library.to_str().unwrap();
    ask(&store, library, &modules(&[library])).fails(3, &["not safe to load", "every user"]);
}

/// A command of the program, on a machine with this `/etc`.
fn command(store: &Store, arguments: &[&str], etc: &str) -> Outcome {
    store.command(arguments).with_etc(etc).run()
}

#[test]
fn no_door_leads_past_the_list() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let (good, bad) = (library(&store, "good.so"), library(&store, "bad.so"));
    let [good, bad] = [good, bad].map(|path| path.to_str().unwrap().to_owned());
    let etc = modules(&[&good]);
    let slot = store.tokens[0].slot;
    let kubeconfig = |library: &str| {
        let path = store.path("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{auth-provider: {{name: externalSigner, config: \
             {{pathLib: '{library}', slotId: '{slot}', objectId: '1'}}}}}}}}]\n"
        );
        fs::write(&path, text).unwrap();
        format!("--kubeconfig={}", path.display())
    };

    let check =
        |library: &str| command(&store, &["check", "--no-login", &kubeconfig(library)], &etc);
    check(&good).printed();
    let refused = check(&bad);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let shown = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(shown.contains("✘") && shown.contains(PLACE), "{shown}");

    let kubeconfig = kubeconfig(&bad);
    command(&store, &["run", &kubeconfig, "--", "echo", "no"], &etc).fails(3, &[&bad, PLACE]);

    for door in ["list", "kubeconfig"] {
        let with = |library: &str| command(&store, &[door, "--module", library], &etc);
        with(&good).printed();
        with(&bad).fails(3, &[&bad, "is not allowed by", PLACE]);
        let uri = format!("pkcs11:?module-path={bad}");
        command(&store, &[door, &format!("--uri={uri}")], &etc).fails(3, &[&bad, PLACE]);
    }
}

#[test]
fn a_library_that_is_found_but_not_allowed_is_a_line() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let registry = store.path(".config/pkcs11/modules");
    fs::create_dir_all(&registry).unwrap();
    let [good, bad] = ["good.so", "bad.so"].map(|name| {
        let library = library(&store, name).to_str().unwrap().to_owned();
        fs::write(registry.join(format!("{name}.module")), format!("module: {library}\n")).unwrap();
        library
    });
    let document = command(&store, &["list", "--json"], &modules(&[&good])).json();
    let libraries = document["libraries"].as_array().unwrap();
    for library in libraries {
        let error = &library["error"];
        if library["pathLib"] == good.as_str() {
            assert!(error.is_null(), "{error}");
            assert_eq!(library["tokens"][0]["tokenLabel"], "test token");
        } else {
            assert_eq!(error["exitCode"], 3);
            assert!(error["message"].as_str().unwrap().contains(PLACE));
        }
    }
    assert!(libraries.iter().any(|library| library["pathLib"] == bad.as_str()));

    // A problem of the list is reported once, not for each library.
    command(&store, &["list"], &file("a.so")).fails(3, &[PLACE, "line 1"]);
}

#[test]
fn a_file_that_is_not_roots_alone_allows_nothing() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    let library = library.to_str().unwrap();
    let directory = "/etc/pkcs11-external-signer";
    let good = modules(&[library]);
    ask(&store, library, &good).certificate();
    // A user namespace has no other user; a file of the machine's own root counts as another user's.
    let given_away =
        |path: &str| format!("chown 4711 {path} 2>/dev/null || mount --bind /usr/bin/env {path}");
    for (etc, fragments) in [
        (format!("{good} chmod 666 p*/libraries"), [PLACE, "every user (mode 0666)"]),
        (format!("{good} chmod 664 p*/libraries"), [PLACE, "its group (mode 0664)"]),
        (format!("{good} chmod 777 p*"), [directory, "every user (mode 0777)"]),
        (format!("{good} chmod 1777 p*"), [directory, "every user (mode 1777)"]),
        (format!("{good} chmod 775 ."), ["/etc ", "its group (mode 0775)"]),
        (format!("{good} {}", given_away("p*/libraries")), [PLACE, "belongs to uid "]),
        (
            format!("{good} mv p* real; ln -s real pkcs11-external-signer"),
            [directory, "symbolic link"],
        ),
        (
            format!("{good} cd p*; mv libraries real; ln -s real libraries"),
            [PLACE, "symbolic link"],
        ),
        (format!("mkdir -p {PLACE_BELOW_ETC}"), [PLACE, "not a regular file"]),
        (
            "mkdir p; mkfifo p/libraries; mv p pkcs11-external-signer".to_owned(),
            [PLACE, "not a regular file"],
        ),
        ("touch pkcs11-external-signer".to_owned(), [PLACE, "can't be read"]),
    ] {
        ask(&store, library, &etc).fails(3, &fragments);
    }
}

const PLACE_BELOW_ETC: &str = "pkcs11-external-signer/libraries";

#[test]
fn a_file_that_is_not_understood_allows_nothing() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = library(&store, "a.so");
    let library = library.to_str().unwrap();
    for (etc, fragment) in [
        (modules(&[library, "a.so"]), "line 3: \"a.so\" is not an absolute path"),
        (file(&format!("modules = [\"{library}\"]")), "line 1: \"modules = "),
        (
            "mkdir p; printf '#\\n#\\377' >p/libraries; mv p pkcs11-external-signer".to_owned(),
            "is not UTF-8",
        ),
    ] {
        ask(&store, library, &etc).fails(3, &[PLACE, fragment, "administrator"]);
    }
}
