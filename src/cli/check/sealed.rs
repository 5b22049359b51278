//! `check --sealed`: whether the token opens a sealed file, and what kubelet would be told for an image.

use std::mem;
use std::path::Path;

use super::Checklist;
use crate::cli::opening;
use crate::config::Config;
use crate::error::{Error, Exit};
use crate::pin::PinProvider;
use crate::pin_entry::Sources;
use crate::printable::excerpt;
use crate::sealed::Registry;

impl Checklist<'_> {
    /// Makes the steps; `None` after one that failed.
    pub(super) fn check_sealed(&mut self, path: &Path) -> Option<()> {
        let arguments = self.arguments;
        let image = arguments.image.as_ref().map(|text| {
            let refused = format!("\"{}\" is not an image with its registry", excerpt(text));
            let help = "name it without tag and digest, as kubelet does: registry.example/team/app";
            Registry::of_image(text).ok_or_else(|| Error::new(Exit::Request, refused).help(help))
        });
        let image = self.keep("configuration", image.transpose())?;
        let file = self.keep("sealed", opening::read(path))?;
        let mut map = arguments.key.configuration();
        let variables = self.session.take_variables(map.clone());
        let mut config = self.keep("configuration", Config::of_token(&mut map))?;
        let pins = Sources::new(mem::take(&mut config.pin), &variables);
        let library = self.session.open(&config);
        let opened = library
            .map(|it| (it.token(&config.token), it.lock.asking_unlocked(&config.library, pins)));
        let (token, mut pins) = self.keep("library", opened)?;
        self.good("library", config.library.path().display().to_string());
        let mut token = self.keep("token", token)?;
        self.good("token", token.name());
        if arguments.despite_refusal {
            token.disregard_refusals();
        }
        let asked = (!arguments.no_login).then_some(&mut pins as &mut dyn PinProvider);
        let key = opening::recipient_key(&mut token, &config, &file, asked);
        let key = self.keep("private-key", key)?;
        let (number, of, name) = (key.1 + 1, file.recipients.len(), key.0.describe());
        self.good("private-key", format!("recipient {number} of {of}: {name}"));
        if arguments.no_login {
            return Some(());
        }
        let registries = opening::open(&mut token, &file, key, &mut pins);
        let registries = self.keep("sealed", registries)?;
        for login in &registries.logins {
            let (registry, username) = (&login.registry, excerpt(&login.username));
            self.good("sealed", format!("{registry}: user \"{username}\""));
        }
        let image = image?;
        match image.login(&registries.logins) {
            None => self.concern(
                "answer",
                format!("{image}: {} has no entry for it; kubelet is told nothing", file.name),
                "seal a login for its registry, or leave the registry out of matchImages",
            ),
            Some((login, is_for_image)) => {
                let kept_for = if is_for_image { "this image alone" } else { "its registry" };
                let (user, registry) = (excerpt(&login.username), &login.registry);
                let text = format!("{image}: user \"{user}\" of {registry}, kept for {kept_for}");
                self.good("answer", text);
            }
        }
        Some(())
    }
}
