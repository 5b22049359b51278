//! The requester: the thread that wants something done with a key. It does all the waiting: for the worker, for the
//! library's lock, for a person, and for other threads that are asking a person for the same key.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::attempt::{Attempt, AttemptEnd, KeyAccess};
use super::library::{LibraryLock, note_wait};
use super::library_thread::LibraryThread;
use super::question::{AnswerAtHand, GivenAnswer, Question, ReaderNotice};
use super::turn::{HeldTurn, PinTurn};
use super::worker::{Work, Worker};
use config::pin::{PinOrigin, PinProvider};
use messages::error::{Error, Exit};
use pin_entry::Sources;
use system::limits;
use system::locked;

/// A client that wants a key opened, in a process that keeps keys for several clients. Its functions are called in the
/// thread that opens the key.
pub struct KeyClient {
    /// Where the client's PIN comes from, in place of the key's own source. May block.
    pub pins: Box<dyn PinProvider + Send>,
    /// Whether the client will have digests signed.
    pub signs: bool,
    /// Called when another process, with this number if it is known, has had the library for a while.
    pub waiting: Box<dyn FnMut(Option<u32>) + Send>,
}

/// The place where the PIN of a key is asked for, by one thread at a time.
pub(super) struct Desk {
    origin: PinOrigin,
    sources: Mutex<Sources>,
    turn: PinTurn,
}

impl Desk {
    pub(super) fn new(mut sources: Sources) -> Self {
        Self { origin: sources.origin(), sources: Mutex::new(sources), turn: PinTurn::default() }
    }
}

/// A request for something to be done with a key: what the requester holds and knows between the attempts.
pub(super) struct KeyRequest<'a> {
    thread: &'a LibraryThread,
    /// The key's index in its library.
    key: usize,
    desk: &'a Desk,
    access: KeyAccess,
    /// The answer for the next attempt.
    answer: Option<GivenAnswer>,
    /// The turn at the desk: held from when somebody is asked for the key's PIN until the request ends.
    turn: Option<HeldTurn<'a>>,
    /// The library's lock: held from the first attempt that wants it until the request ends, but not while somebody is
    /// asked.
    lock: Option<LibraryLock>,
    /// By when the library has to answer, if somebody waits at the other end of a TLS connection.
    deadline: Option<Instant>,
    /// Whether no attempt has reached the token yet.
    is_first: bool,
    /// Whether the token was lost in an attempt.
    was_lost: bool,
    /// Where the PIN of this request comes from.
    origin: PinOrigin,
    client: Option<KeyClient>,
}

impl<'a> KeyRequest<'a> {
    pub(super) fn new(
        thread: &'a LibraryThread,
        key: usize,
        desk: &'a Desk,
        access: KeyAccess,
        mut client: Option<KeyClient>,
    ) -> Self {
        let origin = match &mut client {
            Some(client) => client.pins.origin(),
            None => desk.origin.clone(),
        };
        Self {
            thread,
            key,
            desk,
            access,
            answer: None,
            turn: None,
            lock: None,
            deadline: access.deadline(),
            is_first: true,
            was_lost: false,
            origin,
            client,
        }
    }

    /// Has the worker do `work` with the key and its token, and again if the token was lost in it. May block.
    ///
    /// ```text
    ///        ┌──────────────────────────────────────────────────────────────────────┐
    ///        ▼                                                                      │
    ///    attempt ─┬─ WantsLock ───► wait for other processes, keep the lock ────────┤
    ///             ├─ WantsAnswer ─► let go of the lock, wait for the turn,          │
    ///             │                 ask a person, keep the turn and the answer ─────┤
    ///             ├─ TokenLost ───► remember that it was, since it counts once ─────┘
    ///             └─ Done ────────► the caller; lock and turn end
    /// ```
    ///
    /// Each attempt begins anew; the module [`attempt`](super::attempt) says why that is safe.
    pub(super) fn complete<T: Send + 'static>(
        mut self,
        work: &Arc<Mutex<Work<T>>>,
    ) -> Result<T, Error> {
        loop {
            match self.attempt(Arc::clone(work))? {
                AttemptEnd::Done(outcome) => return outcome,
                AttemptEnd::WantsLock(unused) => {
                    self.answer = unused;
                    self.lock = Some(self.acquire_lock()?);
                }
                AttemptEnd::WantsAnswer(question) => self.ask(question)?,
                AttemptEnd::TokenLost => self.was_lost = true,
            }
        }
    }

    /// Sends the next attempt to the worker, along with the answer, and waits for its end. `work` is shared with the
    /// worker, which may still be doing it when a deadline has ended the request.
    fn attempt<T: Send + 'static>(
        &mut self,
        work: Arc<Mutex<Work<T>>>,
    ) -> Result<AttemptEnd<T>, Error> {
        let Self { key, access, is_first, was_lost, .. } = *self;
        let is_locked = self.lock.is_some();
        let origin = self.origin.clone();
        let answer = self.answer.take();
        let job = move |worker: &mut Worker, notice: ReaderNotice| {
            let pins = AnswerAtHand::new(origin, answer, notice);
            let attempt = Attempt { access, is_locked, is_first, was_lost, pins };
            worker.attempt(key, attempt, &mut *locked(&work))
        };
        let client = &mut self.client;
        let show_notice = |notice: &str| {
            if let Some(client) = client {
                client.pins.at_reader(notice);
            }
        };
        let end = self.thread.ask_within(self.deadline, show_notice, job)?;
        self.is_first &= matches!(end, AttemptEnd::WantsLock(_));
        Ok(end)
    }

    /// Waits for the library's lock. The requester holds it, and not the worker: a library that hangs would keep it for
    /// ever.
    fn acquire_lock(&mut self) -> Result<LibraryLock, Error> {
        let patience = match self.deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(limits::LOCK),
            None => limits::LOCK,
        };
        let is_in_time = self.access.is_in_time();
        let mut note = |holder| {
            if !is_in_time {
                note_wait(holder);
            }
        };
        let waiting: &mut dyn FnMut(Option<u32>) = match &mut self.client {
            Some(client) => &mut *client.waiting,
            None => &mut note,
        };
        let lock = LibraryLock::default();
        lock.acquire(&self.thread.library, patience, waiting)?;
        Ok(lock)
    }

    /// Asks the question, for the next attempt. If another thread is asking for the same key, this waits for it and asks
    /// nothing: the key may be open afterwards.
    fn ask(&mut self, question: Question) -> Result<(), Error> {
        // Other processes should not have to wait for a person.
        self.lock = None;
        if self.turn.is_none() {
            self.turn = self.desk.turn.take_if_free();
        }
        if self.turn.is_none() {
            self.turn = Some(self.wait_for_turn()?);
            return Ok(());
        }
        let answer = match &mut self.client {
            Some(client) => question.ask(&mut *client.pins)?,
            None => question.ask(&mut *locked(&self.desk.sources))?,
        };
        self.answer = Some(answer);
        self.deadline = self.access.deadline();
        Ok(())
    }

    /// Waits for the turn at the desk, until another thread is done there.
    fn wait_for_turn(&self) -> Result<HeldTurn<'a>, Error> {
        self.desk.turn.take(self.deadline).ok_or_else(|| self.other_prompt_open())
    }

    /// The error for a request that could not wait until another one was done asking.
    fn other_prompt_open(&self) -> Error {
        let path = self.thread.library.path().display();
        let seconds = limits::REPLY.as_secs();
        let text = format!(
            "another request is asking for the PIN of the token behind {path}, and was not done within {seconds} s"
        );
        Error::new(Exit::Login, text)
            .help("enter the PIN where it is asked for, or cancel that prompt, and try again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::pin::PinRequest;
    use config::{Config, PinSource};
    use protocol::Configuration;
    use system::environment::TakenVariables;
    use token::SessionAccess;

    #[test]
    fn a_request_that_another_prompt_outlasts_says_that_the_prompt_is_open() {
        let pairs = [("pathLib", "/no/a.so"), ("slotId", "0"), ("objectId", "1")];
        let mut map: Configuration = pairs.into_iter().collect();
        let worker = Worker::new(SessionAccess::default(), Arc::default());
        let library = Config::from_map(&mut map).unwrap().library;
        let thread = LibraryThread::start(library, worker, Arc::default()).unwrap();
        let variables = TakenVariables::default();
        let desk = Desk::new(Sources::for_run(PinSource::Prompt, &variables, Arc::default()));
        let _held = desk.turn.take_if_free().unwrap();
        let mut request = KeyRequest::new(&thread, 0, &desk, KeyAccess::InTime, None);
        request.deadline = Some(Instant::now());
        let question = Question::Pin(PinRequest {
            token: "token".into(),
            label: "token".into(),
            what: "a key".into(),
            shortest: 4,
            longest: 8,
            notice: None,
            confirm: None,
        });
        let error = request.ask(question).unwrap_err();
        assert!(error.exits_with(Exit::Login), "{error}");
        assert!(error.to_string().starts_with("another request is asking for the PIN"), "{error}");
    }
}
