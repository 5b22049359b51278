//! A provider of PINs that asks at the client that wants the key opened.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::de::DeserializeOwned;

use super::message::{Conversation, Reply};
use config::pin::{self, Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::Error;
use system::limits;
use system::locked;

/// Has the client ask its PIN source, and report what is waited for. The PIN is sent over this one connection only.
pub(super) struct ClientPins {
    client: Arc<Mutex<Conversation>>,
    origin: PinOrigin,
}

impl ClientPins {
    pub(super) fn new(client: Arc<Mutex<Conversation>>, origin: PinOrigin) -> io::Result<Self> {
        locked(&client).be_patient(limits::CLIENT_PIN)?;
        Ok(Self { client, origin })
    }

    /// Sends a question, and waits for the client's answer; `None` if the client has gone.
    fn ask<T: DeserializeOwned>(&self, question: &Reply<'_>) -> Option<T> {
        self.send(question)?.receive().ok()
    }

    pub(super) fn send(&self, reply: &Reply<'_>) -> Option<MutexGuard<'_, Conversation>> {
        let mut conversation = locked(&self.client);
        conversation.send(reply).ok()?;
        Some(conversation)
    }
}

impl PinProvider for ClientPins {
    fn origin(&mut self) -> PinOrigin {
        self.origin.clone()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        let answer: Option<Result<String, Error>> = self.ask(&Reply::Pin(request.clone()));
        let pin = answer.transpose()?.and_then(|pin| Pin::new(&pin));
        let pin = pin.filter(|pin| request.allows(pin));
        pin.ok_or_else(|| pin::cancelled(&request.token))
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        let answer = self.ask(&Reply::ConfirmAtReader(request.clone()));
        answer.unwrap_or_else(|| Err(pin::cancelled(&request.token)))
    }

    fn at_reader(&mut self, notice: &str) {
        self.send(&Reply::AtReader(notice.to_owned()));
    }
}
