//! The program's names, its help, and what shells complete.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::fixture::cluster::cluster;
use crate::fixture::keys::Kind;
use crate::fixture::openssl::assert_signed;
use crate::fixture::program::{Invocation, PROGRAM};
use crate::fixture::request::{Hash, Options, sample, sign_request};
use crate::fixture::softhsm::{PIN, WRONG_PIN, softhsm_library, token_with_pair};

const COMMANDS: [&str; 5] = ["check", "completions", "kubeconfig", "list", "run"];

fn program(directory: &Path, arguments: &[&str]) -> Invocation {
    Invocation::new(directory).arguments(arguments)
}

/// A link to the program under the name that kubectl looks for.
fn plugin(directory: &Path) -> PathBuf {
    let link = directory.join("kubectl-pkcs11");
    symlink(PROGRAM, &link).unwrap();
    link
}

#[test]
fn help_speaks_the_name_it_was_called_by() {
    let directory = tempfile::tempdir().unwrap();
    let link = plugin(directory.path());
    for command in COMMANDS {
        let own = program(directory.path(), &[command, "--help"])
            .run()
            .printed();
        assert!(
            own.contains(&format!("\n  pkcs11-external-signer {command}")),
            "{own}"
        );
        assert!(
            own.contains(&format!("Usage: pkcs11-external-signer {command}")),
            "{own}"
        );
        let linked = program(directory.path(), &[command, "--help"]).program(&link);
        let linked = linked.run().printed();
        assert!(
            linked.contains(&format!("\n  kubectl pkcs11 {command}")),
            "{linked}"
        );
        assert!(
            linked.contains(&format!("Usage: kubectl pkcs11 {command}")),
            "{linked}"
        );
        assert!(!linked.contains("\n  pkcs11-external-signer "), "{linked}");
    }
    let wrong = program(directory.path(), &["list", "--nope"]);
    wrong.program(&link).run().fails(
        2,
        &[
            "unknown argument: --nope",
            "help: kubectl pkcs11 list --help",
        ],
    );
}

/// The commands that a help shows, as they stand there.
fn examples(help: &str) -> &str {
    let (_, rest) = help.split_once("\nExamples:\n").unwrap();
    rest.split("\n\n").next().unwrap()
}

#[test]
fn examples_can_be_copied_as_they_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let link = plugin(directory.path());
    let pages = directory.path().join("man");
    let made = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--example", "man-pages"])
        .arg(&pages)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(made.success());
    for command in COMMANDS {
        let printed = |name: &Path| {
            program(directory.path(), &[command, "--help"])
                .variable("COLUMNS", "80")
                .program(name)
                .run()
                .printed()
        };
        let own = printed(Path::new(PROGRAM));
        for help in [&own, &printed(&link)] {
            let examples = examples(help);
            for line in examples.lines() {
                assert!(line.len() <= 78, "{line}");
            }
            let outcome = Command::new("bash").args(["-n", "-c", examples]).output();
            let complaint = String::from_utf8(outcome.unwrap().stderr).unwrap();
            assert_eq!(complaint, "", "{examples}");
        }
        // What roff would fill, break and hyphenate otherwise.
        let written = examples(&own)
            .replace('\\', r"\\")
            .replace('-', r"\-")
            .replace('\'', r"\*(Aq")
            .replace('~', r"\(ti");
        let page = pages.join(format!("pkcs11-external-signer-{command}.1"));
        let page = fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!(".nf\n{written}\n.fi\n")), "{page}");
    }
}

/// `check` would want the whole key.
#[test]
fn what_list_says_to_do_can_be_done_with_its_options() {
    let store = token_with_pair(Kind::P256);
    let module = format!("--module={}", softhsm_library().display());
    let list = |arguments: &[&str]| {
        program(store.directory.path(), &["list", "--login", &module])
            .arguments(arguments)
            .variable("TOKEN_PIN", PIN)
            .variable("NO_PIN", WRONG_PIN)
    };
    let label = "--token-label=test token";
    let nobody = list(&[label]).run();
    let nobody = String::from_utf8(nobody.stdout).unwrap();
    assert!(nobody.contains("set --pin-source to askpass"), "{nobody}");
    list(&[label, "--pin-source=env:NO_PIN"]).run();
    let refused = list(&[label, "--pin-source=env:TOKEN_PIN"]).run();
    let refused = String::from_utf8(refused.stdout).unwrap();
    let mut terminal = list(&[]).what_is_told(&refused).at_terminal();
    terminal.expect_prompt().type_line(PIN);
    assert!(terminal.finish().0.status.success());
    let listed = list(&[label, "--pin-source=env:TOKEN_PIN"]).run().printed();
    assert!(listed.contains("test p256"), "{listed}");
}

/// Not to that of the current context, nor of another kubeconfig.
#[test]
fn a_login_that_a_remedy_names_is_to_the_same_token() {
    let store = token_with_pair(Kind::P256);
    let user = |name: &str, label: &str| {
        json!({"name": name, "user": {"auth-provider": {"name": "externalSigner", "config": {
            "pathLib": softhsm_library(), "tokenLabel": label, "objectId": "1",
            "pinSource": "env:NO_PIN",
        }}}})
    };
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": name}});
    let file = store.directory.path().join("jane's kubeconfig");
    let content = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [user("a", "nowhere"), user("it's b", "test token")],
        "contexts": [context("a"), context("it's b")],
        "current-context": "a",
    });
    fs::write(&file, content.to_string()).unwrap();
    let file = format!("--kubeconfig={}", file.display());
    for arguments in [
        &["run", &file, "--context=it's b", "true"][..],
        &["run", &file, "--", "true", "--context", "it's b"],
        &["check", &file, "--context=it's b"],
    ] {
        let call = || program(store.directory.path(), &[]).variable("NO_PIN", WRONG_PIN);
        let refused = call().arguments(arguments).run();
        assert_eq!(refused.status.code(), Some(7), "{}", refused.stderr);
        let told = String::from_utf8(refused.stdout).unwrap() + &refused.stderr;
        let mut terminal = call().what_is_told(&told).at_terminal();
        terminal.expect_prompt().type_line(PIN);
        let told = terminal.finish().0.told(0);
        assert!(told.contains("context \"it's b\""), "{told}");
    }
}

#[test]
fn kubectl_finds_it_as_its_plugin() {
    let store = token_with_pair(Kind::P256);
    let directory = store.directory.path();
    plugin(directory);
    let kubectl = cluster().kubectl(&store, &store.configuration_with_pin_source());
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let listed = kubectl
        .variable("PATH", path)
        .arguments(&["pkcs11", "list", "--token-label=test token"])
        .run()
        .printed();
    assert!(listed.contains("test p256"), "{listed}");
}

#[test]
fn a_wrong_command_line_is_told_without_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| program(directory.path(), arguments).run();
    run(&["completions", PIN]).fails(2, &["unknown value for <SHELL>", "it takes bash"]);
    run(&["completions"]).fails(2, &["missing argument: <SHELL>"]);
    run(&["list", &format!("--pin={PIN}")]).fails(2, &["unknown argument: --pin"]);
    run(&[PIN]).fails(2, &["unknown value for COMMAND", "it takes check, "]);
    for command in ["check", "kubeconfig", "list"] {
        run(&[command, PIN]).fails(2, &["unknown argument: a word that no option takes"]);
    }
    run(&["completions", "bash", PIN]).fails(2, &["a word that no option takes"]);
    run(&["-v"]).fails(2, &["missing argument: COMMAND"]);
    run(&["check", "--server", "--no-login"]).fails(2, &["exclude each other", "--no-login"]);
    for (arguments, what) in [
        (
            ["kubeconfig", "--context=a"],
            "missing argument: --context needs --write",
        ),
        (
            ["kubeconfig", "--kubeconfig=a"],
            "--kubeconfig needs --write",
        ),
        (["list", "--pin-source=stdin"], "--pin-source needs --login"),
    ] {
        let help = format!("help: pkcs11-external-signer {} --help tells", arguments[0]);
        run(&arguments).fails(2, &[what, &help]);
    }
    run(&["list", "--uri=pkcs11:", "--uri"]).fails(
        2,
        &[
            "given twice: --uri [<URI>]",
            "pkcs11-external-signer list --help",
        ],
    );
}

#[test]
fn shells_load_the_completions_and_complete() {
    let directory = tempfile::tempdir().unwrap();
    for (shell, script) in [
        (
            "bash",
            "source FILE && COMP_WORDS=(pkcs11-external-signer ru) COMP_CWORD=1 && \
             $(complete -p pkcs11-external-signer | sed 's/.*-F \\([^ ]*\\).*/\\1/') \
             pkcs11-external-signer ru && echo \"${COMPREPLY[@]}\"",
        ),
        (
            "zsh",
            "autoload -U compinit && compinit -u -D && source FILE && \
             functions _pkcs11-external-signer_commands | grep -o \"'run:\"",
        ),
        (
            "fish",
            "source FILE; complete -C 'pkcs11-external-signer ru'",
        ),
    ] {
        let completions = program(directory.path(), &["completions", shell])
            .run()
            .printed();
        let file = directory.path().join(shell);
        fs::write(&file, completions).unwrap();
        let script = script.replace("FILE", file.to_str().unwrap());
        let output = Command::new(shell)
            .args(["-c", &script])
            .env("HOME", directory.path())
            .output()
            .unwrap_or_else(|error| panic!("{shell}: {error}; install the package {shell}"));
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("run"), "{shell}: {shown}");
    }
}

#[test]
fn a_text_that_could_not_be_written_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["completions", "bash"][..], &["--help"], &["--version"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let outcome = program(directory.path(), arguments).output(full).run();
        outcome.fails(2, &["No space left"]);
    }
    let (reader, enough) = std::io::pipe().unwrap();
    drop(reader);
    let outcome = program(directory.path(), &["--help"]).output(enough).run();
    assert_eq!(outcome.status.code(), Some(0), "{}", outcome.stderr);
}

#[test]
fn the_steps_are_told_without_pin_and_digest() {
    let store = token_with_pair(Kind::P256);
    let digest = sample(32);
    let request = sign_request(
        &store.configuration_with_pin_source(),
        &Options::hash(Hash::Sha256),
        &digest,
    );
    let told = |level: &str| {
        let invocation = store.ask(&request).variable("TOKEN_PIN", PIN);
        let outcome = invocation
            .variable("PKCS11_EXTERNAL_SIGNER_LOG", level)
            .run();
        assert_signed(&outcome);
        outcome.stderr
    };
    assert_eq!(told("off"), "");
    let (steps, details) = (told("info"), told("debug"));
    for step in [
        "library ",
        "token \"test token\"",
        "certificate of",
        "accepted the PIN",
        "signature: ECDSA",
    ] {
        assert!(steps.contains(step), "no {step:?} in\n{steps}");
        assert!(details.contains(step), "no {step:?} in\n{details}");
    }
    assert!(details.lines().count() > steps.lines().count(), "{details}");
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for secret in [hex, STANDARD.encode(&digest), format!("{digest:?}")] {
        assert!(!details.contains(&secret), "{details}");
    }
    let unknown = told("loud");
    assert!(
        unknown.contains("PKCS11_EXTERNAL_SIGNER_LOG is none of"),
        "{unknown}"
    );
}

/// A remedy is to be typed as it stands, also where it is a line of a list or of JSON.
#[test]
fn remedies_speak_the_name_it_was_called_by() {
    let store = token_with_pair(Kind::P256);
    let directory = store.directory.path();
    let link = plugin(directory);
    let told = |arguments: &[&str]| {
        let outcome = program(directory, arguments)
            .argument(&format!("--module={}", softhsm_library().display()))
            .arguments(&["--token-label=test token", "--pin-source=env:NO_PIN"])
            .variable("NO_PIN", WRONG_PIN)
            .program(&link)
            .run();
        String::from_utf8(outcome.stdout).unwrap()
    };
    let remedy = "log in yourself: kubectl pkcs11 ";
    for arguments in [
        &["list", "--login"][..],
        &["list", "--login", "--json"],
        &["check", "--object-id=1"],
        &["check", "--object-id=1", "--json"],
    ] {
        let told = told(arguments);
        assert!(told.contains(remedy), "{arguments:?}:\n{told}");
    }
}

#[test]
fn details_are_told_where_they_are_asked_for() {
    let store = token_with_pair(Kind::P256);
    let module = format!("--module={}", softhsm_library().display());
    let key = [&*module, "--token-label=test token", "--object-id=1"];
    for command in [
        &["list"][..],
        &["list", &module],
        &["kubeconfig", "--token-label=test token"],
        &["kubeconfig", &module],
        &["check", "--no-login", key[0], key[1], key[2]],
    ] {
        let told = |option: &str| {
            let run = program(store.directory.path(), command).argument(option);
            run.run().stderr
        };
        for (option, step, detail) in [("-v", true, false), ("-vv", true, true)] {
            let told = told(option);
            assert_eq!(
                told.contains("library "),
                step,
                "{command:?} {option}:\n{told}"
            );
            assert_eq!(
                told.contains("token: login required"),
                detail,
                "{command:?} {option}:\n{told}"
            );
        }
    }
}
