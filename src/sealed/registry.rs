//! A registry as docker's `config.json` names it, or a part of one: a host, its port, a path. An image in it, and which
//! login it is pulled with.

use std::fmt;
use std::path::Path;

use super::registries::RegistryLogin;

/// The names of Docker Hub; clients of Kubernetes call it by the first.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// What an entry is for, or where an image is. Its text is the same for all spellings of it: without scheme, API version and the slash at
/// the end, with the host in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registry {
    /// Host and port.
    pub authority: String,
    /// Segments with slashes between them; empty for the whole registry.
    pub path: String,
}

impl Registry {
    /// `None` for a text that names no registry.
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
            // An IPv6 address stands in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
            _ => (authority, None),
        };
        let mut host = host.to_ascii_lowercase();
        let is_of_host =
            |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-._[]:".contains(&it);
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_of_path = |it: u8| it.is_ascii_alphanumeric() || b"-._".contains(&it);
        let is_segment = |it: &str| !it.is_empty() && it.bytes().all(is_of_path);
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

    /// Where an image is, as kubelet names it: with its registry, without tag and digest. `None` for another name. The
    /// host keeps its spelling, in which kubelet looks for the answer's.
    pub fn of_image(text: &str) -> Option<Self> {
        // Not what only an entry's name may have.
        let is_name = |it: &str| it.starts_with(|it: char| it.is_ascii_alphanumeric());
        let (authority, path) = text.split_once('/')?;
        let image = Self::of_parts(authority, path)?;
        let is_image = image.path == path && path.split('/').all(is_name);
        is_image.then(|| Self { authority: authority.to_owned(), ..image })
    }

    /// An image's login with the longest fitting path, and whether it is for this image alone, not its registry.
    ///
    /// A login for a path answers for the image alone, because kubelet compares paths by their first characters and would
    /// use it for `host/teamster`, too. So does one for a registry of which another login is for a part: kubelet would take
    /// what it keeps for the registry without asking.
    pub fn login<'a>(&self, logins: &'a [RegistryLogin]) -> Option<(&'a RegistryLogin, bool)> {
        // Ports have to be equal, as for kubelet.
        let host = Self::of_parts(&self.authority, "")?.authority;
        let of_host = || logins.iter().filter(|it| it.registry.authority == host);
        // By whole segments.
        let path = Path::new(&self.path);
        let fitting = of_host().filter(|it| path.starts_with(&it.registry.path));
        let is_for_image = of_host().any(|it| !it.registry.path.is_empty());
        fitting.max_by_key(|it| it.registry.path.len()).map(|it| (it, is_for_image))
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
        Registry::parse(text).map(|it| it.to_string())
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

    #[test]
    fn the_login_that_fits_best_is_chosen_by_whole_segments() {
        let login = |it: &str| RegistryLogin::new(it.into(), "u".into(), "p".into()).unwrap();
        let logins = [
            "registry.example:5000",
            "registry.example",
            "registry.example/team",
            "registry.example/team/app",
            "docker.io",
        ]
        .map(login);
        for (image, index, is_for_image) in [
            ("registry.example/team/app", 3, true),
            ("registry.example/team/app/sub", 3, true),
            ("registry.example/team/application", 2, true),
            ("registry.example/team", 2, true),
            ("registry.example/teamster/app", 1, true),
            ("registry.example/other", 1, true),
            ("registry.example:5000/team/app", 0, false),
            ("docker.io/library/nginx", 4, false),
            ("registry-1.docker.io/library/nginx", 4, false),
            ("Registry.Example/team", 2, true),
        ] {
            let (found, for_image) = Registry::of_image(image).unwrap().login(&logins).unwrap();
            assert_eq!(found.registry, logins[index].registry, "{image}");
            assert_eq!(for_image, is_for_image, "{image}");
        }
        for image in ["registry.example:5001/team/app", "other.example/team", "example/team"] {
            assert!(Registry::of_image(image).unwrap().login(&logins).is_none(), "{image}");
        }
    }
}
