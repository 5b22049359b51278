//! What kubectl streams through the API server to a kubelet: exec, attach, logs, port-forward and
//! cp, over WebSocket, which is kubectl's own choice, and over SPDY.

use super::run;
use crate::fixture::*;

/// What makes kubectl use WebSocket, or SPDY.
const PROTOCOLS: [&str; 2] = ["true", "false"];

const LARGE: usize = 100 << 20;

fn kubectl(store: &Store, websockets: &str, arguments: &[&str]) -> Invocation {
    run(store, &[&["--", "kubectl"], arguments].concat())
        .variable("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
        .variable("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
}

fn kubectl_script(store: &Store, script: &str) -> Invocation {
    run(store, &["--", "bash", "-c", script])
}

/// Bytes that no compression and no repetition could hide an error in.
fn noise() -> Vec<u8> {
    let mut numbers = Numbers::new();
    (0..LARGE / 8).flat_map(|_| numbers.any().to_ne_bytes()).collect()
}

#[test]
fn exec_hands_on_streams_and_exit_code() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    for websockets in PROTOCOLS {
        let script = "cat; echo told >&2; exit 7";
        let outcome =
            kubectl(&store, websockets, &["exec", "-i", "shell", "--", "sh", "-c", script])
                .piped("through and back")
                .run();
        assert_eq!(outcome.told(7), "through and back");
        outcome.says(&["told\n"]);
        outcome.says_only(&[]);
    }
}

/// What the server has said when it stops reading is still to be read, for a client as for us.
#[test]
fn exec_hands_on_the_answer_of_a_command_that_leaves_its_input_unread() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let exec = "kubectl exec -i shell -- sh -c 'echo told; exit 3'";
    let script = format!(
        "cd; head -c 10000000 /dev/zero >input; for i in $(seq 20); do {exec} <input; echo $?; done"
    );
    assert_eq!(kubectl_script(&store, &script).run().printed(), "told\n3\n".repeat(20));
}

#[test]
fn exec_that_succeeds_says_nothing() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let script = "for i in $(seq 20); do kubectl exec shell -- echo told; done";
    assert_eq!(kubectl_script(&store, script).run().silently().printed(), "told\n".repeat(20));
}

/// On a busy machine kubectl loses the end of what a command prints, without a tunnel, too, and says nothing
/// (kubernetes/kubernetes#124571).
#[test]
fn a_hundred_mebibytes_go_through_exec_and_back() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let bytes = noise();
    for websockets in PROTOCOLS {
        let arguments = ["exec", "-i", "shell", "--", "cat"];
        wait_until("all that cat was given", || {
            let outcome = kubectl(&store, websockets, &arguments).piped(&bytes).run().succeeded();
            let outcome = outcome.silently();
            assert!(bytes.starts_with(&outcome.stdout), "{} bytes", outcome.stdout.len());
            outcome.stdout.len() == bytes.len()
        });
    }
}

#[test]
fn cp_copies_a_hundred_mebibytes_both_ways() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let at = |name: &str| store.path(name).to_str().unwrap().to_owned();
    let bytes = noise();
    fs::write(at("here"), &bytes).unwrap();
    for websockets in PROTOCOLS {
        let there = at(&format!("there-{websockets}"));
        let back = at(&format!("back-{websockets}"));
        let pod = format!("shell:{there}");
        for arguments in [["cp", &at("here"), &pod], ["cp", &pod, &back]] {
            kubectl(&store, websockets, &arguments).run().printed();
        }
        for copy in [there, back] {
            assert!(fs::read(&copy).unwrap() == bytes, "{copy}");
        }
    }
}

#[test]
fn port_forward_carries_a_hundred_mebibytes_both_ways() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let bytes = noise();
    for websockets in PROTOCOLS {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = format!(":{}", service.local_addr().unwrap().port());
        let echo = thread::spawn(move || {
            let (mut connection, _) = service.accept().unwrap();
            let mut heard = vec![0; LARGE];
            connection.read_exact(&mut heard).unwrap();
            connection.write_all(&heard).unwrap();
        });
        let forwarding = kubectl(&store, websockets, &["port-forward", "pod/shell", &port]);
        let mut forwarding = forwarding.start(None);
        let line = forwarding.line();
        let address = line.strip_prefix("Forwarding from ").expect(&line);
        let (address, _) = address.split_once(" -> ").expect(&line);
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut sending = connection.try_clone().unwrap();
        let mut heard = vec![0; LARGE];
        thread::scope(|scope| {
            scope.spawn(|| sending.write_all(&bytes).unwrap());
            connection.read_exact(&mut heard).unwrap();
        });
        assert!(heard == bytes);
        echo.join().unwrap();
        kill_process(forwarding.pid(), Signal::INT).unwrap();
        forwarding.finish();
    }
}

#[test]
fn logs_are_followed_as_they_come() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let mut following = kubectl(&store, "true", &["logs", "-f", "shell"]).start(None);
    let lines: Vec<_> = (0..5).map(|_| following.line()).collect();
    assert!(lines.iter().all(|line| !line.is_empty()), "{lines:?}");
    kill_process(following.pid(), Signal::INT).unwrap();
    following.finish();
}

#[test]
fn attach_carries_both_directions() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    for websockets in PROTOCOLS {
        let outcome =
            kubectl(&store, websockets, &["attach", "-i", "-q", "shell"]).piped("echoed\n").run();
        assert_eq!(outcome.printed(), "echoed\n", "{outcome:?}");
    }
}
