//! A touch of the card, as files of a folder: without the folder, a finger lies on the card all the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// So long a YubiKey blinks.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Finger {
    place: PathBuf,
}

impl Finger {
    pub(crate) fn new(state: &Path) -> Self {
        Self { place: state.join("finger") }
    }

    /// Waits for a touch, and says by a file that it does. A touch is good for one use, and whether there was one in time is
    /// returned.
    pub(crate) fn touches(&self) -> bool {
        if !self.place.exists() {
            return true;
        }
        let waiting = self.place.join("awaited");
        let _ = fs::write(&waiting, "");
        let deadline = Instant::now() + PATIENCE;
        let mut is_touched = false;
        while !is_touched && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
            is_touched = fs::remove_file(self.place.join("touch")).is_ok();
        }
        let _ = fs::remove_file(waiting);
        is_touched
    }
}
