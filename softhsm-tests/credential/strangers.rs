//! Who else is on the machine: another user gets nothing, and another process of the same user can't read
//! the tunnel process.

use super::{ANSWER, ASK, PlainUser};
use crate::fixture::*;
use crate::secrecy::{NOBODY, assert_hidden};

#[test]
fn another_user_gets_through_neither_port_nor_socket_nor_files() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let before = user.counts();
    // Where this user's processes meet, and where it remembers.
    for path in ["runtime", "state"].into_iter().flat_map(|it| below(&user.path(it))) {
        let found = fs::symlink_metadata(&path).unwrap();
        let mode = found.permissions().mode() & 0o077;
        assert!(mode == 0 || found.file_type().is_symlink(), "{}: {mode:o}", path.display());
    }
    let name = user.request()["spec"]["cluster"]["tls-server-name"].clone();
    let name = name.as_str().unwrap();
    let (address, home) = (user.address(), user.store.directory.path().display());
    let ask = "printf 'GET /version HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' | timeout 600";
    let (host, port) = address.rsplit_once(':').unwrap();
    // The other user knows the name, and has a certificate.
    let script = format!(
        "place=$(mktemp -d); cd \"$place\"; trap 'rm -r \"$place\"' EXIT
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=other \
           -keyout key -out certificate 2>/dev/null
         {{ {ask} openssl s_client -quiet -connect {address} -servername {name}
            {ask} openssl s_client -quiet -connect {address} -servername {name} -cert certificate -key key
            {ask} openssl s_client -quiet -connect {address} -noservername
            exec 3<>/dev/tcp/{host}/{port}; printf 'GET /version HTTP/1.1\\r\\n\\r\\n' >&3; timeout 600 cat <&3
         }} 2>/dev/null | grep -c gitVersion
         find '{home}/runtime' '{home}/state' -type f 2>/dev/null | wc -l"
    );
    // The directory above these is the test's own, and closed.
    set_mode(user.store.directory.path(), 0o755);
    let outcome = user.shell(&script).by(NOBODY).run();
    assert_eq!(outcome.stdout, b"0\n0\n", "{outcome:?}");
    assert_eq!(user.counts(), before);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    user.program(&["stop"]).run().printed();
    user.expect_nothing_left();
}

/// Connects to the socket $1, says $2 and prints how long the answer is.
const CONNECT: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(sys.argv[2].encode() + b'\\n')
    print(len(s.recv(65536)))
except OSError:
    print(0)";

/// The socket's directory is opened to them, as an administrator's script could do.
#[test]
fn another_user_who_reaches_the_socket_is_not_heard() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let before = user.counts();
    let path = super::refused::socket(&user);
    let stop = json!({"version": env!("CARGO_PKG_VERSION"), "process": 1, "request": "Stop"});
    let connect = user.client(Path::new("/usr/bin/python3")).arguments(&[
        "-c",
        CONNECT,
        path.to_str().unwrap(),
        &stop.to_string(),
    ]);
    let stranger = connect.by(NOBODY);
    set_mode(&path, 0o666);
    for folder in path.ancestors().skip(1).take(3) {
        set_mode(folder, 0o755);
    }
    let outcome = stranger.run();
    assert_eq!(outcome.stdout, b"0\n", "{outcome:?}");
    assert_eq!(user.counts(), before);
    assert!(user.tunnel().is_some());
    set_mode(path.parent().unwrap(), 0o700);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
}

#[test]
fn connections_of_strangers_make_it_neither_dial_nor_sign_and_keep_nobody_out() {
    needs_isolation!();
    // A cluster that says when it is dialled.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let entry = json!({"server": format!("https://{}", listener.local_addr().unwrap())});
    let quiet = PlainUser::at(
        cluster().token(Kind::P256, ADMINISTRATOR),
        &entry,
        &["--keep=15m", "--pin-source=env:TOKEN_PIN"],
    );
    quiet.plugin(&quiet.request().to_string()).run().answer();
    let many = |address: &str| {
        let (host, port) = address.rsplit_once(':').unwrap();
        format!(
            "for i in $(seq 200); do exec {{fd}}<>/dev/tcp/{host}/{port} && printf '\\x16\\x03\\x01' >&$fd; done; \
             echo open; read"
        )
    };
    let address = quiet.address();
    // The name is told to whoever listens at the address when the tunnel process has ended.
    let request = quiet.request();
    let name = request["spec"]["cluster"]["tls-server-name"].as_str();
    let name = name.unwrap();
    let script = format!(
        "for name in -noservername '-servername {name}' '-servername {name} -alpn h2,http/1.1'; do
           echo 'GET /' | timeout 600 openssl s_client -connect {address} $name
         done >/dev/null 2>&1"
    );
    quiet.shell(&script).by(NOBODY).run();
    assert!(listener.accept().is_err(), "it has dialled");
    assert_eq!(quiet.store.calls("C_Sign").len(), 0);

    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let (stranger, held) = user.shell(&many(&user.address())).by(NOBODY).held();
    let mut stranger = stranger.start(None);
    assert_eq!(stranger.line(), "open");
    for _ in 0..3 {
        assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    }
    drop(held);
    stranger.finish();
}

#[test]
fn another_users_plugin_has_no_use_for_the_kubeconfig() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    set_mode(user.store.directory.path(), 0o755);
    set_mode(user.kubeconfig(), 0o644);
    let before = user.counts();
    user.set_plugin("command", copy_of_program(user.store.directory.path()).to_str().unwrap());
    let request = user.request().to_string();
    user.plugin(&request).by(NOBODY).run().fails_in_one_line(3, &["kubeconfig --write"]);
    assert_eq!(user.counts(), before);
}

/// The user is one whom root's rights don't help, and so is who looks.
#[test]
fn another_process_of_the_same_user_can_not_read_the_tunnel() {
    needs_isolation!();
    let user = PlainUser::unprivileged(NOBODY, &["--keep=15m", "--pin-source=env:TOKEN_PIN"]);
    user.plugin(&user.request().to_string()).run().answer();
    assert_hidden(user.tunnel().unwrap().pid);
    assert_hidden(user.token_processes().pop().unwrap().pid);
}

/// Says $2 to the tunnel process at the socket $1, with its own number and, if there is to be one, a stranger's as the
/// caller, and answers each question with "no"; prints what it is told.
const REGISTER: &str = "import atexit, json, os, socket, subprocess, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
lines = s.makefile('rw')
lines.readline()
greeting = json.loads(sys.argv[2])
greeting['process'] = os.getpid()
registration = greeting['request']['Register']
registration['environment'] = [[{'Unix': list(it)} for it in pair] for pair in os.environb.items()]
if registration['caller']:
    stranger = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=2)
    atexit.register(stranger.kill)
    registration['caller'] = stranger.pid
print(json.dumps(greeting), file=lines, flush=True)
for line in lines:
    print(line, end='')
    if line.startswith('{\"Pin'):
        print('\"no\"', file=lines, flush=True)
    elif line.startswith('{\"Registered'):
        print(json.dumps([{'Ecdsa': {'curve': 'P256'}}, [7] * 32]), file=lines, flush=True)
    else:
        break";

#[test]
fn a_program_of_the_user_needs_the_pin_to_sign_and_names_no_other_as_the_caller() {
    let user = PlainUser::new(&["--keep=15m"]);
    assert_eq!(user.shell(ASK).run().printed(), ANSWER);
    let before = user.counts();
    let status = user.program(&["status", "--json"]).run().printed();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["apiVersion"], "pkcs11-external-signer/v1");
    let key = &status["keys"][0]["configuration"];
    let path = super::refused::socket(&user);
    for (caller, signs, said) in
        [(Value::Null, true, "no PIN was entered"), (json!(1), false, "it doesn't run the plugin")]
    {
        let registration = json!({"configuration": key, "keep": "Command", "caller": caller, "kubeconfig": "", "clusters": [], "signs": signs, "pin_origin": "Person"});
        let version = env!("CARGO_PKG_VERSION");
        let greeting = json!({"version": version, "request": {"Register": registration}});
        let ask = ["-c", REGISTER, path.to_str().unwrap(), &greeting.to_string()];
        let told = user.client(Path::new("/usr/bin/python3")).arguments(&ask).run().printed();
        let last = told.lines().last().unwrap();
        assert!(last.starts_with("{\"Failed") && last.contains(said), "{told}");
        assert!(!told.contains("Signature"), "{told}");
    }
    assert_eq!(user.counts(), before);
    // What it was open for goes on.
    assert_eq!(user.shell(ASK).without_variable("TOKEN_PIN").run().printed(), ANSWER);
    user.program(&["stop"]).run().printed();
}

#[test]
fn what_the_first_client_has_loaded_is_not_loaded_for_others() {
    needs_isolation!();
    let user = PlainUser::new(&["--keep=15m"]);
    let ask = user.shell(ASK).variable("LD_BIND_NOW", "1");
    assert_eq!(ask.variable("LANG", "C.UTF-8").run().printed(), ANSWER);
    for process in [user.tunnel().unwrap(), user.token_processes().pop().unwrap()] {
        let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
        let environment = String::from_utf8(environment.unwrap()).unwrap();
        assert!(environment.contains("LANG=C.UTF-8"), "{environment}");
        assert!(
            !environment.contains("LD_") && !environment.contains("TOKEN_PIN"),
            "{environment}"
        );
    }
    user.program(&["stop"]).run().printed();
}
