//! An image's name, and which registry's login it is pulled with.

use std::cmp::Reverse;

use crate::sealed::{Registry, RegistryLogin};

/// An image as kubelet names it: with its registry, without tag and digest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Image {
    /// As it was named.
    pub text: String,
    location: Registry,
}

impl Image {
    /// What kubelet asks for; `None` for another name.
    pub fn parse(text: &str) -> Option<Self> {
        let location = Registry::of_image(text).filter(|it| {
            // Not what only an entry's name may have.
            let is_name = |it: &String| it.starts_with(|it: char| it.is_ascii_alphanumeric());
            !it.path.is_empty()
                && it.path.iter().all(is_name)
                && it.to_string() == text
                && !text.contains('*')
        })?;
        Some(Self { text: text.to_owned(), location })
    }

    /// Host and port of its registry.
    pub fn registry(&self) -> String {
        self.location.authority()
    }

    /// The login that fits best, the first of equal ones: a host by its name goes before one by a pattern, then the longer
    /// path. And whether it is for this image alone rather than for its registry.
    ///
    /// A login for a path answers for the image alone, because kubelet compares paths by their first characters and would
    /// use it for `host/teamster`, too. So does one for a registry of which another login is for a part: kubelet would take
    /// what it keeps for the registry without asking.
    pub fn login<'a>(&self, logins: &'a [RegistryLogin]) -> Option<(&'a RegistryLogin, bool)> {
        let of_host = || logins.iter().filter(|it| self.fits_host(&it.registry));
        let fitting = of_host().filter(|it| self.location.path.starts_with(&it.registry.path));
        let worth = |it: &&RegistryLogin| {
            Reverse((it.registry.host == self.location.host, it.registry.path.len()))
        };
        let is_for_image = of_host().any(|it| !it.registry.path.is_empty());
        fitting.min_by_key(worth).map(|it| (it, is_for_image))
    }

    /// Whether an image of the same registry could be pulled with this entry. Ports have to be equal, as for kubelet.
    fn fits_host(&self, entry: &Registry) -> bool {
        let (labels, wanted) = (self.location.host.split('.'), entry.host.split('.'));
        entry.port == self.location.port
            && labels.clone().count() == wanted.clone().count()
            && labels.zip(wanted).all(|(label, wanted)| matches(wanted, label))
    }
}

/// Whether a label fits one that may have a `*` for any characters.
fn matches(pattern: &str, label: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == label;
    };
    let (parts, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = label.strip_prefix(head).and_then(|it| it.strip_suffix(tail));
    // Each part where it first fits: that leaves most for the others.
    inner.is_some_and(|mut rest| {
        parts.split('*').all(|part| {
            let found = rest.split_once(part);
            found.inspect(|(_, behind)| rest = behind).is_some()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_names_neither_tag_nor_digest() {
        for text in [
            "registry.example:5000/team/app",
            "docker.io/library/nginx",
            "docker.io/v1/app",
            "registry.example/v2/team/app",
        ] {
            assert_eq!(Image::parse(text).unwrap().text, text);
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
            assert_eq!(Image::parse(text), None, "{text}");
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
            "*.example",
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
            ("other.example/team", 4, false),
            ("docker.io/library/nginx", 5, false),
        ] {
            let (found, for_image) = Image::parse(image).unwrap().login(&logins).unwrap();
            assert_eq!(found.registry, logins[index].registry, "{image}");
            assert_eq!(for_image, is_for_image, "{image}");
        }
        for image in ["registry.example:5001/team/app", "a.b.example/team", "example/team"] {
            assert!(Image::parse(image).unwrap().login(&logins).is_none(), "{image}");
        }
    }

    #[test]
    fn a_star_stands_for_characters_of_one_label() {
        for (pattern, label, expected) in [
            ("*", "a", true),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*d", "abc", false),
            ("ab", "abc", false),
            ("b*", "abc", false),
            ("ab*ba", "aba", false),
            ("*ab*ab*", "aab", false),
            ("*ab*ab*", "aabxab", true),
            ("**", "a", true),
            // The time is no power of the number of stars.
            (&"*a".repeat(31), &"a".repeat(31), true),
            (&format!("{}b", "*a".repeat(31)), &"a".repeat(62), false),
        ] {
            assert_eq!(matches(pattern, label), expected, "{pattern} {label}");
        }
    }
}
