//! Questions to a person, which an attempt leaves to the requester, and the answer that the next attempt has at hand.

use config::pin::{Pin, PinOrigin, PinProvider, PinRequest};
use messages::error::Error;

/// A question that a person has to answer before the work can go on.
pub(super) enum Question {
    /// Whether the PIN may be asked for at the reader itself.
    ConfirmAtReader(PinRequest<'static>),
    Pin(PinRequest<'static>),
}

/// What a person has answered to a [`Question`].
pub(super) enum GivenAnswer {
    ConfirmedAtReader,
    Pin { pin: Pin, asked: PinRequest<'static> },
}

impl Question {
    /// Asks the provider, which may take as long as a person takes.
    pub(super) fn ask(self, pins: &mut dyn PinProvider) -> Result<GivenAnswer, Error> {
        match self {
            Self::ConfirmAtReader(request) => {
                pins.confirm_at_reader(&request).map(|()| GivenAnswer::ConfirmedAtReader)
            }
            Self::Pin(asked) => Ok(GivenAnswer::Pin { pin: pins.pin(&asked)?, asked }),
        }
    }
}

/// Shows a notice to whoever is asked for the PIN.
pub(super) type ReaderNotice = Box<dyn Fn(String) + Send>;

/// The provider of PINs in the library's thread. It asks nobody. It gives the one answer that the requester has got before
/// the attempt; a question to which it has no answer it keeps for the requester.
pub(super) struct AnswerAtHand {
    origin: PinOrigin,
    answer: Option<GivenAnswer>,
    unanswered: Option<Question>,
    /// Called when the reader itself asks for the PIN.
    at_reader: ReaderNotice,
}

impl AnswerAtHand {
    pub(super) fn new(
        origin: PinOrigin,
        answer: Option<GivenAnswer>,
        at_reader: ReaderNotice,
    ) -> Self {
        Self { origin, answer, unanswered: None, at_reader }
    }

    /// The answer, if it was not used.
    pub(super) fn into_unused(self) -> Option<GivenAnswer> {
        self.answer
    }

    /// The question that had no answer, if there was one. Then the work has failed for want of the answer.
    pub(super) fn into_unanswered(self) -> Option<Question> {
        self.unanswered
    }

    /// Keeps the question. The error only ends the work; nobody gets to see it.
    fn leave_unanswered(&mut self, question: Question) -> Error {
        self.unanswered = Some(question);
        Error::internal("a question is still to be asked")
    }
}

impl PinProvider for AnswerAtHand {
    fn origin(&mut self) -> PinOrigin {
        self.origin.clone()
    }

    fn pin(&mut self, request: &PinRequest<'_>) -> Result<Pin, Error> {
        match self.answer.take() {
            // An answer from before isn't used for the last try, which needs a yes of its own.
            Some(GivenAnswer::Pin { pin, asked })
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
            Some(GivenAnswer::ConfirmedAtReader) => Ok(()),
            _ => {
                Err(self.leave_unanswered(Question::ConfirmAtReader(request.clone().into_owned())))
            }
        }
    }

    fn at_reader(&mut self, notice: &str) {
        (self.at_reader)(notice.to_owned());
    }
}
