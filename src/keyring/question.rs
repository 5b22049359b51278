//! What a person is asked for a library's thread, by the thread that waits for that.

use config::pin::{Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::Error;

/// What the library's thread has to know before it can go on.
pub(super) enum Question {
    ConfirmAtReader(PinRequest<'static>),
    Pin(PinRequest<'static>),
}

pub(super) enum Answer {
    ConfirmedAtReader,
    Pin { pin: Pin, asked: PinRequest<'static> },
}

impl Question {
    /// May block.
    pub(super) fn ask(self, pins: &mut dyn PinProvider) -> Result<Answer, Error> {
        match self {
            Self::ConfirmAtReader(request) => {
                pins.confirm_at_reader(&request).map(|()| Answer::ConfirmedAtReader)
            }
            Self::Pin(asked) => Ok(Answer::Pin { pin: pins.pin(&asked)?, asked }),
        }
    }
}

/// The provider in the library's thread: it has what was asked for before, and notes what is still to be asked.
pub(super) struct Answers {
    origin: PinOrigin,
    answer: Option<Answer>,
    pub(super) question: Option<Question>,
    /// Told when the reader itself asks.
    pub(super) at_reader: Option<Box<dyn Fn(String) + Send>>,
}

impl Answers {
    pub(super) fn new(origin: PinOrigin, answer: Option<Answer>) -> Self {
        Self { origin, answer, question: None, at_reader: None }
    }

    pub(super) fn unused(self) -> Option<Answer> {
        self.answer
    }

    fn still_to_be_asked(&mut self, question: Question) -> Error {
        self.question = Some(question);
        Error::internal("a question is still to be asked")
    }
}

impl PinProvider for Answers {
    fn origin(&mut self) -> PinOrigin {
        self.origin.clone()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        match self.answer.take() {
            // A last try needs its own yes.
            Some(Answer::Pin { pin, asked })
                if asked.token == request.token
                    && request.allows(&pin)
                    && (request.confirm.is_none() || asked.confirm.is_some()) =>
            {
                Ok(pin)
            }
            _ => Err(self.still_to_be_asked(Question::Pin(request.clone().into_owned()))),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        match self.answer.take() {
            Some(Answer::ConfirmedAtReader) => Ok(()),
            _ => {
                Err(self.still_to_be_asked(Question::ConfirmAtReader(request.clone().into_owned())))
            }
        }
    }

    fn at_reader(&mut self, notice: &str) {
        if let Some(at_reader) = &self.at_reader {
            at_reader(notice.to_owned());
        }
    }
}
