//! Values that are wiped when they are dropped. None of them can be printed, compared in the
//! open or cloned by accident: there is no `Debug` that shows them, no `Display`, no `Clone`.

#![forbid(unsafe_code)]

use std::fmt;

use zeroize::Zeroizing;

/// The longest PIN that is handed to a token, in bytes.
pub const MAX_PIN_LENGTH: usize = 255;

/// A PIN, never empty: an empty one would tell some modules to use a reader's own pad.
pub struct Pin(Zeroizing<String>);

impl Pin {
    /// `None` for a text that can't be a PIN: empty, or longer than [`MAX_PIN_LENGTH`].
    pub fn new(text: Zeroizing<String>) -> Option<Self> {
        (1..=MAX_PIN_LENGTH)
            .contains(&text.len())
            .then_some(Self(text))
    }

    /// The PIN itself, for the one call that sends it to the token.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// A second copy, for a source that may be asked again; wiped like the first.
    pub(crate) fn duplicate(&self) -> Self {
        Self(self.0.clone())
    }

    /// Its length in bytes, which PKCS#11's limits count (CK_TOKEN_INFO, ulMinPinLen).
    pub fn length(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pin(…)")
    }
}
