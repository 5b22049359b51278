//! The command that a help names, typed as it is printed, at a terminal and with the PIN for whoever asks, leads out of the
//! state in which it was printed.

use std::any::Any;

use super::*;

/// What keeps somebody from the cluster.
struct State {
    name: &'static str,
    /// Brings it about; what comes of it stays until the state is mended.
    happens: fn(&PlainUser) -> Box<dyn Any>,
    /// What fails in it.
    command: &'static str,
    /// The commands that help names, one after the other, in part.
    helps: &'static [&'static str],
}

const WRITE: &str = " kubeconfig --write";

const STATES: &[State] = &[
    State {
        name: "the tunnel's own key is gone",
        happens: |user| {
            fs::remove_file(user.path("data/tunnel.pem")).unwrap();
            Box::new(())
        },
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "the entry is another user's",
        happens: |user| changed(user, "/clusters/0/cluster/tls-server-name", "other.run.invalid"),
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "the entry's address is another user's",
        happens: |user| changed(user, "/clusters/0/cluster/server", "https://127.0.0.1:1"),
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "the cluster's extension is another program's",
        happens: |user| changed(user, &[EXTENSION, "/plugin"].concat(), "other"),
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "an argument of the plugin is mistyped",
        happens: |user| changed(user, "/users/0/user/exec/args/1", "--modul=x"),
        command: CHECK,
        helps: &[WRITE],
    },
    State {
        name: "another program has the port",
        happens: |user| Box::new(TcpListener::bind(user.address()).unwrap()),
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "the address leads to another server",
        happens: |user| {
            user.shell(ASK).at_terminal().finish_with_pin().succeeded();
            let forwarder = Forwarder::to(cluster().entry()["server"].as_str().unwrap());
            changed(user, &[EXTENSION, "/server"].concat(), &forwarder.url());
            Box::new(forwarder)
        },
        command: ASK,
        helps: &[WRITE],
    },
    State {
        name: "the server has moved",
        happens: |user| {
            changed(user, &[EXTENSION, "/server"].concat(), &format!("https://{}", free_address()))
        },
        command: ASK,
        helps: &[" check", WRITE],
    },
    State {
        name: "the context has no key",
        happens: |user| {
            user.program(&["kubeconfig", "--undo", "--context", &user.context()]).run().succeeded();
            Box::new(())
        },
        command: CHECK,
        helps: &[WRITE],
    },
    State {
        name: "the tunnel process hangs",
        happens: |user| {
            user.shell(ASK).at_terminal().finish_with_pin().succeeded();
            kill_process(user.tunnel().unwrap().pid, Signal::STOP).unwrap();
            Box::new(())
        },
        command: "kubectl get --raw /version",
        helps: &[" stop"],
    },
];

const CHECK: &str = "pkcs11-external-signer check --server";
const EXTENSION: &str = "/clusters/0/cluster/extensions/0/extension";

/// Another text there in the kubeconfig.
fn changed(user: &PlainUser, place: &str, text: &str) -> Box<dyn Any> {
    let config = fs::read_to_string(user.kubeconfig()).unwrap();
    let kubectl = user.kubectl(&["config", "view", "--raw", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&config).unwrap_or_else(|_| kubectl.run().json());
    let clusters = config["clusters"].as_array_mut().unwrap();
    // First the one that the tunnel is for.
    clusters.sort_by_key(|it| it["name"] == "test");
    *config.pointer_mut(place).unwrap() = text.into();
    fs::write(user.kubeconfig(), config.to_string()).unwrap();
    Box::new(())
}

/// What a person who types this line gets to read, and whether it succeeds.
fn typed(user: &PlainUser, line: &str) -> (bool, String) {
    let programs = Path::new(PROGRAM).parent().unwrap().display();
    let shell = user.shell(&format!("PATH=\"{programs}\":$PATH; {line}"));
    let (outcome, screen) = shell.at_terminal().finish_with_pins();
    (outcome.status.success(), outcome.shown() + &outcome.stderr + &screen)
}

#[test]
fn a_help_typed_as_it_is_printed_leads_out_of_its_state() {
    needs_isolation!();
    thread::scope(|scope| {
        for state in STATES {
            scope.spawn(|| {
                let user = PlainUser::prompted(&["--keep=15m"]);
                let _lasting = (state.happens)(&user);
                let State { name, command, .. } = state;
                let (succeeded, mut told) = typed(&user, command);
                assert!(!succeeded, "{name}: {told}");
                for help in state.helps {
                    let line = told_command(&told, help);
                    let (succeeded, next) = typed(&user, &line);
                    assert!(succeeded, "{name}: {line}: {next}");
                    told = next;
                }
                let (succeeded, told) = typed(&user, command);
                assert!(succeeded, "{name}, mended: {told}");
                user.program(&["stop"]).run().succeeded();
            });
        }
    });
}

/// Nobody can be asked: whoever starts kubectl there writes down where the PIN is.
#[test]
fn a_source_of_the_pin_is_written_with_the_command_that_kubectl_shows() {
    let user = PlainUser::prompted(&[]);
    let told = user.shell(ASK).run().failed().stderr;
    let line = told_command(&told, WRITE).replace("SOURCE", "env:TOKEN_PIN");
    user.shell(&line).run().succeeded();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}
