//! Opening a sealed file: which of its recipients is a key of the token, and what that key makes of it.

use crate::config::{Config, ObjectSelector};
use crate::error::{Error, Exit, Help};
use crate::hash::Hash;
use crate::pin::PinProvider;
use crate::sealed::{
    EncryptedKey, Recipient, Registries, SealedFile, describe, name_of_key, names,
};
use crate::token::{KeyReference, LockedSecret, Token};

/// AES-256.
const CONTENT_KEY_LENGTH: usize = 32;

/// A key of the token that opens a file, and the place of its recipient there.
pub(in crate::cli) type RecipientKey = (KeyReference, usize);

/// The first recipient that is a key of the token, by the certificates and public keys on it or by
/// `certificateFile`. Logs in only if none is visible without, and not without `pins`.
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
    // Any object is meant if the options name none.
    let is_meant = |id: &[u8], label: &str| {
        wanted.id.as_ref().is_none_or(|it| it.as_bytes() == id)
            && wanted.label.as_ref().is_none_or(|it| it == label)
    };
    for candidate in token.candidates()? {
        if let Some(Ok(certificate)) = &candidate.certificate
            && is_meant(&candidate.id, &candidate.label)
            && let Some(recipient) = file.recipient(&names(certificate))
        {
            let label = Some(&*candidate.label).filter(|label| !label.is_empty());
            let object = ObjectSelector::of(&candidate.id, label);
            let id = candidate.id.clone();
            return Ok(Some((KeyReference::of_certificate(certificate, &object, id), recipient)));
        }
    }
    let mut keys = token.public_keys()?.into_iter().filter(|it| is_meant(&it.id, &it.label));
    Ok(keys.find_map(|key| {
        let recipient = file.recipient(name_of_key(&key.public_key).as_slice())?;
        Some((key, recipient))
    }))
}

fn no_recipient(token: &Token, file: &SealedFile) -> Error {
    let names: Vec<_> = file.recipients.iter().map(|it| describe(&it.name)).collect();
    let help = "seal the passwords to the certificate of a key of this token, or name that certificate with \
                --certificate-file; the file is for:";
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
        EncryptedKey::RsaOaep(ciphertext) => LockedSecret::Oaep {
            hash: Hash::Sha256,
            mask_hash: Hash::Sha256,
            ciphertext,
            length: CONTENT_KEY_LENGTH,
        },
        EncryptedKey::Ecdh { curve, point, .. } => LockedSecret::Ecdh { curve: *curve, point },
    };
    let key = token.key(reference, pins)?;
    let decrypted = token.open(&key, &locked, pins)?;
    file.open(encrypted, &decrypted)
}
