//! `check --sealed`: whether the token opens a sealed file, and what kubelet would be told for an image.

use std::mem;
use std::path::Path;

use super::CheckArguments;
use super::checklist::{CheckStep, Checklist};
use crate::cli::sealed;
use crate::config::Config;
use crate::credential_provider::Image;
use crate::error::{Error, Exit};
use crate::library::{self, Library};
use crate::pin::PinProvider;
use crate::pin_entry::Sources;
use crate::printable::excerpt;
use crate::process::environment::SingleThreaded;

/// Makes the steps; `None` after one that failed.
pub(super) fn check_sealed(
    path: &Path,
    arguments: &CheckArguments,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
    checklist: &mut Checklist<'_>,
) -> Option<()> {
    let image = arguments.image.as_ref().map(|text| {
        let refused = format!("\"{}\" is not an image with its registry", excerpt(text));
        let help = "name it without tag and digest, as kubelet does: registry.example/team/app";
        Image::parse(text).ok_or_else(|| Error::new(Exit::Request, refused).help(help))
    });
    let image = checklist.keep(CheckStep::CONFIGURATION, image.transpose())?;
    let file = checklist.keep(CheckStep::SEALED, sealed::read(path))?;
    let mut map = arguments.key.configuration();
    let variables = crate::cli::take_variables(map.clone(), alone);
    let mut config = checklist.keep(CheckStep::CONFIGURATION, Config::of_token(&mut map))?;
    let mut pins = Sources::new(mem::take(&mut config.pin), &variables);
    let library = library::open_in(opened, &config);
    let library = checklist.keep(CheckStep::LIBRARY, library)?;
    checklist.good(CheckStep::LIBRARY, config.library.path().display().to_string());
    let mut token = checklist.keep(CheckStep::TOKEN, library.token(&config.token))?;
    checklist.good(CheckStep::TOKEN, token.name());
    if arguments.despite_refusal {
        token.disregard_refusals();
    }
    let asked = (!arguments.no_login).then_some(&mut pins as &mut dyn PinProvider);
    let key = sealed::recipient_key(&mut token, &config, &file, asked);
    let key = checklist.keep(CheckStep::PRIVATE_KEY, key)?;
    let (number, of, name) = (key.1 + 1, file.recipients.len(), key.0.describe());
    checklist.good(CheckStep::PRIVATE_KEY, format!("recipient {number} of {of}: {name}"));
    if arguments.no_login {
        return Some(());
    }
    let registries = sealed::open(&mut token, &file, key, &mut pins);
    let registries = checklist.keep(CheckStep::SEALED, registries)?;
    for login in &registries.logins {
        let (registry, username) = (&login.registry, excerpt(&login.username));
        checklist.good(CheckStep::SEALED, format!("{registry}: user \"{username}\""));
    }
    match image.as_ref().map(|image| (image, image.login(&registries.logins))) {
        None => {}
        Some((image, None)) => checklist.concern(
            CheckStep::ANSWER,
            format!("{image}: {} has no entry for it; kubelet is told nothing", file.name),
            "seal a login for its registry, or leave the registry out of matchImages",
        ),
        Some((image, Some((login, is_for_image)))) => {
            let kept_for = if is_for_image { "this image alone" } else { "its registry" };
            let (user, registry) = (excerpt(&login.username), &login.registry);
            let text = format!("{image}: user \"{user}\" of {registry}, kept for {kept_for}");
            checklist.good(CheckStep::ANSWER, text);
        }
    }
    Some(())
}
