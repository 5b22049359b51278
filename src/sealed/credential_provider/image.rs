//! An image's name, and which registry's login it is pulled with.

use std::path::Path;

use crate::{Registry, RegistryLogin};

impl Registry {
    /// Where an image is, as kubelet names it: with its registry, without tag and digest. `None` for another name.
    pub fn of_image(text: &str) -> Option<Self> {
        // Not what only an entry's name may have.
        let is_name = |it: &str| it.starts_with(|it: char| it.is_ascii_alphanumeric());
        let (authority, path) = text.split_once('/')?;
        let image = Self::of_parts(authority, path)?;
        (image.to_string() == text && image.path.split('/').all(is_name)).then_some(image)
    }

    /// An image's login with the longest fitting path, and whether it is for this image alone, not its registry.
    ///
    /// A login for a path answers for the image alone, because kubelet compares paths by their first characters and would
    /// use it for `host/teamster`, too. So does one for a registry of which another login is for a part: kubelet would take
    /// what it keeps for the registry without asking.
    pub fn login<'a>(&self, logins: &'a [RegistryLogin]) -> Option<(&'a RegistryLogin, bool)> {
        // Ports have to be equal, as for kubelet.
        let of_host = || logins.iter().filter(|it| it.registry.authority == self.authority);
        // By whole segments.
        let path = Path::new(&self.path);
        let fitting = of_host().filter(|it| path.starts_with(&it.registry.path));
        let is_for_image = of_host().any(|it| !it.registry.path.is_empty());
        fitting.max_by_key(|it| it.registry.path.len()).map(|it| (it, is_for_image))
    }
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
