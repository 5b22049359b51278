//! Signals that end this process (SIGHUP, SIGINT, SIGTERM): announced in a line, and held back where the process must not be
//! cut off.
//!
//! By default a signal ends a process wherever it is. Here that would leave a terminal without echo, a half-written file, a
//! SoftHSM token without its file, or a PIN of which nobody knows whether it was sent. So one handler, `on_signal`, does all
//! of it, depending on what the process is doing. What it is doing is what values exist:
//!
//! | while there is a | a signal | and when the value is dropped |
//! |---|---|---|
//! | [`Deferral`] | is announced; the process goes on for a limited time | the process dies of the signal |
//! | [`SigintLeftToChild`] | is ignored if it is the first SIGINT: Ctrl-C is for the child, too | it is announced, and the process dies of it |
//! | call of [`during_prompt`] | ends the prompt | it is the caller's to act on |
//! | none of them | is announced, and ends the process | |
//!
//! Where several exist at once, in any thread, the order of `on_signal` decides: a prompt before a child, what a library
//! writes before files, files before a login.
//!
//! A signal handler can read nothing but statics. These are private, and set like this:
//!
//! | | set by | read by |
//! |---|---|---|
//! | `LOGIN`, `FILES`, `TOKEN` | [`Deferral`] | `on_signal`, and each guard's end |
//! | `CHILD` | [`SigintLeftToChild`] | `on_signal`, and each guard's end |
//! | `PROMPT` | [`during_prompt`] | `on_signal` |
//! | `PROMPT_SIGNAL` | `on_signal` in a prompt | the prompt, [`is_prompt_interrupted`] |
//! | `INTERRUPTION` | the first `on_signal` outside a prompt; never taken back | each guard's end, the alarm, [`is_interrupted`] |
//! | `ENDS_WITHIN` | `on_signal`, where something is deferred | [`end_in_time`] |
//! | `ENDED_ALONG` | [`EndWithThis`] | [`die_of`] |
//!
//! # The one alarm
//!
//! A process has one alarm(2). Three parts of this program need it, and none can lend it: who comes later in this order takes
//! it from those before.
//!
//! 1. the watchdog of `token`, for each call of a library;
//! 2. an interruption, for what is deferred: `ENDS_WITHIN`. The watchdog asks [`is_interrupted`] and leaves the alarm alone;
//! 3. the exit guard of `token`, once the answer is out: nothing but the end of the process is left then.
//!
//! # Why sigaction(2)
//!
//! Handlers are set with it and not through signal-hook, which never gives a signal its old action back. What the parent had
//! ignored (`nohup`) has to be ignored again after a prompt, also by the command of a run.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use signal_hook::low_level;

use crate::limits;

/// What Ctrl-Z sends: the process is stopped, and may be continued later.
pub const STOP: libc::c_int = libc::SIGTSTP;

/// The signals by which others end this process.
pub const INTERRUPTING: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// The size of a [crash stack](use_crash_stack) in bytes: for a handler, and for the processor's registers, which alone take
/// 11 KiB with AMX.
const CRASH_STACK: usize = 64 * 1024;
/// What keys of the terminal send. A key that is pressed at a prompt is meant for the prompt, even if this process was started
/// with its signal ignored. SIGTTIN and SIGTTOU still stop a job in the background.
const KEYS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, STOP];

/// Something that the process may be doing when a signal comes. The number says how often it is being done now, by all threads
/// together.
struct Activity(AtomicU8);

impl Activity {
    const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_going_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// A login is being made.
static LOGIN: Activity = Activity::new();
/// Files are being written.
static FILES: Activity = Activity::new();
/// A library is writing to a token.
static TOKEN: Activity = Activity::new();
/// A child is asking at the terminal.
static CHILD: Activity = Activity::new();
/// A prompt is open.
static PROMPT: Activity = Activity::new();

/// The signal that the process dies of once nothing defers that any more; 0 for none. It is never taken back.
static INTERRUPTION: AtomicI32 = AtomicI32::new(0);
/// The signal that has come during the prompt; 0 for none.
static PROMPT_SIGNAL: AtomicI32 = AtomicI32::new(0);
/// After how many seconds an interrupted process ends, even if something still defers that; 0 if there is no such limit.
static ENDS_WITHIN: AtomicU32 = AtomicU32::new(0);

/// The child that gets a signal when one ends this process: its number, or that of its group with a minus; 0 for none.
static ENDED_ALONG: AtomicI32 = AtomicI32::new(0);

/// From now on a signal that ends the process is announced in a line before. The process dies of the signal all the same, so
/// that its parent sees why. Signals that the parent had ignored (`nohup`) stay ignored.
pub fn install_handlers() {
    for signal in interrupting() {
        // SA_RESTART: a library whose call may end first is not to see it fail.
        // SAFETY: the handler says what it calls.
        unsafe { handle(signal, on_signal, libc::SA_RESTART) };
    }
}

/// From now on, writing to a pipe that nobody reads fails, instead of ending the process.
pub fn ignore_broken_pipes() {
    let ignored = libc::sigaction { sa_sigaction: libc::SIG_IGN, ..default_action() };
    exchange(libc::SIGPIPE, Some(&ignored));
}

/// Undoes [`install_handlers`] for these of its signals: they have their default actions again, unless the parent had
/// ignored them.
pub fn restore_defaults(signals: &[libc::c_int]) {
    for signal in interrupting().filter(|signal| signals.contains(signal)) {
        exchange(signal, Some(&default_action()));
    }
}

/// The signals that end this process, but for those that the parent had ignored.
fn interrupting() -> impl Iterator<Item = libc::c_int> {
    INTERRUPTING.into_iter().filter(|signal| !is_ignored(*signal))
}

/// The handler of all signals here. Everything it calls is async-signal-safe or a bare system call: atomics, poll, writev,
/// alarm, sigaction and raise.
extern "C" fn on_signal(signal: libc::c_int) {
    if PROMPT.is_going_on() {
        return store_for_prompt(signal);
    }
    let is_first =
        INTERRUPTION.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if CHILD.is_going_on() && is_first && signal == libc::SIGINT {
        return;
    }
    match Deferred::now() {
        Some(deferred) if is_first => announce_and_end_within(deferred.limit(), signal),
        Some(Deferred::Files | Deferred::Token) => {}
        // It was announced the first time.
        Some(Deferred::Login) => die_of(signal),
        None => {
            print_announcement(signal);
            die_of(signal);
        }
    }
}

/// For what the process goes on after a first signal.
#[derive(Clone, Copy)]
enum Deferred {
    Files,
    Login,
    Token,
}

impl Deferred {
    /// What is going on now; of several, the one that may least be broken off.
    fn now() -> Option<Self> {
        let all = [Self::Token, Self::Files, Self::Login];
        all.into_iter().find(|deferred| deferred.activity().is_going_on())
    }

    fn activity(self) -> &'static Activity {
        match self {
            Self::Files => &FILES,
            Self::Login => &LOGIN,
            Self::Token => &TOKEN,
        }
    }

    /// How long the process may go on, in seconds.
    fn limit(self) -> libc::c_uint {
        match self {
            Self::Files => limits::FILES_AFTER_SIGNAL,
            Self::Login => limits::LOGIN_AFTER_SIGNAL,
            Self::Token => limits::WRITING_AFTER_SIGNAL,
        }
    }
}

/// Keeps the signal for the prompt. One that stops the process doesn't replace one that ends it.
fn store_for_prompt(signal: libc::c_int) {
    if signal == STOP {
        let _ = PROMPT_SIGNAL.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    } else {
        PROMPT_SIGNAL.store(signal, Ordering::SeqCst);
    }
}

fn announce_and_end_within(seconds: libc::c_uint, signal: libc::c_int) {
    print_announcement(signal);
    // SAFETY: it ends the process by bare system calls.
    unsafe { handle(libc::SIGALRM, on_alarm, 0) };
    ENDS_WITHIN.store(seconds, Ordering::SeqCst);
    end_in_time();
}

/// Sets the alarm again by which an interrupted process ends, if there is one: somebody else may have set it meanwhile.
pub fn end_in_time() {
    let seconds = ENDS_WITHIN.load(Ordering::SeqCst);
    if seconds > 0 {
        set_alarm(seconds);
    }
}

/// Has SIGALRM come in so many seconds, or never for 0; it replaces an earlier alarm.
pub fn set_alarm(seconds: libc::c_uint) {
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(seconds) };
}

/// What was deferred has taken too long.
extern "C" fn on_alarm(_alarm: libc::c_int) {
    die_of(INTERRUPTION.load(Ordering::SeqCst));
}

fn print_announcement(signal: libc::c_int) {
    let name = low_level::signal_name(signal).unwrap_or_default();
    let before = "pkcs11-external-signer: error: interrupted by ";
    let after = "\nhelp: cancelled; run the command again\n";
    super::say([before, name, after]);
}

/// Ends (or stops) the process as the signal does where there is no handler. A child that is to [end with
/// it](EndWithThis) gets a signal first.
pub fn die_of(signal: libc::c_int) {
    if signal != STOP {
        end_child();
    }
    // For the first process of a container, the kernel ignores signals whose action is the default.
    if getpid().is_init() && signal != STOP {
        super::leave(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    let _ = low_level::emulate_default_handler(signal);
}

/// While it exists, a signal of [`install_handlers`] doesn't end the process at once. The process dies of the signal when the
/// last deferral is dropped, or when the limit of this one is over. To be bound to a name, since `_` drops it at once.
#[must_use = "it defers a signal only while it exists"]
pub struct Deferral(Deferred);

impl Deferral {
    /// For a login, which goes on for [`limits::LOGIN_AFTER_SIGNAL`] at most. A second signal ends the process at once.
    pub fn for_login() -> Self {
        Self::begin(Deferred::Login)
    }

    /// For writing files, which goes on for [`limits::FILES_AFTER_SIGNAL`] at most. A second signal changes nothing, since
    /// Ctrl-C can come from the terminal and from a parent that passes it on. The caller has to look at [`is_interrupted`]
    /// wherever it waits.
    pub fn for_files() -> Self {
        Self::begin(Deferred::Files)
    }

    /// For a library that writes to a token, which may be lost as a whole if that is broken off. It goes on for
    /// [`limits::WRITING_AFTER_SIGNAL`] at most. A second signal changes nothing.
    pub fn for_token() -> Self {
        Self::begin(Deferred::Token)
    }

    fn begin(deferred: Deferred) -> Self {
        deferred.activity().begin();
        Self(deferred)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        self.0.activity().end();
        if let Some(signal) = interruption_due() {
            die_of(signal);
        }
    }
}

/// While it exists, a child asks at the terminal. Ctrl-C is sent to both processes, and the child has to restore the terminal
/// before this one writes to it. So a first SIGINT is announced, and ends this process, only when this is dropped. A second
/// one, or another signal, ends the process at once.
#[must_use = "it leaves a signal to the child only while it exists"]
pub struct SigintLeftToChild(());

impl SigintLeftToChild {
    pub fn begin() -> Self {
        CHILD.begin();
        Self(())
    }
}

impl Drop for SigintLeftToChild {
    fn drop(&mut self) {
        CHILD.end();
        if let Some(signal) = interruption_due() {
            print_announcement(signal);
            die_of(signal);
        }
    }
}

/// Ends the child that is to end with this process, if there is one. It isn't reaped yet, so that the number is its own.
fn end_child() {
    let child = ENDED_ALONG.load(Ordering::SeqCst);
    let Some(number) = Pid::from_raw(child.abs()) else { return };
    let _ = if child < 0 {
        kill_process_group(number, Signal::KILL)
    } else {
        kill_process(number, Signal::TERM)
    };
}

/// While it exists, a child of this process doesn't outlive it if a signal of [`install_handlers`] ends this process: a
/// signal that is sent to this process alone doesn't reach the child. There is one such child at a time. To be dropped
/// before the child is reaped, since its number may be another process's from then on.
#[must_use = "the child ends with this process only while it exists"]
#[derive(Debug)]
pub struct EndWithThis(());

impl EndWithThis {
    /// For a child that is asked to end (SIGTERM).
    pub fn of_process(child: Pid) -> Self {
        Self::begin(child.as_raw_nonzero().get())
    }

    /// For a child that leads a process group, which is killed as a whole (SIGKILL).
    pub fn of_group(child: Pid) -> Self {
        Self::begin(-child.as_raw_nonzero().get())
    }

    fn begin(child: i32) -> Self {
        ENDED_ALONG.store(child, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for EndWithThis {
    fn drop(&mut self) {
        ENDED_ALONG.store(0, Ordering::SeqCst);
    }
}

/// The signal that the process has to die of now, if one has come and nothing defers it any more.
fn interruption_due() -> Option<libc::c_int> {
    let is_deferred = [&LOGIN, &TOKEN, &FILES, &CHILD].into_iter().any(Activity::is_going_on);
    let signal = INTERRUPTION.load(Ordering::SeqCst);
    if is_deferred || signal == 0 { None } else { Some(signal) }
}

/// Whether a signal has come of which the process dies as soon as nothing defers that.
pub fn is_interrupted() -> bool {
    INTERRUPTION.load(Ordering::SeqCst) != 0
}

/// Shows a prompt. Signals that would end or stop the process are stored meanwhile. The prompt has to look at
/// [`is_prompt_interrupted`] wherever it waits, and to restore the terminal before it returns. A signal that is ignored stays
/// ignored, unless a key sends it. Only one prompt can be open at a time.
///
/// # Errors
/// The signal that has come meanwhile, in place of whatever the prompt has returned. By then the old actions are in force
/// again, so that the caller can [raise] the signal for what it would have done.
pub fn during_prompt<T>(prompt: impl FnOnce() -> T) -> Result<T, libc::c_int> {
    let actions = PromptActions::set();
    let outcome = prompt();
    drop(actions);
    match PROMPT_SIGNAL.swap(0, Ordering::SeqCst) {
        0 => Ok(outcome),
        signal => Err(signal),
    }
}

/// Whether a signal has come since [`during_prompt`] began.
pub fn is_prompt_interrupted() -> bool {
    PROMPT_SIGNAL.load(Ordering::SeqCst) != 0
}

/// The actions that signals have during a prompt. Dropping it puts the earlier ones back.
struct PromptActions {
    before: Vec<SavedAction>,
}

struct SavedAction {
    signal: libc::c_int,
    action: libc::sigaction,
}

impl PromptActions {
    fn set() -> Self {
        PROMPT_SIGNAL.store(0, Ordering::SeqCst);
        PROMPT.begin();
        let others = interrupting().filter(|signal| !KEYS.contains(signal));
        let before = KEYS.into_iter().chain(others).map(|signal| {
            // SAFETY: the handler says what it calls.
            let action = unsafe { handle(signal, on_signal, 0) };
            SavedAction { signal, action }
        });
        Self { before: before.collect() }
    }
}

impl Drop for PromptActions {
    fn drop(&mut self) {
        for saved in &self.before {
            exchange(saved.signal, Some(&saved.action));
        }
        PROMPT.end();
    }
}

/// Lets the calling thread, and those it starts, write to the terminal from the background, which with `stty tostop` would stop
/// the whole process.
pub fn write_in_background() {
    mask(libc::SIG_BLOCK, &[libc::SIGTTOU]);
}

/// Sends the signal to this process. Returns if the signal only stopped it and it was continued.
pub fn raise(signal: libc::c_int) {
    let _ = low_level::raise(signal);
}

/// Blocks (`SIG_BLOCK`) or unblocks (`SIG_UNBLOCK`) these signals for the calling thread.
pub fn mask(how: libc::c_int, signals: &[libc::c_int]) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a valid place for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: the set was initialised above; the old mask isn't asked for.
    unsafe { libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut()) };
}

/// Gives handlers that are set with SA_ONSTACK a stack of their own, for when the thread's has overflowed. To be called in a
/// program that doesn't begin with Rust's start, which does this for each thread.
pub fn use_crash_stack() {
    let memory = Box::leak(Box::<[u8]>::new_uninit_slice(CRASH_STACK));
    let stack =
        libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the stack's memory is never freed and used for nothing else.
    let _ = unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
}

/// Sets a handler, and returns the old action.
///
/// # Safety
/// The handler only calls functions that are async-signal-safe (signal-safety(7)).
pub unsafe fn handle(
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
) -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    action.sa_flags = flags;
    exchange(signal, Some(&action))
}

/// Whether the signal's action is to be ignored.
pub fn is_ignored(signal: libc::c_int) -> bool {
    exchange(signal, None).sa_sigaction == libc::SIG_IGN
}

/// Sets an action, if one is given, and returns the old one.
fn exchange(signal: libc::c_int, action: Option<&libc::sigaction>) -> libc::sigaction {
    let action = action.map_or(ptr::null(), ptr::from_ref);
    let mut before = default_action();
    // SAFETY: the new action is null, the kernel's own, or made by `handle` or `default_action`.
    unsafe { libc::sigaction(signal, action, &raw mut before) };
    before
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is the default action with an empty mask and no flags.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::io::write;

    use super::*;
    use crate::child;

    #[test]
    fn a_deferral_that_ends_leaves_the_others_in_force() {
        if child::is_this() {
            install_handlers();
            let files = Deferral::for_files();
            drop(Deferral::for_login());
            let login = Deferral::for_login();
            raise(libc::SIGTERM);
            drop(files);
            write(rustix::stdio::stdout(), b"still there").unwrap();
            drop(login);
            unreachable!("it dies of the signal");
        }
        let test = "signals::tests::a_deferral_that_ends_leaves_the_others_in_force";
        let output = child::command(test).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM));
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("still there"), "{said}");
    }

    #[test]
    fn a_prompt_takes_its_own_signals_and_none_that_came_before() {
        if child::is_this() {
            install_handlers();
            let files = Deferral::for_files();
            raise(libc::SIGTERM);
            assert_eq!(during_prompt(is_prompt_interrupted), Ok(false));
            let stopped = during_prompt(|| {
                raise(libc::SIGINT);
                raise(STOP);
                is_prompt_interrupted()
            });
            assert_eq!(stopped, Err(libc::SIGINT));
            assert_eq!(during_prompt(|| ()), Ok(()));
            write(rustix::stdio::stdout(), b"still there").unwrap();
            drop(files);
            unreachable!("it dies of the signal");
        }
        let test = "signals::tests::a_prompt_takes_its_own_signals_and_none_that_came_before";
        let output = child::command(test).output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("still there"));
    }
}
