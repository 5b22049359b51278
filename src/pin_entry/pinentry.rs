//! The dialogue with pinentry, in GnuPG's Assuan protocol: commands and answers, line by line.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use percent_encoding::percent_decode;

use super::first_line;
use config::pin::{Pin, PinRequest};
use messages::printable::printable;

/// The longest line of the protocol, in bytes.
const LINE: u64 = 1000;

/// The codes of the errors by which pinentry says that a person gives no PIN: GPG_ERR_TIMEOUT, CANCELED, NOT_CONFIRMED
/// and FULLY_CANCELED.
const CANCELLED: [u32; 4] = [62, 99, 114, 198];

/// Has pinentry ask for the PIN; `None` if a person has given none. An error if nobody can talk with the program, or it
/// can't ask.
pub(super) fn ask(
    request: &PinRequest<'_>,
    has_terminal: bool,
    input: impl Write,
    output: impl Read,
) -> io::Result<Option<Pin>> {
    let description = format!("Token {}\n{}", printable(&request.token), printable(&request.what));
    let mut dialog = Dialog { input, output: BufReader::new(output) };
    let _ = dialog.reply()?;
    if has_terminal {
        dialog.set("OPTION", "ttyname=/dev/tty")?;
        for (option, variable) in [("ttytype", "TERM"), ("lc-ctype", "LC_ALL")] {
            if let Some(value) = std::env::var_os(variable) {
                dialog.set("OPTION", &format!("{option}={}", value.to_string_lossy()))?;
            }
        }
    }
    dialog.set("SETTITLE", "pkcs11-external-signer")?;
    if let Some(question) = &request.confirm {
        dialog.set("SETDESC", &format!("{question}\n\n{description}"))?;
        if dialog.ask("CONFIRM")?.is_none() {
            return Ok(None);
        }
    }
    dialog.set("SETDESC", &description)?;
    dialog.set("SETPROMPT", "PIN")?;
    if let Some(notice) = &request.notice {
        dialog.set("SETERROR", &printable(notice))?;
    }
    let data = dialog.ask("GETPIN")?;
    Ok(data.and_then(|data| first_line(&data)))
}

/// pinentry's answer to a command.
enum AssuanReply {
    /// The command was carried out. The data of the `D` lines is decoded: for GETPIN, it is what the person has typed.
    Ok(Vec<u8>),
    /// The command has failed. This is the line that begins with `ERR`.
    Err(String),
}

struct Dialog<I, O> {
    input: I,
    output: BufReader<O>,
}

impl<I: Write, O: Read> Dialog<I, O> {
    /// Changes a setting. A pinentry of another kind may not know it.
    fn set(&mut self, command: &str, value: &str) -> io::Result<()> {
        self.send(&format!("{command} {}", escaped(value))).map(drop)
    }

    /// Has a person answer the command; `None` if they have cancelled it.
    fn ask(&mut self, command: &str) -> io::Result<Option<Vec<u8>>> {
        let line = match self.send(command)? {
            AssuanReply::Ok(data) => return Ok(Some(data)),
            AssuanReply::Err(line) => line,
        };
        // The upper half of the number says which program has answered.
        let number = line.split(' ').nth(1).and_then(|number| number.parse::<u32>().ok());
        if number.is_some_and(|number| CANCELLED.contains(&(number & 0xffff))) {
            Ok(None)
        } else {
            Err(io::Error::other(format!("it answered {line}")))
        }
    }

    fn send(&mut self, command: &str) -> io::Result<AssuanReply> {
        self.input.write_all(format!("{command}\n").as_bytes())?;
        self.input.flush()?;
        self.reply()
    }

    /// Reads up to the line that ends the answer. Lines of other kinds are passed over.
    fn reply(&mut self) -> io::Result<AssuanReply> {
        let mut data = Vec::new();
        loop {
            let line = self.line()?;
            if let Some(piece) = line.strip_prefix(b"D ") {
                // Data that doesn't fit is too long for a PIN anyway.
                data.extend(percent_decode(piece).take(LINE as usize - data.len()));
            } else if line.starts_with(b"OK") {
                return Ok(AssuanReply::Ok(data));
            } else if line.starts_with(b"ERR") {
                return Ok(AssuanReply::Err(String::from_utf8_lossy(&line).into_owned()));
            }
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.output.by_ref().take(LINE).read_until(b'\n', &mut line)?;
        match line.pop() {
            Some(b'\n') => Ok(line),
            Some(_) => Err(io::Error::other("it does not speak pinentry's protocol")),
            None => Err(io::Error::other("it ended before it had answered")),
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    // A backslash at the end of the line would ask for another line.
    if escaped.ends_with('\\') {
        escaped.pop();
        escaped.push_str("%5C");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(notice: Option<&'a str>, confirm: Option<&'a str>) -> PinRequest<'a> {
        PinRequest {
            token: "\"100%\" (serial x, slotId 1)".into(),
            label: "100%".into(),
            what: "the key\nof jane".into(),
            shortest: 4,
            longest: 8,
            notice: notice.map(Into::into),
            confirm: confirm.map(Into::into),
        }
    }

    /// The PIN, and what was said.
    fn talk(request: &PinRequest<'_>, answers: &str) -> (Option<String>, String) {
        let mut sent = Vec::new();
        let pin = ask(request, false, &mut sent, answers.as_bytes()).unwrap();
        (pin.map(|pin| pin.expose().to_owned()), String::from_utf8(sent).unwrap())
    }

    #[test]
    fn a_pin_is_asked_for_its_token_and_decoded() {
        let answers = "OK Pleased\n# hello\nOK\nOK\nS UNKNOWN x\nOK\nD 12%253\nD 4\nOK\n";
        let (pin, sent) = talk(&request(None, None), answers);
        assert_eq!(pin.as_deref(), Some("12%34"));
        assert_eq!(
            sent,
            "SETTITLE pkcs11-external-signer\n\
             SETDESC Token \"100%25\" (serial x, slotId 1)%0Athe key\\u{a}of jane\nSETPROMPT PIN\nGETPIN\n"
        );
    }

    #[test]
    fn who_cancels_gives_no_pin_and_a_final_try_wants_a_yes() {
        let cancelled = "OK\nOK\nOK\nOK\nOK\nERR 83886179 Operation cancelled <Pinentry>\n";
        assert_eq!(talk(&request(Some("wrong"), None), cancelled).0, None);
        let (pin, sent) = talk(&request(None, Some("Last try?")), "OK\nOK\nOK\nERR 83886194 no\n");
        assert_eq!(pin, None);
        assert!(sent.ends_with("CONFIRM\n"), "{sent}");
        let yes = "OK\nOK\nOK\nOK\nOK\nOK\nD 1234\nOK\n";
        let (pin, _) = talk(&request(None, Some("Last try?")), yes);
        assert_eq!(pin.as_deref(), Some("1234"));
    }

    #[test]
    fn only_a_persons_no_is_taken_for_one() {
        let outcome = |confirm, answers: &str| {
            let request = request(None, confirm);
            ask(&request, false, Vec::new(), answers.as_bytes())
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
        let request = request(None, None);
        for answers in ["", "OK\n", &"x".repeat(2 * LINE as usize)] {
            assert!(ask(&request, false, Vec::new(), answers.as_bytes()).is_err());
        }
    }
}
