//! The command while it runs: what happens to it, to us, and to the lock.
//!
//! ```text
//!                       renewed        lost             killed      the server frees it
//!     ─────────────────────┼────────────┼─────────────────┼──────────────┼────►
//!                          │            │◄──── grace ────►│◄── slack ───►│
//!                          │            │◄──────────── margin ──────────►│
//!                                       SIGTERM           SIGKILL
//! ```

use crate::child::{Child, End, News};
use crate::held::Held;
use crate::say;
use crate::signals::{Came, Signals, suffer};
use crate::terminal::Terminal;
use crate::time::since_boot;
use kvlock::Loss;
use nix::sys::signal::Signal;
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// Between SIGKILL and the moment at which the server frees the lock, for a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// How long to wait for processes that SIGKILL does not end, such as those that wait for a disk.
const STUCK: Duration = Duration::from_secs(5);

/// Between two looks at a group that is to end.
const LOOK: Duration = Duration::from_millis(20);

/// How the end of the lock is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// How long before the server frees the lock it is given up as lost.
    pub(crate) margin: Duration,
    /// From SIGTERM to SIGKILL.
    grace: Duration,
    /// Between two messages to the keeper.
    tick: Duration,
}

impl Terms {
    pub(crate) fn new(lease: Duration, kill_after: Duration) -> Self {
        // The client does not take more than a quarter.
        let margin = kill_after.saturating_add(SLACK).min(lease / 4);
        let slack = SLACK.min(margin / 4);
        let tick = (lease / 10).min(Duration::from_secs(1));
        Self { margin, grace: margin - slack, tick }
    }

    /// When the keeper acts, if we have not: in the middle of the slack of a lease that is ours for
    /// so much longer.
    pub(crate) fn keepers(&self, now: Duration, left: Duration) -> Duration {
        now + left + self.grace + (self.margin - self.grace) / 2
    }
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(End),
    /// The lock was lost, and the command ended for that.
    Lost(End),
}

pub(crate) struct Watch<'a> {
    pub(crate) guard: &'a Held,
    pub(crate) child: &'a mut Child,
    pub(crate) signals: &'a mut Signals,
    pub(crate) terminal: Terminal,
    pub(crate) terms: Terms,
    /// What the messages begin with.
    pub(crate) name: &'a str,
    /// The interrupt key was pressed while the terminal was ours.
    pub(crate) interrupted: bool,
    /// Somebody wants the end of us, not only of the command.
    pub(crate) asked_to_end: Option<Came>,
    /// When SIGKILL is due at the latest, by the clock of [`since_boot`].
    pub(crate) kill_by: Option<Duration>,
}

impl Watch<'_> {
    /// Returns when the command has ended, because it was done or because the lock was lost.
    pub(crate) async fn until_the_end(&mut self) -> io::Result<Outcome> {
        loop {
            self.prolong();
            tokio::select! {
                biased;
                why = self.guard.lost() => return Ok(Outcome::Lost(self.stop(why).await?)),
                came = self.signals.next() => if let Some(end) = self.take(came?) {
                    return Ok(Outcome::Ended(end));
                },
                () = sleep(self.terms.tick) => {}
            }
        }
    }

    /// Tells the keeper how long the lock is ours.
    fn prolong(&mut self) {
        let left = self.guard.lease_left();
        if let (Some(now), false) = (since_boot(), left.is_zero()) {
            self.kill_by = Some(now + left + self.terms.grace);
            self.child.may_run_until(self.terms.keepers(now, left), now);
        }
    }

    fn take(&mut self, came: Came) -> Option<End> {
        match came.signal {
            Signal::SIGCHLD => {
                while let Some(news) = self.child.news() {
                    match news {
                        News::Ended(end) => return Some(end),
                        News::Stopped(by) => self.stopped(by),
                    }
                }
            }
            Signal::SIGCONT => self.go_on(),
            signal => {
                self.interrupted |= came.typed && signal == Signal::SIGINT;
                if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) {
                    self.asked_to_end = Some(came);
                }
                self.child.signal(signal);
            }
        }
        None
    }

    /// The command has stopped. If that is because of the terminal, so do we, for the shell to see;
    /// else the lock is kept until somebody continues the command.
    fn stopped(&mut self, by: Signal) {
        match by {
            Signal::SIGTTIN | Signal::SIGTTOU => {
                if self.terminal.lend(self.child.id) {
                    self.child.signal(Signal::SIGCONT);
                } else {
                    // Continued, we will be told. If nobody is there to continue us this is void,
                    // and the command stays stopped.
                    suffer(by);
                }
            }
            Signal::SIGTSTP | Signal::SIGSTOP
                if self.terminal.is_lent()
                    || (by == Signal::SIGTSTP && self.terminal.is_there()) =>
            {
                let lent = self.terminal.is_lent();
                self.terminal.take_back();
                suffer(Signal::SIGTSTP);
                if lent && !self.guard.is_lost() {
                    self.terminal.lend(self.child.id);
                }
                self.go_on();
            }
            _ => {}
        }
    }

    /// Continues the command, unless the lock was lost meanwhile: then no line of it is to run.
    fn go_on(&self) {
        if !self.guard.is_lost() {
            self.child.signal(Signal::SIGCONT);
        }
    }

    /// Ends the group before another owner can have the lock.
    async fn stop(&mut self, why: Loss) -> io::Result<End> {
        let what = self.guard.what();
        say(&format!("{}: {what} is lost, ending the command: {why}", self.name));
        self.child.signal(Signal::SIGTERM);
        // What is stopped would not get it. Late, after a suspend, there is no time for it.
        let began = since_boot().unwrap_or_default();
        let kill_by = (began + self.terms.grace).min(self.kill_by.unwrap_or(Duration::MAX));
        if began < kill_by {
            self.child.signal(Signal::SIGCONT);
        }
        let (mut end, mut killed) = (None, false);
        loop {
            let now = since_boot().unwrap_or(kill_by);
            if !killed && now >= kill_by {
                self.child.signal(Signal::SIGKILL);
                killed = true;
            }
            if let Some(end) = end
                && (self.child.is_empty() || now >= kill_by + STUCK)
            {
                return Ok(end);
            }
            tokio::select! {
                came = self.signals.next() => {
                    let came = came?;
                    if came.signal != Signal::SIGCHLD {
                        self.take(came);
                        continue;
                    }
                    while let Some(news) = self.child.news() {
                        match news {
                            News::Ended(how) => end = Some(how),
                            News::Stopped(_) => self.child.signal(Signal::SIGCONT),
                        }
                    }
                }
                () = sleep(LOOK.min(kill_by.saturating_sub(now)).max(Duration::from_millis(1))) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(lease: u64, kill_after: u64) -> (u64, u64) {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        let terms = Terms::new(Duration::from_millis(lease), Duration::from_millis(kill_after));
        (millis(terms.margin), millis(terms.grace))
    }

    #[test]
    fn a_command_has_the_time_to_stop_that_was_asked_for() {
        assert_eq!(terms(30_000, 5_000), (5_500, 5_000));
        assert_eq!(terms(30_000, 0), (500, 375));
    }

    #[test]
    fn a_short_lease_leaves_less() {
        assert_eq!(terms(10_000, 5_000), (2_500, 2_000));
        assert_eq!(terms(1_000, 5_000), (250, 187));
    }

    #[test]
    fn the_kill_comes_before_the_keeper_and_the_keeper_before_the_server() {
        for lease in [1_000, 2_000, 30_000, 86_400_000] {
            for kill_after in [0, 100, 5_000, u64::MAX] {
                let terms =
                    Terms::new(Duration::from_millis(lease), Duration::from_millis(kill_after));
                let keepers = terms.keepers(Duration::ZERO, Duration::ZERO);
                assert!(terms.grace < keepers && keepers < terms.margin);
                assert!(terms.tick < Duration::from_millis(lease) / 4);
            }
        }
    }
}
