//! Interruptions that are announced, and prompts that leave the terminal as it was.
//!
//! One handler does all of it, by what the process is doing when the signal comes: an `Activity`, of which three guards
//! and a function are the only beginnings and ends.
//!
//! | | what a signal does meanwhile | and afterwards |
//! |---|---|---|
//! | [`Deferral`] | is announced, and ends the process within a limit | ends the process |
//! | [`SigintLeftToChild`] | nothing, if it is the first and Ctrl-C's | is announced, and ends the process |
//! | [`during_prompt`] | ends the prompt | is the caller's, to act on |
//! | none of them | is announced, and ends the process | |
//!
//! The handler is set with sigaction(2) and not through signal-hook, which never gives a signal its old action back: what
//! the parent had ignored (`nohup`) has to be ignored again after a prompt, also by the command of a run.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use rustix::process::getpid;
use signal_hook::low_level;

use crate::limits;

/// Ctrl-Z: the process is to stop and may go on later.
pub const STOP: libc::c_int = libc::SIGTSTP;

/// What ends a process from outside.
pub const INTERRUPTING: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// In bytes: for a handler and the processor's state, which alone takes 11 KiB with AMX.
const CRASH_STACK: usize = 64 * 1024;
/// What the terminal's keys send. Pressed at a prompt they are meant for the prompt, even if the client was started
/// with these signals ignored. SIGTTIN and SIGTTOU keep stopping a job in the background.
const KEYS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGQUIT, STOP];

/// Something that the process may be doing when a signal comes: how often at present, in all threads.
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

// Of those that are going on, the handler does what the last of these wants. If none is, it announces the signal and has the
// process die of it.

/// A login: the signal is announced, and ends the process after the login; a second one does at once.
static LOGIN: Activity = Activity::new();
/// Writing files: the signal is announced, and ends the process when they are written; a second one is ignored.
static FILES: Activity = Activity::new();
/// What a library writes: as for files, but only the longest call's own limit ends that.
static TOKEN: Activity = Activity::new();
/// A child that asks at the terminal: the first SIGINT is the child's.
static CHILD: Activity = Activity::new();
/// A prompt: the signal is stored for it.
static PROMPT: Activity = Activity::new();

/// The signal that the process dies of when what is going on allows that, 0 for none. It is never taken back.
static INTERRUPTION: AtomicI32 = AtomicI32::new(0);
/// The signal that has come in a prompt, 0 for none.
static PROMPT_SIGNAL: AtomicI32 = AtomicI32::new(0);
/// After how many seconds the process ends because of an interruption, 0 if that is for others to say.
static ENDS_WITHIN: AtomicU32 = AtomicU32::new(0);

/// From now on, an interruption is announced in one line before it ends the process, which dies of
/// the signal all the same. Signals that the parent had ignored (`nohup`) stay ignored.
pub fn install_handlers() {
    for signal in interrupting() {
        // SA_RESTART: a library whose call may end first is not to see it fail.
        // SAFETY: the handler says what it calls.
        unsafe { handle(signal, on_signal, libc::SA_RESTART) };
    }
}

/// Has a pipe that nobody reads be an error to who writes, and not the end of the process.
pub fn ignore_broken_pipes() {
    let ignored = libc::sigaction { sa_sigaction: libc::SIG_IGN, ..default_action() };
    exchange(libc::SIGPIPE, Some(&ignored));
}

/// Gives the signals of [`install_handlers`] their default actions back.
pub fn restore_defaults() {
    for signal in interrupting() {
        exchange(signal, Some(&default_action()));
    }
}

/// Those that the parent has not ignored.
fn interrupting() -> impl Iterator<Item = libc::c_int> {
    INTERRUPTING.into_iter().filter(|signal| !is_ignored(*signal))
}

/// Everything it calls is async-signal-safe or a bare system call: atomics, poll, writev, alarm, sigaction and raise.
extern "C" fn on_signal(signal: libc::c_int) {
    if PROMPT.is_going_on() {
        return store_for_prompt(signal);
    }
    let is_first =
        INTERRUPTION.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if CHILD.is_going_on() && is_first && signal == libc::SIGINT {
        return;
    }
    if TOKEN.is_going_on() {
        if is_first {
            announce_and_end_within(limits::WRITING_AFTER_SIGNAL, signal);
        }
    } else if FILES.is_going_on() {
        if is_first {
            announce_and_end_within(limits::FILES_AFTER_SIGNAL, signal);
        }
    } else if LOGIN.is_going_on() && is_first {
        announce_and_end_within(limits::LOGIN_AFTER_SIGNAL, signal);
    } else {
        if !LOGIN.is_going_on() {
            print_announcement(signal);
        }
        die_of(signal);
    }
}

/// A stop never hides an end.
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

/// Sets the alarm by which an interrupted process ends, if it is to end by one.
pub fn end_in_time() {
    let seconds = ENDS_WITHIN.load(Ordering::SeqCst);
    if seconds > 0 {
        set_alarm(seconds);
    }
}

/// Has SIGALRM come in so many seconds, in place of an earlier alarm; never for 0.
pub fn set_alarm(seconds: libc::c_uint) {
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(seconds) };
}

extern "C" fn on_alarm(_alarm: libc::c_int) {
    die_of(INTERRUPTION.load(Ordering::SeqCst));
}

fn print_announcement(signal: libc::c_int) {
    let name = low_level::signal_name(signal).unwrap_or_default();
    let before = "pkcs11-external-signer: error: interrupted by ";
    let after = "\nhelp: cancelled; run the command again\n";
    super::say([before, name, after]);
}

/// Ends the process as the signal does without a handler.
pub fn die_of(signal: libc::c_int) {
    // The kernel keeps a default action from the first process of a container.
    if getpid().is_init() && signal != STOP {
        super::leave(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    let _ = low_level::emulate_default_handler(signal);
}

/// While it exists, a signal of [`install_handlers`] doesn't end the process at once. It does when the last one is dropped,
/// or its limit is over. Bound to a name, and not to `_`, which drops it at once.
#[must_use = "it defers a signal only while it exists"]
pub struct Deferral(&'static Activity);

impl Deferral {
    /// For a login, which goes on for [`limits::LOGIN_AFTER_SIGNAL`] at most; a second signal ends it at once.
    pub fn for_login() -> Self {
        Self::begin(&LOGIN)
    }

    /// For writing files, which goes on for [`limits::FILES_AFTER_SIGNAL`] at most. A second signal changes nothing, since
    /// Ctrl-C can come from the terminal and from a parent that passes it on. The caller has to look at [`is_interrupted`]
    /// wherever it waits.
    pub fn for_files() -> Self {
        Self::begin(&FILES)
    }

    /// For what a library writes to a token, which may be lost as a whole if that is broken off. It goes on for
    /// [`limits::WRITING_AFTER_SIGNAL`] at most; a second signal changes nothing.
    pub fn for_token() -> Self {
        Self::begin(&TOKEN)
    }

    fn begin(activity: &'static Activity) -> Self {
        activity.begin();
        Self(activity)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        self.0.end();
        if let Some(signal) = interruption_due() {
            die_of(signal);
        }
    }
}

/// While it exists, a child asks at the terminal. Ctrl-C is sent to both processes, and the child has to restore the
/// terminal before this one writes to it; so the signal is announced, and ends this process, when this is dropped. A second
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

/// The signal that the process is to die of now, since nothing that goes on defers it any more.
fn interruption_due() -> Option<libc::c_int> {
    let is_deferred = [&LOGIN, &TOKEN, &FILES, &CHILD].into_iter().any(Activity::is_going_on);
    let signal = INTERRUPTION.load(Ordering::SeqCst);
    if is_deferred || signal == 0 { None } else { Some(signal) }
}

/// Whether a signal has come that ends the process as soon as nothing defers it.
pub fn is_interrupted() -> bool {
    INTERRUPTION.load(Ordering::SeqCst) != 0
}

/// Shows a prompt, while signals that would end or stop the process are stored instead. The prompt has to restore the
/// terminal before it returns, and to look at [`is_prompt_interrupted`] wherever it waits. A signal that is ignored stays
/// ignored, unless a key sends it. Prompts come one after the other in a process.
///
/// # Errors
/// The signal that came meanwhile, in place of whatever the prompt has returned. The old actions are in force again: to do
/// what it would have done, it is [raised](raise).
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

/// The actions of signals in a prompt. Those from before are put back when this is dropped.
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

/// Lets the calling thread, and those it starts, write to the terminal from the background. With
/// `stty tostop` that would stop the whole process.
pub fn write_in_background() {
    mask(libc::SIG_BLOCK, &[libc::SIGTTOU]);
}

/// Sends the signal to this process; returns if that has stopped it and it was continued.
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

/// Gives the handlers that are set with SA_ONSTACK a stack for when the thread's own has overflowed. To be called in a
/// program without Rust's start, which does so for each thread.
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
