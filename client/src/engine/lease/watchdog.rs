//! The one task per client that renews leases and notices their end.
//!
//! It has an agenda of all held locks, ordered by the time of their next work, and sends due renewals
//! together. It does not block on answers, so an unanswered renewal does not delay the report of a
//! loss. It waits for no command of a guard: its renewals may overlap with the guard's.

use crate::engine::clock::{Clock, Moment};
use crate::engine::lease::late::RenewalId;
use crate::engine::lease::{Lease, WatchdogAction};
use crate::engine::telemetry;
use crate::net::deadline::{after, left};
use crate::net::node::Node;
use crate::net::replicas::{HANGS, NotRenewed, Renewals};
use crate::net::router::Route;
use crate::net::runtimes::{Runtimes, Single};
use crate::sync::{Mutex, Ordering, lock};
use crate::wire::error::Error;
use crate::wire::reply;
use futures_util::future::{join_all, poll_immediate};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Pipeline, Value};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Longest timer, because timers stop while the machine is suspended. It is less than a third of the longest
/// offer, so most grants after a wait need not wake the task.
const TICK: Duration = Duration::from_millis(500);

/// Largest number of leases that are processed without a pause. Acquires and releases have to wait while
/// these leases are processed.
pub(crate) const CHUNK: usize = 5_000;

/// Largest number of renewals that are sent together.
const BATCH: usize = 500;

#[derive(Debug)]
pub(crate) struct Watchdog {
    renewals: Arc<Renewals>,
    clock: Arc<dyn Clock>,
    patience: Duration,
    agenda: Mutex<Agenda>,
    /// Notified when work is due before the task's timer, or the task must end.
    woken: Notify,
    runtimes: Arc<Runtimes>,
    task: Single,
}

/// Leases, ordered by the time of their next check.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BTreeMap<(Moment, u64), Arc<Lease>>,
    /// When the task wakes, as of its last sleep; `None` before the first one. A task that is awake checks
    /// the agenda again before it sleeps.
    sleeps_until: Option<Moment>,
    closed: bool,
}

impl Agenda {
    /// Inserts, moves or removes a lease. Returns whether the lease is due before the task wakes.
    pub(crate) fn place(&mut self, lease: &Arc<Lease>, now: Moment) -> bool {
        self.remove(lease);
        let at = match lease.action(now) {
            WatchdogAction::Done => return false,
            WatchdogAction::Renew(_) | WatchdogAction::Expire => now,
            WatchdogAction::Later(at) => at,
        };
        lease.scheduled.store(at.0, Ordering::Relaxed);
        self.entries.insert((at, lease.id), lease.clone());
        self.sleeps_until.is_some_and(|until| at < until)
    }

    pub(crate) fn remove(&mut self, lease: &Arc<Lease>) {
        let at = lease.scheduled.load(Ordering::Relaxed);
        self.entries.remove(&(Moment(at), lease.id));
    }

    /// Removes due leases from the agenda, at most [`CHUNK`], and returns them.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Arc<Lease>> {
        let mut due = Vec::new();
        while due.len() < CHUNK
            && let Some(first) = self.entries.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }

    fn place_all(&mut self, now: Moment) {
        for lease in std::mem::take(&mut self.entries).into_values() {
            self.place(&lease, now);
        }
    }

    fn next(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Watchdog {
    pub(crate) fn new(
        renewals: Arc<Renewals>,
        clock: Arc<dyn Clock>,
        patience: Duration,
        runtimes: Arc<Runtimes>,
    ) -> Self {
        Self {
            renewals,
            clock,
            patience,
            agenda: Mutex::default(),
            woken: Notify::new(),
            runtimes,
            task: Single::default(),
        }
    }

    /// Adds a lease to the agenda. Moves it after a change, and removes it when it has ended.
    pub(crate) fn watch(self: &Arc<Self>, lease: &Arc<Lease>) {
        let oversleeps = lock(&self.agenda).place(lease, self.now());
        if oversleeps {
            self.woken.notify_one();
        }
        self.keep_running();
    }

    /// Removes a lease that needs no renewals and whose end does not matter.
    pub(crate) fn forget(&self, lease: &Arc<Lease>) {
        lock(&self.agenda).remove(lease);
    }

    /// Ends the task. Called when the context is dropped.
    pub(crate) fn close(&self) {
        lock(&self.agenda).closed = true;
        self.woken.notify_one();
    }

    /// Starts the task unless it runs, on the runtime of the caller or, outside a runtime, on the one that was
    /// used last. The task may continue on the runtime of the caller if the one that it runs on ends.
    pub(crate) fn keep_running(self: &Arc<Self>) {
        let _here = self.runtimes.remember();
        let me = self.clone();
        self.task.start(&self.runtimes, move || {
            let me = me.clone();
            async move { me.run().await }
        });
    }

    fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    async fn run(self: &Arc<Self>) {
        // Includes leases that an earlier task has left behind.
        lock(&self.agenda).place_all(self.now());
        let mut under_way = FuturesUnordered::new();
        let mut switched = pin!(self.renewals.router.switched());
        let mut idle = false;
        loop {
            let batches = self.take_due();
            let sleep = {
                let mut agenda = lock(&self.agenda);
                if agenda.closed {
                    return;
                }
                let (now, next) = (self.now(), agenda.next());
                // The timer runs for one more tick after the last lock is gone, since another lock may follow
                // at once.
                let sleep = match next {
                    Some(next) => Some(next.left_at(now).min(TICK)),
                    None if idle => None,
                    None => Some(TICK),
                };
                idle = next.is_none();
                agenda.sleeps_until = Some(sleep.map_or(Moment::NEVER, |sleep| now.after(sleep)));
                sleep
            };
            under_way.extend(batches.into_iter().map(|batch| self.renew(batch)));
            let pause = async {
                match sleep {
                    Some(sleep) => tokio::time::sleep(sleep).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(()) = under_way.next(), if !under_way.is_empty() => {}
                () = pause => {}
                () = self.woken.notified() => idle = false,
                // After a failover: renew at once, to learn which locks the new server has.
                () = &mut switched => {
                    switched.set(self.renewals.router.switched());
                    // Registers for the next switch before the work for this one, so that none is missed.
                    while poll_immediate(&mut switched).await.is_some() {
                        switched.set(self.renewals.router.switched());
                    }
                    self.hurry().await;
                }
            }
        }
    }

    /// Makes a renewal of each lease due.
    async fn hurry(&self) {
        let all: Vec<_> = lock(&self.agenda).entries.values().cloned().collect();
        for some in all.chunks(CHUNK) {
            {
                let mut agenda = lock(&self.agenda);
                let now = self.now();
                for lease in some {
                    lease.hurry(now);
                    agenda.place(lease, now);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Removes due leases from the agenda. Returns the renewals to send, and marks expired leases as lost.
    /// Puts the leases that have not ended back: a lease that is being renewed is then listed at its end.
    fn take_due(&self) -> Vec<Batch> {
        let due = lock(&self.agenda).due(self.now());
        let now = self.now();
        let mut renewals = Vec::new();
        for lease in &due {
            match lease.action(now) {
                // May call the program's log and metrics recorders, so the agenda is not locked.
                WatchdogAction::Expire => drop(lease.expire(now)),
                WatchdogAction::Renew(_) => {
                    renewals.extend(lease.take_up(now).map(|length| Renewal {
                        lease: lease.clone(),
                        length,
                        sent: None,
                        answered: false,
                        redirected: false,
                    }));
                }
                WatchdogAction::Later(_) | WatchdogAction::Done => {}
            }
        }
        let mut agenda = lock(&self.agenda);
        for lease in &due {
            agenda.place(lease, now);
        }
        drop(agenda);
        self.batches(renewals)
    }

    fn batches(&self, renewals: Vec<Renewal>) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for renewal in renewals {
            let node = self.renewals.router.believed(&renewal.lease.held_lock.key);
            // The shortest lease of a batch limits the time for its answers, so urgent leases are sent
            // separately.
            let urgent = renewal.lease.left() / 2 < self.patience;
            let fits = |batch: &&mut Batch| {
                batch.urgent == urgent
                    && batch.renewals.len() < BATCH
                    && batch.node.as_ref().map(Arc::as_ptr) == node.as_ref().map(Arc::as_ptr)
            };
            match batches.iter_mut().rev().find(fits) {
                Some(batch) => batch.renewals.push(renewal),
                None => batches.push(Batch { node, urgent, renewals: vec![renewal] }),
            }
        }
        batches
    }

    /// Sends a batch of renewals and records the answers.
    async fn renew(self: &Arc<Self>, batch: Batch) {
        let Batch { node, mut renewals, .. } = batch;
        match node {
            Some(node) => self.renew_at(&node, &mut renewals).await,
            // Refreshes the slot map: perhaps no other task does.
            None => self.renewals.router.seek(),
        }
        // The drop of a renewal records that it has ended.
        let leases: Vec<_> = renewals.into_iter().map(|renewal| renewal.lease.clone()).collect();
        let now = self.now();
        let mut agenda = lock(&self.agenda);
        for lease in &leases {
            agenda.place(lease, now);
        }
    }

    async fn renew_at(&self, node: &Arc<Node>, renewals: &mut [Renewal]) {
        let router = &self.renewals.router;
        let answers = match self.ask(node, renewals).await {
            Ok(answers) => answers,
            Err(trouble) => {
                router.learn(node, &trouble);
                renewals.iter().for_each(|renewal| renewal.lease.failed(&trouble));
                return telemetry::renewals_failed(renewals.len(), &trouble);
            }
        };
        let now = self.now();
        let mut elsewhere = Vec::new();
        for (renewal, answer) in renewals.iter_mut().zip(answers) {
            let answer = answer.and_then(|value| Ok(reply::read(value).map_err(Error::from)?));
            let failed = answer.as_ref().err();
            let next = failed.and_then(|failed| router.learn(node, &failed.error));
            match next {
                Some(route) if route.asking => {
                    renewal.refused();
                    elsewhere.push((renewal, route));
                }
                // It is sent again after a few milliseconds, with the other renewals for the new node.
                Some(_) => {
                    renewal.refused();
                    renewal.redirected = true;
                }
                None => renewal.take_in(answer, now),
            }
        }
        let sending_on = |(renewal, route)| self.send_on(renewal, route);
        join_all(elsewhere.into_iter().map(sending_on)).await;
    }

    /// Renews a lock in a migrating slot at the node that imports the slot.
    async fn send_on(&self, renewal: &mut Renewal, route: Route) {
        let (lease, length) = (renewal.lease.clone(), renewal.length);
        let patience = self.patience.min(lease.left() / 2);
        let answer = async {
            let request = lease.renewal(length, None).map_err(Error::from)?;
            let sending = |via, redirected| {
                if redirected {
                    renewal.refused();
                }
                renewal.sending(self.now(), via);
            };
            self.renewals.send_on(route, &request, patience, sending).await
        };
        let answer = answer.await;
        renewal.take_in(answer, self.now());
    }

    async fn ask(
        &self,
        node: &Node,
        batch: &mut [Renewal],
    ) -> Result<Vec<Result<Value, NotRenewed>>, Error> {
        let shortest = batch.iter().map(|renewal| renewal.lease.left()).min();
        // Time for a second try over another connection must be left.
        let patience = self.patience.min(shortest.unwrap_or_default() / 2);
        let end = after(patience);
        let live = node.renewals().live_by(end).await?;
        let patience = left(end);
        let sent = self.now();
        let mut commands = Pipeline::with_capacity(batch.len());
        for renewal in batch {
            renewal.sending(sent, live.number);
            commands.add_command(renewal.lease.renewal(renewal.length, None)?);
        }
        let answers = self.renewals.send(node, &live, commands, patience).await;
        if matches!(answers, Err(Error::Timeout)) && patience >= HANGS {
            live.doubt();
        }
        answers
    }
}

/// Renewals that are sent together.
#[derive(Debug)]
struct Batch {
    /// The node; `None` if no node is known to serve the slot.
    node: Option<Arc<Node>>,
    urgent: bool,
    renewals: Vec<Renewal>,
}

/// A renewal in flight. If it is dropped without an answer, even because its runtime has ended, the next
/// renewal is planned.
#[derive(Debug)]
struct Renewal {
    lease: Arc<Lease>,
    length: Duration,
    /// When the renewal was last sent, and its id.
    sent: Option<(Moment, RenewalId)>,
    answered: bool,
    /// `true` if the node redirected the renewal, which then had no effect.
    redirected: bool,
}

impl Renewal {
    fn sending(&mut self, at: Moment, via: u64) {
        self.sent = Some((at, self.lease.renewing(at, self.length, via)));
    }

    fn refused(&self) {
        if let Some((_, renewal)) = self.sent {
            self.lease.refused(renewal);
        }
    }

    fn take_in(&mut self, answer: Result<Option<Duration>, NotRenewed>, now: Moment) {
        if matches!(answer, Ok(Some(_))) {
            telemetry::renewed(&self.lease.held_lock);
        }
        let outcome = match self.sent {
            Some((sent, renewal)) => self.lease.answered(renewal, sent, self.length, answer, now),
            None => answer.map(drop).map_err(|failed| failed.error),
        };
        match outcome {
            Ok(()) => self.answered = true,
            Err(trouble) => telemetry::renewals_failed(1, &trouble),
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        if let Some((_, renewal)) = self.sent {
            self.lease.give_up(renewal);
        }
        if !self.answered {
            self.lease.not_renewed(self.redirected, Moment::of(&*self.lease.clock));
        }
    }
}
