//! Only the command can use a run's ports.

use super::{run, run_recorded};
use crate::fixture::*;

/// Shell functions for who has read the kubeconfig, or hasn't.
pub(super) const TOOLS: &str = r#"
cd "$(mktemp -d -p "$HOME")"
field() { sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/" "$KUBECONFIG"; }
address=$(field server); address=${address#https://}; port=${address#*:}
name=$(field tls-server-name)
field certificate-authority-data | base64 -d >ca
field client-certificate-data | base64 -d >certificate
field client-key-data | base64 -d >key
ask() { printf 'GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' |
  timeout 600 openssl s_client -quiet -connect "$address" "$@" 2>/dev/null | grep -c gitVersion; }
"#;

/// Waits until the server's choice of HTTP/2 is known, after [`TOOLS`].
pub(super) const UNTIL_HTTP_2: &str = "\
until timeout 600 openssl s_client -connect $address -cert certificate -key key -alpn h2,http/1.1 </dev/null 2>/dev/null \
  | grep -q 'ALPN protocol: h2'; do sleep 0.1; done";

/// What the script prints, and what the run says with `-v`.
fn told(script: &str) -> (String, String) {
    let store = cluster().token(Kind::P256, JANE);
    let outcome = run(&store, &["-v", "bash", "-c", &format!("{TOOLS}{script}")]).run();
    (outcome.printed(), outcome.stderr)
}

#[test]
fn a_client_with_the_runs_certificate_is_let_in_with_and_without_the_name() {
    let (printed, stderr) = told(
        "ask -servername $name -cert certificate -key key -CAfile ca -verify_return_error -verify_hostname $name
         ask -noservername -cert certificate -key key -CAfile ca -verify_return_error -verify_ip 127.0.0.1
         true",
    );
    assert_eq!(printed, "1\n1\n", "{stderr}");
    assert_eq!(stderr.matches("connected, TLS 1.3").count(), 2, "{stderr}");
}

#[test]
fn everybody_else_is_refused_and_the_run_goes_on() {
    let stranger = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj /CN=command -keyout other.key -out other 2>/dev/null";
    let script = format!(
        "{stranger}
         ask -noservername; ask -servername other.run.invalid; ask -servername $name
         ask -servername $name -cert other -key other.key
         ask -servername $name -CAfile other -verify_return_error
         ask -noservername -cert other -key other.key -tls1_2
         exec 3<>/dev/tcp/127.0.0.1/$port; printf 'GET /version HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3 | grep -c gitVersion
         exec 3<>/dev/tcp/127.0.0.1/$port; head -c 3000 /dev/urandom >&3; cat <&3 | grep -c gitVersion
         kubectl auth whoami >/dev/null && echo served"
    );
    let (printed, stderr) = told(&script);
    assert_eq!(printed, "0\n".repeat(8) + "served\n", "{stderr}");
    assert_eq!(stderr.matches("refused a connection").count(), 8, "{stderr}");
}

#[test]
fn a_stranger_makes_us_neither_dial_nor_sign() {
    let store = cluster().token(Kind::P256, JANE);
    let script = format!(
        "{TOOLS} for i in 1 2 3; do ask -noservername; ask -servername other.run.invalid; done; true"
    );
    let outcome = run_recorded(&store, "", &["-v", "bash", "-c", &script]).run();
    assert_eq!(outcome.printed(), "0\n".repeat(6));
    assert!(!outcome.stderr.contains("connected"), "{outcome:?}");
    assert_eq!(store.calls("C_Sign").len(), 0);
}

#[test]
fn the_protocol_is_the_servers_choice_once_it_is_known() {
    let (printed, _) = told(
        "offer() { timeout 600 openssl s_client -connect $address -servername $name -cert certificate -key key -alpn $1 \
           </dev/null 2>/dev/null | sed -n 's/^ALPN protocol: //p'; }
         offer h2,http/1.1
         for offer in h2,http/1.1 http/1.1,h2; do until [ $(offer $offer) = h2 ]; do sleep 0.1; done; done
         offer http/1.1; offer h2",
    );
    // kube-apiserver prefers HTTP/2 whatever the order of the offer.
    assert_eq!(printed, "http/1.1\nhttp/1.1\nh2\n");
}

#[test]
fn who_is_not_let_in_is_held_in_small_numbers() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let script = format!(
        "{TOOLS} ulimit -Sn 2000
         for i in $(seq 300); do exec {{fd}}<>/dev/tcp/127.0.0.1/$port; head -c 9000 /dev/zero >&$fd; done
         kubectl get namespace default -o name"
    );
    let outcome = run(&store, &["-v", "bash", "-c", &script]).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
    // Each was refused at once, and none is held any more.
    assert_eq!(outcome.stderr.matches("the oldest makes room").count(), 0, "{outcome:?}");
    let greeting = r"for i in $(seq 300); do exec {fd}<>/dev/tcp/127.0.0.1/$port; printf '\x16\x03\x01' >&$fd; done";
    let script =
        format!("{TOOLS} ulimit -Sn 2000; {greeting}; kubectl get namespace default -o name");
    let outcome = run(&store, &["-v", "bash", "-c", &script]).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
    // All but as many as there is room for, and one for kubectl's own.
    let ended = outcome.stderr.matches("the oldest makes room").count();
    assert!((44..=48).contains(&ended), "{ended}: {outcome:?}");
}

#[test]
fn five_hundred_idle_connections_leave_room_for_the_next() {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let script = format!(
        "{TOOLS} ulimit -Sn 2000
         for i in $(seq 500); do exec {{fd}}<>/dev/tcp/127.0.0.1/$port || exit 1; done
         kubectl get namespace default -o name"
    );
    let outcome = run(&store, &["bash", "-c", &script]).run();
    assert_eq!(outcome.printed(), "namespace/default\n");
    outcome.silently();
}
