//! `check --sealed`: whether the token opens a sealed file, and what kubelet would be told for an image.

use std::mem;
use std::path::Path;

use super::Checklist;
use crate::cli::sealed;
use ::sealed::{ImageLogin, Registries, Registry, SealedFile};
use config::Config;
use config::pin::PinProvider;
use messages::error::{Error, Exit};
use messages::printable::excerpt;
use pin_entry::Sources;
use system::environment::TakenVariables;

impl Checklist<'_> {
    /// Makes the steps for this sealed file; `None` after one that failed.
    pub(super) fn check_sealed(&mut self, path: &Path, variables: &TakenVariables) -> Option<()> {
        let arguments = self.arguments;
        let image = arguments.image.as_deref().map(image_of).transpose();
        let image = self.keep("configuration", image)?;
        let file = self.keep("sealed", sealed::read(path))?;
        let mut map = arguments.key.configuration();
        let mut config = self.keep("configuration", Config::of_token(&mut map))?;
        let pins = Sources::new(mem::take(&mut config.pin), variables);
        let library = self.session.open(&config);
        let opened = library.map(|library| {
            let token = library.token(&config.token);
            (token, library.lock.asking_unlocked(&config.library, pins))
        });
        let (token, mut pins) = self.keep("library", opened)?;
        self.good("library", config.library.path().display().to_string());
        let mut token = self.keep("token", token)?;
        self.good("token", token.name());
        if arguments.despite_refusal {
            token.disregard_refusals();
        }
        let asked = (!arguments.no_login).then_some(&mut pins as &mut dyn PinProvider);
        let key = sealed::recipient_key(&mut token, &config, &file, asked);
        let key = self.keep("private-key", key)?;
        let (number, all) = (key.recipient + 1, file.recipients.len());
        self.good("private-key", format!("recipient {number} of {all}: {}", key.key.describe()));
        if arguments.no_login {
            return Some(());
        }
        let registries = sealed::open(&mut token, &file, key, &mut pins);
        let registries = self.keep("sealed", registries)?;
        for login in &registries.logins {
            let (registry, username) = (&login.registry, excerpt(&login.username));
            self.good("sealed", format!("{registry}: user \"{username}\""));
        }
        self.check_image(&image?, &registries, &file);
        Some(())
    }

    /// Reports what kubelet is told for the image.
    fn check_image(&mut self, image: &Registry, registries: &Registries, file: &SealedFile) {
        match registries.login_for(image) {
            None => self.concern(
                "answer",
                format!("{image}: {} has no entry for it; kubelet gets no login", file.name),
                "seal a login for its registry, or leave the registry out of matchImages",
            ),
            Some(ImageLogin { login, is_for_image_alone }) => {
                let kept_for = if is_for_image_alone { "this image alone" } else { "its registry" };
                let user = excerpt(&login.username);
                let registry = &login.registry;
                let text = format!("{image}: user \"{user}\" of {registry}, kept for {kept_for}");
                self.good("answer", text);
            }
        }
    }
}

fn image_of(text: &str) -> Result<Registry, Error> {
    Registry::of_image(text).ok_or_else(|| {
        let refused = format!("\"{}\" is not an image with its registry", excerpt(text));
        Error::new(Exit::Request, refused)
            .help("name it without tag and digest, as kubelet does: registry.example/team/app")
    })
}
