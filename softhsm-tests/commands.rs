//! The program's names, its help, and what shells complete.

use crate::fixture::*;

/// All there are.
static COMMANDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let help = program(directory.path(), &["--help"]).run().printed();
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let names = commands.lines().filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!["", "help"].contains(&name)).then(|| name.to_owned())
    });
    let names: Vec<_> = names.collect();
    assert!(names.len() > 10, "{help}");
    names
});

fn program(directory: &Path, arguments: &[&str]) -> Invocation {
    Invocation::new(directory).arguments(arguments)
}

/// A link to the program under the name that kubectl looks for.
fn plugin(directory: &Path) -> PathBuf {
    let link = directory.join("kubectl-pkcs11");
    symlink(PROGRAM, &link).unwrap();
    link
}

/// Such as `head`, also where it has ended before anything is written.
#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let store = token_with_pair(Kind::P256);
    let module = softhsm_option();
    for (command, code) in [
        (&["list", "MODULE"][..], 0),
        (&["list", "--json", "MODULE"], 0),
        (&["kubeconfig", "MODULE", "--token-label=test token"], 0),
        (&["check", "MODULE", "--no-login"], 0),
        (&["check", "MODULE", "--no-login", "--json"], 0),
        // Other failures are reported by the exit code.
        (&["check", "MODULE", "--no-login", "--token-label=none", "--object-id=1"], 5),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
    ] {
        let (reader, enough) = std::io::pipe().unwrap();
        drop(reader);
        let outcome = command
            .iter()
            .map(|it| it.replace("MODULE", module))
            .fold(program(store.directory.path(), &[]), |run, it| run.argument(&it))
            .output(enough)
            .run();
        assert_eq!((outcome.status.code(), &*outcome.stderr), (Some(code), ""), "{command:?}");
    }
}

#[test]
fn help_speaks_the_name_it_was_called_by_and_its_examples_can_be_copied() {
    let directory = tempfile::tempdir().unwrap();
    let link = plugin(directory.path());
    let run = |called: &Path, arguments: &[&str]| {
        program(directory.path(), arguments).variable("COLUMNS", "80").program(called).run()
    };
    let in_a_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (called, name) in
        [(Path::new(PROGRAM), "pkcs11-external-signer"), (&link, "kubectl pkcs11")]
    {
        let overview = in_a_line(&run(called, &["--help"]).printed());
        for command in &*COMMANDS {
            let help = run(called, &[command, "--help"]).printed();
            let (about, _) = help.split_once("\n\nUsage: ").unwrap();
            assert_contains(&overview, &[&format!(" {command} {} ", in_a_line(about))]);
            assert_eq!(help, run(called, &["help", command]).printed());
            let named = [format!("\n  {name} {command}"), format!("Usage: {name} {command}")];
            assert_contains(&help, &named.each_ref().map(String::as_str));
            assert!(called != link || !help.contains("\n  pkcs11-external-signer "), "{help}");
            let usual = run(called, &[command, "-h"]).printed();
            assert!(usual.lines().count() <= 40, "no screen:\n{usual}");
            let (_, examples) = help.split_once("\nExamples:\n").unwrap();
            let examples = examples.split("\n\n").next().unwrap().trim_end();
            assert!(examples.lines().all(|line| line.len() <= 78), "{examples}");
            let parsed = Command::new("bash").args(["-n", "-c", examples]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&parsed.stderr), "", "{examples}");
        }
    }
    let wrong = run(&link, &["list", "--nope"]);
    refused(&wrong, &["unexpected argument '--nope'", "Usage: kubectl pkcs11 list"]);
}

fn manual_pages(directory: &Path) -> PathBuf {
    let pages = directory.join("man");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(at_root(""));
    printed(cargo.args(["run", "--quiet", "--example", "man-pages"]).arg(&pages));
    pages
}

#[test]
fn manual_pages_have_their_sections_and_no_faults() {
    let directory = tempfile::tempdir().unwrap();
    let pages = manual_pages(directory.path());
    let names = COMMANDS.iter();
    let names: Vec<_> = names.map(|it| format!("pkcs11-external-signer-{it}")).collect();
    for name in names.iter().map(String::as_str).chain(["pkcs11-external-signer"]) {
        let page = pages.join(format!("{name}.1"));
        let lint = printed(tool("mandoc", "mandoc").args(["-Tlint", "-Wwarning"]).arg(&page));
        assert_eq!(lint, "", "{name}");
        let text = fs::read_to_string(&page).unwrap();
        let sections: Vec<_> = text.lines().filter_map(|it| it.strip_prefix(".SH ")).collect();
        assert_eq!(sections[..3], ["NAME", "SYNOPSIS", "DESCRIPTION"], "{name}");
        for section in ["EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            assert!(sections.contains(&section), "{name} has no {section}");
        }
        assert!(!sections.contains(&"EXTRA"), "{name}");
        let mut render = tool("mandoc", "mandoc");
        let rendered = printed(render.args(["-Tutf8", "-O", "width=200"]).arg(&page));
        // Bold and italic are letters written twice.
        let rendered: Vec<char> = rendered.chars().collect();
        let rendered: String = (0..rendered.len())
            .filter(|at| rendered.get(at + 1) != Some(&'\u{8}') && rendered[*at] != '\u{8}')
            .map(|at| rendered[at])
            .collect();
        assert_contains(
            &rendered,
            &["signer/libraries", "PKCS11_EXTERNAL_SIGNER_ASKPASS", "70     a bug"],
        );
        if name.ends_with("-run") {
            assert_contains(&rendered, &["[--kubeconfig FILE]", "COMMAND..."]);
        }
        // What whatis and apropos find.
        if cfg!(target_os = "linux") {
            let found = printed(tool("lexgrog", "man-db").arg(&page));
            let one = format!("{}: \"{name} - ", page.display());
            assert!(found.starts_with(&one) && found.lines().count() == 1, "{found}");
        }
    }
}

/// Not to that of the current context, nor of another kubeconfig.
#[test]
fn a_login_that_a_remedy_names_is_to_the_same_token() {
    let store = token_with_pair(Kind::P256);
    let user = |name: &str, label: &str| {
        let configuration = json!({
            "pathLib": softhsm_library(), "tokenLabel": label, "objectId": "1",
            "pinSource": "env:NO_PIN",
        });
        json!({"name": name, "user": provider(configuration)})
    };
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": name}});
    let file = store.path("jane's kubeconfig");
    let content = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [user("a", "nowhere"), user("it's b", "test token")],
        "contexts": [context("a"), context("it's b")],
        "current-context": "a",
    });
    fs::write(&file, content.to_string()).unwrap();
    let file = format!("--kubeconfig={}", file.display());
    let token = [softhsm_option(), "--token-label=test token", "--pin-source=env:NO_PIN"];
    for (arguments, code, shown) in [
        (&["run", &file, "--context=it's b", "true"][..], 7, "context \"it's b\""),
        (&["run", &file, "--", "true", "--context", "it's b"], 7, "context \"it's b\""),
        (&["check", &file, "--context=it's b"], 7, "context \"it's b\""),
        // `check` would want the whole key.
        (&["list", "--login", token[0], token[1], token[2]], 0, "test p256"),
    ] {
        let call = || program(store.directory.path(), &[]).variable("NO_PIN", WRONG_PIN);
        // The remedy comes with the second refusal, where the first one is another's.
        call().arguments(arguments).run();
        let refused = call().arguments(arguments).run();
        let told = refused.told(code) + &refused.stderr;
        let told = call().what_is_told(&told).at_terminal().finish_with_pin().told(0);
        assert!(told.contains(shown), "{told}");
    }
}

#[test]
fn a_program_without_that_of_the_commands_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let copied = copy_of_program(directory.path());
    fs::remove_file(copied.with_file_name("pkcs11-external-signer-commands")).unwrap();
    let outcome = program(directory.path(), &["list"]).program(&copied).run();
    assert_eq!(outcome.status.code(), Some(126), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("pkcs11-external-signer-commands can't be run: No such file"));
    assert!(
        outcome.stderr.contains("\nhelp: install it beside this program"),
        "{}",
        outcome.stderr
    );
}

/// Demands clap's words about a wrong command line; none of the values stands there.
#[track_caller]
fn refused(outcome: &Outcome, fragments: &[&str]) {
    assert_eq!(outcome.told(2), "");
    let told = &outcome.stderr;
    assert!(told.starts_with("pkcs11-external-signer: error: "), "{told}");
    assert!(told.ends_with("For more information, try '--help'.\n"), "{told}");
    outcome.says(fragments);
}

/// In a directory where everybody can write, as /tmp.
#[test]
fn a_program_of_the_commands_that_somebody_else_put_there_is_not_run() {
    needs_isolation!();
    let directory = tempfile::tempdir().unwrap();
    set_mode(directory.path(), 0o1777);
    let copied = copy_of_program(directory.path());
    let theirs = copied.with_file_name("pkcs11-external-signer-commands");
    write_file(&theirs, "#!/bin/sh\necho theirs runs\n", 0o755);
    hand_over(&theirs, 61_205);
    let run = || Invocation::new(directory.path()).program(&copied).arguments(&["--version"]).run();
    run().fails(126, &["can't be run", "belongs to another user (uid 61205)", "install it beside"]);
    // A link of theirs to a program that is in order could lead elsewhere a moment later.
    fs::remove_file(&theirs).unwrap();
    symlink(super::fixture::COMMANDS, &theirs).unwrap();
    std::os::unix::fs::lchown(&theirs, Some(61_205), None).unwrap();
    run().fails(126, &["belongs to another user (uid 61205)"]);
}

#[test]
fn a_wrong_command_line_is_told_without_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| program(directory.path(), arguments).run();
    let (equals, short) = (format!("--pin={PIN}"), format!("-p{PIN}"));
    let flag = format!("--json={PIN}");
    for (arguments, said) in [
        (&["completions", PIN][..], "[possible values: bash"),
        (&["list", &equals], "unexpected argument '--pin'"),
        (&["list", &short], "unexpected argument '-p'"),
        (&["list", &flag], "unexpected value '…' for '--json'"),
        (&[PIN], "unrecognized subcommand '…'"),
        (&["help", PIN], "unrecognized subcommand '…'"),
        (&["check", PIN], "unexpected argument '…'"),
        (&["completions", "bash", PIN], "unexpected argument '…'"),
        (&["-v"], "requires a subcommand"),
        (&["check", "--server", "--no-login"], "cannot be used with '--no-login'"),
        (&["kubeconfig", "--undo"], "not provided:\n  --context"),
        (&["kubeconfig", "--undo", "--context=a", "--object-id=1"], "cannot be used with"),
        (&["kubeconfig", "--keep=12"], "15m"),
        (&["list", "--pin-source=stdin"], "not provided:\n  --login"),
        (&["list", "--uri=pkcs11:", "--uri"], "cannot be used multiple times"),
        // A misspelt name is reported with the likely one.
        (&["lisst"], "a similar subcommand exists: 'list'"),
        // As it was typed, unless it could be a PIN.
        (&["lisst"], "unrecognized subcommand 'lisst'"),
        (&["completions", "bsh"], "invalid value 'bsh'"),
        (&["list1"], "unrecognized subcommand '…'"),
        (&["frob"], "unrecognized subcommand 'frob'"),
        (&["help", "frob"], "unrecognized subcommand 'frob'"),
        (&["no-1234"], "unrecognized subcommand '…'"),
        // Another program, which `run` takes.
        (&["sh", "-c", PIN], "unrecognized subcommand 'sh'"),
        (&["sh"], "tip: 'pkcs11-external-signer run -- sh …' runs it"),
        (&["completions", "BASH"], "invalid value '…'"),
        (&["check", "lisst"], "unexpected argument '…'"),
        (&["list", "--jsno"], "a similar argument exists: '--json'"),
        (&["completions", "bsh"], "a similar value exists: 'bash'"),
    ] {
        refused(&run(arguments), &[said]);
    }
}

#[test]
fn the_version_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| program(directory.path(), arguments).run();
    assert_eq!(run(&["help"]).printed(), run(&["--help"]).printed());
    let known = printed(tool("git", "git").args(["rev-parse", "HEAD"]));
    let version = run(&["version"]).printed();
    let begin = concat!("pkcs11-external-signer ", env!("CARGO_PKG_VERSION"), " (");
    assert!(version.starts_with(begin), "{version}");
    assert!(version.contains(known.get(..12).unwrap_or_default()), "{version}");
    assert!(version.contains("-linux-") || version.contains("-darwin"), "{version}");
    assert_eq!(version, run(&["--version"]).printed());
}

/// A kubeconfig with these contexts.
fn contexts(names: &[&str]) -> String {
    let entry = |name: &&str| json!({"name": name, "context": {"cluster": "c", "user": "jane"}});
    let contexts: Vec<_> = names.iter().map(entry).collect();
    let clusters = json!([{"name": "c", "cluster": {"server": "https://[::1]:1"}}]);
    json!({"contexts": contexts, "clusters": clusters}).to_string()
}

/// How each shell is started, and its first command; FILE is the completions.
const SHELLS: [(&str, &[&str], &str); 3] = [
    ("bash", &["--norc", "-i"], "source FILE"),
    ("zsh", &["-f", "-i"], "autoload -U compinit && compinit -u -D; source FILE"),
    ("fish", &["--no-config", "-i"], "source FILE"),
];

/// Lines typed up to a Tab and Return, in each shell, and the words that the program gets.
#[test]
fn shells_complete_commands_options_and_contexts() {
    let evil = "a;touch x $(touch x)";
    let store = Store::new([]);
    let home = store.directory.path();
    fs::create_dir(home.join(".kube")).unwrap();
    fs::write(home.join(".kube/config"), contexts(&["prod", "eks:eu/dev", evil])).unwrap();
    fs::write(home.join("others"), "").unwrap();
    let bin = home.join("bin");
    fs::create_dir(&bin).unwrap();
    let recorder = "#!/bin/sh\n\
        if [ -n \"$PKCS11_EXTERNAL_SIGNER_COMPLETE\" ]; then exec \"$SIGNER\" \"$@\" 2>>\"$HOME/errors\"; fi\n\
        { printf '<%s>' \"$@\"; echo; } >>\"$HOME/words\"\n";
    write_file(bin.join("pkcs11-external-signer"), recorder, 0o755);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let lines = [
        ("ru", "<run>"),
        ("completions b", "<completions><bash>"),
        ("check --no-lo", "<check><--no-login>"),
        ("run --context p", "<run><--context><prod>"),
        ("run --only-context ek", "<run><--only-context><eks:eu/dev>"),
        ("run --context a", "<run><--context><a>"),
        ("check --kubeconfig oth", "<check><--kubeconfig><others>"),
    ];
    for (shell, options, first) in SHELLS {
        let file = home.join(shell);
        fs::write(&file, program(home, &["completions", shell]).run().printed()).unwrap();
        let program = tool(shell, shell).get_program().to_owned();
        let mut terminal = Invocation::new(home)
            .within("sh", "cd && exec \"$@\" </dev/tty >/dev/tty 2>&1")
            .argument("sh")
            .argument(program.to_str().unwrap())
            .arguments(options)
            .variable("PATH", &path)
            .at_terminal();
        let first = first.replace("FILE", file.to_str().unwrap());
        terminal.type_line(&format!("{first}; echo com''plete"));
        terminal.expect("complete\r\n");
        let record = home.join("words");
        let _ = fs::remove_file(&record);
        for (number, (line, words)) in lines.iter().enumerate() {
            terminal.type_line(&format!("pkcs11-external-signer {line}\t"));
            let last = wait_for(&format!("words of {line} in {shell}"), || {
                fs::read_to_string(&record).ok()?.lines().nth(number).map(str::to_owned)
            });
            assert_eq!(last, *words, "{shell}: {line}");
        }
        terminal.type_line("exit").finish();
        assert!(!home.join("x").exists(), "{shell}");
    }
    assert_eq!(fs::read_to_string(home.join("errors")).unwrap(), "");
}

/// Whoever presses Tab has a line on the terminal that nothing may disturb.
#[test]
fn completions_are_silent_whatever_is_wrong() {
    let store = Store::new([]);
    let home = store.directory.path();
    let pipe = home.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::write(home.join("broken"), "{").unwrap();
    for file in ["pipe", "broken", "missing"] {
        for words in [&["run", "--context", ""][..], &["no-such-command", "--nope", ""]] {
            let outcome = program(home, &["--", "pkcs11-external-signer"])
                .arguments(words)
                .variable("PKCS11_EXTERNAL_SIGNER_COMPLETE", "fish")
                .variable("PKCS11_EXTERNAL_SIGNER_LOG", "loud")
                .variable("KUBECONFIG", home.join(file))
                .run();
            outcome.silently().printed();
        }
    }
}

#[test]
fn the_steps_are_told_without_pin_and_digest() {
    let store = token_with_pair(Kind::P256);
    let digest = sample(32);
    let request =
        sign_request(&store.configuration_with_pin_source(), &Options::hash(Hash::Sha256), &digest);
    let told = |level: &str| {
        let invocation = store.ask(&request).variable("TOKEN_PIN", PIN);
        let outcome = invocation.variable("PKCS11_EXTERNAL_SIGNER_LOG", level).run();
        assert_signed(&outcome);
        outcome.stderr
    };
    assert_eq!(told("off"), "");
    let (steps, details) = (told("info"), told("debug"));
    for told in [&steps, &details] {
        let token = "token \"test token\"";
        let steps = ["library ", token, "certificate of", "accepted the PIN", "signature: ECDSA"];
        assert_contains(told, &steps);
    }
    assert!(details.lines().count() > steps.lines().count(), "{details}");
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for secret in [hex, STANDARD.encode(&digest), format!("{digest:?}")] {
        assert!(!details.contains(&secret), "{details}");
    }
    let unknown = told("loud");
    assert!(unknown.contains("PKCS11_EXTERNAL_SIGNER_LOG must be"), "{unknown}");
}

/// A remedy is to be typed as it stands, also where it is a line of a list or of JSON.
#[test]
fn remedies_speak_the_name_it_was_called_by() {
    let store = token_with_pair(Kind::P256);
    let directory = store.directory.path();
    let link = plugin(directory);
    let told = |arguments: &[&str]| {
        program(directory, arguments)
            .argument(softhsm_option())
            .arguments(&["--token-label=test token", "--pin-source=env:NO_PIN"])
            .variable("NO_PIN", WRONG_PIN)
            .program(&link)
            .run()
            .shown()
    };
    let remedy = "log in yourself: `kubectl pkcs11 ";
    for arguments in [
        &["list", "--login"][..],
        &["list", "--login", "--json"],
        &["check", "--object-id=1"],
        &["check", "--object-id=1", "--json"],
    ] {
        let told = told(arguments);
        assert!(told.contains(remedy), "{arguments:?}:\n{told}");
    }
    // A client has started it.
    let configuration = store.configuration().with("pinSource", "env:NO_PIN");
    let request = sign_request(&configuration, &Options::hash(Hash::Sha256), &sample(32));
    store.ask(&request).variable("NO_PIN", WRONG_PIN).program(&link).run().fails(7, &[remedy]);
}

#[test]
fn details_are_told_where_they_are_asked_for() {
    let store = token_with_pair(Kind::P256);
    let module = softhsm_option();
    let key = [module, "--token-label=test token", "--object-id=1"];
    for command in [
        &["list"][..],
        &["list", module],
        &["kubeconfig", "--token-label=test token"],
        &["kubeconfig", module],
        &["check", "--no-login", key[0], key[1], key[2]],
    ] {
        let told =
            |option: &str| program(store.directory.path(), command).argument(option).run().stderr;
        for (option, step, detail) in [("-v", true, false), ("-vv", true, true)] {
            let told = told(option);
            let found = ["library ", "token: login required"].map(|it| told.contains(it));
            assert_eq!(found, [step, detail], "{command:?} {option}:\n{told}");
        }
    }
}
