//! A library's thread, as the other threads see it: they send it jobs, and may wait for the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use super::question::ReaderNotice;
use super::requester::Desk;
use super::stopped;
use super::worker::Worker;
use config::TrustedLibrary;
use messages::error::{Error, Exit};
use system::limits;
use system::shortage;

/// A piece of work for a library's thread, which does one after the other.
type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// A message from the library's thread to the thread that waits for a job.
enum JobMessage<T> {
    /// The reader asks for the PIN.
    AtReader(String),
    Done(T),
}

/// A handle to the only thread that calls a library. Clones are handles to the same thread.
#[derive(Clone)]
pub(super) struct LibraryThread {
    pub(super) library: TrustedLibrary,
    /// The desks of the library's keys, by the keys' indices.
    pub(super) desks: Vec<Arc<Desk>>,
    jobs: Sender<Job>,
    /// Set when the keyring's libraries are finalised, after which the thread ends.
    is_finished: Arc<AtomicBool>,
}

impl LibraryThread {
    /// Starts the thread, which loads no library yet.
    pub(super) fn start(
        library: TrustedLibrary,
        mut worker: Worker,
        is_finished: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let (jobs, received) = mpsc::channel::<Job>();
        let thread = thread::Builder::new().name("token".to_owned());
        let thread = thread.spawn(move || {
            while !worker.has_finished()
                && let Ok(job) = received.recv()
            {
                job(&mut worker);
            }
        });
        thread.map_err(|error| shortage(format!("no thread for a token: {error}")))?;
        Ok(Self { library, desks: Vec::new(), jobs, is_finished })
    }

    /// Has the thread do `work` after the jobs that were sent before. The result arrives at the receiver, where it can be
    /// waited for.
    pub(super) fn send<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Receiver<T>, Error> {
        let (done, outcome) = mpsc::channel();
        let job: Job = Box::new(move |worker| drop(done.send(work(worker))));
        self.jobs.send(job).map_err(|_| self.gone())?;
        Ok(outcome)
    }

    /// Has the thread do `work` after the jobs that were sent before, and waits for the result. If the work has not begun
    /// by the deadline, it isn't done at all. `at_reader` is called, in the waiting thread, with each notice that `work`
    /// gives.
    pub(super) fn ask_within<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        mut at_reader: impl FnMut(&str),
        work: impl FnOnce(&mut Worker, ReaderNotice) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (messages, received) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let has_left = Arc::clone(&is_over);
        let job: Job = Box::new(move |worker| {
            if has_left.load(Ordering::Relaxed) {
                return;
            }
            let notices = messages.clone();
            let notice = Box::new(move |text| drop(notices.send(JobMessage::AtReader(text))));
            let _ = messages.send(JobMessage::Done(work(worker, notice)));
        });
        self.jobs.send(job).map_err(|_| self.gone())?;
        loop {
            match receive_until(&received, deadline) {
                Ok(JobMessage::AtReader(text)) => at_reader(&text),
                Ok(JobMessage::Done(done)) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) => {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(self.silent());
                }
            }
        }
    }

    /// The error for a thread that has ended: with the keyring, or because it has panicked.
    fn gone(&self) -> Error {
        if self.is_finished.load(Ordering::Relaxed) {
            stopped()
        } else {
            Error::internal("the thread of a library is gone")
        }
    }

    /// The error for a library that has not answered in time, while somebody waits at the other end of a TLS connection.
    fn silent(&self) -> Error {
        let path = self.library.path().display();
        let seconds = limits::REPLY.as_secs();
        let text = format!("the token behind {path} has not answered within {seconds} s");
        Error::new(Exit::Signing, text).help(
            "touch the token if it blinks; if it stays silent, end the run, take the token out \
             and put it back, and start again",
        )
    }
}

/// The next message; an error if there is none by the deadline, or there will be none.
fn receive_until<T>(
    received: &Receiver<T>,
    deadline: Option<Instant>,
) -> Result<T, RecvTimeoutError> {
    match deadline {
        None => received.recv().map_err(RecvTimeoutError::from),
        Some(deadline) => received.recv_timeout(deadline.saturating_duration_since(Instant::now())),
    }
}
