//! Observation of locks: their holders, and changes of holder.
//!
//! Each observed lock has one task, for any number of observers. The task sends `LOCK.OBSERVE` and gets
//! changes through the session at the lock's server. When the session ends, the task starts again at the
//! server that then has the lock. The state of a lock is in [`Observed`], with the invariants O1 and O2.

use crate::engine::context::Context;
use crate::engine::lease::{Lease, ShareId};
use crate::engine::limit::{pause_after, sleep_until_changed};
use crate::engine::session::observed::{HolderId, Observed, Suspect, View};
use crate::engine::telemetry;
use crate::net::router::Route;
use crate::wire::error::Error;
use crate::wire::observed::observed;
use crate::wire::request;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest pause after an error that is not retryable, such as a missing right. The longest is
/// [`REFUSED_MAX`].
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// An observation, which lasts until this is dropped.
#[derive(Clone)]
pub(crate) struct Observation {
    context: Arc<Context>,
    observed: Arc<Observed>,
    view: watch::Receiver<View>,
}

/// Observes a lock for a caller that waits for the view. An earlier failure may be outdated: the caller waits for a
/// [change](Observation::changed) of a failed view, which is the outcome of the next attempt.
pub(crate) fn observe(context: &Arc<Context>, key: &Arc<[u8]>) -> Observation {
    let observation = join(context, key);
    observation.observed.try_again();
    observation
}

fn join(context: &Arc<Context>, key: &Arc<[u8]>) -> Observation {
    let (observed, view) = context.observers.join(key);
    let observation = Observation { context: context.clone(), observed, view };
    observation.keep_running();
    observation
}

/// The observation of a lock by one of its holders, which lasts until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldObservation {
    observation: Observation,
    holder: HolderId,
}

/// Observes a lock that this client holds, so that the holder, the guard of `share`, learns of changes.
pub(crate) fn observe_held(
    context: &Arc<Context>,
    lease: &Arc<Lease>,
    share: ShareId,
) -> HeldObservation {
    let observation = join(context, &lease.held_lock.key);
    let holder = observation.observed.held_by(lease, share);
    // A report from before the grant does no harm. (O2)
    check(context, observation.observed.check(lease));
    HeldObservation { observation, holder }
}

impl Drop for HeldObservation {
    fn drop(&mut self) {
        self.observation.observed.no_longer_held_by(self.holder);
    }
}

/// Makes a renewal due for each lease that contradicts a report. The reply shows whether the lease is lost.
fn check(context: &Context, suspects: Vec<Suspect>) {
    for Suspect { lease, why, fits } in suspects {
        lease.suspect(why, fits, context.now());
        context.watchdog.watch(&lease);
    }
}

impl Observation {
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Waits until the view changes, and returns it.
    pub(crate) async fn changed(&mut self) -> View {
        self.keep_running();
        // The sender lives as long as this observation.
        if self.view.changed().await.is_err() {
            return std::future::pending().await;
        }
        self.view.borrow_and_update().clone()
    }

    /// Starts the task unless it runs. The task may continue on the runtime of the caller if the one that it
    /// runs on ends.
    fn keep_running(&self) {
        self.context.watchdog.keep_running();
        if !self.observed.set_running(true) {
            let task = Task { context: self.context.clone(), observed: self.observed.clone() };
            let task = Arc::new(task);
            self.context.runtimes.spawn(move || {
                let task = task.clone();
                async move { task.run().await }
            });
        }
    }
}

impl Drop for Observation {
    /// Leaves the observers. The task removes the entry of an unobserved lock. If the task has ended with its
    /// runtime, the last observer removes the entry here.
    fn drop(&mut self) {
        self.context.observers.leave(&self.observed);
    }
}

impl std::fmt::Debug for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observation").field("view", &self.view.borrow()).finish_non_exhaustive()
    }
}

/// The task of an observed lock.
struct Task {
    context: Arc<Context>,
    observed: Arc<Observed>,
}

impl Drop for Task {
    /// Removes the entry of a lock that nobody observes any more, in case that no runtime was left to do so.
    fn drop(&mut self) {
        self.observed.set_running(false);
        self.context.observers.forget_unused(&self.observed);
    }
}

impl Task {
    async fn run(&self) {
        let Self { context, observed } = self;
        loop {
            tokio::select! {
                biased;
                () = observed.unobserved() => {}
                never = self.keep_observing() => match never {},
            }
            if let Err(trouble) = self.end().await {
                tracing::debug!(%trouble, "LOCK.UNOBSERVE failed: the server may report more changes of a lock");
            }
            if context.observers.forget_unused(observed) {
                return;
            }
        }
    }

    async fn keep_observing(&self) -> Infallible {
        let Self { context, observed } = self;
        let mut since = None;
        loop {
            let Err(trouble) = self.observe(&mut since).await;
            let lasts = since.get_or_insert_with(Instant::now).elapsed();
            let pause = if trouble.is_retryable() {
                pause_after(lasts)
            } else {
                // An administrator may allow the observation later. Each pause is as long as the time since
                // the first error, unless a new observer asks.
                lasts.clamp(REFUSED_MIN, REFUSED_MAX)
            };
            if !trouble.is_retryable() || lasts >= context.settings.patience {
                telemetry::trouble(&trouble, pause);
                observed.failed(trouble);
            }
            let news = async {
                tokio::select! {
                    biased;
                    () = context.router.switched() => {}
                    () = observed.asked_again() => {}
                }
            };
            sleep_until_changed(pause, news).await;
        }
    }

    /// Observes the lock until an error. Resets `trouble`, the time of the first error, after a success.
    async fn observe(&self, trouble: &mut Option<Instant>) -> Result<Infallible, Error> {
        let router = &self.context.router;
        let mut route = router.route(&self.observed.key).await?;
        loop {
            let Err(trouble) = self.observe_at(&route, trouble).await;
            if !router.follow_redirect(&mut route, &trouble) {
                return Err(trouble);
            }
        }
    }

    async fn observe_at(
        &self,
        to: &Route,
        trouble: &mut Option<Instant>,
    ) -> Result<Infallible, Error> {
        let Self { context, observed: this } = self;
        let session = context.sessions.at(&to.node)?;
        let id = session.id().await?;
        let mut changes = session.observe(&this.key)?;
        let request = request::observe(&*this.key, &id);
        let live = to.node.commands().live_by(context.router.overdue()).await?;
        let answer = session.ask(&live, &request, to.asking).await;
        let first = observed(answer?)?;
        let mut newest = first.version;
        check(context, this.apply(first));
        *trouble = None;
        loop {
            let seen = changes.next().await?;
            // A change may arrive before the answer to `LOCK.OBSERVE` is read.
            if seen.version > newest {
                newest = seen.version;
                check(context, this.apply(seen));
            }
        }
    }

    /// Ends the observation after its last observer. A later observer starts it again.
    async fn end(&self) -> Result<(), Error> {
        let Self { context, observed } = self;
        let Some(node) = context.router.believed(&observed.key) else { return Ok(()) };
        let Some(session) = context.sessions.open_at(&node) else { return Ok(()) };
        let id = session.id().await?;
        let request = request::unobserve(&*observed.key, &id);
        node.commands().call(&request, context.settings.reply_timeout).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{Boottime, SafetyMargin};
    use crate::engine::lease::held_lock::HeldLock;
    use crate::engine::lease::late::UnansweredRenewals;
    use crate::engine::lease::{Beginning, LeasePolicy, LeaseSpec};
    use crate::engine::settings::Settings;
    use crate::net::address::Address;
    use crate::wire::request::Mode;

    /// Returns the record of a shared hold that begins now, and the share of its guard.
    fn shared(context: &Context, id: u64) -> (Arc<Lease>, ShareId) {
        let held_lock = HeldLock {
            mode: Mode::Shared,
            key: Arc::from(&b"k"[..]),
            further: None,
            owner: format!("o:{id}").into(),
            token: 1.into(),
        };
        let length = Duration::from_secs(600);
        let late = UnansweredRenewals::default();
        let granted = Beginning { since: context.now(), runs: length, late, strays: false };
        let term = LeaseSpec { length, watched: true };
        Lease::granted(id, held_lock, &context.policy, granted, term)
    }

    /// Without the right to observe, no report ever comes.
    #[tokio::test]
    async fn an_observed_lock_has_no_entries_of_former_holders_even_without_reports() {
        let context = Context::of_no_server();
        let (lease, share) = shared(&context, 0);
        let stays = observe_held(&context, &lease, share);
        let holders = || stays.observation.observed.holders();
        for id in 1..100 {
            let (lease, share) = shared(&context, id);
            let observation = observe_held(&context, &lease, share);
            lease.leave(&lease.turn().await, share);
            drop(observation);
        }
        assert_eq!(holders(), 1);
        // A reentry: two guards have one lease.
        let turn = lease.turn().await;
        let term = lease.term(share).unwrap();
        let inner = lease.reentered(&turn, context.now(), term, true).unwrap();
        drop(observe_held(&context, &lease, inner));
        assert_eq!(holders(), 1, "the outer guard still observes");
    }

    #[test]
    fn an_observed_lock_is_removed_with_its_last_observer_even_after_its_runtime_ended() {
        let safety = SafetyMargin { margin: Duration::ZERO };
        let policy = LeasePolicy { clock: Arc::new(Boottime), safety };
        let address = Address::try_from("redis://127.0.0.1:1/").unwrap();
        let context = Arc::new(Context::new(address, Settings::default(), policy).unwrap());
        let key: Arc<[u8]> = Arc::from(&b"k"[..]);
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let known = || context.observers.len();
        for observer_goes_first in [false, true] {
            let ends = runtime();
            let observation = ends.block_on(async { observe(&context, &key) });
            assert_eq!(known(), 1);
            if observer_goes_first {
                drop(observation);
                assert_eq!(known(), 1, "its task has it, and could not run yet");
                drop(ends);
            } else {
                drop(ends);
                assert_eq!(known(), 1, "it is observed");
                drop(observation);
            }
            assert_eq!(known(), 0, "{observer_goes_first}");
        }
    }
}
