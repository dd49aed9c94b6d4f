//! The scheduler of all work outside commands.
//!
//! ```text
//! for live waiters   ends of waits, opened latches, readers, messages to channels of sessions,
//!                    results, ends of sessions, ends of turns of Redisson, due looks at keys, sets
//!                    of locks, releases of ended sessions, grants to take back, sweeps
//! the rest           regular looks at all keys, sessions that went away or returned, remains of
//!                    ended sessions, changes for observers, drain, checks of bindings, freeing
//! ```
//!
//! The caller asks for one piece of work after another, until its time is used up. Each piece is
//! small, so the caller exceeds this time only slightly. If both groups have work, three of four
//! pieces are for live waiters, so neither group starves. Within each group, the kinds of work take
//! turns. Within most kinds, the sessions or keys take turns.

use crate::bound::DueBinding;
use crate::ids::{SessionName, WaiterId};
use crate::key::LockKey;
use crate::outbox::UnsentGrant;
use crate::outcome::Cause;
use crate::reading::Reading;
use crate::ready::Group;
use crate::table::Table;
use crate::types::Now;

/// One piece of work.
#[derive(Debug, PartialEq, Eq)]
pub enum Work<P> {
    /// Answer this waiter: its timeout has passed.
    TimedOut(P),
    /// Answer this waiter: its latch has opened.
    Opened(P),
    /// Answer this waiter: the module is being drained.
    Drained(P),
    /// Answer this reader: its session was removed.
    Forgotten(P),
    /// Answer this reader with the outcomes of its session.
    Read(Reading, P),
    /// Publish a message to this session's channel: it has unread outcomes. The number is that of the latest
    /// outcome.
    Ring(SessionName, u64),
    /// Read this key and call the function that looks at its kind.
    Look(LockKey, Cause),
    /// Take back this grant.
    TakeBack(UnsentGrant),
    /// Look at this binding: see [`Table::next_bound`].
    Bound(DueBinding),
    /// Check whether the result of this group exists: see [`Table::looked_at_group`].
    Results(Group),
    /// Read all keys of this waiter for a set and try to grant it: see [`Table::next_set`].
    Set(WaiterId),
    /// The piece is done; the caller has nothing to do.
    Done,
}

/// A kind of work.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Timeouts,
    Latches,
    Readers,
    Bells,
    Results,
    Alarms,
    Moments,
    Looks,
    Sets,
    Orphans,
    TakeBacks,
    Sweeps,
    Checks,
    Connections,
    Sessions,
    Remains,
    Observers,
    Drain,
    Unbound,
    Bindings,
    Discarded,
}

/// The kinds of work for live waiters.
const URGENT: [Kind; 12] = [
    Kind::Timeouts,
    Kind::Latches,
    Kind::Readers,
    Kind::Bells,
    Kind::Results,
    Kind::Alarms,
    Kind::Moments,
    Kind::Looks,
    Kind::Sets,
    Kind::Orphans,
    Kind::TakeBacks,
    Kind::Sweeps,
];

/// The other kinds.
const REST: [Kind; 9] = [
    Kind::Checks,
    Kind::Connections,
    Kind::Sessions,
    Kind::Remains,
    Kind::Observers,
    Kind::Drain,
    Kind::Unbound,
    Kind::Bindings,
    Kind::Discarded,
];

/// Number of pieces of work of which one is for the rest, even if live waiters have work.
const SHARE_OF_THE_REST: u64 = 4;

/// Largest number of entries that are freed in one piece.
const FREED: usize = 16;

/// With this many grants to take back, no more are collected from ended sessions. The rest stays in the outboxes of the
/// sessions: moving a million grants in one turn would stop the server.
const UNSENT_MAX: usize = 16;

impl<P> Table<P> {
    /// Returns the next piece of work, or `None` if nothing is due. Without `may_write`, skips work
    /// that may change a key.
    pub fn next_work(&mut self, now: Now, may_write: bool) -> Option<Work<P>> {
        self.agenda.asked = now.unix();
        self.rotation.pieces = self.rotation.pieces.wrapping_add(1);
        if self.rotation.pieces.is_multiple_of(SHARE_OF_THE_REST) {
            self.rest(now, may_write).or_else(|| self.urgent(now, may_write))
        } else {
            self.urgent(now, may_write).or_else(|| self.rest(now, may_write))
        }
    }

    fn urgent(&mut self, now: Now, may_write: bool) -> Option<Work<P>> {
        let from = self.rotation.urgent;
        let (next, work) = self.first_with_work(&URGENT, from, now, may_write)?;
        self.rotation.urgent = next;
        Some(work)
    }

    fn rest(&mut self, now: Now, may_write: bool) -> Option<Work<P>> {
        let from = self.rotation.rest;
        let (next, work) = self.first_with_work(&REST, from, now, may_write)?;
        self.rotation.rest = next;
        Some(work)
    }

    /// Finds the first kind with work, from position `from` on and wrapping around. Returns the
    /// position after this kind, and a piece of its work.
    fn first_with_work(
        &mut self,
        kinds: &[Kind],
        from: usize,
        now: Now,
        may_write: bool,
    ) -> Option<(usize, Work<P>)> {
        let all = kinds.iter().copied().zip(1_usize..);
        for (kind, next) in all.cycle().skip(from).take(kinds.len()) {
            if let Some(work) = self.piece(kind, now, may_write) {
                return Some((next.checked_rem(kinds.len()).unwrap_or(0), work));
            }
        }
        None
    }

    fn piece(&mut self, kind: Kind, now: Now, may_write: bool) -> Option<Work<P>> {
        let answer = |client: Option<P>, work: fn(P) -> Work<P>| client.map_or(Work::Done, work);
        match kind {
            Kind::Timeouts => self.time_out_one(now).map(|it| answer(it, Work::TimedOut)),
            Kind::Latches => self.next_opened().map(|it| answer(it, Work::Opened)),
            Kind::Readers => self.next_reader(now).map(|(reading, it)| Work::Read(reading, it)),
            Kind::Bells => self
                .next_bell()
                .map(|due| due.map_or(Work::Done, |(session, last)| Work::Ring(session, last))),
            Kind::Results => self.next_group().map(Work::Results),
            Kind::Alarms => self.handle_due_session(now).then_some(Work::Done),
            Kind::Moments => self.end_moment(now).then_some(Work::Done),
            Kind::Sweeps => self.is_sweeping().then(|| {
                self.sweep_on(now);
                Work::Done
            }),
            Kind::Looks if may_write => self.next_due_look(now).map(|(k, c)| Work::Look(k, c)),
            Kind::Checks if may_write => self.next_check(now).map(|(k, c)| Work::Look(k, c)),
            Kind::Sets if may_write => self.next_set(None).map(Work::Set),
            Kind::Orphans if may_write => self.next_orphan(now).map(Work::Bound),
            Kind::Bindings if may_write => self.next_binding(now).map(Work::Bound),
            Kind::TakeBacks if may_write => self.next_unsent().map(Work::TakeBack),
            Kind::Remains if self.unsent.len() < UNSENT_MAX => {
                self.clear_remains().then_some(Work::Done)
            }
            Kind::Sets
            | Kind::Looks
            | Kind::Checks
            | Kind::Orphans
            | Kind::Bindings
            | Kind::TakeBacks
            | Kind::Remains => None,
            Kind::Connections => self.mark_next_away(now).then_some(Work::Done),
            Kind::Sessions => self.settle_on().then_some(Work::Done),
            Kind::Observers => self.inform_next().then_some(Work::Done),
            Kind::Drain => self.drain_one().map(|it| answer(it, Work::Drained)),
            Kind::Unbound => self.has_forgotten().then(|| {
                self.forget_some(FREED);
                Work::Done
            }),
            Kind::Discarded => {
                let mut freed = self.free_one()?;
                for _ in 1..FREED {
                    if freed.is_some() {
                        break;
                    }
                    freed = self.free_one().flatten();
                }
                Some(answer(freed, Work::Forgotten))
            }
        }
    }
}
