//! Two releases at once, what another one left, and a library that is upgraded meanwhile.

use super::refused::socket;
use super::{ANSWER, ASK, PlainUser, assert_told_through_kubectl};
use crate::fixture::*;

/// The number of the other release.
fn other_version() -> String {
    format!("9{}", &env!("CARGO_PKG_VERSION")[1..])
}

/// The program as another release, which differs in nothing but its number.
fn other_release(user: &PlainUser) -> PathBuf {
    let folder = user.path("other-release");
    fs::create_dir(&folder).unwrap();
    let own = env!("CARGO_PKG_VERSION").replace('.', "\\.");
    let change = format!("s/{own}/{}/g", other_version());
    let program = copy_of_program(&folder);
    let status = Command::new("sed")
        .env("LC_ALL", "C")
        .args(["-i.first", &change])
        .args([&program, &program.with_file_name("pkcs11-external-signer-commands")])
        .status();
    assert!(status.unwrap().success());
    program
}

#[test]
fn a_tunnel_process_of_another_release_makes_way() {
    needs_isolation!();
    let mut user = PlainUser::new(&["--keep=15m"]);
    let other = other_release(&user);
    for (round, release) in [&other, Path::new(PROGRAM), &other].into_iter().enumerate() {
        user.set_plugin("command", release.to_str().unwrap());
        user.signer = release.to_owned();
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
        assert!(user.tunnel().is_some(), "{:#?}", user.processes());
        assert_eq!(user.counts(), (round + 1, round + 1));
    }
    // Its state can be asked, and it can be stopped, by either.
    user.signer = PROGRAM.into();
    let told = user.program(&["status", "--json"]).run().printed();
    assert!(told.contains(&format!("\"{}\"", other_version())), "{told}");
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// Listens at the socket $1, and says $2 to each client.
const STRANGE: &str = "import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print('listens', flush=True)
while True:
    client, _ = listener.accept()
    client.sendall(sys.argv[2].encode())
    client.recv(65536)";

#[test]
fn a_process_of_a_release_that_speaks_otherwise_is_told_and_stopped() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let path = socket(&user);
    for words in ["{\"Welcome\":2}\n", "\"Here\"\n{\"Opened\":{}}\n"] {
        user.program(&["stop"]).run().printed();
        let python = user.client(Path::new("/usr/bin/python3"));
        let strange = python.arguments(&["-c", STRANGE, path.to_str().unwrap(), words]);
        let mut strange = strange.start(None);
        assert_eq!(strange.line(), "listens");
        let said = ["it is another version of this program", "`pkcs11-external-signer stop`"];
        assert_told_through_kubectl(&user.kubectl(&["get", "pods"]).run(), 9, &said);
        user.program(&["status"]).run().fails(9, &said);
        user.program(&["stop"]).run().printed();
        assert!(!strange.finish().status.success());
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    }
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// Says $2 to the process behind the socket $1, and prints all that it answers.
const SAY: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b'\\n')
s.shutdown(socket.SHUT_WR)
while True:
    answer = s.recv(65536)
    if not answer:
        break
    print(answer.decode(), end='')";

/// It can't know what a release to come asks for.
#[test]
fn a_request_that_only_another_release_knows_makes_it_make_way() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let greeting =
        json!({"version": other_version(), "process": 1, "request": {"Register": {"new": true}}});
    let path = socket(&user);
    let python = user.client(Path::new("/usr/bin/python3"));
    let said = [path.to_str().unwrap(), &greeting.to_string()];
    let outcome = python.arguments(&["-c", SAY]).arguments(&said).run();
    assert_eq!(outcome.printed(), "\"Here\"\n\"Gone\"\n");
    user.expect_nothing_left();
}

/// Each of these may be what a release to come writes there.
#[test]
fn a_server_key_that_can_not_be_read_is_told_and_leads_to_no_other() {
    needs_isolation!();
    let user = PlainUser::new(&[]);
    let path = user.path("data/tunnel.pem");
    let whole = fs::read_to_string(&path).unwrap();
    let half = &whole[..whole.len() / 2];
    for content in ["", "version: 2\n", half] {
        fs::write(&path, content).unwrap();
        let outcome = user.kubectl(&["get", "pods"]).run();
        let said = ["tunnel.pem: it does not hold two certificates", "kubeconfig --write"];
        assert_told_through_kubectl(&outcome, 9, &said);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        user.expect_nothing_left();
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}

/// As a package manager does it: another file under the same name.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    write_file(&new, content, 0o755);
    fs::rename(new, path).unwrap();
}

#[test]
fn a_library_that_is_replaced_is_the_next_tunnel_processs() {
    let user = PlainUser::new(&["--keep=15m"]);
    let library = user.path("libfault_module.so");
    let whole = fs::read(&library).unwrap();
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    replace(&library, b"no library");
    // It has the old one, which other clusters' connections use, too.
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    user.plugin(&user.request().to_string()).run().answer();
    assert_eq!(user.counts().0, 1);
    user.program(&["stop"]).run().printed();
    assert_told_through_kubectl(&user.kubectl(&["get", "pods"]).run(), 4, &["libfault_module.so"]);
    user.expect_nothing_left();
    replace(&library, &whole);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    assert_eq!(user.counts().0, 2);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}
