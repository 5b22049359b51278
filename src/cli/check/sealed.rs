//! `check --sealed`: whether the token opens a sealed file, and what kubelet would be told for an image.

use std::mem;
use std::path::Path;

use super::CheckArguments;
use super::checklist::{CheckStep, Checklist};
use crate::certificate::{ValidityState, day};
use crate::cli::sealed::{self, FileOpener};
use crate::config::{Config, PinSource};
use crate::credential_provider::{Image, ProviderLogin, ProviderRequestError, best};
use crate::error::Error;
use crate::library::{self, LockReports};
use crate::pin_entry::Sources;
use crate::pipeline::Library;
use crate::printable::excerpt;
use crate::process::environment::SingleThreaded;
use crate::process::{lock, unix_time};
use crate::sealed::{Registries, Registry, SealedFile};

/// Makes the steps; `None` after one that failed.
pub(super) fn check_sealed(
    path: &Path,
    arguments: &CheckArguments,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
    checklist: &mut Checklist,
) -> Option<()> {
    let image = arguments.image.as_deref().map(image).transpose();
    let image = checklist.keep(CheckStep::Configuration, image)?;
    let file = checklist.keep(CheckStep::Sealed, sealed::read(path))?;
    let recipients = file.envelope.recipients.len();
    let of_recipients = counted(recipients, "recipient", "recipients");
    checklist.good(
        CheckStep::Sealed,
        match &file.registries {
            Some(_) => format!("for {}; {of_recipients}", file.describe()),
            None => format!("without names of registries; {of_recipients}"),
        },
    );
    let mut map = arguments.key.own_source().configuration;
    let variables = crate::cli::take_variables(map.clone(), alone);
    let mut config = checklist.keep(CheckStep::Configuration, Config::of_token(&mut map))?;
    let mut pins = Sources::new(mem::replace(&mut config.pin, PinSource::Prompt), &variables);
    let library =
        library::open(&config.library, config.init_args.as_ref(), lock::LIMIT, &mut LockReports);
    let library = &*opened.insert(checklist.keep(CheckStep::Library, library)?);
    checklist.good(CheckStep::Library, config.library.path().display().to_string());
    let mut observer = ();
    let opener = FileOpener::new(library, &config, Some(&mut pins), &mut observer);
    let mut opener = checklist.keep(CheckStep::Token, opener)?;
    checklist.good(CheckStep::Token, opener.token.name());
    if arguments.despite_refusal {
        opener.token.disregard_refusals();
    }
    let own = match arguments.no_login {
        true => opener.own_key(&file, None),
        false => opener.own_key(&file, Some(&mut pins)),
    };
    let own = checklist.keep(CheckStep::PrivateKey, own)?;
    checklist.good(
        CheckStep::PrivateKey,
        format!("recipient {} of {recipients}: {}", own.recipient + 1, own.describe()),
    );
    if let Some(certificate) = &own.certificate {
        let until = day(certificate.validity.not_after);
        match certificate.validity.at(unix_time()) {
            ValidityState::Expired => checklist.concern(
                CheckStep::Validity,
                format!(
                    "the certificate has expired on {until}; its key opens the file all the same"
                ),
                "renew it, with the same key",
            ),
            _ => checklist
                .good(CheckStep::Validity, format!("the certificate is valid until {until}")),
        }
    }
    if arguments.no_login {
        return Some(());
    }
    let registries = opener.open(&file, own, &mut pins);
    let registries = checklist.keep(CheckStep::Sealed, registries)?;
    let count = counted(registries.logins().len(), "registry", "registries");
    checklist.good(CheckStep::Sealed, format!("opened: {count}"));
    match image {
        Some(image) => answer(&image, &file, &registries, checklist),
        None => {
            for login in registries.logins() {
                let (registry, username) = (&login.registry, excerpt(&login.username));
                checklist.good(CheckStep::Answer, format!("{registry}: user \"{username}\""));
            }
        }
    }
    Some(())
}

fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

fn image(text: &str) -> Result<Image, Error> {
    Image::normalized(text)
        .map_err(|problem| ProviderRequestError::Image { image: excerpt(text), problem }.into())
}

fn answer(image: &Image, file: &SealedFile, registries: &Registries, checklist: &mut Checklist) {
    let names = || registries.logins().iter().map(|it| &it.registry);
    let found = best(image, names()).and_then(|place| registries.logins().get(place));
    let Some(login) = found else {
        checklist.concern(
            CheckStep::Answer,
            format!("{}: {} has no entry for it; kubelet is told nothing", image.text, file.name),
            "seal a login for its registry, or leave the registry out of matchImages",
        );
        return;
    };
    let told = ProviderLogin::new(image, login, names(), None);
    let kept = match told.is_for_image {
        true => "this image alone",
        false => "its registry",
    };
    let entry: &Registry = &login.registry;
    checklist.good(
        CheckStep::Answer,
        format!(
            "{}: user \"{}\" of the entry {entry}; kubelet keeps it for {kept} ({})",
            image.text,
            excerpt(&login.username),
            told.cache_key_type(),
        ),
    );
}
