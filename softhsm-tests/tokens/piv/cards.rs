//! Cards in a reader, as `scripts/tokens/piv` makes them, and what can be done with them.

use std::thread::sleep;

use super::super::environment::{Environment, Token};
use crate::fixture::*;

pub(super) const PIN: &str = "123456";
pub(super) const WRONG_PIN: &str = "654321";

/// The libraries by the variables that name them.
pub(super) const OPENSC: &str = "OPENSC_MODULE";
pub(super) const YKCS11: &str = "YKCS11_MODULE";
pub(super) const LIBRARIES: [&str; 2] = [OPENSC, YKCS11];

/// The keys of both cards: objectId, the slot's name, and what is in it.
pub(super) const SLOTS: [(&str, &str, [Kind; 2]); 4] = [
    ("1", "9a", [Kind::Rsa(2048), Kind::P256]),
    ("2", "9c", [Kind::P256, Kind::Rsa(2048)]),
    ("3", "9d", [Kind::P384, Kind::Rsa(2048)]),
    ("4", "9e", [Kind::Rsa(2048), Kind::P256]),
];

/// What a card can be asked for (SP 800-73-4, part 2).
#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction {
    /// With a PIN.
    Verify = 0x20,
    /// A signature.
    GeneralAuthenticate = 0x87,
}

/// What the program and PC/SC need of the script's environment.
const VARIABLES: &[&str] = &["PCSCLITE_CSOCK_NAME", "TOKEN_PIN"];

/// A reader with room for two cards.
pub(super) struct Cards {
    pub(super) environment: Environment,
}

impl Cards {
    /// So many cards in the reader, fresh copies of the same two.
    pub(super) fn inserted(count: usize) -> Self {
        let state = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-r").arg(made().join(".")).arg(state.path()).status();
        assert!(copied.unwrap().success());
        Self::of(state, count)
    }

    /// One card whose certificates are of this authority.
    pub(super) fn issued_by([certificate, key]: [PathBuf; 2]) -> Self {
        let state = tempfile::tempdir().unwrap();
        fs::copy(certificate, state.path().join("ca.pem")).unwrap();
        fs::copy(key, state.path().join("ca.key")).unwrap();
        Self::of(state, 1)
    }

    fn of(directory: tempfile::TempDir, count: usize) -> Self {
        let state = directory.path().to_str().unwrap().to_owned();
        let count = count.to_string();
        let store = Store { directory, tokens: Vec::new() };
        let arguments = ["--state", &state, "--cards", &count];
        let environment = Environment::with(&[("TOKEN_PIN", PIN)], "piv", &arguments, &[], store);
        Self { environment }
    }

    /// Card 1 or 2 through this library.
    pub(super) fn token(&self, library: &str, card: usize) -> Token<'_> {
        Token {
            environment: &self.environment,
            variables: VARIABLES,
            configuration: Configuration::default()
                .with("pathLib", self.environment.variable(library))
                .with("tokenSerial", &serial(library, card)),
        }
    }

    /// The key of card 1 or 2 in this slot.
    pub(super) fn key(&self, card: usize, slot: &str) -> Key {
        let (_, _, kinds) = SLOTS.iter().find(|(_, name, _)| *name == slot).unwrap();
        Key::on_token(kinds[card - 1], self.directory(card).join(slot))
    }

    /// Puts another certificate, in DER, into a slot of card 1.
    pub(super) fn certify(&self, slot: &str, certificate: &[u8]) {
        let file = self.environment.store.path("certificate.der");
        fs::write(&file, certificate).unwrap();
        let input = ["--key-format", "DER", "--input", file.to_str().unwrap()];
        let import = ["--slot", slot, "--action", "import-certificate"];
        self.yubico_piv_tool(1, &[import, input].concat());
    }

    pub(super) fn enter(&self, invocation: Invocation) -> Invocation {
        self.environment.enter(invocation, VARIABLES)
    }

    /// Takes card 1 or 2 out of the reader.
    pub(super) fn pull(&self, card: usize) {
        self.script("pull", card);
    }

    /// The card stops before it answers this instruction, and from then on answers nothing.
    pub(super) fn stop_at(&self, card: usize, instruction: Instruction) {
        let file = self.directory(card).join("card/stop-at");
        fs::write(file, format!("{:02x}", instruction as u8)).unwrap();
    }

    /// From now on nobody touches the card, except by [`touch`](Self::touch).
    pub(super) fn take_finger_away(&self, card: usize) {
        fs::create_dir(self.finger(card)).unwrap();
    }

    /// Touches it once, when it waits for that.
    #[track_caller]
    pub(super) fn touch(&self, card: usize) {
        let finger = self.finger(card);
        wait_until("the card waits for a touch", || finger.join("awaited").exists());
        fs::write(finger.join("touch"), "").unwrap();
    }

    fn finger(&self, card: usize) -> PathBuf {
        self.directory(card).join("card/finger")
    }

    /// Takes it out of the reader when it has stopped.
    #[track_caller]
    pub(super) fn pull_stopped(&self, card: usize) {
        let inserted = self.directory(card).join("inserted");
        let pid = fs::read_to_string(&inserted).unwrap();
        let process = format!("/proc/{}/stat", pid.trim());
        wait_until("the card was asked", || fs::read_to_string(&process).unwrap().contains(") T "));
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        fs::remove_file(inserted).unwrap();
        // pcscd takes a card for absent that is back, or asked for, before it has looked again.
        sleep(Duration::from_secs(2));
    }

    /// The certificate above those by which card 1 or 2 attests its keys.
    pub(super) fn attestation_root(&self, card: usize) -> PathBuf {
        self.directory(card).join("card/attestation/root.pem")
    }

    fn directory(&self, card: usize) -> PathBuf {
        Path::new(self.environment.variable("PIV_STATE")).join(card.to_string())
    }

    /// Puts it in.
    pub(super) fn insert(&self, card: usize) {
        self.script("insert", card);
    }

    /// Gives a locked PIN its tries back, by the PUK.
    pub(super) fn unblock(&self, card: usize) {
        let puk = ["--pin", "12345678", "--new-pin", PIN];
        self.yubico_piv_tool(card, &[&["--action", "unblock-pin"], &puk[..]].concat());
    }

    /// What the owner of card 1 or 2 does with Yubico's tool.
    pub(super) fn yubico_piv_tool(&self, card: usize, arguments: &[&str]) {
        let reader = format!("Yubico YubiKey (virtual) 00 0{}", card - 1);
        let mut tool = tool("yubico-piv-tool", "yubico-piv-tool");
        tool.args(["--reader", &reader]).args(arguments);
        let socket = "PCSCLITE_CSOCK_NAME";
        printed(tool.env(socket, self.environment.variable(socket)));
    }

    fn script(&self, action: &str, card: usize) {
        let mut script = Command::new(script());
        script.args([action, &card.to_string()]);
        for name in ["PCSCLITE_CSOCK_NAME", "PIV_STATE"] {
            script.env(name, self.environment.variable(name));
        }
        printed(&mut script);
    }
}

/// What the library says is the serial number of card 1 or 2.
pub(super) fn serial(library: &str, card: usize) -> String {
    match library {
        OPENSC => format!("6c20636100f235{:02x}", 0xaf + card),
        _ => (15_873_455 + card).to_string(),
    }
}

fn script() -> PathBuf {
    at_root("scripts/tokens/piv")
}

/// Two cards, made once: their keys take seconds.
fn made() -> &'static Path {
    static MADE: LazyLock<PathBuf> = LazyLock::new(|| {
        let place = at_target("piv-cards-4");
        if !place.exists() {
            let state = tempfile::tempdir_in(place.parent().unwrap()).unwrap();
            let mut script = Command::new(script());
            let made = script.arg("--state").arg(state.path()).args(["--cards", "2", "true"]);
            assert!(made.status().unwrap().success());
            // Where another run was faster, its cards are taken and these dropped.
            let _ = fs::rename(state.path(), &place);
        }
        place
    });
    &MADE
}
