//! The agenda: the end of each wait with a timeout, the due time of each session, and the times at
//! which keys with waiters or observers are read next (each a [`Look`]). The due time of a session
//! is its end, or the end of its blocked reader's timeout.
//!
//! The entries are in ordered sets without tombstones: removing one frees its memory. Adding or
//! removing an entry takes O(log n).

use std::collections::BTreeSet;

use crate::fair::{Fair, Flow};
use crate::free::{Free, free_one_of};
use crate::ids::{QueueId, SessionId, WaiterId};
use crate::outcome::Cause;
use crate::types::{Millis, MonoMillis, Now, UnixMillis, sooner};

/// A planned look at the key of a queue: the caller reads the key, and the table grants what can be
/// granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) due: UnixMillis,
    /// The flow of the waiter that was first in line when the look was planned.
    pub(crate) flow: Flow,
    /// `true` if the look is a regular check for changes that no event has reported.
    pub(crate) checks: bool,
}

/// The planned ends of waits, sessions and blocked reads, and the planned looks at keys.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Ends of waits that have a timeout, on the monotonic clock.
    pub(crate) waits: Fair<MonoMillis, WaiterId>,
    /// Looks other than regular checks, on the wall clock, which TTLs use.
    pub(crate) looks: Fair<UnixMillis, QueueId>,
    /// Looks that are regular checks for unnoticed changes.
    pub(crate) checks: Fair<UnixMillis, QueueId>,
    /// Times at which the timeout of a session's reader passes, or the session ends.
    alarms: BTreeSet<(MonoMillis, SessionId)>,
    /// Wall-clock time of the latest request for work. A look that is due at once is planned for
    /// this time.
    pub(crate) asked: UnixMillis,
}

impl Free for Agenda {
    fn free_one(&mut self) -> bool {
        let Self { waits, looks, checks, alarms, asked: _ } = self;
        free_one_of(&mut [waits, looks, checks, alarms])
    }
}

impl Agenda {
    pub(crate) fn add_wait(&mut self, flow: Flow, end: Option<MonoMillis>, waiter: WaiterId) {
        if let Some(end) = end {
            self.waits.insert(flow, (end, waiter));
        }
    }

    pub(crate) fn drop_wait(&mut self, flow: Flow, end: Option<MonoMillis>, waiter: WaiterId) {
        if let Some(end) = end {
            self.waits.remove(flow, (end, waiter));
        }
    }

    /// Replaces the planned look at a queue. `None` means that no look is planned.
    pub(crate) fn move_look(&mut self, queue: QueueId, from: Option<Look>, to: Option<Look>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.looks_of(from).remove(from.flow, (from.due, queue));
        }
        if let Some(to) = to {
            self.looks_of(to).insert(to.flow, (to.due, queue));
        }
    }

    fn looks_of(&mut self, look: Look) -> &mut Fair<UnixMillis, QueueId> {
        if look.checks { &mut self.checks } else { &mut self.looks }
    }

    pub(crate) fn add_alarm(&mut self, due: MonoMillis, session: SessionId) {
        self.alarms.insert((due, session));
    }

    pub(crate) fn drop_alarm(&mut self, due: MonoMillis, session: SessionId) {
        self.alarms.remove(&(due, session));
    }

    pub(crate) fn first_alarm(&self, now: Now) -> Option<SessionId> {
        let (due, session) = self.alarms.first()?;
        (*due <= now.mono).then_some(*session)
    }

    /// Time until the next entry is due; `None` if there is no entry.
    pub(crate) fn next_due(&self, now: Now) -> Option<Millis> {
        let wait = self.waits.first(now.mono).map(|end| end.since(now.mono));
        let look = self.looks.first(now.unix()).map(|due| due.since(now.unix()));
        let check = self.checks.first(now.unix()).map(|due| due.since(now.unix()));
        let alarm = self.alarms.first().map(|(due, _)| due.since(now.mono));
        sooner(sooner(wait, alarm), sooner(look, check))
    }

    pub(crate) fn has_alarm(&self, due: MonoMillis, session: SessionId) -> bool {
        self.alarms.contains(&(due, session))
    }

    pub(crate) fn alarms(&self) -> usize {
        self.alarms.len()
    }

    pub(crate) fn has_wait(&self, flow: Flow, end: MonoMillis, waiter: WaiterId) -> bool {
        self.waits.contains(flow, (end, waiter))
    }

    pub(crate) fn has_look(&self, look: Look, queue: QueueId) -> bool {
        let looks = if look.checks { &self.checks } else { &self.looks };
        looks.contains(look.flow, (look.due, queue))
    }

    /// Number of waits, and number of looks including regular checks.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.waits.len(), self.looks.len().saturating_add(self.checks.len()))
    }
}

/// Due time of a look that is due at once. `Table::plan_look` replaces it by [`Agenda::asked`], so
/// that looks that were due before come first.
pub(crate) const AT_ONCE: UnixMillis = UnixMillis(0);

/// The unfinished part of a sweep, which plans a look at each queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    /// Database of the queues; `None` for all databases.
    pub(crate) db: Option<i32>,
    /// The sweep continues after this queue; `None` is the start.
    pub(crate) after: Option<QueueId>,
    /// The sweep ends with this queue. Later queues were created after the sweep was planned.
    pub(crate) last: QueueId,
    /// The cause that is reported to observers.
    pub(crate) cause: Cause,
}
