//! The PIN of a key, asked for at the client that wants the key opened.

use std::sync::{Arc, Mutex, MutexGuard};

use super::message::{Answer, Conversation, Question, Reply};
use crate::error::Error;
use crate::pin::{self, Pin, PinOrigin, PinProvider, PinRequest};
use crate::process::locked;

/// Has the client's PIN source asked, and has the client say what is waited for. The PIN crosses this one connection.
pub(super) struct ClientPins(pub(super) Arc<Mutex<Conversation>>);

impl ClientPins {
    /// The client's answer; `None` if it has gone.
    fn ask(&self, question: Question) -> Option<Answer> {
        self.send(&Reply::Question(question))?.receive().ok()
    }

    pub(super) fn send(&self, reply: &Reply) -> Option<MutexGuard<'_, Conversation>> {
        let mut conversation = locked(&self.0);
        conversation.send(reply).ok()?;
        Some(conversation)
    }
}

fn gone(request: &PinRequest<'_>) -> Error {
    pin::cancelled(request.token)
}

impl PinProvider for ClientPins {
    fn origin(&mut self) -> PinOrigin {
        match self.ask(Question::Origin) {
            Some(Answer::Origin(origin)) => origin,
            _ => PinOrigin::Person,
        }
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        match self.ask(Question::Pin(request.into())) {
            Some(Answer::Pin(answer)) => {
                Pin::new(&answer?).filter(|pin| request.allows(pin)).ok_or_else(|| gone(request))
            }
            _ => Err(gone(request)),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        match self.ask(Question::ConfirmAtReader(request.into())) {
            Some(Answer::ConfirmAtReader(answer)) => answer,
            _ => Err(gone(request)),
        }
    }

    fn at_reader(&mut self, notice: &str) {
        self.send(&Reply::AtReader(notice.to_owned()));
    }
}
