//! A PIV card in software, for the tests: the `piv-authenticator` applet behind the reader that
//! Debian's `vsmartcard-vpcd` adds to pcscd. `scripts/tokens/piv` sets both up.
//!
//!     piv-card [--state DIRECTORY] [--port PORT] [--serial NUMBER]
//!
//! Without `--state` the card forgets everything at its end. When it is asked for the instruction (two hexadecimal
//! digits) in DIRECTORY/stop-at, it stops (SIGSTOP) before it answers, and removes the file.
//! DIRECTORY/attestation/root.pem is the root of the attestation certificates of its keys. vpcd's reader has a port for
//! each of its two slots: 35963, the default, and the next one. Killing this program pulls the card.

mod attestation;
mod card;
mod finger;
mod system;

use std::error::Error;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use piv_authenticator::{Authenticator, Options};
use trussed::virt::{StorageConfig, StoreConfig};

/// pcscd may still be on its way up, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

struct Arguments {
    state: Option<PathBuf>,
    port: u16,
    serial: u32,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = Self { state: None, port: vpicc::DEFAULT_PORT, serial: 0x0052_f743 };
        while let Some(name) = words.next() {
            let value = words.next().ok_or(format!("{name}: no value"))?;
            match name.as_str() {
                "--state" => arguments.state = Some(value.into()),
                "--port" => arguments.port = value.parse()?,
                "--serial" => arguments.serial = value.parse()?,
                _ => return Err(format!("{name}: unknown").into()),
            }
        }
        Ok(arguments)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let mut store = StoreConfig::ram();
    let state = arguments.state;
    if let Some(directory) = &state {
        std::fs::create_dir_all(directory)?;
        store.internal = StorageConfig::filesystem(directory.join("internal"));
        store.external = StorageConfig::filesystem(directory.join("external"));
    }
    let mut uuid = *b"a virtual card..";
    uuid[12..].copy_from_slice(&arguments.serial.to_be_bytes());
    let reader = connect(arguments.port)?;
    system::run(store, |client| {
        let applet = Authenticator::new(client, Options::new().uuid(Some(uuid)));
        card::Card::new(applet, arguments.serial, state.as_deref()).serve(reader)
    })?;
    Ok(())
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}
