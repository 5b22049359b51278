//! The tunnel's port, on any first bytes: a stranger is refused in one readable line, gets nothing
//! but TLS, and makes us neither dial nor open a key.

#![no_main]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use config::Config;
use keyring::Keyring;
use kubeconfig::Cluster;
use libfuzzer_sys::fuzz_target;
use messages::error::Error;
use socket2::SockRef;
use system::environment::TakenVariables;
use tunnel::{ServerIdentity, TunnelObserver, TunnelTarget, Tunnels};

/// Longer than the gate waits for who is silent.
const PATIENCE: Duration = Duration::from_secs(20);

fuzz_target!(|bytes: &[u8]| {
    let gate = &*GATE;
    let mut stranger = TcpStream::connect(gate.address).expect("a port that listens");
    // Else the port of each connection would be taken for a minute.
    let _ = SockRef::from(&stranger).set_linger(Some(Duration::ZERO));
    // It may be gone before it has heard all.
    let _ = stranger.write_all(bytes);
    let _ = stranger.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    let told = gate.told.lock().expect("one thread");
    let line = told.recv_timeout(PATIENCE).expect("a word on the connection");
    assert!(line.starts_with("cluster \"c\": refused a connection: "), "{line}");
    assert!(told.try_recv().is_err());
    // An alert, or a handshake.
    assert!(matches!(answer.first(), None | Some(21 | 22)), "{answer:?}");
});

struct Gate {
    address: SocketAddr,
    told: Mutex<Receiver<String>>,
    _tunnels: Tunnels,
}

static GATE: LazyLock<Gate> = LazyLock::new(|| {
    // Nothing is loaded before a key is opened, and nothing is here to be loaded.
    let mut configuration =
        [("pathLib", "/no/such.so"), ("slotId", "0"), ("objectId", "1")].into_iter().collect();
    let config = Config::from_map(&mut configuration).expect("a configuration");
    let variables = TakenVariables::default();
    let keyring = Keyring::default();
    let key = keyring.add(config, &variables).expect("a key");
    let destination = TunnelTarget {
        name: "c".to_owned(),
        cluster: Cluster {
            server: "https://server.invalid".to_owned(),
            authority: None,
            tls_server_name: None,
            insecure: true,
            proxy_url: None,
        },
    };
    let (tell, told) = channel();
    let observer: Arc<dyn TunnelObserver> = Arc::new(Teller(tell));
    let identity = ServerIdentity::generate(&[Ipv4Addr::LOCALHOST.into()]);
    let identity = identity.expect("an identity");
    let tunnels = Tunnels::start(&identity, Arc::new(keyring), &observer);
    let tunnels = tunnels.unwrap_or_else(|error| panic!("{error}"));
    let certificate = tunnels.clients.certificate(key);
    certificate.unwrap_or_else(|error| panic!("{error}"));
    let address = tunnels.listen(destination, None);
    Gate {
        address: address.unwrap_or_else(|error| panic!("{error}")),
        told: Mutex::new(told),
        _tunnels: tunnels,
    }
});

struct Teller(Sender<String>);

impl TunnelObserver for Teller {
    fn connection(&self, line: &str) {
        let _ = self.0.send(line.to_owned());
    }

    fn trouble(&self, error: &Error) {
        let _ = self.0.send(format!("trouble: {error}"));
    }

    fn concern(&self, text: &str) {
        let _ = self.0.send(format!("concern: {text}"));
    }
}
