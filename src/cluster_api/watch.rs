//! A watch of one object, which tells when to look at it: one request instead of one every few seconds.

use std::io::Read as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

use system::signals::EndWithThis;

/// A kubectl that follows an object, and ends when this is dropped, or with this process if a signal ends that.
///
/// Whoever may look at an object need not be allowed to watch it, and a server or a proxy can end a watch at any time. So
/// what a watch says decides nothing: it [wakes](Watch::wait) who waits, who then looks at the object.
pub struct Watch {
    kubectl: Child,
    events: Receiver<()>,
    state: WatchState,
    /// What ends kubectl with this process, as long as kubectl isn't ended here.
    end: Option<EndWithThis>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WatchState {
    /// The watch has said nothing.
    Silent,
    /// The server has said what there is now.
    Live,
    /// The watch has ended: whoever waits has to look at the object now and then.
    Ended,
}

impl Watch {
    /// Starts this kubectl, which prints something for each event; `None` if it can't be started.
    pub(super) fn start(command: &mut Command) -> Option<Self> {
        // If it fails, the next look at the object says why.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut kubectl = command.spawn().ok()?;
        let (sender, events) = mpsc::channel();
        let reader = kubectl.stdout.take().and_then(|output| {
            let reader = thread::Builder::new().name("watch".to_owned());
            reader.spawn(move || pass_events_on(output, &sender)).ok()
        });
        let end = EndWithThis::of_process(Pid::from_child(&kubectl));
        let watch = Self { kubectl, events, state: WatchState::Silent, end: Some(end) };
        reader.map(|_| watch)
    }

    /// Whether the watch reports changes from now on.
    pub fn is_live(&self) -> bool {
        self.state == WatchState::Live
    }

    /// Waits until there may be something new to see, or for this time. Returns whether there may be.
    pub fn wait(&mut self, time: Duration) -> bool {
        match self.events.recv_timeout(time) {
            Ok(()) => {
                self.state = WatchState::Live;
                // One look at the object shows what all the events tell.
                while self.events.try_recv().is_ok() {}
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                self.state = WatchState::Ended;
                thread::sleep(time);
                false
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        self.end = None;
        let _ = self.kubectl.wait();
    }
}

/// Passes on that something was printed, until kubectl ends or nobody listens.
fn pass_events_on(mut output: ChildStdout, events: &Sender<()>) {
    let mut block = [0; 4096];
    while output.read(&mut block).is_ok_and(|length| length > 0) {
        if events.send(()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(10);

    fn watch(script: &str) -> Watch {
        Watch::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn an_event_wakes_who_waits_and_the_end_is_waited_out() {
        let mut watch = watch("echo '{\"type\":\"ADDED\"}'");
        assert!(!watch.is_live());
        assert!(watch.wait(LONG));
        assert!(watch.is_live());
        // A server or a proxy that ends each watch at once isn't asked without a pause.
        assert!(!watch.wait(SHORT));
        while watch.is_live() {
            assert!(!watch.wait(SHORT));
        }
    }

    #[test]
    fn what_says_nothing_is_not_relied_on() {
        let mut silent = watch("exec sleep 600");
        assert!(!silent.wait(SHORT));
        assert!(!silent.is_live());
        let mut refused = watch("echo forbidden >&2; exit 1");
        assert!(!refused.wait(SHORT));
        assert!(!refused.is_live());
        assert!(Watch::start(&mut Command::new("/nowhere/kubectl")).is_none());
    }
}
