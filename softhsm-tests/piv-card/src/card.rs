//! The commands of ISO 7816 that stand between reader and applet: chaining, answers in pieces, reset.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use heapless::Vec as Buffer;
use iso7816::Status;
use iso7816::command::{Command, CommandView};
use piv_authenticator::{Authenticator, Client};
use rustix::process::{Signal, getpid, kill_process};
use vpicc::{Connection, VSmartCard};

use crate::attestation::Attestations;
use crate::finger::Finger;

/// Enough for a chained certificate and for the longest answer.
const LONGEST: usize = 4096;
/// The class bit of a command that is continued by the next.
const CONTINUED: u8 = 0x10;
const GET_RESPONSE: u8 = 0xc0;
const SELECT: u8 = 0xa4;
/// Selects the applet by its whole name.
const SELECT_PIV: [u8; 16] = [
    0x00, SELECT, 0x04, 0x00, 0x0b, 0xa0, 0x00, 0x00, 0x03, 0x08, 0x00, 0x00, 0x10, 0x00, 0x01,
    0x00,
];
/// Yubico's extension to PIV: the device's serial number.
const GET_SERIAL: u8 = 0xf8;
/// Yubico's: what the card says of a key.
const ATTEST: u8 = 0xf9;
const GET_METADATA: u8 = 0xf7;
/// Where the management key is, and what the card says of it: its algorithm.
const MANAGEMENT_KEY: u8 = 0x9b;
const TRIPLE_DES: [u8; 3] = [0x01, 0x01, 0x03];
const GENERATE: u8 = 0x47;
/// A signature, among others.
const GENERAL_AUTHENTICATE: u8 = 0x87;
/// Yubico's: a key from elsewhere.
const IMPORT: u8 = 0xfe;
const GET_DATA: u8 = 0xcb;
/// The certificate that stands above those of ATTEST.
const ATTESTATION_OBJECT: [u8; 5] = [0x5c, 0x03, 0x5f, 0xff, 0x01];
/// VERIFY that forgets the PIN.
const LOG_OUT: [u8; 4] = [0x00, 0x20, 0xff, 0x80];

pub(crate) struct Card<C> {
    applet: Authenticator<C>,
    serial: u32,
    /// Without a place for them, there are none.
    attestations: Option<Attestations>,
    /// The instruction in this file, where there is one, is not answered.
    stop_at: Option<PathBuf>,
    /// The finger of whoever sits before the card.
    finger: Option<Finger>,
    /// The command so far, while it is being chained.
    chained: Option<Command<LONGEST>>,
    /// What is left of an answer.
    unread: Vec<u8>,
}

impl<C: Client> Card<C> {
    pub(crate) fn new(applet: Authenticator<C>, serial: u32, state: Option<&Path>) -> Self {
        Self {
            applet,
            serial,
            attestations: state.map(|state| Attestations::new(state, serial)),
            stop_at: state.map(|state| state.join("stop-at")),
            finger: state.map(Finger::new),
            chained: None,
            unread: Vec::new(),
        }
    }

    /// Answers until the reader is gone.
    pub(crate) fn serve(mut self, reader: TcpStream) -> io::Result<()> {
        reader.set_nodelay(true)?;
        let mut connection = Connection::from(reader.try_clone()?);
        loop {
            // vpcd sends a length and what it counts apart, and waits with the second until the first
            // has been acknowledged. The kernel forgets this option with each acknowledgement.
            rustix::net::sockopt::set_tcp_quickack(&reader, true)?;
            connection.poll(&mut self)?;
        }
    }

    fn command(&mut self, apdu: &[u8]) -> Result<Vec<u8>, Status> {
        let view = CommandView::try_from(apdu).map_err(|_| Status::WrongLength)?;
        let limit = match view.expected() {
            0 => 256,
            expected if view.extended => expected,
            expected => expected.min(256),
        };
        if apdu[1] == GET_RESPONSE {
            return Ok(self.piece(limit));
        }
        self.unread.clear();
        // VERIFY without a PIN asks for the tries that are left.
        if !view.data().is_empty() {
            self.stop_before(apdu[1]);
        }
        // A name may be shortened, down to its owner's; the applet wants more of it.
        let is_short = apdu[1] == SELECT && apdu[2] == 0x04 && view.data().len() >= 5;
        let apdu =
            if is_short && SELECT_PIV[5..].starts_with(view.data()) { &SELECT_PIV } else { apdu };
        let command = Command::try_from(apdu).map_err(|_| Status::WrongLength)?;
        let command = match self.chained.take() {
            None => command,
            Some(mut begun) => {
                begun.extend_from_command(&command).map_err(|_| Status::NotEnoughMemory)?;
                begun
            }
        };
        if view.class().into_inner() & CONTINUED != 0 {
            self.chained = Some(command);
            return Ok(success(Vec::new()));
        }
        self.unread = match self.own_answer(apdu, command.data())? {
            Some(answer) => answer,
            None => {
                self.await_touch(apdu)?;
                let mut answer = Buffer::<u8, LONGEST>::new();
                self.applet.respond(command.as_view(), &mut answer)?;
                self.note(apdu, command.data(), &answer)?;
                answer.to_vec()
            }
        };
        Ok(self.piece(limit))
    }

    /// The answer to what the applet has none of, or another.
    fn own_answer(&self, apdu: &[u8], data: &[u8]) -> Result<Option<Vec<u8>>, Status> {
        if apdu[1] == GET_SERIAL {
            return Ok(Some(self.serial.to_be_bytes().into()));
        }
        let Some(attestations) = &self.attestations else {
            return Ok(None);
        };
        match apdu[1] {
            ATTEST => {
                let certificate = attestations.certificate(apdu[2]);
                certificate.map(Some).ok_or(Status::NotFound)
            }
            // Newer programs ask which algorithm it has.
            GET_METADATA if apdu[3] == MANAGEMENT_KEY => Ok(Some(TRIPLE_DES.into())),
            GET_METADATA => Ok(attestations.metadata(apdu[3])),
            GET_DATA if data == ATTESTATION_OBJECT => Ok(attestations.issuer()),
            _ => Ok(None),
        }
    }

    /// Waits for a touch, before a key that wants one is used.
    fn await_touch(&self, apdu: &[u8]) -> Result<(), Status> {
        let (Some(attestations), Some(finger)) = (&self.attestations, &self.finger) else {
            return Ok(());
        };
        let is_use = apdu[1] == GENERAL_AUTHENTICATE;
        if !is_use || !attestations.wants_touch(apdu[3]) || finger.touches() {
            return Ok(());
        }
        Err(Status::SecurityStatusNotSatisfied)
    }

    /// Notes down what became of a slot's key.
    fn note(&self, apdu: &[u8], data: &[u8], answer: &[u8]) -> Result<(), Status> {
        let Some(attestations) = &self.attestations else {
            return Ok(());
        };
        match apdu[1] {
            GENERATE => {
                let noted = attestations.generated(apdu[3], data, answer);
                noted.map_err(|error| {
                    eprintln!("{error}");
                    Status::UnspecifiedNonpersistentExecutionError
                })
            }
            IMPORT => {
                attestations.forget(apdu[3]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn stop_before(&self, instruction: u8) {
        let Some(file) = &self.stop_at else { return };
        let wanted = fs::read_to_string(file).unwrap_or_default();
        if wanted.trim() == format!("{instruction:02x}") {
            let _ = fs::remove_file(file);
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// The next piece of the answer, and whether there is more.
    fn piece(&mut self, limit: usize) -> Vec<u8> {
        let rest = self.unread.split_off(limit.min(self.unread.len()));
        let mut piece = std::mem::replace(&mut self.unread, rest);
        match u8::try_from(self.unread.len()) {
            Ok(0) => success(piece),
            // 0 stands for 256 and more.
            more => {
                piece.extend([0x61, more.unwrap_or(0)]);
                piece
            }
        }
    }
}

fn success(mut answer: Vec<u8>) -> Vec<u8> {
    answer.extend([0x90, 0x00]);
    answer
}

impl<C: Client> VSmartCard for Card<C> {
    fn power_off(&mut self) {
        self.reset();
    }

    fn reset(&mut self) {
        self.chained = None;
        // A card without keys has no PIN to forget.
        let _ = self.command(&LOG_OUT);
    }

    fn execute(&mut self, apdu: &[u8]) -> Vec<u8> {
        self.command(apdu).unwrap_or_else(|status| <[u8; 2]>::from(status).into())
    }
}
