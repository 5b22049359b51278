//! The dialogue with pinentry, in GnuPG's Assuan protocol: commands and answers, line by line.

use std::io::{self, Read, Write};
use std::process::Child;

use super::file::first_line;
use crate::pin::{Pin, PinRequest};
use crate::printable::printable;

/// The longest line of the protocol.
const LINE: usize = 1000;

/// What is to be said and asked, made before anything is started.
pub(super) struct Dialog {
    description: String,
    error: Option<String>,
    confirm: Option<String>,
    has_terminal: bool,
}

/// What an answer ends with.
enum End {
    Fine,
    /// The person has cancelled, said no, or said nothing.
    Left,
    /// It could not be done, for the reason in this line.
    Failed(String),
}

/// What people do, as libgpg-error numbers it: GPG_ERR_TIMEOUT, CANCELED, NOT_CONFIRMED and
/// FULLY_CANCELED.
const LEFT: [u32; 4] = [62, 99, 114, 198];

impl Dialog {
    pub(super) fn new(request: &PinRequest<'_>, has_terminal: bool) -> Self {
        Self {
            description: format!(
                "Token {}\n{}",
                printable(request.token),
                printable(request.key)
            ),
            error: request.notice.map(|text| printable(text).into_owned()),
            confirm: request.confirm.map(str::to_owned),
            has_terminal,
        }
    }

    /// The PIN; `None` where a person has given none.
    pub(super) fn hold(&self, child: &mut Child) -> io::Result<Option<Pin>> {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        self.hold_with(input, output)
    }

    fn hold_with(&self, input: impl Write, output: impl Read) -> io::Result<Option<Pin>> {
        let mut talk = Talk { input, output };
        talk.answer(&mut Vec::new())?;
        if self.has_terminal {
            talk.option("ttyname", "/dev/tty")?;
            for (option, variable) in [("ttytype", "TERM"), ("lc-ctype", "LC_ALL")] {
                if let Some(value) = std::env::var_os(variable) {
                    talk.option(option, &value.to_string_lossy())?;
                }
            }
        }
        talk.say("SETTITLE", "pkcs11-external-signer")?;
        if let Some(question) = &self.confirm {
            talk.say("SETDESC", &format!("{question}\n\n{}", self.description))?;
            if !talk.ask("CONFIRM", &mut Vec::new())?.went_along()? {
                return Ok(None);
            }
        }
        talk.say("SETDESC", &self.description)?;
        talk.say("SETPROMPT", "PIN")?;
        if let Some(error) = &self.error {
            talk.say("SETERROR", error)?;
        }
        let mut data = Vec::new();
        let is_given = talk.ask("GETPIN", &mut data)?.went_along()?;
        Ok(is_given.then(|| first_line(&data)).flatten())
    }
}

impl End {
    /// `ERR`, the number and some words. The number's upper half says who speaks.
    fn of_error(line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line).into_owned();
        let number = text.split(' ').nth(1).and_then(|it| it.parse::<u32>().ok());
        match number {
            Some(number) if LEFT.contains(&(number & 0xffff)) => Self::Left,
            _ => Self::Failed(text),
        }
    }

    /// Whether the person went along.
    fn went_along(self) -> io::Result<bool> {
        match self {
            Self::Fine => Ok(true),
            Self::Left => Ok(false),
            Self::Failed(line) => Err(io::Error::other(format!("it answered {line}"))),
        }
    }
}

struct Talk<I, O> {
    input: I,
    output: O,
}

impl<I: Write, O: Read> Talk<I, O> {
    /// A setting that a pinentry of another kind may not know.
    fn option(&mut self, name: &str, value: &str) -> io::Result<()> {
        let command = format!("OPTION {name}={}", escaped(value));
        self.ask(&command, &mut Vec::new()).map(drop)
    }

    fn say(&mut self, command: &str, text: &str) -> io::Result<()> {
        let command = format!("{command} {}", escaped(text));
        self.ask(&command, &mut Vec::new()).map(drop)
    }

    fn ask(&mut self, command: &str, data: &mut Vec<u8>) -> io::Result<End> {
        self.input.write_all(format!("{command}\n").as_bytes())?;
        self.input.flush()?;
        self.answer(data)
    }

    /// Up to OK or ERR; what is neither that nor data says nothing to us.
    fn answer(&mut self, data: &mut Vec<u8>) -> io::Result<End> {
        loop {
            let line = self.line()?;
            if let Some(piece) = line.strip_prefix(b"D ") {
                decode(piece, data);
            } else if line.starts_with(b"OK") {
                return Ok(End::Fine);
            } else if line.starts_with(b"ERR") {
                return Ok(End::of_error(&line));
            }
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LINE {
            if self.output.read(&mut byte)? == 0 {
                return Err(io::Error::other("it ended before it had answered"));
            }
            if byte == *b"\n" {
                return Ok(line);
            }
            line.extend(byte);
        }
        Err(io::Error::other("it does not speak pinentry's protocol"))
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = text
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    // At its end, a backslash would ask for another line.
    if escaped.ends_with('\\') {
        escaped.pop();
        escaped.push_str("%5C");
    }
    escaped
}

/// Appends the bytes; what doesn't fit any more is no PIN anyway.
fn decode(piece: &[u8], data: &mut Vec<u8>) {
    let mut rest = piece.iter().copied();
    while let Some(byte) = rest.next() {
        let byte = if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            match (digit(), digit()) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                _ => return,
            }
        } else {
            byte
        };
        if data.len() < LINE {
            data.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(notice: Option<&'a str>, confirm: Option<&'a str>) -> PinRequest<'a> {
        PinRequest {
            token: "\"100%\" (serial x, slotId 1)",
            key: "the key\nof jane",
            shortest: 4,
            longest: 8,
            notice,
            confirm,
        }
    }

    /// The PIN, and what was said.
    fn talk(request: &PinRequest<'_>, answers: &str) -> (Option<String>, String) {
        let mut said = Vec::new();
        let pin = Dialog::new(request, false)
            .hold_with(&mut said, answers.as_bytes())
            .unwrap();
        (
            pin.map(|pin| pin.expose().to_owned()),
            String::from_utf8(said).unwrap(),
        )
    }

    #[test]
    fn a_pin_is_asked_for_its_token_and_decoded() {
        let answers = "OK Pleased\n# hello\nOK\nOK\nS UNKNOWN x\nOK\nD 12%253%0\nD 4\nOK\n";
        let (pin, said) = talk(&request(None, None), answers);
        assert_eq!(pin.as_deref(), Some("12%34"));
        assert_eq!(
            said,
            "SETTITLE pkcs11-external-signer\n\
             SETDESC Token \"100%25\" (serial x, slotId 1)%0Athe key\\u{a}of jane\nSETPROMPT PIN\nGETPIN\n"
        );
    }

    #[test]
    fn who_cancels_gives_no_pin_and_a_final_try_wants_a_yes() {
        let cancelled = "OK\nOK\nOK\nOK\nOK\nERR 83886179 Operation cancelled <Pinentry>\n";
        assert_eq!(talk(&request(Some("wrong"), None), cancelled).0, None);
        let (pin, said) = talk(
            &request(None, Some("Last try?")),
            "OK\nOK\nOK\nERR 83886194 no\n",
        );
        assert_eq!(pin, None);
        assert!(said.ends_with("CONFIRM\n"), "{said}");
        let yes = "OK\nOK\nOK\nOK\nOK\nOK\nD 1234\nOK\n";
        let (pin, _) = talk(&request(None, Some("Last try?")), yes);
        assert_eq!(pin.as_deref(), Some("1234"));
    }

    #[test]
    fn only_a_persons_no_is_taken_for_one() {
        let outcome = |confirm, answers: &str| {
            let dialog = Dialog::new(&request(None, confirm), false);
            dialog.hold_with(Vec::new(), answers.as_bytes())
        };
        for left in ["83886142", "83886179", "83886194", "83886278", "99"] {
            let answers = format!("OK\nOK\nOK\nOK\nERR {left} left <Pinentry>\n");
            assert!(outcome(None, &answers).unwrap().is_none());
        }
        for failure in ["83918950 Inappropriate ioctl for device", "cancelled", ""] {
            let answers = format!("OK\nOK\nOK\nOK\nERR {failure}\n");
            let error = outcome(None, &answers).unwrap_err().to_string();
            assert!(error.ends_with(failure), "{error}");
        }
        // Nor is one that can't ask the question.
        let answers = "OK\nOK\nOK\nERR 536871187 Unknown IPC command\n";
        assert!(outcome(Some("Last try?"), answers).is_err());
    }

    #[test]
    fn what_is_no_pinentry_is_an_error() {
        let dialog = Dialog::new(&request(None, None), false);
        for answers in ["", "OK\n", &"x".repeat(2 * LINE)] {
            assert!(dialog.hold_with(Vec::new(), answers.as_bytes()).is_err());
        }
    }
}
