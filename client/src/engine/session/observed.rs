//! State of an observed lock, and the leases of this client on it.
//!
//! - **O1** The reported term (the token of the holder, or of the sharers) never decreases: smaller terms, for
//!   example of a deposed server, are ignored. A holder without a token is the exception: it is reported with
//!   term 0.
//! - **O2** A report alone does not make a lease lost, since it may be old. It makes a renewal due, and the
//!   answer to the renewal decides.

use crate::engine::lease::{Lease, ShareId};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::observed::{Holder, ObservedState};
use crate::wire::reply::Token;
use crate::wire::request::Mode;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The view of an observer.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// No report yet.
    Unknown,
    /// The lock cannot be observed. The observing task tries again while there are observers.
    Failed(Error),
    Known(Known),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) holder: Option<Holder>,
    /// Why the last holder lost the lock, if that was reported.
    pub(crate) loss: Option<Loss>,
}

/// The locks that are observed, by name.
#[derive(Debug, Default)]
pub(crate) struct Observers(Mutex<HashMap<Arc<[u8]>, Arc<Observed>>>);

impl Observers {
    /// Adds an observer of this lock. If the lock had no observers, the view is unknown, and the task asks the
    /// server anew.
    pub(crate) fn join(&self, key: &Arc<[u8]>) -> (Arc<Observed>, watch::Receiver<View>) {
        let mut all = lock(&self.0);
        let observed = all.entry(key.clone());
        // The task may not have run since the last observer left. Then its last report may be old.
        let observed = observed.and_modify(|observed| {
            if observed.view.receiver_count() == 0 {
                observed.view.send_replace(View::Unknown);
                observed.anew.notify_one();
            }
        });
        let observed = observed.or_insert_with(|| Arc::new(Observed::new(key)));
        (observed.clone(), observed.view.subscribe())
    }

    /// Removes the lock's entry if the lock has no observers, and returns whether it has none.
    pub(crate) fn forget_unused(&self, observed: &Arc<Observed>) -> bool {
        // No observer can join while this is locked.
        let all = lock(&self.0);
        let unused = observed.view.receiver_count() == 0;
        if unused {
            forget(all, observed);
        }
        unused
    }

    /// Called by an observer before it leaves. Removes the lock's entry if the observer is the last one and no
    /// task is running. A running task removes the entry itself.
    pub(crate) fn leave(&self, observed: &Arc<Observed>) {
        let all = lock(&self.0);
        if observed.view.receiver_count() == 1 && observed.has_ended() {
            forget(all, observed);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Removes this entry, unless a newer one for the same lock has replaced it.
fn forget(mut all: MutexGuard<'_, HashMap<Arc<[u8]>, Arc<Observed>>>, observed: &Arc<Observed>) {
    if all.get(&observed.key).is_some_and(|other| Arc::ptr_eq(other, observed)) {
        all.remove(&observed.key);
    }
}

/// An observed lock.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) key: Arc<[u8]>,
    pub(crate) view: watch::Sender<View>,
    /// Tells the task to ask the server anew.
    anew: Notify,
    /// Ends the pause of the task after a refusal.
    again: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The largest term that was seen.
    term: Option<Token>,
    /// Token of the shared period, if the lock was shared in the last report; 0 if it had none.
    shared: Option<Token>,
    /// Leases of this client on the lock: one entry for each guard that observes it.
    holders: BTreeMap<HolderId, Arc<Lease>>,
    /// `true` while the task that observes the lock exists.
    runs: bool,
}

/// A guard that observes its lock: the number of its lease, and its share.
pub(crate) type HolderId = (u64, ShareId);

/// A lease of this client that contradicts a report.
pub(crate) struct Suspect {
    pub(crate) lease: Arc<Lease>,
    /// The reason to give if the lease is lost.
    pub(crate) why: Loss,
    /// `true` if the server has reported the reason, and not after a later grant. Otherwise a reason of an earlier
    /// report is better.
    pub(crate) fits: bool,
}

impl Observed {
    fn new(key: &Arc<[u8]>) -> Self {
        Self {
            key: key.clone(),
            view: watch::Sender::new(View::Unknown),
            anew: Notify::new(),
            again: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// Returns after the last observer has left, even if another one has joined since.
    pub(crate) async fn unobserved(&self) {
        tokio::select! {
            biased;
            () = self.anew.notified() => {}
            () = self.view.closed() => {}
        }
    }

    /// Processes a report of a server. Returns the leases that contradict it.
    pub(crate) fn apply(&self, seen: ObservedState) -> Vec<Suspect> {
        let ObservedState { holder, shared, loss, .. } = seen;
        let mut state = lock(&self.state);
        let term = holder.as_ref().map(|holder| holder.token).or(shared);
        let term = term.filter(|term| term.value() > 0);
        if term.is_some() && term < state.term {
            return Vec::new();
        }
        let before = state.term;
        state.term = before.max(term);
        state.shared = shared;
        let leases: Vec<_> = state.holders.values().cloned().collect();
        drop(state);
        let mut known = Known { holder, loss };
        let suspects = suspects(leases, &known, shared, before);
        self.view.send_if_modified(|view| {
            if let View::Known(before) = &*view {
                // The reply to a new LOCK.OBSERVE does not repeat why the last holder lost the lock.
                let same = before.holder == known.holder;
                known.loss = known.loss.or_else(|| before.loss.filter(|_| same));
                if *before == known {
                    return false;
                }
            }
            *view = View::Known(known);
            true
        });
        suspects
    }

    /// Checks a new lease of this client against the last report.
    pub(crate) fn check(&self, lease: &Arc<Lease>) -> Vec<Suspect> {
        let known = match &*self.view.borrow() {
            View::Known(known) => known.clone(),
            View::Unknown | View::Failed(_) => return Vec::new(),
        };
        let state = lock(&self.state);
        suspects(vec![lease.clone()], &known, state.shared, state.term)
    }

    /// Adds a guard of this client on the lock.
    pub(crate) fn held_by(&self, lease: &Arc<Lease>, share: ShareId) -> HolderId {
        let holder = (lease.id, share);
        lock(&self.state).holders.insert(holder, lease.clone());
        holder
    }

    /// Removes a guard that ends. Reports cannot do this: without the right to observe none arrives.
    pub(crate) fn no_longer_held_by(&self, holder: HolderId) {
        // Unlocked before the lease is dropped.
        let _lease = lock(&self.state).holders.remove(&holder);
    }

    /// Ends the pause of the task if the server has refused the observation. Other errors pass by themselves, and
    /// their pauses are short.
    pub(crate) fn try_again(&self) {
        if matches!(&*self.view.borrow(), View::Failed(why) if !why.is_retryable()) {
            self.again.notify_one();
        }
    }

    /// Waits for the next [`try_again`](Self::try_again).
    pub(crate) async fn asked_again(&self) {
        self.again.notified().await;
    }

    /// Records whether the task exists, and returns whether it existed before.
    pub(crate) fn set_running(&self, runs: bool) -> bool {
        std::mem::replace(&mut lock(&self.state).runs, runs)
    }

    /// Returns the number of entries of holders.
    #[cfg(test)]
    pub(crate) fn holders(&self) -> usize {
        lock(&self.state).holders.len()
    }

    fn has_ended(&self) -> bool {
        !lock(&self.state).runs
    }

    /// Records that the lock cannot be observed. A known state is kept.
    pub(crate) fn failed(&self, trouble: Error) {
        self.view.send_if_modified(|view| {
            let known = matches!(view, View::Known(_));
            if !known {
                *view = View::Failed(trouble);
            }
            !known
        });
    }
}

/// Returns the leases that contradict a report. `shared` is the token of the shared period, if the lock is shared, and
/// `before` the largest term of earlier reports.
fn suspects(
    leases: Vec<Arc<Lease>>,
    known: &Known,
    shared: Option<Token>,
    before: Option<Token>,
) -> Vec<Suspect> {
    let holder = known.holder.as_ref();
    let contradicts = |lease: &Arc<Lease>| {
        let holds = holder.is_some_and(|holder| *holder.owner == *lease.held_lock.owner.as_bytes());
        // A later shared period has a larger token. The report may also be from before the lease.
        let may_share = lease.held_lock.mode == Mode::Shared
            && shared.is_some_and(|token| token <= lease.token());
        lease.has_guards() && !(holds || may_share)
    };
    let unreported = if holder.is_some() { Loss::Taken } else { Loss::Forgotten };
    let suspect = |lease: Arc<Lease>| {
        let fits = known.loss.is_some() && before <= Some(lease.token());
        Suspect { lease, why: known.loss.unwrap_or(unreported), fits }
    };
    leases.into_iter().filter(contradicts).map(suspect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{Boottime, Moment, SafetyMargin};
    use crate::engine::lease::held_lock::HeldLock;
    use crate::engine::lease::late::UnansweredRenewals;
    use crate::engine::lease::{Beginning, LeasePolicy, LeaseSpec};
    use std::time::Duration;

    fn held(token: u64, value: &str) -> ObservedState {
        let holder = Holder { owner: b"ann".into(), token: token.into(), value: value.into() };
        ObservedState { holder: Some(holder), shared: None, version: 1, loss: None }
    }

    fn vacant(loss: Option<Loss>) -> ObservedState {
        ObservedState { holder: None, shared: None, version: 1, loss }
    }

    fn observed() -> Observed {
        Observed::new(&Arc::from(&b"k"[..]))
    }

    fn shared(token: u64, loss: Option<Loss>) -> ObservedState {
        ObservedState { holder: None, shared: Some(token.into()), version: 1, loss }
    }

    /// Returns the known term, and the reason why the last holder lost the lock.
    fn shown(observed: &Observed) -> (Option<u64>, Option<Loss>) {
        match &*observed.view.borrow() {
            View::Known(Known { holder, loss }) => {
                (holder.as_ref().map(|holder| holder.token.value()), *loss)
            }
            other @ (View::Unknown | View::Failed(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn observed_terms_never_go_back_whatever_server_reports_them() {
        let observed = observed();
        let forced = Some(Loss::Forced);
        for (seen, expected) in [
            (vacant(None), (None, None)),
            (held(5, "a"), (Some(5), None)),
            (vacant(forced), (None, forced)),
            // From a deposed server.
            (held(4, "old"), (None, forced)),
            // The same term again: the lock's slot has moved.
            (held(5, "a"), (Some(5), None)),
            (held(9, "b"), (Some(9), None)),
            (held(8, "old"), (Some(9), None)),
            (shared(8, forced), (Some(9), None)),
            // A holder without a token.
            (held(0, ""), (Some(0), None)),
            (held(8, "old"), (Some(0), None)),
        ] {
            observed.apply(seen.clone());
            assert_eq!(shown(&observed), expected, "{seen:?}");
        }
    }

    /// Returns a lease of `ann` with token 5.
    fn lease(mode: Mode) -> (Arc<Lease>, ShareId) {
        let held_lock = HeldLock {
            mode,
            key: Arc::from(&b"k"[..]),
            further: None,
            owner: "ann".into(),
            token: 5.into(),
        };
        let clock = Arc::new(Boottime);
        let safety = SafetyMargin { margin: Duration::ZERO };
        let (since, runs) = (Moment::of(&*clock), Duration::from_secs(600));
        let granted = Beginning { since, runs, late: UnansweredRenewals::default(), strays: false };
        let term = LeaseSpec { length: runs, watched: true };
        Lease::granted(1, held_lock, &LeasePolicy { clock, safety }, granted, term)
    }

    #[test]
    fn a_report_of_a_later_grant_makes_a_lease_suspect() {
        let forced = Some(Loss::Forced);
        let by_bob = |token| {
            let holder = Holder { owner: b"bob".into(), token, value: Vec::new() };
            ObservedState { holder: Some(holder), ..vacant(None) }
        };
        for (mode, seen, expected) in [
            (Mode::Shared, shared(5, None), None),
            (Mode::Shared, shared(0, None), None),
            // From before the grant.
            (Mode::Shared, shared(4, forced), None),
            (Mode::Shared, shared(6, forced), Some((Loss::Forced, true))),
            (Mode::Shared, shared(6, None), Some((Loss::Forgotten, false))),
            (Mode::Shared, vacant(forced), Some((Loss::Forced, true))),
            (Mode::Shared, by_bob(6.into()), Some((Loss::Taken, false))),
            (Mode::Alone, shared(6, forced), Some((Loss::Forced, true))),
            (Mode::Alone, held(5, ""), None),
            (Mode::Alone, by_bob(6.into()), Some((Loss::Taken, false))),
        ] {
            let observed = observed();
            let (lease, share) = lease(mode);
            observed.held_by(&lease, share);
            let seen_by = |suspects: Vec<Suspect>| {
                suspects.first().map(|suspect| (suspect.why, suspect.fits))
            };
            assert_eq!(seen_by(observed.apply(seen.clone())), expected, "{mode:?} {seen:?}");
            // A report of the end of the later grant says nothing of this lease.
            observed.apply(shared(7, None));
            let after = observed.apply(vacant(Some(Loss::Released)));
            assert_eq!(seen_by(after), Some((Loss::Released, false)));
            assert_eq!(seen_by(observed.check(&lease)), Some((Loss::Released, false)));
        }
    }

    #[test]
    fn observers_are_notified_of_new_states_only() {
        let observed = observed();
        let mut view = observed.view.subscribe();
        let mut is_told = |seen| {
            observed.apply(seen);
            let told = view.has_changed().unwrap();
            view.mark_unchanged();
            told
        };
        assert!(is_told(held(5, "a")) && !is_told(held(5, "a")) && is_told(held(5, "b")));
        let released = Some(Loss::Released);
        assert!(is_told(vacant(released)) && !is_told(vacant(None)), "asked for anew");
        assert_eq!(shown(&observed), (None, released));
        observed.failed(Error::Timeout);
        assert_eq!(shown(&observed), (None, released), "what was seen stays");
    }
}
