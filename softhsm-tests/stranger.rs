//! What comes from strangers: a kubeconfig, a request or a token whose author means no good. Each
//! ends in the promised error, soon, or changes nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::chown;
use std::sync::atomic::{AtomicBool, Ordering};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::fixture::*;

/// Hundreds of times what any of this takes; reading a terabyte takes longer still.
const SOON: Duration = Duration::from_secs(120);

/// Demands this failure, soon.
#[track_caller]
fn refused(outcome: &Outcome, code: i32, fragments: &[&str]) {
    outcome.fails(code, fragments);
    assert!(outcome.took < SOON, "took {:?}", outcome.took);
}

/// A library of this C source, which writes `MARKER` when it is loaded.
fn built(store: &Store, name: &str, source: &str) -> PathBuf {
    let (code, library) = (store.path(format!("{name}.c")), store.path(format!("{name}.so")));
    let marking = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        __attribute__((constructor)) static void mark(void) {
            const char *path = getenv("MARKER");
            if (path) open(path, O_CREAT | O_WRONLY, 0600);
        }
    "#;
    fs::write(&code, format!("{marking}{source}")).unwrap();
    printed(tool("cc", "gcc").args(["-shared", "-fPIC", "-o"]).args([&library, &code]));
    set_mode(&library, 0o755);
    library
}

const ENTRY_POINT: &str = "int C_GetFunctionList(void *list) { return 5; }";

#[test]
fn a_library_behind_a_strangers_link_does_not_run() {
    needs_isolation!();
    assert_eq!(runs_behind_a_flipping_link(&token_with_pair(Kind::P256), 300), 0);
}

/// How often another user's library runs in so many requests whose `pathLib` leads through a link of theirs: its owner
/// changes it all the time between a trusted place, which lacks the library, and their own.
pub(crate) fn runs_behind_a_flipping_link(store: &Store, requests: usize) -> usize {
    let library = built(store, "evil", ENTRY_POINT);
    let strangers = store.path("strangers");
    fs::create_dir(&strangers).unwrap();
    fs::rename(library, strangers.join("evil.so")).unwrap();
    hand_over(&strangers, 61_204);
    let (link, marker) = (strangers.join("link"), store.path("marker"));
    let lead_to = |target: &Path| {
        let new = strangers.join("new");
        symlink(target, &new).unwrap();
        fs::rename(new, &link).unwrap();
    };
    lead_to(&strangers);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for target in [Path::new("/usr/lib"), &strangers] {
                    lead_to(target);
                }
            }
        });
        let _over = Over(&is_over);
        let has_run = || {
            let request = store.certificate_through(link.join("evil.so"));
            let outcome = request.variable("MARKER", &marker).run();
            assert!(matches!(outcome.status.code(), Some(3 | 4)), "{outcome:?}");
            marker.exists()
        };
        (0..requests).filter(|_| has_run()).count()
    })
}

#[test]
fn a_kubeconfig_brings_no_library_along_to_where_one_stands() {
    let store = token_with_pair(Kind::P256);
    built(&store, "evil", ENTRY_POINT);
    let marker = store.path("marker");
    for path in ["/proc/self/cwd/evil.so", "/dev/fd/7"] {
        let outcome = store
            .certificate_through(path)
            .variable("MARKER", &marker)
            .within("sh", "cd \"$HOME\"; exec \"$SIGNER\" 7<evil.so")
            .run();
        refused(&outcome, 3, &[path, "leads through", "realpath"]);
        assert!(!marker.exists(), "it ran");
    }
}

#[test]
fn what_is_no_file_is_not_opened() {
    let store = token_with_pair(Kind::P256);
    let fifo = store.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let socket = store.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [
        fifo.as_path(),
        &socket,
        store.directory.path(),
        Path::new("/dev/zero"),
        Path::new("/dev/tty"),
    ] {
        refused(&store.certificate_through(path).run(), 3, &["pathLib", path.to_str().unwrap()]);
        let outcome = store.command(&["list", "--module", path.to_str().unwrap()]).run();
        refused(&outcome, 3, &["pathLib", path.to_str().unwrap()]);
    }
}

#[test]
fn a_library_below_a_directory_that_others_can_change_is_not_loaded() {
    let store = token_with_pair(Kind::P256);
    let library = store.library("open/safe/lib/library.so", 0o755);
    store.certificate_through(&library).run().certificate();
    set_mode(store.path("open"), 0o777);
    let open = store.path("open");
    let reason = format!("{} can be changed by every user", open.display());
    refused(&store.certificate_through(&library).run(), 3, &[&reason, "chmod go-w"]);
    // Through a link in a safe place to a directory on the way.
    let link = store.path("link");
    symlink(store.path("open/safe"), &link).unwrap();
    refused(&store.certificate_through(link.join("lib/library.so")).run(), 3, &[&reason]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_of_somebody_elses_is_not_loaded() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let library = store.library("theirs.so", 0o755);
    let path = library.to_str().unwrap();
    // A user namespace has no other user; a file of the machine's own root counts as another user's.
    let script = format!(
        "chown 4711 {path} 2>/dev/null || mount --bind {} $machine{path}",
        softhsm_library().display()
    );
    let ask = store.certificate_through(path).with_etc(&script);
    refused(&ask.run(), 3, &[path, "belongs to uid "]);
}

const TERABYTE: u64 = 1 << 40;

#[test]
fn a_file_of_any_size_is_not_read_as_a_whole() {
    let store = token_with_pair(Kind::P256);
    let sparse = store.path("sparse.so");
    File::create(&sparse).unwrap().set_len(TERABYTE).unwrap();
    set_mode(&sparse, 0o644);
    refused(&store.certificate_through(&sparse).run(), 4, &["does not load"]);

    // A library that is there all the same.
    let long = store.library("long.so", 0o755);
    File::options().write(true).open(&long).unwrap().set_len(TERABYTE).unwrap();
    let outcome = store.certificate_through(&long).run();
    outcome.certificate();
    assert!(outcome.took < SOON, "took {:?}", outcome.took);
}

/// Clears the screen, names the window, starts a line of its own, hides and reorders.
const HOSTILE: &str = "\x1b[2J\x1b]0;owned\x07\r\n- evil: 1\n\u{202e}\u{2028}\u{9b}31m\u{200b}";
/// As much of it as fits the 32 bytes of a token's label.
const HOSTILE_LABEL: &str = "\x1b[2J\x07\r\n- evil: 1\n\u{202e}\u{9b}m";

/// A key and a certificate that names a hostile user of hostile groups.
fn hostile_store() -> Store {
    let key = key(Kind::P256);
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, format!("group{HOSTILE}"));
    subject.push(DnType::CommonName, format!("user{HOSTILE}"));
    params.distinguished_name = subject;
    let pair = KeyPair::try_from(key.pkcs8.as_slice()).unwrap();
    let certificate = params.self_signed(&pair).unwrap().der().to_vec();
    let label = format!("object{HOSTILE}");
    Store::new([blueprint(
        HOSTILE_LABEL,
        [
            Object::key(key, &[1]).labelled(&label),
            Object::issued(certificate, &[1]).labelled(&label),
        ],
    )])
}

/// Demands that a text moves no cursor, hides nothing, and has only lines of its own.
#[track_caller]
fn assert_tame(text: &str) {
    let is_harmful = |character: char| {
        character.is_control() && character != '\n'
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(is_harmful), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with("- evil")), "{text}");
}

#[test]
fn a_message_stays_short_whatever_is_named() {
    let store = token_with_pair(Kind::P256);
    let long = "x".repeat(100_000);
    for key in ["objectLabel", "tokenLabel"] {
        let outcome = store.certificate_with(&store.configuration().with(key, &long)).run();
        assert!(matches!(outcome.status.code(), Some(5 | 6)), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("help: "), "{}", outcome.stderr);
        assert!(outcome.stderr.len() < 5_000, "{}", outcome.stderr.len());
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nobody else is here")]
fn a_kubeconfig_that_others_can_change_is_refused() {
    needs_isolation!();
    let store = token_with_pair(Kind::P256);
    let option = kubeconfig(&store, &configuration_of(&store, &[]));
    let file = store.path("kubeconfig");
    let check = || {
        let outcome = store.command(&["check", "--no-login", &option]).run();
        let stdout = outcome.shown();
        (outcome, stdout)
    };
    chown(&file, None, Some(61_204)).unwrap();
    for mode in [0o666, 0o664, 0o646] {
        set_mode(&file, mode);
        let (outcome, stdout) = check();
        assert_eq!(outcome.status.code(), Some(3), "{stdout}");
        assert!(stdout.contains("can be changed by other users"), "{stdout}");
        assert!(stdout.contains("chmod go-w"), "{stdout}");
    }
    // As with umask 002, in a group of one's own.
    chown(&file, None, Some(0)).unwrap();
    set_mode(&file, 0o664);
    let (outcome, stdout) = check();
    assert_eq!(outcome.status.code(), Some(0), "{stdout}");
    let said = "can be changed by its group (mode 0664)";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    set_mode(&file, 0o644);
    let (outcome, stdout) = check();
    assert_eq!((outcome.status.code(), &*outcome.stderr), (Some(0), ""), "{stdout}");
    hand_over(&file, 61_204);
    let (outcome, stdout) = check();
    assert_eq!(outcome.status.code(), Some(0), "{stdout}");
    assert!(outcome.stderr.contains("belongs to uid 61204"), "{}", outcome.stderr);
}

#[test]
fn names_on_a_token_stay_text() {
    let store = hostile_store();
    let module = softhsm_library().to_str().unwrap();
    let slot = store.tokens[0].slot.to_string();
    let run = |arguments: &[&str]| {
        let outcome = store.command(arguments).run();
        let stdout = outcome.shown();
        assert_tame(&stdout);
        assert_tame(&outcome.stderr);
        (outcome, stdout)
    };
    let object = ["--module", module, "--slot-id", &slot, "--object-id", "1"];
    let check = |more: &[&str]| run(&[&["check", "--no-login"], &object[..], more].concat()).1;

    let (_, list) = run(&["list", "--module", module]);
    assert!(list.contains("user\\u{1b}[2J"), "{list}");
    let (_, list) = run(&["list", "--module", module, "--json"]);
    let document: Value = serde_json::from_str(&list).unwrap();
    let listed = &document["libraries"][0]["tokens"][0]["keys"][0];
    assert_eq!(listed["certificate"]["user"], format!("user{HOSTILE}"));
    assert_eq!(listed["objectLabel"], format!("object{HOSTILE}"));
    run(&["list", "--module", module, "--uri"]);

    assert!(check(&[]).contains("user\\u{1b}[2J"));
    let document: Value = serde_json::from_str(&check(&["--json"])).unwrap();
    let told = document["steps"].to_string();
    assert!(told.contains("- evil: 1"), "{told}");

    // What is not there: the message names the token.
    for wrong in [["--object-id", "7"], ["--token-label", "other"]] {
        run(&[&["check", "--module", module, "--object-id=1"], &wrong[..]].concat());
    }
    let outcome = store.certificate_with(&store.configuration().with("objectId", "7")).run();
    assert_tame(&outcome.fails(6, &["\\u{1b}[2J"]).stderr);
    let wrong = store.configuration().without("slotId").with("tokenLabel", HOSTILE);
    assert_tame(&store.certificate_with(&wrong).run().fails(5, &["\\u{1b}[2J"]).stderr);
}

#[test]
fn names_on_a_token_write_no_kubeconfig() {
    let store = hostile_store();
    let module = softhsm_library().to_str().unwrap();
    let path = store.path("kubeconfig");
    let file = format!("--kubeconfig={}", path.display());
    let run = |arguments: &[&str]| store.command(arguments).run();
    assert_tame(&run(&["kubeconfig", "--module", module]).printed());
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                clusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:1\n\
                contexts:\n- name: c\n  context:\n    cluster: c\n";
    fs::write(&path, text).unwrap();
    let written = run(&["kubeconfig", "--module", module, "--write", "--context=c", &file]);
    assert_tame(&written.stderr);
    assert_tame(&written.printed());
    assert_tame(&fs::read_to_string(&path).unwrap());
    // The context has the user of this very name, and the key is found through it.
    let checked = run(&["check", "--no-login", &file]).printed();
    assert_tame(&checked);
    assert!(checked.contains("✔ certificate"), "{checked}");
}

#[test]
fn a_command_that_is_told_is_fit_to_be_pasted() {
    let store = token_with_pair(Kind::P256);
    let path = store.path("kubeconfig");
    let owned = store.path("owned");
    let name = format!("it's; touch {0} $(touch {0}) 'x", owned.display());
    let config = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://c"}}],
        "contexts": [{"name": name, "context": {"cluster": "c"}}],
    });
    fs::write(&path, config.to_string()).unwrap();
    let told = store
        .command(&["kubeconfig", "--module", softhsm_library().to_str().unwrap()])
        .arguments(&["--write", "--user=jane", "--context", &name])
        .argument(&format!("--kubeconfig={}", path.display()))
        .run()
        .printed();
    let (_, command) = told.split_once("kubectl --kubeconfig").expect("a command");
    let command = command.split_once(" auth whoami").unwrap().0;
    let print = format!("printf '%s\\n' --kubeconfig{command}");
    let words = printed(Command::new("sh").args(["-c", &print]));
    assert_eq!(words, format!("--kubeconfig={}\n--context={name}", path.display()));
    assert!(!owned.exists());
}

#[test]
fn values_of_a_configuration_stay_text() {
    let store = token_with_pair(Kind::P256);
    for name in ["pathLib", "slotId", "objectId", "certificateFile", "pinSource", "uri"] {
        for value in [HOSTILE.to_owned(), format!("/{HOSTILE}"), format!("pkcs11:{HOSTILE}")] {
            let outcome = store.certificate_with(&store.configuration().with(name, &value)).run();
            assert!(matches!(outcome.status.code(), Some(3..=6)), "{name}: {outcome:?}");
            outcome.fails(outcome.status.code().unwrap(), &[]);
            assert_tame(&outcome.stderr);
        }
    }
    let hostile: Configuration = store.configuration().with(HOSTILE, HOSTILE);
    store.certificate_with(&hostile).run().certificate();
}

/// A kubeconfig whose user has this text as its configuration, in JSON.
fn kubeconfig(store: &Store, configuration: &str) -> String {
    let path = store.path("kubeconfig");
    let entry = json!({"server": "https://127.0.0.1:1"});
    let config = crate::fixture::kubeconfig("c", &entry, &provider("CONFIGURATION")).to_string();
    fs::write(&path, config.replace("\"CONFIGURATION\"", &format!("\n{configuration}"))).unwrap();
    format!("--kubeconfig={}", path.display())
}

/// The commands that read a kubeconfig's configuration, neither of which gets past it.
fn read_by_commands(store: &Store, configuration: &str) -> [Outcome; 2] {
    let file = kubeconfig(store, configuration);
    let run = |arguments: &[&str]| store.command(arguments).run();
    [run(&["run", &file, "--", "echo", "no"]), run(&["check", "--no-login", &file])]
}

fn configuration_of(store: &Store, more: &[(&str, &str)]) -> String {
    let mut map = json!({
        "pathLib": softhsm_library(),
        "slotId": store.tokens[0].slot.to_string(),
        "objectId": "1",
    });
    for (name, value) in more {
        map[*name] = (*value).into();
    }
    map.to_string()
}

#[test]
fn a_megabyte_of_configuration_is_no_matter() {
    let store = token_with_pair(Kind::P256);
    let megabyte = "x".repeat(1 << 20);
    let [_, check] = read_by_commands(&store, &configuration_of(&store, &[("note", &megabyte)]));
    check.printed();
    assert!(check.took < SOON, "took {:?}", check.took);
    let path = format!("/{megabyte}");
    for (name, value) in [("pathLib", &path), ("slotId", &megabyte), ("uri", &megabyte)] {
        let [run, check] = read_by_commands(&store, &configuration_of(&store, &[(name, value)]));
        refused(&run, 3, &[name]);
        assert!(run.stderr.len() < 2000, "{} bytes", run.stderr.len());
        assert_eq!(check.status.code(), Some(3));
        assert!(check.stdout.len() < 2000, "{} bytes", check.stdout.len());
    }
    // A variable can't hold much more.
    let most = "x".repeat(120_000);
    store.certificate_with(&store.configuration().with("note", &most)).run().certificate();
    let configuration = store.configuration().with("pathLib", &format!("/{most}"));
    let outcome = store.certificate_with(&configuration).run();
    refused(&outcome, 3, &["pathLib"]);
    assert!(outcome.stderr.len() < 2000, "{} bytes", outcome.stderr.len());
}

/// A request with this text as its configuration.
fn raw_request(configuration: &str) -> String {
    format!(
        "{{\"apiVersion\": \"{API_VERSION}\", \"kind\": \"CertificateRequest\", \
         \"configuration\": {configuration}}}"
    )
}

#[test]
fn nesting_and_repeated_keys_are_refused() {
    let store = token_with_pair(Kind::P256);
    let deep = |open: &str, close: &str| open.repeat(20_000) + &close.repeat(20_000);
    let good = configuration_of(&store, &[]);
    let good = good.strip_suffix('}').unwrap();
    let arrays = format!("{good}, \"note\": {}}}", deep("[", "]"));
    let objects = format!("{good}, \"note\": {}}}", deep("{\"a\":", "}").replace(":}", ":1}"));
    let repeated = format!("{good}, \"pathLib\": \"/nowhere.so\"}}");
    for (configuration, fragment) in [
        (&arrays, "configuration"),
        (&objects, "configuration"),
        (&deep("[", "]"), "configuration"),
        (&deep("[", ""), "JSON"),
        (&repeated, "each key once"),
    ] {
        let outcome = store.command(&[]).request(&raw_request(configuration)).run();
        refused(&outcome, 2, &[fragment]);
        assert!(outcome.stderr.len() < 2000, "{} bytes", outcome.stderr.len());
    }
    for (configuration, fragment) in
        [(&arrays, "can't be read there"), (&objects, "more than a kubeconfig can")]
    {
        let [run, check] = read_by_commands(&store, configuration);
        refused(&run, 3, &[fragment]);
        assert!(run.stderr.len() < 2000, "{} bytes", run.stderr.len());
        assert_eq!(check.status.code(), Some(3), "{check:?}");
    }
    // In a kubeconfig the last one counts, as for kubectl, in all that is done with it.
    for outcome in read_by_commands(&store, &repeated) {
        assert_eq!(outcome.status.code(), Some(4), "{outcome:?}");
        let stdout = String::from_utf8_lossy(&outcome.stdout);
        let told = format!("{stdout}{}", outcome.stderr);
        assert!(told.contains("/nowhere.so does not load"), "{told}");
    }
}

#[test]
fn what_is_not_text_is_refused() {
    let store = token_with_pair(Kind::P256);
    let mut request = raw_request(&configuration_of(&store, &[("note", "NOTE")])).into_bytes();
    let place = request.windows(4).position(|window| window == b"NOTE").unwrap();
    request[place] = 0xff;
    let outcome = store.command(&[]).variable(REQUEST, OsStr::from_bytes(&request)).run();
    refused(&outcome, 2, &["UTF-8"]);

    let file = kubeconfig(&store, &configuration_of(&store, &[("note", "NOTE")]));
    let path = store.path("kubeconfig");
    let mut bytes = fs::read(&path).unwrap();
    let place = bytes.windows(4).position(|window| window == b"NOTE").unwrap();
    bytes[place] = 0xff;
    fs::write(&path, bytes).unwrap();
    refused(&store.command(&["run", &file, "--", "echo", "no"]).run(), 3, &["line 2", "UTF-8"]);
}
