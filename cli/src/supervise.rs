//! Supervision of the running command: signals, stops, and the loss of the lock.
//!
//! ```text
//!                       renewed        lost             killed      the server frees the lock
//!     ─────────────────────┼────────────┼─────────────────┼──────────────┼────►
//!                          │            │◄──── grace ────►│◄── slack ───►│
//!                          │            │◄──────────── margin ──────────►│
//!                                       SIGTERM           SIGKILL
//! ```

use crate::child::{Child, ChildEvent, End};
use crate::held::Held;
use crate::messages;
use crate::signals::{ReceivedSignal, Signals, take_default_action};
use crate::terminal::Terminal;
use crate::time::since_boot;
use kvlock::Loss;
use nix::sys::signal::Signal;
use std::io;
use std::time::Duration;
use tokio::time::sleep;

/// Time between SIGKILL and the end of the lease at the server, unless a quarter of the margin is shorter.
/// Allows for delays on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// Time to wait for processes that SIGKILL does not end, such as those that wait for a disk.
const STUCK: Duration = Duration::from_secs(5);

/// Interval of checks whether a group that got SIGTERM has ended.
const CHECK: Duration = Duration::from_millis(20);

/// Durations around the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Time from the moment at which a lease that is not renewed counts as lost until the server
    /// can free the lock.
    pub(crate) margin: Duration,
    /// Time from SIGTERM to SIGKILL.
    grace: Duration,
    /// Longest time between two deadlines that are sent to the keeper while the lock is held.
    tick: Duration,
}

impl Terms {
    pub(crate) fn new(lease: Duration, kill_after: Duration) -> Self {
        // The client allows a margin of at most a quarter of the lease.
        let margin = kill_after.saturating_add(SLACK).min(lease / 4);
        let slack = SLACK.min(margin / 4);
        let tick = (lease / 10).min(Duration::from_secs(1));
        Self { margin, grace: margin - slack, tick }
    }

    /// Returns the time at which the keeper kills the group if it gets no later deadline. This time is in the
    /// middle of the slack. `left` is the time from `now` until the lock counts as lost.
    pub(crate) fn keeper_deadline(&self, now: Duration, left: Duration) -> Duration {
        now + left + self.grace + (self.margin - self.grace) / 2
    }
}

/// Outcome of the supervision of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(End),
    /// The lock was lost, and the command was ended.
    Lost(End),
}

pub(crate) struct Watch<'a> {
    pub(crate) guard: &'a Held<'a>,
    pub(crate) child: &'a mut Child,
    pub(crate) signals: &'a mut Signals,
    pub(crate) terminal: Terminal,
    pub(crate) terms: Terms,
    /// Name of the lock, for messages.
    pub(crate) name: &'a str,
    /// `true` if the interrupt key was pressed while the terminal was not lent.
    pub(crate) interrupted: bool,
    /// The last SIGTERM, SIGINT or SIGQUIT that this process received and passed on to the command.
    pub(crate) asked_to_end: Option<ReceivedSignal>,
    /// Latest time of SIGKILL if the lock is lost, on the clock of [`since_boot`].
    pub(crate) kill_by: Option<Duration>,
}

impl Watch<'_> {
    /// Waits until the command has ended, by itself or because the lock was lost.
    pub(crate) async fn until_end(&mut self) -> io::Result<Outcome> {
        loop {
            self.extend_deadlines();
            tokio::select! {
                biased;
                why = self.guard.lost() => return Ok(Outcome::Lost(self.stop(why).await?)),
                received = self.signals.next() => if let Some(end) = self.handle(received?) {
                    return Ok(Outcome::Ended(end));
                },
                () = sleep(self.terms.tick) => {}
            }
        }
    }

    /// Sets the deadlines of this process and of the keeper anew, from the end of the current lease.
    fn extend_deadlines(&mut self) {
        let left = self.guard.lease_left();
        if let (Some(now), false) = (since_boot(), left.is_zero()) {
            self.kill_by = Some(now + left + self.terms.grace);
            self.child.set_deadline(self.terms.keeper_deadline(now, left), now);
        }
    }

    fn handle(&mut self, received: ReceivedSignal) -> Option<End> {
        match received.signal {
            Signal::SIGCHLD => {
                while let Some(event) = self.child.next_event() {
                    match event {
                        ChildEvent::Ended(end) => return Some(end),
                        ChildEvent::Stopped(by) => self.stopped(by),
                    }
                }
            }
            Signal::SIGCONT => self.continue_command(),
            signal => {
                self.interrupted |= received.typed && signal == Signal::SIGINT;
                if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) {
                    self.asked_to_end = Some(received);
                }
                self.child.signal(signal);
            }
        }
        None
    }

    /// Handles a stop of the command. If the terminal is the reason, lends it to the command, or stops this
    /// process too, so that the shell sees a stopped job. After any other stop, the command stays stopped,
    /// and keeps the lock, until another process continues it.
    fn stopped(&mut self, by: Signal) {
        match by {
            Signal::SIGTTIN | Signal::SIGTTOU => {
                if self.terminal.lend(self.child.id) {
                    self.child.signal(Signal::SIGCONT);
                } else {
                    // The shell continues this process, which then gets SIGCONT. In an orphaned
                    // process group the signal has no effect, and the command stays stopped.
                    take_default_action(by);
                }
            }
            Signal::SIGTSTP | Signal::SIGSTOP
                if self.terminal.is_lent() || (by == Signal::SIGTSTP && self.terminal.exists()) =>
            {
                let lent = self.terminal.is_lent();
                self.terminal.take_back();
                take_default_action(Signal::SIGTSTP);
                if lent && !self.guard.is_lost() {
                    self.terminal.lend(self.child.id);
                }
                self.continue_command();
            }
            _ => {}
        }
    }

    /// Continues the command, unless the lock was lost while it was stopped.
    fn continue_command(&self) {
        if !self.guard.is_lost() {
            self.child.signal(Signal::SIGCONT);
        }
    }

    /// Ends the group with SIGTERM, and with SIGKILL after the grace. If the lock was lost because its lease
    /// was not renewed, SIGKILL is due before another owner can hold the lock.
    async fn stop(&mut self, why: Loss) -> io::Result<End> {
        // The signal is sent before the message and before everything else.
        self.child.signal(Signal::SIGTERM);
        let began = since_boot().unwrap_or_default();
        let kill_by = (began + self.terms.grace).min(self.kill_by.unwrap_or(Duration::MAX));
        // A stopped group handles SIGTERM only after SIGCONT. If no time is left, as after a suspend, it is
        // not continued.
        if began < kill_by {
            self.child.signal(Signal::SIGCONT);
        }
        let noun = self.guard.noun();
        messages::send(&format!("{}: {noun} is lost, ending the command: {why}", self.name));
        let (mut end, mut killed) = (None, false);
        loop {
            let now = since_boot().unwrap_or(kill_by);
            if !killed && now >= kill_by {
                self.child.signal(Signal::SIGKILL);
                killed = true;
            }
            if let Some(end) = end
                && (self.child.is_group_empty() || now >= kill_by + STUCK)
            {
                return Ok(end);
            }
            tokio::select! {
                received = self.signals.next() => {
                    let received = received?;
                    if received.signal != Signal::SIGCHLD {
                        self.handle(received);
                        continue;
                    }
                    while let Some(event) = self.child.next_event() {
                        match event {
                            ChildEvent::Ended(how) => end = Some(how),
                            ChildEvent::Stopped(_) => self.child.signal(Signal::SIGCONT),
                        }
                    }
                }
                () = sleep(CHECK.min(kill_by.saturating_sub(now)).max(Duration::from_millis(1))) => {}
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
    fn grace_is_kill_after() {
        assert_eq!(terms(30_000, 5_000), (5_500, 5_000));
        assert_eq!(terms(30_000, 0), (500, 375));
    }

    #[test]
    fn grace_is_shorter_with_a_short_lease() {
        assert_eq!(terms(10_000, 5_000), (2_500, 2_000));
        assert_eq!(terms(1_000, 5_000), (250, 187));
    }

    #[test]
    fn sigkill_comes_before_the_keeper_and_the_keeper_before_the_server() {
        for lease in [1_000, 2_000, 30_000, 86_400_000] {
            for kill_after in [0, 100, 5_000, u64::MAX] {
                let terms =
                    Terms::new(Duration::from_millis(lease), Duration::from_millis(kill_after));
                let keeper = terms.keeper_deadline(Duration::ZERO, Duration::ZERO);
                assert!(terms.grace < keeper && keeper < terms.margin);
                assert!(terms.tick < Duration::from_millis(lease) / 4);
            }
        }
    }
}
