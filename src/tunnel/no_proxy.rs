//! NO_PROXY as Go and so kubectl read it (golang.org/x/net/http/httpproxy, `Config.NoProxy`).

use ipnet::IpNet;

use super::address::Address;

/// Whether the server is reached directly: it is on this machine, or in the list.
pub(super) fn excepts(list: &str, server: &Address) -> bool {
    let host = server.host();
    let is_loopback = server.ip().is_some_and(|ip| ip.is_loopback());
    host == "localhost" || is_loopback || lists(list, server)
}

/// Whether the server is in the list.
pub(super) fn lists(list: &str, server: &Address) -> bool {
    list.split(',').any(|entry| names(entry, server))
}

fn names(entry: &str, server: &Address) -> bool {
    let entry = entry.trim().to_lowercase();
    if entry == "*" {
        return true;
    }
    if let Ok(network) = entry.parse::<IpNet>() {
        return server.ip().is_some_and(|ip| network.contains(&ip));
    }
    let (host, port) = host_and_port(&entry).unwrap_or((&entry, ""));
    if !port.is_empty() && port != server.port().to_string() {
        return false;
    }
    if let Ok(ip) = host.parse::<std::net::IpAddr>() {
        return server.ip() == Some(ip.to_canonical());
    }
    if host.is_empty() || server.ip().is_some() {
        return false;
    }
    let domain = host.strip_prefix('*').filter(|rest| rest.starts_with('.'));
    let domain = domain.unwrap_or(host);
    let name = server.host().to_lowercase();
    match name.strip_suffix(domain) {
        // A leading dot means what is below the domain, without the domain.
        Some(_) if domain.starts_with('.') => true,
        Some(before) => before.is_empty() || before.ends_with('.'),
        None => false,
    }
}

/// Go's `net.SplitHostPort`: without brackets around it, a host with a colon has no port.
fn host_and_port(entry: &str) -> Option<(&str, &str)> {
    let (host, port) = entry.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, port)),
        None => (!host.contains(':')).then_some((host, port)),
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    /// The table that tests of the whole put to kubectl, too.
    #[test]
    fn the_list_means_what_it_means_to_go() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/softhsm-tests/no-proxy.txt");
        let table = std::fs::read_to_string(file).unwrap();
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        for row in rows.clone() {
            let [way, server, list] = row.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{row}");
            };
            let server = Address::of(&Uri::try_from(server).unwrap(), 443).unwrap();
            let expected = way == "direct";
            assert_eq!(excepts(list, &server), expected, "{row}");
        }
        assert!(rows.count() > 40);
    }
}
