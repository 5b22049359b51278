//! Signals: an end that is told, and a prompt that leaves the terminal as it was.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

/// Whole, since a signal handler can't put a text together.
macro_rules! interrupted_by {
    ($signal:literal) => {
        concat!(
            "pkcs11-external-signer: error: interrupted by ",
            $signal,
            "\nhelp: nothing was answered; run the command again\n"
        )
    };
}

/// The messages for SIGHUP, SIGINT and SIGTERM.
pub(crate) const INTERRUPTIONS: [&str; 3] = [
    interrupted_by!("SIGHUP"),
    interrupted_by!("SIGINT"),
    interrupted_by!("SIGTERM"),
];

/// A signal that ends or stops the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signal(libc::c_int);

impl Signal {
    /// Ctrl-Z: the process is to stop and may go on later.
    pub fn is_stop(self) -> bool {
        self.0 == libc::SIGTSTP
    }
}

/// From now on, an interruption is told in one line before it ends the process, which dies of
/// the signal all the same. Signals that the parent had ignored (`nohup`) stay ignored.
pub fn announce() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        if !is_ignored(signal) {
            // SA_RESTART: a library whose call may end first is not to see it fail.
            handle(signal, announce_and_die, libc::SA_RESTART);
        }
    }
}

/// The signals of [`announce`] do again what they do to any process.
pub(super) fn unannounce() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        if !is_ignored(signal) {
            // SAFETY: the default action needs no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

extern "C" fn announce_and_die(signal: libc::c_int) {
    let first = DEFERRED.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_ok() {
        tell(signal);
    }
    match GRACE.load(Ordering::SeqCst) {
        YIELDING if first.is_ok() => end_within(LOGIN_SECONDS),
        FIRM if first.is_ok() => end_within(FILE_SECONDS),
        FIRM => {}
        _ => die_of(signal),
    }
}

fn end_within(seconds: libc::c_uint) {
    handle(libc::SIGALRM, end_of_grace, 0);
    // SAFETY: alarm is async-signal-safe and has no preconditions.
    unsafe { libc::alarm(seconds) };
}

fn tell(signal: libc::c_int) {
    let [hangup, interrupt, termination] = INTERRUPTIONS;
    let text = match signal {
        libc::SIGHUP => hangup,
        libc::SIGINT => interrupt,
        _ => termination,
    };
    // SAFETY: write is async-signal-safe and the text is valid for its length.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// It does what it does to any process; in its own handler, when that returns.
fn die_of(signal: libc::c_int) {
    // SAFETY: signal is async-signal-safe, and the default action needs no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    raise(Signal(signal));
}

/// Longer than any login takes that nobody has to do something for.
const LOGIN_SECONDS: libc::c_uint = 2;
/// Longer than a busy disk takes for a small file.
const FILE_SECONDS: libc::c_uint = 10;

/// The [`Grace`] that lives, and the signal that waits for its end, 0 for none.
static GRACE: AtomicU8 = AtomicU8::new(NO_GRACE);
static DEFERRED: AtomicI32 = AtomicI32::new(0);

const NO_GRACE: u8 = 0;
const YIELDING: u8 = 1;
const FIRM: u8 = 2;

/// While it lives, a signal of [`announce`] is told at once and ends the process when it is dropped,
/// or some seconds later all the same.
#[must_use]
pub struct Grace(());

impl Grace {
    /// For a login. A second signal ends it, too: somebody means it.
    pub fn begin() -> Self {
        GRACE.store(YIELDING, Ordering::SeqCst);
        Self(())
    }

    /// For files that are written. A second signal changes nothing: Ctrl-C can come from the terminal
    /// and from a parent that passes it on. For whoever looks at [`is_interrupted`] wherever it waits.
    pub fn begin_firmly() -> Self {
        GRACE.store(FIRM, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Grace {
    fn drop(&mut self) {
        GRACE.store(NO_GRACE, Ordering::SeqCst);
        let signal = DEFERRED.load(Ordering::SeqCst);
        if signal != 0 {
            die_of(signal);
        }
    }
}

/// Whether the process ends with the [`Grace`] that lives.
pub fn is_interrupted() -> bool {
    DEFERRED.load(Ordering::SeqCst) != 0
}

extern "C" fn end_of_grace(_alarm: libc::c_int) {
    die_of(DEFERRED.load(Ordering::SeqCst));
}

/// While it lives, Ctrl-C is for a child that asks at the terminal, which gets it, too: only what the
/// child has put right is this process's to write to. It comes when this is dropped; a second one
/// doesn't wait.
#[must_use]
pub struct Postponed(Option<libc::sigaction>);

impl Postponed {
    pub fn begin() -> Self {
        let is_heard = !is_ignored(libc::SIGINT);
        Self(is_heard.then(|| handle(libc::SIGINT, postpone, libc::SA_RESTART)))
    }
}

impl Drop for Postponed {
    fn drop(&mut self) {
        let Some(before) = &self.0 else { return };
        // SAFETY: the action is one that the kernel gave us for this signal.
        unsafe { libc::sigaction(libc::SIGINT, &raw const *before, std::ptr::null_mut()) };
        if IS_POSTPONED.swap(false, Ordering::SeqCst) {
            raise(Signal(libc::SIGINT));
        }
    }
}

static IS_POSTPONED: AtomicBool = AtomicBool::new(false);

extern "C" fn postpone(signal: libc::c_int) {
    if IS_POSTPONED.swap(true, Ordering::SeqCst) {
        announce_and_die(signal);
    }
}

/// What the terminal's keys send. Somebody who presses them at a prompt means the prompt, also
/// where the client was started deaf to them. SIGTTIN and SIGTTOU stop a job in the background, as
/// they should.
const KEYS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP];
const OTHERS: [libc::c_int; 2] = [libc::SIGHUP, libc::SIGTERM];

/// The signal that came last, 0 for none, and where its coming is written to wake a poll. A stop
/// never hides an end.
static CAUGHT: AtomicI32 = AtomicI32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// While it lives, signals that would end or stop the process are stored instead, so that the
/// terminal can be put right before they do. What is ignored and comes from no key stays ignored.
pub struct Held {
    before: Vec<(libc::c_int, libc::sigaction)>,
    wake: UnixStream,
    _source: UnixStream,
}

impl Held {
    pub fn new() -> io::Result<Self> {
        let (wake, source) = UnixStream::pair()?;
        source.set_nonblocking(true)?;
        CAUGHT.store(0, Ordering::SeqCst);
        WAKE.store(source.as_raw_fd(), Ordering::SeqCst);
        let others = OTHERS.into_iter().filter(|signal| !is_ignored(*signal));
        let before = KEYS
            .into_iter()
            .chain(others)
            .map(|signal| (signal, handle(signal, store, 0)))
            .collect();
        Ok(Self {
            before,
            wake,
            _source: source,
        })
    }

    /// Readable when a signal has come.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The signal that has come, if any.
    pub fn caught(&self) -> Option<Signal> {
        caught()
    }

    /// Puts the old actions back; the signal that has come until then, so that none is lost.
    pub fn release(self) -> Option<Signal> {
        drop(self);
        caught()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (signal, action) in &self.before {
            // SAFETY: the action is one that the kernel gave us for this signal.
            unsafe { libc::sigaction(*signal, &raw const *action, std::ptr::null_mut()) };
        }
        WAKE.store(-1, Ordering::SeqCst);
    }
}

fn caught() -> Option<Signal> {
    match CAUGHT.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(Signal(signal)),
    }
}

extern "C" fn store(signal: libc::c_int) {
    if signal == libc::SIGTSTP {
        let _ = CAUGHT.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    } else {
        CAUGHT.store(signal, Ordering::SeqCst);
    }
    let wake = WAKE.load(Ordering::SeqCst);
    // SAFETY: write is async-signal-safe; a stream that is full or closed wakes nobody and harms
    // nothing.
    let _ = unsafe { libc::write(wake, [0_u8].as_ptr().cast(), 1) };
}

/// Lets the calling thread, and those it starts, write to the terminal from the background, where
/// `stty tostop` would have the whole process stopped for it.
pub fn write_in_background() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is valid to be written.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has initialised it.
    let mut set: libc::sigset_t = unsafe { set.assume_init() };
    // SAFETY: the set is valid, and SIGTTOU a signal.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGTTOU) };
    // SAFETY: the set is valid; the old mask isn't asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Sends the signal to this process; returns if that has stopped it and it was continued.
pub fn raise(signal: Signal) {
    // SAFETY: raise has no preconditions.
    unsafe { libc::raise(signal.0) };
}

/// Sets a handler; the action before it.
fn handle(
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
) -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = flags;
    let mut before = default_action();
    // SAFETY: both actions are valid, and the handlers given here are async-signal-safe.
    unsafe { libc::sigaction(signal, &raw const action, &raw mut before) };
    before
}

pub(super) fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = default_action();
    // SAFETY: without a new action nothing is changed.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is the default action with an empty mask and no flags.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
