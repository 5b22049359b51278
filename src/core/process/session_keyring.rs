//! Small secrets that the processes of one session share: in the kernel's session keyring (session-keyring(7)),
//! which no other session can read, and no file holds.
//!
//! Where there is none of one's own, or the system's filter refuses the calls, nothing is kept.

#![forbid(unsafe_code)]

/// The secret that was kept under this name, if it is still there.
#[cfg(target_os = "linux")]
pub fn find(name: &str) -> Option<Vec<u8>> {
    linux::find(name)
}

/// Keeps the secret for so many seconds. It can't be changed, and kept for longer, by anything.
#[cfg(target_os = "linux")]
pub fn keep(name: &str, secret: &[u8], seconds: u32) {
    // What can't be kept is made again.
    let _ = linux::keep(name, secret, seconds);
}

#[cfg(not(target_os = "linux"))]
pub fn find(_name: &str) -> Option<Vec<u8>> {
    None
}

#[cfg(not(target_os = "linux"))]
pub fn keep(_name: &str, _secret: &[u8], _seconds: u32) {}

#[cfg(target_os = "linux")]
mod linux {
    use linux_keyutils::{
        Key, KeyError, KeyPermissionsBuilder, KeyRing, KeyRingIdentifier, Permission,
    };

    /// How many times a name can be used while the kernel still has what it has let expire: for five minutes.
    const USES: u32 = 8;

    /// The one of this session, and not the one that all sessions of a user without their own share.
    fn own() -> Option<KeyRing> {
        let keyring = KeyRing::from_special_id(KeyRingIdentifier::Session, false).ok()?;
        let described = keyring.metadata().ok()?;
        (!described.get_description().starts_with("_uid")).then_some(keyring)
    }

    /// What was kept last, and the first name that is free.
    fn look(keyring: KeyRing, name: &str) -> (Option<Key>, Option<String>) {
        let mut found = None;
        for use_number in 0..USES {
            let name = format!("{name}:{use_number}");
            match keyring.search(&name) {
                Ok(key) => found = Some(key),
                Err(KeyError::KeyDoesNotExist) => return (found, Some(name)),
                // It has expired, and its name is not free yet.
                Err(_) => {}
            }
        }
        (found, None)
    }

    pub(super) fn find(name: &str) -> Option<Vec<u8>> {
        let (found, _) = look(own()?, name);
        found?.read_to_vec().ok()
    }

    pub(super) fn keep(name: &str, secret: &[u8], seconds: u32) -> Option<()> {
        let keyring = own()?;
        let (_, free) = look(keyring, name);
        let key = keyring.add_key(&free?, secret).ok()?;
        // In this order: with these permissions nobody can set a limit any more.
        let limited = key.set_timeout(usize::try_from(seconds).ok()?);
        let permissions = KeyPermissionsBuilder::builder()
            .posessor(Permission::VIEW | Permission::READ | Permission::SEARCH)
            .build();
        if limited.and_then(|()| key.set_perms(permissions)).is_err() {
            let _ = key.invalidate();
        }
        Some(())
    }
}
