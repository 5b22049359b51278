//! Counts, up to two, how often a process was told an error lately. A client may run its plugin, or ask a tunnel, five times
//! before it gives up, and shows the result each time. The callers decide when the error becomes short: the plugin after the
//! first time, the tunnel after the second.

use std::net::SocketAddr;
use std::time::SystemTime;

use files::directories::fnv_1a;
use files::lock::Lock;
use system::limits;

/// Up to which number it is counted how often a text was told.
const OFTEN: usize = 2;
/// How often the system's table of connections is read before a search in it fails.
#[cfg(target_os = "linux")]
const TABLES: usize = 3;
/// How many lines are kept: as many as fit into a lock's file.
const MOST: usize = 60;

/// One text that a process was told. As a line it is `1795818798 4711 8c7b2a0f5e3d1c9b`.
#[derive(Debug, Eq, PartialEq)]
struct Told {
    /// When the process was told, in seconds since 1970.
    at: u64,
    process: i32,
    /// The hash of the text.
    text: u64,
}

impl Told {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at = words.next()?.parse().ok()?;
        let process = words.next()?.parse().ok()?;
        let text = u64::from_str_radix(words.next()?, 16).ok()?;
        words.next().is_none().then_some(Self { at, process, text })
    }

    fn line(&self) -> String {
        format!("{} {} {:016x}", self.at, self.process, self.text)
    }
}

/// How often the process was told this text lately, counted up to two. From now on it counts once more. If there is no
/// place for the record, it is always 0.
pub fn times_told(process: i32, text: &str) -> usize {
    let Ok(mut record) = Lock::acquire_within(limits::TOLD_LOCK, "told", &mut |_| {}) else {
        return 0;
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let new = Told { at: now.as_secs(), process, text: fnv_1a(text) };
    let mut lines = record.lines();
    let times = add(&mut lines, &new);
    if times < OFTEN {
        let _ = record.write(&lines);
    }
    times
}

/// How many recent lines say the same as `new`, which is added unless there are enough of them.
fn add(lines: &mut Vec<String>, new: &Told) -> usize {
    let is_recent =
        |told: &Told| new.at.checked_sub(told.at).is_some_and(|age| age < limits::TOLD.as_secs());
    lines.retain(|line| Told::parse(line).is_some_and(|told| is_recent(&told)));
    let is_same = |told: &Told| (told.process, told.text) == (new.process, new.text);
    let times = lines.iter().filter_map(|line| Told::parse(line)).filter(is_same).count();
    if times >= OFTEN {
        return times;
    }
    lines.drain(..lines.len().saturating_sub(MOST - 1));
    lines.push(new.line());
    times
}

/// The two ends of a connection that was accepted. A client's port alone may belong to several connections.
#[derive(Clone, Copy)]
pub struct Accepted {
    pub client: SocketAddr,
    pub here: SocketAddr,
}

/// The process of this user that has made this connection; `None` if the system doesn't tell.
#[cfg(target_os = "linux")]
pub fn client_process(connection: Accepted) -> Option<i32> {
    // A line may be missing from a table that changes while it is read.
    let socket = (0..TABLES).find_map(|_| client_socket(connection))?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.find(|number| {
        let files = std::fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.any(|target| target.as_os_str() == &*socket)
    })
}

/// The client's socket, as it is named in `/proc/PID/fd`.
#[cfg(target_os = "linux")]
fn client_socket(connection: Accepted) -> Option<String> {
    let ends = [table_address(connection.client)?, table_address(connection.here)?];
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    table.lines().find_map(|line| {
        // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode (proc_pid_net(5))
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let inode = fields.get(9)?;
        (fields[1..3] == ends).then(|| format!("socket:[{inode}]"))
    })
}

/// An address as it is written in the system's table of connections: `0100007F:1F90` for 127.0.0.1:8080.
#[cfg(target_os = "linux")]
fn table_address(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    // In the byte order of the kernel's memory.
    let host = u32::from_ne_bytes(address.ip().octets());
    Some(format!("{host:08X}:{:04X}", address.port()))
}

/// The process of this user that has made this connection, which this system doesn't tell.
#[cfg(not(target_os = "linux"))]
pub fn client_process(_: Accepted) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::net::{Ipv4Addr, TcpListener};
    #[cfg(target_os = "linux")]
    use std::os::fd::OwnedFd;

    #[cfg(target_os = "linux")]
    use rustix::net::{self, AddressFamily, SocketType};

    use super::*;

    #[test]
    fn a_text_is_counted_for_each_process() {
        let mut lines = vec!["no line of ours".to_owned()];
        let mut times =
            |at, process, text| add(&mut lines, &Told { at, process, text: fnv_1a(text) });
        assert_eq!(times(1_000, 7, "no token"), 0);
        assert_eq!(times(1_001, 7, "no token"), 1);
        assert_eq!(times(1_001, 7, "no PIN"), 0);
        assert_eq!(times(1_001, 8, "no token"), 0);
        for now in 1_002..1_010 {
            assert_eq!(times(now, 7, "no token"), 2);
        }
        // It still runs.
        assert_eq!(times(1_090, 7, "no token"), 1);
        assert_eq!(times(1_180, 7, "no token"), 0);
        // The clock was set back.
        assert_eq!(times(500, 7, "no token"), 0);
    }

    #[test]
    fn many_lines_leave_room_for_the_last() {
        let mut lines = Vec::new();
        for process in 0..1_000 {
            assert_eq!(add(&mut lines, &Told { at: u64::MAX, process, text: u64::MAX }), 0);
        }
        assert_eq!(lines.len(), MOST);
        let last = Told { at: u64::MAX, process: 999, text: u64::MAX };
        assert_eq!(Told::parse(lines.last().unwrap()), Some(last));
        assert!(lines.iter().map(|line| line.len() + 1).sum::<usize>() < 4096);
    }

    /// A client from this port, and its connection as the listener accepted it.
    #[cfg(target_os = "linux")]
    fn connect_from(port: u16, listener: &TcpListener) -> (OwnedFd, Accepted) {
        let client = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::sockopt::set_socket_reuseaddr(&client, true).unwrap();
        net::bind(&client, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        let here = listener.local_addr().unwrap();
        net::connect(&client, &here).unwrap();
        let (_, address) = listener.accept().unwrap();
        (client, Accepted { client: address, here })
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_has_connected_is_known_by_both_addresses() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let (_first, first) = connect_from(0, &listeners[0]);
        assert_eq!(client_process(first), i32::try_from(std::process::id()).ok());
        let (_second, second) = connect_from(first.client.port(), &listeners[1]);
        let sockets = [first, second].map(|connection| client_socket(connection).unwrap());
        assert_ne!(sockets[0], sockets[1]);
        let address: SocketAddr = "[::1]:1".parse().unwrap();
        assert_eq!(client_process(Accepted { client: address, here: address }), None);
    }
}
