//! Opening a sealed file: which of its recipients is a key of the token, and what that key makes of it.

use crate::config::{Config, ObjectSelector};
use crate::error::{Error, Exit, Help};
use crate::pin::PinProvider;
use crate::sealed::{EncryptedKey, Recipient, Registries, SealedFile, describe, names};
use crate::token::{KeyReference, LockedSecret, Token};

/// A key of the token that opens a file, and the place of its recipient there.
pub(in crate::cli) type RecipientKey = (KeyReference, usize);

/// The first recipient that is a key of the token, by the certificates on it or by `certificateFile`. Logs in only if none is visible without, and not without `pins`.
pub(in crate::cli) fn recipient_key(
    token: &mut Token,
    config: &Config,
    file: &SealedFile,
    pins: Option<&mut dyn PinProvider>,
) -> Result<RecipientKey, Error> {
    let selector = &config.object;
    let Some(path) = &config.certificate_file else {
        let visible = |token: &Token| visible(token, selector, file);
        let found = token.visible_or_hidden("the key of a sealed file", pins, visible)?;
        return found.ok_or_else(|| no_recipient(token, file));
    };
    let certificate = super::certificate(path)?;
    let recipient = file.recipient(&names(&certificate));
    let recipient = recipient.ok_or_else(|| no_recipient(token, file))?;
    let reference = match selector.is_given() {
        true => KeyReference::of_certificate(&certificate, selector, Vec::new()),
        false => {
            let (key, subject) = (certificate.public_key(), &certificate.subject);
            token.key_of(key, subject, pins)?
        }
    };
    Ok((reference, recipient))
}

fn visible(
    token: &Token,
    wanted: &ObjectSelector,
    file: &SealedFile,
) -> Result<Option<RecipientKey>, Error> {
    Ok(token.candidates()?.into_iter().find_map(|candidate| {
        // Any object is meant if the options name none.
        let is_meant = wanted.id.as_ref().is_none_or(|it| it.as_bytes() == candidate.id)
            && wanted.label.as_ref().is_none_or(|it| *it == candidate.label);
        let certificate = candidate.certificate?.ok().filter(|_| is_meant)?;
        let recipient = file.recipient(&names(&certificate))?;
        let label = Some(&*candidate.label).filter(|it| !it.is_empty());
        let object = ObjectSelector::of(&candidate.id, label);
        Some((KeyReference::of_certificate(&certificate, &object, candidate.id), recipient))
    }))
}

fn no_recipient(token: &Token, file: &SealedFile) -> Error {
    let names: Vec<_> = file.recipients.iter().map(|it| describe(&it.name)).collect();
    let help = "seal the passwords to the certificate of a key of this token, or name the certificate with \
                --certificate-file if the token doesn't hold it; the file is for:";
    let (name, token) = (&file.name, token.name());
    let text = format!("none of the recipients of {name} is a key of token {token}");
    Error::new(Exit::Object, text).help(Help::from(help).with_candidates(&names))
}

/// Opens the file with a key of the token.
pub(in crate::cli) fn open(
    token: &mut Token,
    file: &SealedFile,
    (reference, recipient): RecipientKey,
    pins: &mut dyn PinProvider,
) -> Result<Registries, Error> {
    let Some(Recipient { key: encrypted, .. }) = file.recipients.get(recipient) else {
        return Err(Error::internal("a recipient that isn't there"));
    };
    let locked = match encrypted {
        EncryptedKey::RsaOaep(ciphertext) => LockedSecret::Oaep(ciphertext),
        EncryptedKey::Ecdh { curve, point, .. } => LockedSecret::Ecdh { curve: *curve, point },
    };
    let key = token.key(reference, pins)?;
    let decrypted = token.open(&key, &locked, pins)?;
    file.open(encrypted, &decrypted)
}
