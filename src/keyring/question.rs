//! What a person is asked for a library's thread, by the thread that waits for that.

use config::pin::{Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::Error;

/// What the library's thread has to know before it can go on.
pub(super) enum Question {
    /// Whether the PIN may be asked for at the reader itself.
    ConfirmAtReader(PinRequest<'static>),
    Pin(PinRequest<'static>),
}

/// What was said to a [`Question`].
pub(super) enum Answer {
    ConfirmedAtReader,
    Pin { pin: Pin, asked: PinRequest<'static> },
}

/// What has come of work with [`Answers`].
pub(super) enum Outcome<T> {
    /// The work was done, or has failed.
    Done(Result<T, Error>),
    /// The work has stopped where it needed this answer, and is to be begun anew with it.
    Unanswered(Question),
}

impl Question {
    /// Asks this provider. May block, as long as a person takes.
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
    /// The question to which there was no answer.
    unanswered: Option<Question>,
    /// Told when the reader itself asks.
    pub(super) at_reader: Option<Box<dyn Fn(String) + Send>>,
}

impl Answers {
    pub(super) fn new(origin: PinOrigin, answer: Option<Answer>) -> Self {
        Self { origin, answer, unanswered: None, at_reader: None }
    }

    /// The answer, where nothing has asked for it.
    pub(super) fn unused(self) -> Option<Answer> {
        self.answer
    }

    /// What has come of work that had these answers, and this result. Work that fails after a question without an answer
    /// fails for want of it.
    pub(super) fn outcome<T>(self, result: Result<T, Error>) -> Outcome<T> {
        match (result, self.unanswered) {
            (Err(_), Some(question)) => Outcome::Unanswered(question),
            (result, _) => Outcome::Done(result),
        }
    }

    /// Notes the question. The error leads the work to its end, where [`Answers::outcome`] has the question in its place.
    fn leave_unanswered(&mut self, question: Question) -> Error {
        self.unanswered = Some(question);
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
            _ => Err(self.leave_unanswered(Question::Pin(request.clone().into_owned()))),
        }
    }

    fn confirm_at_reader(&mut self, request: &PinRequest<'_>) -> Result<(), Error> {
        match self.answer.take() {
            Some(Answer::ConfirmedAtReader) => Ok(()),
            _ => {
                Err(self.leave_unanswered(Question::ConfirmAtReader(request.clone().into_owned())))
            }
        }
    }

    fn at_reader(&mut self, notice: &str) {
        if let Some(at_reader) = &self.at_reader {
            at_reader(notice.to_owned());
        }
    }
}
