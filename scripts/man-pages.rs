//! Writes the manual pages of all commands: `cargo run --example man-pages DIRECTORY`, in the checkout.
//!
//! Options and examples are those of `--help`; exit status, configuration, environment and files are the
//! tables of docs/errors.md, docs/configuration.md and docs/commands.md. The date is that of SOURCE_DATE_EPOCH, or today.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use time::OffsetDateTime;

const PROGRAM: &str = env!("CARGO_PKG_NAME");

fn main() -> io::Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("say which directory to write to"))?;
    fs::create_dir_all(&directory)?;
    let mut command = pkcs11_external_signer::cli::command().disable_help_subcommand(true);
    command.build();
    let shared = Shared::read()?;
    let pages: Vec<_> = [&command]
        .into_iter()
        .chain(command.get_subcommands().filter(|it| !it.is_hide_set()))
        .collect();
    let names: Vec<_> = pages.iter().map(|it| name(it)).collect();
    for page in pages {
        let others = names.iter().filter(|other| *other != &name(page));
        let text = shared.page(page, &others.map(String::as_str).collect::<Vec<_>>())?;
        fs::write(directory.join(format!("{}.1", name(page))), text)?;
    }
    Ok(())
}

/// As the page is called: `pkcs11-external-signer-run`.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// What all pages have.
struct Shared {
    date: String,
    exit_status: String,
    /// The program's own page alone has it.
    configuration: String,
    environment: String,
    files: String,
}

impl Shared {
    fn read() -> io::Result<Self> {
        let document = |path: &str| {
            let in_checkout =
                |error| io::Error::other(format!("{path}: {error} (run it in the checkout)"));
            fs::read_to_string(path).map_err(in_checkout)
        };
        let errors = document("docs/errors.md")?;
        let configuration = document("docs/configuration.md")?;
        let commands = document("docs/commands.md")?;
        let seconds = std::env::var_os("SOURCE_DATE_EPOCH");
        let moment = seconds
            .and_then(|seconds| {
                OffsetDateTime::from_unix_timestamp(seconds.to_str()?.parse().ok()?).ok()
            })
            .unwrap_or_else(OffsetDateTime::now_utc);
        let section = |text, heading| {
            let found = entries(text, heading);
            let missing = || io::Error::other(format!("no table under {heading}"));
            (!found.is_empty()).then_some(found).ok_or_else(missing)
        };
        Ok(Self {
            date: moment.date().to_string(),
            exit_status: section(&errors, "# Errors and exit codes")?,
            configuration: [
                section(&configuration, "## Keys of the kubeconfig entry")?,
                ".PP\nA PIN, by the value of pinSource:\n".to_owned(),
                section(&configuration, "## Where the PIN comes from")?,
            ]
            .concat(),
            environment: section(&commands, "## Environment")?,
            files: section(&commands, "## Files")?,
        })
    }

    fn page(&self, command: &Command, others: &[&str]) -> io::Result<String> {
        let is_program = !command.get_bin_name().unwrap_or_default().contains(' ');
        // The program's own description is a paragraph.
        let summary = match command.get_about() {
            Some(about) if !is_program => about.to_string(),
            _ => env!("CARGO_PKG_DESCRIPTION").to_owned(),
        };
        let man = Man::new(command.clone().subcommand_help_heading("COMMANDS"))
            .title(name(command))
            .date(&*self.date)
            .source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
            .manual("User Commands");
        let mut page = Page::default();
        page.rendered(|it| man.render_title(it))?;
        // Names are to be read and copied whole.
        page.text(".nh\n");
        page.section("NAME", &format!("{} \\- {}", escaped(&name(command)), escaped(&summary)));
        page.section("SYNOPSIS", &synopsis(command));
        page.rendered(|it| man.render_description_section(it))?;
        let help = command.get_after_long_help().or_else(|| command.get_after_help());
        let help = help.map(ToString::to_string);
        let mut examples = String::new();
        for paragraph in help.unwrap_or_default().split("\n\n") {
            match paragraph.trim_end().split_once(":\n") {
                Some(("Examples", lines)) => examples = as_it_stands(lines),
                Some((heading, lines)) if lines.starts_with("  ") => {
                    page.section(&heading.to_uppercase(), &as_it_stands(lines));
                }
                // They have sections of their own.
                _ if paragraph.starts_with("Exit codes") => {}
                _ => page.paragraph(&lines(paragraph)),
            }
        }
        page.rendered(|it| man.render_options_section(it))?;
        if command.has_subcommands() {
            page.rendered(|it| man.render_subcommands_section(it))?;
        }
        if is_program {
            page.section("CONFIGURATION", &self.configuration);
        }
        page.section("EXIT STATUS", &self.exit_status);
        page.text(
            ".PP\nA run that has started its command ends with the command\\(aqs exit code.\n",
        );
        page.section("ENVIRONMENT", &self.environment);
        page.section("FILES", &self.files);
        if !examples.is_empty() {
            page.section("EXAMPLES", &examples);
        }
        let others: Vec<_> =
            others.iter().map(|other| format!("\\fB{}\\fR(1)", escaped(other))).collect();
        page.section("SEE ALSO", &others.join(",\n"));
        Ok(page.text)
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn section(&mut self, heading: &str, body: &str) {
        self.text(&format!(".SH {heading}\n{}\n", body.trim_end()));
    }

    /// A part that clap_mangen has written, without empty lines, which would end a paragraph, and
    /// without the definition of an apostrophe that each has.
    fn rendered(
        &mut self,
        render: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut part = Vec::new();
        render(&mut part)?;
        let part = String::from_utf8_lossy(&part);
        let mut last = "";
        for line in part.lines() {
            // Before an option's possible values, it breaks the line twice.
            let is_repeated = line == ".br" && last == line;
            if !line.is_empty() && !line.contains(".ds Aq ") && !is_repeated {
                last = line;
                self.text(&line.replace(r"\*(Aq", r"\(aq"));
                self.text("\n");
            }
        }
        Ok(())
    }

    fn paragraph(&mut self, body: &str) {
        if !body.trim().is_empty() {
            self.text(&format!(".PP\n{}\n", body.trim_end()));
        }
    }
}

/// All options by their names and what they take.
fn synopsis(command: &Command) -> String {
    let mut text = format!("\\fB{}\\fR", escaped(command.get_bin_name().unwrap_or(PROGRAM)));
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    let (positional, options): (Vec<_>, Vec<_>) = shown.partition(|it| it.is_positional());
    for argument in options.into_iter().chain(positional) {
        text.push('\n');
        text.push_str(&usage(argument));
    }
    if command.has_subcommands() {
        text.push_str("\n\\fICOMMAND\\fR");
    }
    text
}

fn usage(argument: &Arg) -> String {
    let range = argument.get_num_args().unwrap_or_default();
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<_> = values.iter().map(|it| format!("\\fI{it}\\fR")).collect();
    let values = values.join(" ");
    let more = if range.max_values() > 1 || matches!(argument.get_action(), ArgAction::Count) {
        "..."
    } else {
        ""
    };
    let Some(option) = argument
        .get_long()
        .map(|it| format!("--{it}"))
        .or_else(|| argument.get_short().map(|it| format!("-{it}")))
    else {
        return match argument.is_required_set() {
            true => format!("{values}{more}"),
            false => format!("[{values}]{more}"),
        };
    };
    let option = format!("\\fB{}\\fR", escaped(&option));
    match (range.takes_values(), range.min_values()) {
        (false, _) => format!("[{option}]{more}"),
        (true, 0) => format!("[{option}[={values}]]"),
        (true, _) => format!("[{option} {values}]"),
    }
}

/// The rows of the table under a heading of Markdown: the first column, and what the second says of it.
fn entries(document: &str, heading: &str) -> String {
    let (_, section) = document.split_once(&format!("{heading}\n")).unwrap_or_default();
    section
        .lines()
        .skip_while(|line| !line.starts_with("|-"))
        .skip(1)
        .take_while(|line| line.starts_with("| "))
        .filter_map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            Some((cells.next()?, cells.next()?))
        })
        .map(|(key, meaning)| format!(".TP\n{}\n{}\n", inline(key), inline(meaning)))
        .collect()
}

/// Markdown's code and links, within a line.
fn inline(text: &str) -> String {
    let mut linked = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        let (before, name) = before.rsplit_once('[').unwrap_or((before, ""));
        linked.push_str(before);
        linked.push_str(name);
        rest = link.split_once(')').map_or("", |(_, rest)| rest);
    }
    linked.push_str(rest);
    let parts = linked.split('`').map(escaped).enumerate();
    let parts = parts.map(|(number, part)| match number % 2 {
        1 => format!("\\fB{part}\\fR"),
        _ => part,
    });
    at_line_start(&parts.collect::<String>())
}

/// What is there to be copied: its lines aren't filled, which would break and hyphenate them, and
/// its tildes and carets are the keyboard's.
fn as_it_stands(text: &str) -> String {
    format!(".nf\n{}.fi\n", lines(text))
}

fn lines(text: &str) -> String {
    text.lines().map(|line| at_line_start(&escaped(line)) + "\n").collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\e")
        .replace('-', r"\-")
        .replace('\'', r"\(aq")
        .replace('`', r"\(ga")
        .replace('~', r"\(ti")
        .replace('^', r"\(ha")
}

/// A dot would make it a request.
fn at_line_start(line: &str) -> String {
    match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}
