//! What a command has open while it runs: standard output for what it prints, and the library or the keyring. Those are
//! finalised once the output is written.

use std::ffi::{CStr, OsString};
use std::io::{self, ErrorKind, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use log::LevelFilter;
use serde::Serialize;

use super::connection::connect;
use cluster_api::TokenConnection;
use config::{Config, PinSource, TrustedLibrary};
use files::replaced_file;
use keyring::library::{self, Library};
use keyring::{KeyNumber, Keyring};
use messages::error::{Error, Exit};
use messages::folding::{folded, terminal_width};
use messages::printable::{PrintableLines, printable, printable_json};
use pin_entry::Sources;
use protocol::Configuration;
use system::environment::{self, SingleThreaded, TakenVariables};
use system::limits;
use system::output::{StandardOutput, answer_lost};
use tunnel::TunnelTarget;
use tunnel_process::OwnKey;

pub(super) const PLAIN: Style = Style::new();
pub(super) const HEADING: Style = Style::new().bold();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const CONCERN: Style = AnsiColor::Yellow.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// What a running command has open.
pub(super) struct CommandSession {
    pub(super) output: CommandOutput,
    /// The exit code of the process if nothing has failed.
    pub(super) exit_code: u8,
    library: Option<Library>,
    keyring: Arc<Keyring>,
    own_key: Option<Arc<OwnKey>>,
}

/// A session at its beginning: the process has one thread, so that variables can be taken out of its environment. Only
/// [`ready`](Self::ready) and [`take_pin_variable`](Self::take_pin_variable), which consume it, lead to the session in which
/// a library can be opened: libraries may start threads.
pub(super) struct StartingSession<'a> {
    session: &'a mut CommandSession,
    alone: SingleThreaded,
}

impl<'a> StartingSession<'a> {
    /// Takes the variable out of the environment, and returns its value.
    pub(super) fn take(&self, name: &str) -> Option<OsString> {
        environment::take(name, &self.alone)
    }

    /// Goes on to the session, for a command that takes no variable for a PIN.
    pub(super) fn ready(self) -> &'a mut CommandSession {
        self.session
    }

    /// Takes the variable that this configuration names for the PIN out of the environment, and goes on to the session.
    /// Errors in the configuration are ignored here, and reported when it is used.
    pub(super) fn take_pin_variable(
        self,
        mut configuration: Configuration,
    ) -> (&'a mut CommandSession, TakenVariables) {
        let source = PinSource::from_map(&mut configuration).ok().flatten();
        let name = source.as_ref().and_then(PinSource::variable);
        (self.session, TakenVariables::take(name, self.alone))
    }
}

impl CommandSession {
    /// Runs a command and returns its exit code. An error is shown. A library that hangs or crashes at its end changes
    /// nothing.
    pub(super) fn run(
        alone: SingleThreaded,
        show: fn(&Error) -> u8,
        command: impl FnOnce(StartingSession<'_>) -> Result<(), Error>,
    ) -> u8 {
        let output = match CommandOutput::open() {
            Ok(output) => output,
            Err(error) => return show(&error),
        };
        let keyring = Arc::new(Keyring::to_write());
        let mut session = Self { output, exit_code: 0, library: None, keyring, own_key: None };
        let outcome = command(StartingSession { session: &mut session, alone });
        let code = outcome.map_or_else(|error| show(&error), |()| session.exit_code);
        let Self { output, library, keyring, own_key, .. } = session;
        // Whoever reads the output need not wait for the library's end.
        drop(output);
        if let Some(library) = library {
            library.module.finalize(code);
        }
        if let Some(key) = own_key {
            key.finish();
        }
        keyring.finish(code);
        code
    }

    pub(super) fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// The key that the cluster is asked with, which is open in a process of its own.
    pub(super) fn own_key(&self) -> Option<&OwnKey> {
        self.own_key.as_deref()
    }

    /// Prepares a connection to the cluster as the user of this key, which is opened in a process of its own. The
    /// library that is open in this process is closed before.
    pub(super) fn connect(
        &mut self,
        target: TunnelTarget,
        key: Vec<(String, String)>,
        pins: &mut Sources,
    ) -> Result<TokenConnection, Error> {
        self.close_library();
        // Both keys may be in the same library.
        if let Some(former) = self.own_key.take() {
            former.finish();
        }
        let key = self.own_key.insert(Arc::new(OwnKey::open(key, pins)?));
        connect(target, KeyNumber::default(), key.clone())
    }

    /// Opens the configuration's library under its lock, or returns the one that is open. It stays open.
    pub(super) fn open(&mut self, config: &Config) -> Result<&Library, Error> {
        self.open_within(limits::LOCK, &config.library, config.init_args.as_deref())
    }

    /// Opens a library, or returns the one that is open: only one can be at a time. Other processes have `patience` to
    /// finish with it.
    pub(super) fn open_within(
        &mut self,
        patience: Duration,
        trusted: &TrustedLibrary,
        init_args: Option<&CStr>,
    ) -> Result<&Library, Error> {
        match &mut self.library {
            Some(library) if !library.module.is_of(trusted, init_args) => {
                let path = library.module.path.display();
                Err(Error::internal(format!("the library {path} is still open")))
            }
            Some(library) => {
                library.lock.acquire(trusted, patience, &mut library::note_wait)?;
                Ok(library)
            }
            none => Ok(none.insert(library::open(
                trusted,
                init_args,
                token::Callers::OneThread,
                patience,
            )?)),
        }
    }

    pub(super) fn close_library(&mut self) {
        if let Some(library) = self.library.take() {
            library.module.close();
        }
    }
}

/// Standard output for the text of a command. Modules can't write to it.
pub(super) struct CommandOutput {
    output: StandardOutput,
    is_coloured: bool,
    /// The width of the terminal, in characters; `None` for a pipe or a file, whose lines are not folded.
    width: Option<usize>,
}

impl Step {
    /// The title and the text, made fit for a terminal, in lines that leave room for the mark before the first one.
    fn folded(&self, width: Option<usize>) -> String {
        let text = format!("{:TITLE_WIDTH$} {}", self.title, printable(&self.text));
        folded(&text, width, 2, TITLE_WIDTH + 3).trim_start().to_owned()
    }
}

/// The width of a step's title, in characters.
pub(super) const TITLE_WIDTH: usize = 14;

/// A step of a command that is done, as in `✔ certificate    user "jane", expires 2026-12-01 10:00 UTC`.
pub(super) struct Step {
    /// The step's title, which is one word.
    pub(super) title: &'static str,
    /// What was done, in a line that isn't made printable yet.
    pub(super) text: String,
}

impl CommandOutput {
    /// Takes over standard output. This is to be called once, before a module is loaded.
    pub(super) fn open() -> Result<Self, Error> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        // NO_COLOR turns colours off (no-color.org).
        let is_coloured = io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb;
        let width = terminal_width(io::stdout());
        Ok(Self { output: StandardOutput::set_aside()?, is_coloured, width })
    }

    /// Prints a step that is done.
    pub(super) fn step(&mut self, step: &Step) -> Result<(), Error> {
        let mark = self.paint(GOOD, "✔");
        self.write(&format!("{mark} {}\n", step.folded(self.width)))
    }

    /// Prints what belongs to the last step, below its text.
    pub(super) fn detail(&mut self, text: &str) -> Result<(), Error> {
        let indent = TITLE_WIDTH + 3;
        self.write(&format!("{}\n", folded(&printable(text), self.width, indent, indent)))
    }

    /// Puts the text into this style if the output shows colours. The text must be fit for a terminal already.
    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        match self.is_coloured && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// The number of characters in a line of the terminal; `None` for a pipe or a file.
    pub(super) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether it is enough to print what matters most: the output is a terminal, and the person has not asked for
    /// details (`-v`).
    pub(super) fn is_brief(&self) -> bool {
        self.width.is_some() && log::max_level() == LevelFilter::Off
    }

    /// Folds a line between words where the terminal ends. The first line is indented by `first` characters, the others
    /// by `rest`. The text must be fit for a terminal already.
    pub(super) fn folded(&self, text: &str, first: usize, rest: usize) -> String {
        folded(text, self.width, first, rest)
    }

    /// Prints an empty line and, below it, what can be done next, with the commands for it.
    pub(super) fn hint(&mut self, text: &str, commands: &[&str]) -> Result<(), Error> {
        let mut shown = format!("\n{}\n", folded(&printable(text), self.width, 0, 0));
        for command in commands {
            shown += &format!("  {}\n", printable(command));
        }
        self.write(&shown)
    }

    /// Prints what was done or found, for people.
    pub(super) fn print(&mut self, lines: &PrintableLines) -> Result<(), Error> {
        self.write(lines.as_str())
    }

    /// Prints text in colours. Its parts were made printable before they were [painted](Self::paint).
    pub(super) fn print_painted(&mut self, text: &str) -> Result<(), Error> {
        self.write(text)
    }

    /// Prints text for a program, unchanged.
    pub(super) fn print_document(&mut self, text: &str) -> Result<(), Error> {
        self.write(text)
    }

    /// Writes the text. It is no error if the reader stops reading, as `head` does.
    fn write(&mut self, text: &str) -> Result<(), Error> {
        match self.output.write(text) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(answer_lost(&error)),
            _ => Ok(()),
        }
    }

    /// Prints a JSON document.
    pub(super) fn print_json(&mut self, document: &impl Serialize) -> Result<(), Error> {
        let document = serde_json::to_string_pretty(document)
            .map_err(|error| Error::internal(format!("JSON: {error}")))?;
        self.print_document(&format!("{}\n", printable_json(&document)))
    }
}

/// Writes a file with this mode, such as 0600 if only this user may read it. The file replaces an older one in one
/// step, so that it is there as a whole or not at all.
pub(super) fn write_file(path: &Path, content: &str, mode: u32) -> Result<(), Error> {
    let written = replaced_file::put(path, content.as_bytes(), mode);
    written.map_err(|reason| not_written(path, &reason))
}

/// Writes a file that everybody may read, in one step. If it replaces an older one, owner and mode of that stay.
pub(super) fn write_public_file(path: &Path, content: &str) -> Result<(), Error> {
    let written = replaced_file::put_like(path, content.as_bytes(), 0o644);
    written.map_err(|reason| not_written(path, &reason))
}

fn not_written(path: &Path, reason: &io::Error) -> Error {
    Error::new(Exit::Cluster, format!("{} can't be written: {reason}", path.display()))
        .help("name a place where you may write, on a file system with room")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_step_is_folded_between_words_and_nothing_of_it_moves_the_cursor() {
        let text = "https://server knows us as user \"\x1b[2J\", groups dev, ops\nx".to_owned();
        let step = Step { title: "cluster", text };
        assert_eq!(
            step.folded(None),
            "cluster        https://server knows us as user \"\\u{1b}[2J\", groups dev, ops\\u{a}x"
        );
        assert_eq!(
            step.folded(Some(60)),
            "cluster        https://server knows us as user\n                 \"\\u{1b}[2J\", groups dev, ops\\u{a}x"
        );
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_replaces_an_older_one_with_its_own_mode() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("file");
        write_file(&path, "first", 0o644).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        write_file(&path, "second", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let [other, link] = ["other", "link"].map(|name| base.path().join(name));
        fs::write(&other, "kept").unwrap();
        symlink(&other, &link).unwrap();
        write_file(&link, "new", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("directory");
        fs::create_dir_all(directory.join("full")).unwrap();
        let error = write_file(&directory, "text", 0o600).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
        let missing = base.path().join("none/file");
        assert_eq!(write_file(&missing, "text", 0o600).unwrap_err().exit_code(), 9);
    }
}
