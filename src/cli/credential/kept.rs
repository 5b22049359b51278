//! A credential that is used again, so that one PIN serves a shell: the credential is kept, and never the PIN.

use super::short_lived::{IssuedCredential, ShortLived, ShortLivedOptions};
use crate::config::Keep;
use crate::hash::Hash;
use crate::printable::hex;
use crate::process::session_keyring;
use crate::tunnel::TunnelTarget;
use crate::tunnel_process::{self, KeptSecret};

/// Not worth it below, in seconds.
const SHORTEST: i64 = 5;

/// What a credential is known by among those that this session keeps.
pub(super) struct KeptName {
    key: Vec<(String, String)>,
    name: String,
}

impl KeptName {
    /// Everything that it depends on: of another key, for another cluster or with other options it is another one.
    pub(super) fn of(
        kind: ShortLived,
        options: &ShortLivedOptions,
        key: Vec<(String, String)>,
        target: Option<&TunnelTarget>,
    ) -> Self {
        let ShortLivedOptions {
            duration,
            audience,
            jwt,
            token,
            kind: _,
            output: _,
            out: _,
            certificate: _,
        } = options;
        let cluster = target.map(|target| &target.cluster);
        let all =
            format!("{kind:?} {duration:?} {audience:?} {jwt:?} {token:?} {key:?} {cluster:?}");
        let digest = Hash::Sha256.digest(&[all.as_bytes()]);
        let digest = hex(&digest.unwrap_or_default());
        Self { key, name: format!("pkcs11-external-signer:{digest}") }
    }

    /// In the tunnel process.
    fn secret(&self) -> KeptSecret {
        KeptSecret { key: self.key.clone(), name: self.name.clone() }
    }

    /// The one that is kept, if it has at least half of its life before it.
    pub(super) fn find(&self, now: i64) -> Option<IssuedCredential> {
        let text = tunnel_process::find_secret(self.secret()).map(String::into_bytes);
        let text = text.or_else(|| session_keyring::find(&self.name))?;
        let kept: IssuedCredential = serde_json::from_slice(&text).ok()?;
        // The kernel's clock is another one than that of the credential.
        (kept.begins..kept.begins.saturating_add(kept.half())).contains(&now).then_some(kept)
    }

    /// Keeps it for half of what remains, or as long as is wished if that is shorter: in the tunnel process, if it
    /// has the key open, or in the session's keyring.
    pub(super) fn keep(&self, credential: &IssuedCredential, wish: Option<Keep>) {
        let half = credential.half();
        let wished = match wish {
            Some(Keep::For(limit)) => i64::try_from(limit.as_secs()).unwrap_or(half),
            Some(Keep::Command | Keep::Terminal) | None => half,
        };
        let seconds = half.min(wished);
        if let (Ok(text), Ok(limit), SHORTEST..) =
            (serde_json::to_string(credential), u32::try_from(seconds), seconds)
            && !tunnel_process::keep_secret(self.secret(), text.clone(), limit)
        {
            session_keyring::keep(&self.name, text.as_bytes(), limit);
        }
    }
}

impl IssuedCredential {
    /// Of its life, in seconds.
    fn half(&self) -> i64 {
        self.ends.saturating_sub(self.begins) / 2
    }
}
