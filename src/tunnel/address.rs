//! A host and a port, and connecting to them.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::error::UpstreamFailure;

/// The interval of TCP keepalive, by which a peer that has vanished is noticed.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long an address is tried alone before the next one is tried as well (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The host and port of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Address {
    /// A name, or an IP address without brackets; an IPv6 one can have a zone (`fe80::1%eth0`).
    host: String,
    port: u16,
}

impl Address {
    /// `None` for a URL without a host, or with a port that is no number from 1 to 65535.
    pub(super) fn of(url: &Uri, usual_port: u16) -> Option<Self> {
        let authority = url.authority()?;
        let place =
            authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, place)| place);
        let port = match place.strip_prefix(authority.host())? {
            "" | ":" => usual_port,
            port => number(port.strip_prefix(':')?)?,
        };
        // RFC 6874: the percent sign before a zone is escaped in a URL.
        let host =
            authority.host().trim_start_matches('[').trim_end_matches(']').replace("%25", "%");
        (!host.is_empty()).then_some(Self { host, port })
    }

    /// The host without a zone, which has a meaning on this machine only.
    pub(super) fn host(&self) -> &str {
        self.host.split_once('%').map_or(&self.host, |(host, _)| host)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The host, where it is an IP address.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.host().parse().ok().map(|ip: IpAddr| ip.to_canonical())
    }

    /// A TCP connection to the first of the host's addresses that answers.
    pub(super) async fn connect(&self) -> Result<TcpStream, UpstreamFailure> {
        let addresses = lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|error| UpstreamFailure::Resolve(error.to_string()))?;
        let stream = race(alternating(addresses.collect()))
            .await
            .map_err(|error| UpstreamFailure::Connect(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        Ok(stream)
    }
}

/// The form of HTTP's `Host` and CONNECT.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host().contains(':') {
            true => write!(f, "[{}]:{}", self.host(), self.port),
            false => write!(f, "{}:{}", self.host(), self.port),
        }
    }
}

fn number(port: &str) -> Option<u16> {
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| is_number && *port > 0)
}

/// The resolver's order with alternating families (RFC 8305, section 4).
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut preferred, mut others): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let (mut preferred, mut others) = (preferred.drain(..), others.drain(..));
    let mut order = Vec::new();
    loop {
        let before = order.len();
        order.extend(preferred.next());
        order.extend(others.next());
        if order.len() == before {
            return order;
        }
    }
}

/// The first connection that is made; each address gets a head start over the next one. The
/// failure is the first address's.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = None;
    loop {
        let delay = match addresses.next() {
            Some(address) => {
                attempts.spawn(TcpStream::connect(address));
                ATTEMPT_DELAY
            }
            None => Duration::MAX,
        };
        let outcome = match timeout(delay, attempts.join_next()).await {
            Ok(Some(outcome)) => outcome.unwrap_or_else(|error| Err(io::Error::other(error))),
            Ok(None) => {
                return Err(failure.unwrap_or_else(|| io::Error::other("it has no address")));
            }
            Err(_) => continue,
        };
        match outcome {
            Ok(stream) => return Ok(stream),
            Err(error) => drop(failure.get_or_insert(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Socket, Type};
    use tokio::runtime::Builder;
    use tokio::time::Instant;

    use super::*;

    fn address(url: &str) -> Option<String> {
        let url = Uri::try_from(url).ok()?;
        Address::of(&url, 443).map(|address| format!("{} {}", address.host, address.port))
    }

    #[test]
    fn a_port_is_a_number_or_the_usual_one() {
        for (url, expected) in [
            ("https://host", Some("host 443")),
            ("https://host:", Some("host 443")),
            ("https://host:6443/path", Some("host 6443")),
            ("https://host:0443", Some("host 443")),
            ("https://user:123@host", Some("host 443")),
            ("https://user:123@host:6443", Some("host 6443")),
            ("https://[fd00::2]", Some("fd00::2 443")),
            ("https://[fd00::2]:6443", Some("fd00::2 6443")),
            ("https://[fe80::1%25eth0]:6443", Some("fe80::1%eth0 6443")),
            ("https://host:99999", None),
            ("https://host:65536", None),
            ("https://host:0", None),
            ("https://host:-1", None),
            ("https://host:+443", None),
            ("https://host:port", None),
            ("https://[fd00::2]443", None),
            ("https://:6443", None),
            ("/path", None),
        ] {
            assert_eq!(address(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn http_is_told_no_zone_and_no_password() {
        for (url, expected) in [
            ("https://[fe80::1%25eth0]:6443", "[fe80::1]:6443"),
            ("https://user:password@host/path", "host:443"),
        ] {
            let address = Address::of(&Uri::from_static(url), 443).unwrap();
            assert_eq!(address.to_string(), expected);
        }
    }

    #[test]
    fn families_take_turns() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(
            alternating(addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"])),
            addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"])
        );
        assert_eq!(alternating(Vec::new()), []);
    }

    /// A listener whose queue is full: the system drops what else wants to connect.
    fn busy() -> (SocketAddr, Vec<Socket>) {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = socket();
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&free.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut sockets = vec![listener];
        while sockets.len() < 10 {
            let socket = socket();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address);
            sockets.push(socket);
        }
        (address.as_socket().unwrap(), sockets)
    }

    #[test]
    fn addresses_that_do_not_answer_cost_a_moment_each() {
        let runtime =
            Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (one, _queue) = busy();
        let (two, _other_queue) = busy();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = listener.local_addr().unwrap();
        // Nobody listens, and nobody else gets the port.
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        closed.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let gone = closed.local_addr().unwrap().as_socket().unwrap();
        let (made, took) = runtime.block_on(async {
            let begin = Instant::now();
            (race(vec![one, two, gone, answering]).await, begin.elapsed())
        });
        assert_eq!(made.unwrap().peer_addr().unwrap(), answering);
        // The one that refuses may cost another one, where its word comes after the clock has moved.
        assert!((2 * ATTEMPT_DELAY..4 * ATTEMPT_DELAY).contains(&took), "{took:?}");
        // Without an answer it lasts until the caller gives up.
        let patience = Duration::from_millis(600);
        let late = runtime.block_on(async { timeout(patience, race(vec![one, gone])).await });
        assert!(late.is_err());
        let refused = runtime.block_on(race(vec![gone, gone])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
