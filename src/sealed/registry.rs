//! A registry, or a part of one: a host, its port and a path, as docker's `config.json` names it, and the place of an
//! image.

use std::fmt;

/// The names of Docker Hub; clients of Kubernetes call it by the first.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// The registry that an entry is for, or the place of an image. Its text is the same for all spellings: without scheme,
/// API version and the slash at the end, and with the host in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registry {
    /// The host and the port.
    pub authority: String,
    /// The path's segments, with slashes between them; empty for the whole registry.
    pub path: String,
}

impl Registry {
    /// The registry that an entry's key names; `None` for a text that names none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("https://").unwrap_or(text);
        let text = text.strip_prefix("http://").unwrap_or(text);
        let (authority, path) = text.split_once('/').unwrap_or((text, ""));
        let path = match path.split_once('/').unwrap_or((path, "")) {
            ("v1" | "v2", rest) => rest,
            _ => path,
        };
        Self::of_parts(authority, path)
    }

    fn of_parts(authority: &str, path: &str) -> Option<Self> {
        let (host, port) = match authority.rsplit_once(':') {
            // An IPv6 address is in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
            _ => (authority, None),
        };
        let mut host = host.to_ascii_lowercase();
        let is_of_host = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._[]:".contains(&byte)
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_segment = |segment: &str| !segment.is_empty() && segment.bytes().all(is_of_path);
        if host.is_empty()
            || !host.bytes().all(is_of_host)
            || !path.is_empty() && !path.split('/').all(is_segment)
        {
            return None;
        }
        if DOCKER_HUB.contains(&&*host) {
            DOCKER_HUB[0].clone_into(&mut host);
        }
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(Self { authority: host + &port, path: path.to_owned() })
    }

    /// The place of an image that kubelet names: with its registry, without tag and digest. `None` for another name.
    /// The host keeps its spelling, by which kubelet looks for it in the answer.
    pub fn of_image(text: &str) -> Option<Self> {
        // The name has none of the parts that only an entry's name may have.
        let is_name =
            |segment: &str| segment.starts_with(|first: char| first.is_ascii_alphanumeric());
        let (authority, path) = text.split_once('/')?;
        let image = Self::of_parts(authority, path)?;
        let is_image = image.path == path && path.split('/').all(is_name);
        is_image.then(|| Self { authority: authority.to_owned(), ..image })
    }

    /// Host and port in the form in which they are compared: in lower case, and Docker Hub by one name. `None` if it
    /// isn't a host.
    pub(super) fn canonical_authority(&self) -> Option<String> {
        Some(Self::of_parts(&self.authority, "")?.authority)
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)?;
        match &*self.path {
            "" => Ok(()),
            path => write!(f, "/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Option<String> {
        Registry::parse(text).map(|registry| registry.to_string())
    }

    #[test]
    fn spellings_of_one_registry_are_one() {
        for (text, name) in [
            ("registry.example", "registry.example"),
            ("https://Registry.Example/", "registry.example"),
            ("http://registry.example:5000/v2/", "registry.example:5000"),
            ("registry.example/team", "registry.example/team"),
            ("https://registry.example/v1/team/", "registry.example/team"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("registry-1.docker.io", "docker.io"),
            ("docker.io/library/nginx", "docker.io/library/nginx"),
            ("[::1]:5000/a", "[::1]:5000/a"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(named(text).as_deref(), Some(name), "{text}");
        }
    }

    #[test]
    fn what_names_no_registry_is_refused() {
        for text in [
            "",
            "https://",
            "/team",
            "a b",
            "host:port",
            "host:70000",
            "host//team",
            "host/te am",
            "host\n",
            "host/a?b",
            "user@host",
            "*.example.com",
        ] {
            assert_eq!(named(text), None, "{text:?}");
        }
    }

    #[test]
    fn kubelet_names_neither_tag_nor_digest() {
        for text in [
            "registry.example:5000/team/app",
            "docker.io/library/nginx",
            "docker.io/v1/app",
            "registry.example/v2/team/app",
            "Registry.Example/app",
            "registry-1.docker.io/library/nginx",
        ] {
            assert_eq!(Registry::of_image(text).unwrap().to_string(), text);
        }
        for text in [
            "registry.example/app:v1",
            "registry.example/app@sha256:00",
            "registry.example",
            "registry.example/",
            "https://registry.example/app",
            "registry.example/a/../b",
            "*.example/app",
            "",
            "a b/c",
        ] {
            assert_eq!(Registry::of_image(text), None, "{text}");
        }
    }
}
