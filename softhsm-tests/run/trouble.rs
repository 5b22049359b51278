//! What goes wrong between the command and the API server: an explanation and a clean end for the
//! command, never a hang.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use cryptoki::mechanism::MechanismType;
use socket2::{Domain, Socket, Type};

use super::{changed_kubeconfig, run, run_recorded, written};
use crate::fixture::*;

/// Jane's certificate for the P-256 key and that of an intermediate authority above it, each as PEM and DER.
pub(crate) fn below_an_intermediate() -> [[Vec<u8>; 2]; 2] {
    let workshop = tempfile::tempdir().unwrap();
    let [own, middle] = ["own", "middle"].map(|name| workshop.path().join(name));
    let middle_key = key(Kind::P384).private_pem();
    let authority = "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n";
    let root = cluster().authority();
    let middle = issue(&middle, &middle_key, "/CN=intermediate", authority, 30, &root);
    let own_key = key(Kind::P256).private_pem();
    let usage = "extendedKeyUsage=clientAuth";
    let own = issue(&own, &own_key, JANE.subject, usage, 30, &[middle[0].clone(), middle_key]);
    [own, middle].map(|files| files.map(|path| fs::read(path).unwrap()))
}

/// A token below an intermediate authority that is on it: the certificate, and the token.
pub(super) fn token_below_an_intermediate() -> (Vec<u8>, Store) {
    let [[_, own], [_, middle]] = below_an_intermediate();
    let store = token_with([
        Object::key(key(Kind::P256), &[1]),
        Object::issued(own.clone(), &[1]),
        Object::issued(middle, &[2]),
    ]);
    (own, store)
}

/// kubectl in a run whose cluster's entry is changed so.
pub(super) fn whoami_with(store: &Store, change: impl FnOnce(&mut Value)) -> Outcome {
    whoami_within(store, change, &[])
}

/// The same with these variables in the environment.
pub(super) fn whoami_within(
    store: &Store,
    change: impl FnOnce(&mut Value),
    variables: &[(&str, &str)],
) -> Outcome {
    kubectl_within(store, change, variables, &["kubectl", "auth", "whoami"])
}

/// The same with another command, behind further options of the run's.
pub(super) fn kubectl_within(
    store: &Store,
    change: impl FnOnce(&mut Value),
    variables: &[(&str, &str)],
    arguments: &[&str],
) -> Outcome {
    drop(run(store, &["true"]));
    let file = changed_kubeconfig(store, |config| {
        change(&mut config["clusters"][0]["cluster"]);
    });
    let run = run(store, &["--kubeconfig", &file]).arguments(arguments);
    variables.iter().fold(run, |run, (name, value)| run.variable(name, value)).run()
}

/// What kubectl has shown, with the quotation marks of what it cites, also of what that cites.
pub(super) fn quoted(outcome: &Outcome) -> String {
    outcome.stderr.replace('\\', "")
}

/// Demands an explanation in kubectl's own error, and nothing of ours.
#[track_caller]
pub(super) fn assert_told(outcome: &Outcome, fragments: &[&str]) {
    assert_told_beside(outcome, &[], fragments);
}

/// The same where we have warned of this.
#[track_caller]
fn assert_told_beside(outcome: &Outcome, warnings: &[&str], fragments: &[&str]) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    outcome.says_only(warnings);
    let shown = quoted(outcome);
    for fragment in fragments {
        assert!(shown.contains(fragment), "{fragment}: {outcome:?}");
    }
}

#[test]
fn a_server_that_is_not_there() {
    let store = cluster().token(Kind::P256, JANE);
    let free = free_address();
    let outcome =
        whoami_with(&store, |cluster| cluster["server"] = json!(format!("https://{free}")));
    assert_told(&outcome, &["\"test\"", "Connection refused", "VPN"]);
    let outcome =
        whoami_with(&store, |cluster| cluster["server"] = json!("https://nowhere.invalid"));
    assert_told(&outcome, &["nowhere.invalid", "no address", "DNS"]);
    for (server, reason) in [
        ("http://127.0.0.1:1", "not an https URL"),
        ("https://", "not a URL"),
        ("https://127.0.0.1:99999", "its server is not a URL"),
        ("https://127.0.0.1:port", "its server is not a URL"),
    ] {
        assert_told(&whoami_with(&store, |cluster| cluster["server"] = json!(server)), &[reason]);
    }
}

/// As with a name that has an IPv6 address in DNS and no IPv6 behind it: ::1 drops what comes.
#[test]
fn an_address_that_does_not_answer_does_not_keep_from_the_next() {
    needs_isolation!();
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return skipped("there is no IPv6");
    }
    let store = cluster().token(Kind::P256, JANE);
    let mut config = written(&store);
    let entry = &mut config["clusters"][0]["cluster"];
    let (_, port) = entry["server"].as_str().unwrap().rsplit_once(':').unwrap();
    let port = port.to_owned();
    let _queue = full_queue((Ipv6Addr::LOCALHOST, port.parse().unwrap()).into());
    entry["server"] = json!(format!("https://two.example:{port}"));
    entry["tls-server-name"] = json!("localhost");
    fs::write(store.path("changed"), config.to_string()).unwrap();
    let hosts = "::1 two.example\n127.0.0.1 two.example localhost\n";
    fs::write(store.path("hosts"), hosts).unwrap();
    let script = "mount --bind \"$HOME/hosts\" /etc/hosts && \
                  exec strace -f -qq -e trace=connect -o \"$HOME/dialled\" \
                  \"$SIGNER\" run --kubeconfig \"$HOME/changed\" kubectl auth whoami";
    let outcome = run(&store, &[]).within("sh", script).through("unshare", &[namespace("m")]).run();
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    // Both were dialled, that one first, by several connections at once.
    let calls = fs::read_to_string(store.path("dialled")).unwrap();
    let calls = calls.lines().filter(|line| line.contains(&format!("port=htons({port})")));
    let dialled: Vec<_> = calls.map(|line| line.contains("\"::1\"")).collect();
    assert!(dialled.first() == Some(&true) && dialled.contains(&false), "{dialled:?}");
}

/// As with an API server behind several A records, of which one is dead. kubectl, too, gives each its part of 30 s.
#[test]
fn a_dead_address_among_those_of_a_name_leaves_time_for_the_next() {
    needs_isolation!();
    let store = cluster().token(Kind::P256, JANE);
    let mut config = written(&store);
    let entry = &mut config["clusters"][0]["cluster"];
    let server = entry["server"].as_str().unwrap().to_owned();
    let (forwarder, dead) = wait_for("a port that is free at both addresses", || {
        let port = free_port();
        let alive = SocketAddr::from(([127, 0, 0, 2], port));
        TcpListener::bind(alive).ok()?;
        Some((Forwarder::at(alive, &server), full_queue((Ipv4Addr::LOCALHOST, port).into())))
    });
    let (_, port) = forwarder.url().rsplit_once(':').map(|(_, it)| ((), it.to_owned())).unwrap();
    entry["server"] = json!(format!("https://two.example:{port}"));
    entry["tls-server-name"] = json!("localhost");
    fs::write(store.path("changed"), config.to_string()).unwrap();
    fs::write(store.path("hosts"), "127.0.0.1 two.example localhost\n127.0.0.2 two.example\n")
        .unwrap();
    let script = "mount --bind \"$HOME/hosts\" /etc/hosts && \
                  exec \"$SIGNER\" run --kubeconfig \"$HOME/changed\" kubectl auth whoami";
    let outcome = run(&store, &[]).within("sh", script).through("unshare", &[namespace("m")]).run();
    drop(dead);
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    assert!(forwarder.accepted() > 0 && outcome.took > Duration::from_secs(14), "{outcome:?}");
}

/// Listens there without accepting, and with a queue so full that the system drops what comes.
pub(super) fn full_queue(address: SocketAddr) -> Vec<Socket> {
    let family = Domain::for_address(address);
    let address = address.into();
    let socket = || Socket::new(family, Type::STREAM, None).expect("IPv6 on this machine");
    let listener = socket();
    listener.bind(&address).expect("this address on this machine, with this port free");
    listener.listen(0).unwrap();
    let queued = std::iter::repeat_with(|| {
        let socket = socket();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address);
        socket
    });
    std::iter::once(listener).chain(queued.take(5)).collect()
}

/// The option of unshare for a namespace, and for a user's own where that needs one.
pub(super) fn namespace(kind: &str) -> String {
    match rustix::process::geteuid().is_root() {
        true => format!("-{kind}"),
        false => format!("-r{kind}"),
    }
}

#[test]
fn a_server_that_speaks_something_else() {
    let store = cluster().token(Kind::P256, JANE);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            use std::io::Write as _;
            let _ = connection.unwrap().write_all(b"220 mail.example ESMTP\r\n");
        }
    });
    let outcome =
        whoami_with(&store, |cluster| cluster["server"] = json!(format!("https://{address}")));
    assert_told(&outcome, &["broke off", "corrupt"]);
}

#[test]
fn a_server_that_is_not_trusted() {
    let store = cluster().token(Kind::P256, JANE);
    let stranger = key(Kind::P256).certificate_pem();
    let outcome = whoami_with(&store, |cluster| {
        cluster["certificate-authority"] = json!(stranger);
    });
    assert_told(&outcome, &["not trusted", "certificate-authority"]);
    let outcome = whoami_with(&store, |cluster| {
        cluster["tls-server-name"] = json!("another.example");
    });
    assert_told(&outcome, &["not trusted", "tls-server-name"]);
    let root = cluster().authority();
    let private = key(Kind::P384).private_pem();
    let extensions = "basicConstraints=critical,CA:TRUE\nsubjectAltName=IP:127.0.0.1\n";
    let [authority, _] =
        issue(&store.path("authority"), &private, "/CN=below", extensions, 30, &root);
    let (_server, address) = Server::start(&[&authority, &private], &root[0], &["-tls1_3"]);
    let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(address));
    assert_told(&outcome, &["it is a CA's, not a server's", "without CA:TRUE"]);
    let outcome = whoami_with(&store, |cluster| {
        cluster["tls-server-name"] = json!("localhost");
    });
    assert!(outcome.printed().contains("jane"), "{outcome:?}");
    let outcome = whoami_with(&store, |cluster| {
        cluster.as_object_mut().unwrap().remove("certificate-authority");
        cluster["insecure-skip-tls-verify"] = json!(true);
        cluster["tls-server-name"] = json!("another.example");
    });
    let printed = outcome.printed_beside(&["cluster \"test\" has insecure-skip-tls-verify"]);
    assert!(printed.contains("jane"), "{outcome:?}");
}

/// A certificate of the cluster's authority for a server at 127.0.0.1, and its key.
pub(crate) fn server_certificate(directory: &Path) -> [String; 2] {
    let (file, private) = (directory.join("server"), key(Kind::P384).private_pem());
    let name = "subjectAltName=IP:127.0.0.1";
    let [certificate, _] = issue(&file, &private, "/CN=server", name, 30, &cluster().authority());
    [certificate, private].map(|path| path.to_str().unwrap().to_owned())
}

/// `openssl s_server`.
pub(crate) struct Server(Child);

impl Server {
    /// One which accepts only clients of an authority, with a certificate and a key of its own; and its URL.
    pub(crate) fn start(own: &[&Path; 2], authority: &Path, options: &[&str]) -> (Self, String) {
        let demand = ["-Verify", "1", "-verify_return_error", "-CAfile"];
        Self::with(own, &[options, &demand, &[authority.to_str().unwrap()]].concat())
    }

    /// One with these options.
    pub(crate) fn with([own, private]: &[&Path; 2], options: &[&str]) -> (Self, String) {
        let address = free_address();
        let mut child = tool("openssl", "openssl")
            .args(["s_server", "-accept", &address.to_string(), "-www"])
            .args(options)
            .args([OsStr::new("-cert"), own.as_ref()])
            .args([OsStr::new("-key"), private.as_ref()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // A connection to try whether it listens would be its first client.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listens = lines.any(|line| line.is_ok_and(|line| line.starts_with("ACCEPT")));
        assert!(listens, "openssl has ended");
        thread::spawn(move || lines.for_each(drop));
        (Self(child), format!("https://{address}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// OpenSSL wants the curve of a client's certificate among the groups that the client offers in TLS 1.2.
#[test]
fn openssl_accepts_a_key_of_any_curve() {
    let [authority, _] = cluster().authority();
    for (kind, group) in [(Kind::P256, "P-256"), (Kind::P384, "P-384"), (Kind::P521, "P-384")] {
        let store = cluster().token(kind, JANE);
        let own = server_certificate(store.directory.path());
        let own = own.each_ref().map(Path::new);
        for options in [
            &["-tls1_3", "-groups", group][..],
            &["-tls1_2"],
            // That group for the exchange as well.
            &["-tls1_2", "-groups", group],
        ] {
            if kind == Kind::P521 && options.contains(&"-tls1_2") {
                break;
            }
            let (_server, server) = Server::start(&own, &authority, options);
            let change = |cluster: &mut Value| cluster["server"] = json!(server);
            let outcome = kubectl_within(&store, change, &[], &["kubectl", "get", "--raw", "/"]);
            assert!(outcome.printed().contains("Cipher"), "{options:?}: {outcome:?}");
        }
    }
}

/// What `openssl req -x509` makes has CA:TRUE. As the kubeconfig's authority it is accepted for
/// itself, as it is by kubectl.
#[test]
fn a_server_whose_own_certificate_is_the_authority() {
    let store = cluster().token(Kind::P256, JANE);
    let directory = store.directory.path();
    let private = key(Kind::P384).private_pem();
    let own = directory.join("own.pem");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let name = "subjectAltName=IP:127.0.0.1";
    let files = ["-key", &text(&private), "-out", &text(&own)];
    let subject = ["req", "-x509", "-new", "-days", "30", "-subj", "/CN=own", "-addext", name];
    openssl(subject.into_iter().chain(files));
    let again = |file: &str, days, extensions: &str| {
        let extensions = format!("basicConstraints=critical,CA:TRUE\n{extensions}\n");
        let by = [own.clone(), private.clone()];
        let [again, _] = issue(&store.path(file), &private, "/CN=own", &extensions, days, &by);
        again
    };
    let expired = again("expired", -1, name);
    let nameless = again("nameless", 30, "subjectAltName=DNS:another.example");
    let purpose = again("purpose", 30, &format!("{name}\nextendedKeyUsage=clientAuth"));
    let [client_authority, _] = cluster().authority();
    let get = |shown: &Path, pinned: &Path| {
        let (_server, server) = Server::start(&[shown, &private], &client_authority, &["-tls1_3"]);
        let change = |cluster: &mut Value| {
            cluster["server"] = json!(server);
            cluster["certificate-authority"] = json!(pinned);
        };
        kubectl_within(&store, change, &[], &["kubectl", "get", "--raw", "/"])
    };
    let outcome = get(&own, &own);
    assert!(outcome.printed().contains("Cipher"), "{outcome:?}");
    for (shown, reason) in
        [(&expired, "expired"), (&nameless, "not valid for name"), (&purpose, "InvalidPurpose")]
    {
        assert_told(&get(shown, shown), &["not trusted", reason]);
    }
    // Nobody else's, though the same key has signed it.
    assert_told(&get(&again("other", 30, name), &own), &["it is a CA's, not a server's"]);
}

#[test]
fn a_server_that_asks_for_no_certificate() {
    let store = cluster().token(Kind::P256, JANE);
    let own = server_certificate(store.directory.path());
    let own = own.each_ref().map(Path::new);
    for version in ["-tls1_2", "-tls1_3"] {
        let (_server, address) = Server::with(&own, &[version]);
        let change = |cluster: &mut Value| cluster["server"] = json!(address);
        let twice = ["-v", "sh", "-c", "kubectl get --raw /; kubectl get --raw /"];
        let outcome = kubectl_within(&store, change, &[], &twice);
        outcome.says(&["the server asked for no client certificate"]);
        // A session with nobody would be one with nobody also when the server asks.
        for authenticated in ["signed by", "session resumed"] {
            assert!(!outcome.stderr.contains(authenticated), "{outcome:?}");
        }
    }
}

#[test]
fn a_server_whose_signatures_the_key_cannot_make() {
    let store = cluster().token(Kind::P256, JANE);
    let own = server_certificate(store.directory.path());
    let own = own.each_ref().map(Path::new);
    for version in ["-tls1_2", "-tls1_3"] {
        let options = [version, "-verify", "1", "-client_sigalgs", "rsa_pss_rsae_sha256"];
        let (_server, address) = Server::with(&own, &options);
        let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(address));
        assert_told(&outcome, &["the server takes no signature that O=dev, CN=jane can make"]);
    }
}

#[test]
fn a_server_of_tls_1_3_and_a_key_of_tls_1_2() {
    let withheld = [MechanismType::RSA_PKCS_PSS, MechanismType::RSA_X_509];
    let store = token_withholding(&withheld, Kind::Rsa(2048));
    let own = server_certificate(store.directory.path());
    let own = own.each_ref().map(Path::new);
    let (_server, address) = Server::with(&own, &["-tls1_3", "-Verify", "1"]);
    let outcome = whoami_with(&store, |cluster| cluster["server"] = json!(address));
    assert_told_beside(
        &outcome,
        &["can serve TLS 1.2 only"],
        &["refused TLS 1.2", "can't serve TLS 1.3", "RSA-PSS of"],
    );
}

#[test]
fn a_pin_that_is_refused_or_locked_starts_nothing() {
    for (faults, told) in [
        ("C_Login:return=0xa0", "CKR_PIN_INCORRECT"),
        ("C_Login:return=0xa4", "locked"),
        ("C_GetTokenInfo:set=CKF_USER_PIN_LOCKED", "locked"),
    ] {
        let store = cluster().token(Kind::P256, JANE);
        run_recorded(&store, faults, &["echo", "started"]).run().fails(7, &[told]);
    }
}

#[test]
fn a_key_of_another_type_than_the_certificates_starts_nothing() {
    for (of_key, of_certificate) in [(Kind::P256, Kind::Rsa(2048)), (Kind::Rsa(2048), Kind::P256)] {
        let own = Object::key(key(of_key), &[1]);
        let store = token_with([own, Object::issued(cluster().issue(of_certificate, JANE), &[1])]);
        let outcome = run_recorded(&store, "", &["echo", "started"]).run();
        outcome.fails(6, &["does not belong to the key with objectId \"1\""]);
        assert_eq!(store.calls("C_SignInit"), [] as [&str; 0]);
    }
}

#[test]
fn a_signature_that_does_not_verify_is_withheld() {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run_recorded(&store, "C_Sign:flip", &["kubectl", "auth", "whoami"]).run();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    outcome.says(&["does not verify"]);
}
