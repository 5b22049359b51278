//! One prompt at a time on a terminal, and none for those that a person has just said no to.
//!
//! A client that opens ten connections starts ten processes, and k9s starts the next when one has
//! failed; kubectl runs a credential plugin that fails five times. A person who cancels the first prompt
//! means those behind it, too, and all of the same job. What they start next is another job: a shell
//! gives each a process group of its own, which a client and the plugins that it runs share.

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::{Instant, SystemTime};

use rustix::process::getpgrp;
use serde::{Deserialize, Serialize};

use config::pin;
use files::lock::{self, Lock, LockError};
use messages::error::{Error, Exit};
use system::limits;
use system::process::session_of;

pub(super) const CANCELLED: &str = "its prompt was cancelled";
pub(super) const TIMED_OUT: &str = "its prompt timed out";
pub(super) const REFUSED: &str = "it refused what was entered";

/// The place where a person is asked. Only one process at a time asks there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PromptKind {
    Terminal,
    /// A window of another program.
    Window,
}

/// A place to ask in, which this process has to itself. The default one is for a question that need not wait for
/// others.
#[derive(Default)]
pub(super) struct PromptSlot {
    /// The lock for the place; `None` also if there can be none.
    lock: RefCell<Option<Lock>>,
    pub(super) token: String,
}

/// A prompt that has ended without a login: a line of JSON in the lock's file.
#[derive(Deserialize, Serialize)]
struct LeftPrompt {
    at: SystemTime,
    /// The process group, and so the job, that asked.
    group: i32,
    how: Cow<'static, str>,
    token: String,
}

impl PromptSlot {
    /// Waits for the prompts before this one. Fails if one of them was abandoned, and that was meant for this one, too.
    /// `since` is when the PIN was first wanted.
    pub(super) fn take(
        kind: PromptKind,
        token: &str,
        since: SystemTime,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let slot = Self::wait(kind, token, deadline)?;
        let group = getpgrp().as_raw_nonzero().get();
        let now = SystemTime::now();
        for line in slot.lock.borrow().iter().flat_map(Lock::lines) {
            if let Some(left) = LeftPrompt::parse(&line)
                && left.token == slot.token
                && left.means(group, since, now)
            {
                let how = left.how;
                let text = format!(
                    "not asking for the PIN of token {token} again, because {how} a moment ago"
                );
                return Err(Error::new(Exit::Login, text).help(
                    "run the command again; a script that continues may ask again after 90 seconds",
                ));
            }
        }
        Ok(slot)
    }

    /// Waits for the prompts before this one, whatever their outcome.
    pub(super) fn wait(kind: PromptKind, token: &str, deadline: Instant) -> Result<Self, Error> {
        let limit = deadline.saturating_duration_since(Instant::now());
        // The session stands for its terminal, which processes see under different names.
        let lock_name = match kind {
            PromptKind::Terminal => format!("terminal of session {}", session_of(0)),
            PromptKind::Window => "window".to_owned(),
        };
        let lock = match Lock::acquire_within(limit, &lock_name, &mut |_| {}) {
            Ok(lock) => Some(lock),
            Err(LockError::Unavailable(_)) => None,
            Err(LockError::Busy(holder)) => {
                let holder = lock::in_brackets(holder);
                let seconds = limit.as_secs();
                return Err(pin::terminal_unusable(format!(
                    "another prompt{holder} has used it for {seconds} s"
                )));
            }
        };
        Ok(Self { lock: RefCell::new(lock), token: token.to_owned() })
    }

    /// Notes how the prompt has ended. This is to be called before a signal ends the process.
    pub(super) fn leave(&self, how: &'static str) {
        if let Some(lock) = self.lock.borrow_mut().as_mut() {
            let at = SystemTime::now();
            let token = self.token.clone();
            let mut lines = lock.lines();
            lines.retain(|line| {
                LeftPrompt::parse(line)
                    .is_some_and(|left| left.token != token && left.is_recent(at))
            });
            let group = getpgrp().as_raw_nonzero().get();
            let left = LeftPrompt { at, group, how: how.into(), token };
            // Without this line, the next process would ask at once.
            if let Ok(line) = serde_json::to_string(&left) {
                lines.push(line);
            }
            let _ = lock.write(&lines);
        }
    }
}

impl LeftPrompt {
    fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Whether this prompt's end counts for another one, which this group wanted at the time `since`: that one was
    /// behind it in the queue, or belongs to the same job.
    fn means(&self, group: i32, since: SystemTime, now: SystemTime) -> bool {
        self.is_recent(now) && (self.at > since || self.group == group)
    }

    fn is_recent(&self, now: SystemTime) -> bool {
        // A time in the future only shows that the clock was set.
        let age = now.duration_since(self.at);
        age.is_ok_and(|age| age < limits::LEFT_PROMPT)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_prompt_that_was_left_means_those_behind_it_and_those_of_its_job() {
        let written = LeftPrompt {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_100),
            group: 7,
            how: TIMED_OUT.into(),
            token: "one\ntwo".to_owned(),
        };
        let line = serde_json::to_string(&written).unwrap();
        assert_eq!(line.lines().count(), 1);
        let left = LeftPrompt::parse(&line).unwrap();
        assert_eq!((&*left.how, left.token.as_str()), (TIMED_OUT, "one\ntwo"));
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + seconds);
        let means = |group, since, now| left.means(group, at(since), at(now));
        // Those that were waiting.
        assert!(means(8, 60, 101) && means(8, 60, 150));
        assert!(!means(8, 60, 200));
        // New ones, of another job and of the same one.
        assert!(!means(8, 100, 100) && !means(8, 104, 104));
        assert!(means(7, 100, 100) && means(7, 150, 150));
        assert!(!means(7, 200, 200));
        // The clock was set back.
        assert!(!means(7, 50, 99));
    }
}
