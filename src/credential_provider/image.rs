//! An image's name, and which registry's login it is pulled with.

use crate::sealed::Registry;

/// An image as kubelet names it: with its registry, without tag and digest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Image {
    /// As it was named.
    pub text: String,
    location: Registry,
}

impl Image {
    /// What kubelet asks for.
    ///
    /// # Errors
    /// What is wrong with the name, for a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (name, end) = split_end(text);
        if !end.is_empty() {
            return Err(match end.starts_with('@') {
                true => "has a digest",
                false => "has a tag",
            });
        }
        let location = Registry::of_image(name).filter(|it| {
            // Not what only an entry's name may have.
            let is_name = |it: &String| it.starts_with(|it: char| it.is_ascii_alphanumeric());
            !it.path.is_empty()
                && it.path.iter().all(is_name)
                && it.to_string() == name
                && !name.contains('*')
        });
        Ok(Self {
            text: text.to_owned(),
            location: location.ok_or("is no image with its registry")?,
        })
    }

    /// The image that a pod's specification names, as kubelet asks for it: `nginx:1.29` is
    /// `docker.io/library/nginx`.
    ///
    /// # Errors
    /// Those of [`Image::parse`].
    pub fn normalized(text: &str) -> Result<Self, &'static str> {
        let (name, _) = split_end(text);
        // Like containers' tools: the first segment is a registry only if it can't be a user of Docker Hub.
        let is_registry = |it: &str| {
            it.contains(['.', ':'])
                || it == "localhost"
                || it.bytes().any(|it| it.is_ascii_uppercase())
        };
        let whole = match name.split_once('/') {
            Some((registry, _)) if is_registry(registry) => match Registry::of_image(name) {
                Some(it) if it.host == "docker.io" && it.path.len() == 1 => {
                    format!("docker.io/library/{}", it.path.concat())
                }
                Some(it) if it.host == "docker.io" => it.to_string(),
                _ => name.to_owned(),
            },
            Some(_) => format!("docker.io/{name}"),
            None => format!("docker.io/library/{name}"),
        };
        Self::parse(&whole)
    }

    /// Host and port of its registry.
    pub fn registry(&self) -> String {
        self.location.authority()
    }

    /// How well a registry's entry fits: `None` if it doesn't; more is better. A host by its name goes before one by
    /// a pattern, then the longer path.
    pub fn fit(&self, entry: &Registry) -> Option<(bool, usize)> {
        if !self.fits_host(entry) || !self.location.path.starts_with(&entry.path) {
            return None;
        }
        Some((entry.host == self.location.host, entry.path.len()))
    }

    /// Whether an image of the same registry could be pulled with this entry. Ports have to be equal, as for kubelet.
    pub fn fits_host(&self, entry: &Registry) -> bool {
        let own: Vec<_> = self.location.host.split('.').collect();
        let wanted: Vec<_> = entry.host.split('.').collect();
        entry.port == self.location.port
            && own.len() == wanted.len()
            && own.iter().zip(wanted).all(|(own, it)| matches(it, own))
    }
}

/// The place of the entry that fits the image best; the first of equal ones.
pub fn best<'a>(image: &Image, entries: impl IntoIterator<Item = &'a Registry>) -> Option<usize> {
    let fits = entries.into_iter().enumerate();
    let fits = fits.filter_map(|(place, entry)| Some((image.fit(entry)?, place)));
    fits.max_by_key(|(fit, place)| (*fit, std::cmp::Reverse(*place))).map(|(_, place)| place)
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

/// The name, and the tag and digest behind it.
fn split_end(text: &str) -> (&str, &str) {
    let name_end = text.find('@').unwrap_or(text.len());
    let path = text.get(..name_end).unwrap_or(text);
    let last = path.rfind('/').map_or(0, |it| it + 1);
    // A name without a slash may be a registry with its port.
    let tag = path.get(last..).and_then(|it| it.find(':'));
    let end = match tag {
        Some(tag) => last + tag,
        None => name_end,
    };
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_as_kubelet_names_them() {
        for (text, name) in [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.29", "docker.io/library/nginx"),
            ("team/app@sha256:00", "docker.io/team/app"),
            ("index.docker.io/nginx", "docker.io/library/nginx"),
            ("registry.example:5000/team/app:v1@sha256:00", "registry.example:5000/team/app"),
            ("localhost/app", "localhost/app"),
            ("docker.io/v1/app", "docker.io/v1/app"),
            ("registry.example/v2/team/app", "registry.example/v2/team/app"),
            ("registry.example/a/b/c", "registry.example/a/b/c"),
        ] {
            assert_eq!(Image::normalized(text).unwrap().text, name, "{text}");
        }
    }

    #[test]
    fn kubelet_names_neither_tag_nor_digest() {
        for (text, problem) in [
            ("registry.example/app:v1", "has a tag"),
            ("registry.example/app@sha256:00", "has a digest"),
            ("registry.example/app:v1@sha256:00", "has a digest"),
            ("registry.example", "is no image with its registry"),
            ("registry.example/", "is no image with its registry"),
            ("https://registry.example/app", "is no image with its registry"),
            ("registry.example/a/../b", "is no image with its registry"),
            ("*.example/app", "is no image with its registry"),
            ("", "is no image with its registry"),
            ("a b/c", "is no image with its registry"),
        ] {
            let found = Image::parse(text);
            let expected = match problem {
                // The tag stands before the digest.
                "has a digest" if text.contains(":v1@") => "has a tag",
                problem => problem,
            };
            assert_eq!(found, Err(expected), "{text}");
        }
    }

    #[test]
    fn the_entry_that_fits_best_is_chosen_by_whole_segments() {
        let entries: Vec<_> = [
            "registry.example:5000",
            "registry.example",
            "registry.example/team",
            "registry.example/team/app",
            "*.example",
            "docker.io",
        ]
        .iter()
        .map(|it| Registry::parse(it).unwrap())
        .collect();
        for (image, place) in [
            ("registry.example/team/app", Some(3)),
            ("registry.example/team/app/sub", Some(3)),
            ("registry.example/team/application", Some(2)),
            ("registry.example/team", Some(2)),
            ("registry.example/teamster/app", Some(1)),
            ("registry.example/other", Some(1)),
            ("registry.example:5000/team/app", Some(0)),
            ("registry.example:5001/team/app", None),
            ("other.example/team", Some(4)),
            ("a.b.example/team", None),
            ("docker.io/library/nginx", Some(5)),
            ("example/team", None),
        ] {
            let image = Image::parse(image).unwrap();
            assert_eq!(best(&image, &entries), place, "{}", image.text);
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
