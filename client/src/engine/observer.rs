//! Observed locks: their holders, and changes of them.
//!
//! One task for each observed lock, for any number of observers. It sends `LOCK.OBSERVE`, gets
//! changes through the session at that server, and begins anew at the current server of the lock when that
//! session is over.
//!
//! - **O1** The reported term never decreases: older terms of a deposed server are ignored.
//! - **O2** A report alone does not make a lease lost, since it may be old. It makes a renewal due, and
//!   the answer to the renewal decides.

use crate::engine::context::Context;
use crate::engine::lease::Lease;
use crate::engine::limit::{pause_after, sleep_until_news};
use crate::engine::observe;
use crate::net::router::Route;
use crate::sync::{Mutex, lock};
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::observed::{Departure, Holder, Seen, observed};
use crate::wire::reply::Token;
use crate::wire::request::{self, Mode};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Pauses between requests to observe that are refused for good: the first, and the longest.
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(60);

/// The view of an observer.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// No report yet.
    Unknown,
    /// It cannot be observed. The task tries again while there are observers.
    Failed(Error),
    Known(Known),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) holder: Option<Holder>,
    /// How the latest holder went, as far as that was seen.
    pub(crate) departure: Option<Departure>,
}

/// The locks that are observed, by name.
#[derive(Debug, Default)]
pub(crate) struct Observers(Mutex<HashMap<Arc<[u8]>, Arc<Observed>>>);

/// A lock that is observed.
#[derive(Debug)]
struct Observed {
    key: Arc<[u8]>,
    view: watch::Sender<View>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The largest term that was seen.
    term: Option<Token>,
    /// It was shared when last seen.
    shared: bool,
    /// Leases of this process on that lock, current and earlier ones.
    holders: Vec<Weak<Lease>>,
    /// The task that observes it.
    task: Option<JoinHandle<()>>,
}

/// An observation, which lasts until this is dropped.
#[derive(Clone)]
pub(crate) struct Observation {
    context: Arc<Context>,
    observed: Arc<Observed>,
    view: watch::Receiver<View>,
}

impl Observers {
    /// Observes that lock.
    pub(crate) fn observe(context: &Arc<Context>, key: &Arc<[u8]>) -> Observation {
        let mut all = lock(&context.observers.0);
        let observed = all.entry(key.clone()).or_insert_with(|| {
            let (view, state) = (watch::Sender::new(View::Unknown), Mutex::default());
            Arc::new(Observed { key: key.clone(), view, state })
        });
        let (observed, view) = (observed.clone(), observed.view.subscribe());
        drop(all);
        // Why others could not is old news: it is tried again before long.
        observed.view.send_if_modified(|view| {
            let failed = matches!(view, View::Failed(_));
            if failed {
                *view = View::Unknown;
            }
            failed
        });
        let observation = Observation { context: context.clone(), observed, view };
        observation.keep_running();
        observation
    }

    /// Observes a lock that is held here, so that its holder is told what becomes of it.
    pub(crate) fn holds(context: &Arc<Context>, lease: &Arc<Lease>) -> Observation {
        let observation = Self::observe(context, &lease.held_lock.key);
        let holder = Arc::downgrade(lease);
        let mut state = lock(&observation.observed.state);
        // Re-entered, it is there.
        if !state.holders.iter().any(|other| other.ptr_eq(&holder)) {
            state.holders.push(holder);
        }
        drop(state);
        // What was seen before it was granted does no harm. (O2)
        let known = match &*observation.view.borrow() {
            View::Known(known) => Some(known.clone()),
            View::Unknown | View::Failed(_) => None,
        };
        if let Some(known) = known {
            observation.observed.suspect(context, &known);
        }
        observation
    }
}

impl Observation {
    /// The view of now.
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Waits until the view is another one than before.
    pub(crate) async fn changed(&mut self) -> View {
        self.keep_running();
        // The sender lives as long as this observation.
        if self.view.changed().await.is_err() {
            return std::future::pending().await;
        }
        self.view.borrow_and_update().clone()
    }

    /// Starts the task unless it runs, on the runtime of the caller.
    fn keep_running(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let task = &mut lock(&self.observed.state).task;
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (context, observed) = (self.context.clone(), self.observed.clone());
            *task = Some(runtime.spawn(Running { context, observed }.run()));
        }
    }
}

impl Drop for Observation {
    /// Its task ends when nothing observes any more. If the task has ended with its runtime, this does so.
    fn drop(&mut self) {
        let mut all = lock(&self.context.observers.0);
        let has_ended = {
            let task = &lock(&self.observed.state).task;
            task.as_ref().is_none_or(JoinHandle::is_finished)
        };
        if has_ended && self.observed.view.receiver_count() == 1 {
            forget(&mut all, &self.observed);
        }
    }
}

impl Drop for Running {
    /// The same the other way round: the runtime may end when nothing observes any more.
    fn drop(&mut self) {
        let mut all = lock(&self.context.observers.0);
        if self.observed.view.receiver_count() == 0 {
            forget(&mut all, &self.observed);
        }
    }
}

/// Takes it out, unless another one has its place.
fn forget(all: &mut HashMap<Arc<[u8]>, Arc<Observed>>, observed: &Arc<Observed>) {
    if all.get(&observed.key).is_some_and(|other| Arc::ptr_eq(other, observed)) {
        all.remove(&observed.key);
    }
}

impl std::fmt::Debug for Observation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observation").field("view", &self.view.borrow()).finish_non_exhaustive()
    }
}

impl Observed {
    /// Takes in what a server has said.
    fn see(&self, context: &Context, seen: Seen) {
        let Seen { holder, shared, departure, .. } = seen;
        let mut state = lock(&self.state);
        let term = holder.as_ref().map(|holder| holder.token).filter(|term| term.value() > 0);
        if term.is_some() && term < state.term {
            return;
        }
        state.term = state.term.max(term);
        state.shared = shared;
        drop(state);
        let mut known = Known { holder, departure };
        self.suspect(context, &known);
        self.view.send_if_modified(|view| {
            if let View::Known(before) = &*view {
                // The reply to a new LOCK.OBSERVE does not repeat why the last holder lost the lock.
                let same = before.holder == known.holder;
                known.departure = known.departure.or_else(|| before.departure.filter(|_| same));
                if *before == known {
                    return false;
                }
            }
            *view = View::Known(known);
            true
        });
    }

    /// Makes leases that contradict the report check themselves.
    fn suspect(&self, context: &Context, known: &Known) {
        let holder = known.holder.as_ref();
        let mut state = lock(&self.state);
        state.holders.retain(|lease| lease.upgrade().is_some_and(|lease| lease.is_alive()));
        let leases: Vec<_> = state.holders.iter().filter_map(Weak::upgrade).collect();
        let shared = state.shared;
        drop(state);
        let why = match known.departure {
            Some(Departure::Forced) => Loss::Forced,
            Some(Departure::Deleted | Departure::Flushed) => Loss::Deleted,
            Some(Departure::Expired) => Loss::Expired,
            _ if holder.is_some() => Loss::Taken,
            _ => Loss::Forgotten,
        };
        for lease in leases {
            let holds =
                holder.is_some_and(|holder| *holder.owner == *lease.held_lock.owner.as_bytes());
            let may_share = shared && lease.held_lock.mode == Mode::Shared;
            if !(holds || may_share) {
                lease.suspect(why, context.now());
                context.watchdog.watch(&lease);
            }
        }
    }

    /// It cannot be observed. What was seen before stays.
    fn failed(&self, trouble: Error) {
        self.view.send_if_modified(|view| {
            let known = matches!(view, View::Known(_));
            if !known {
                *view = View::Failed(trouble);
            }
            !known
        });
    }
}

/// The task.
struct Running {
    context: Arc<Context>,
    observed: Arc<Observed>,
}

impl Running {
    async fn run(self) {
        let Self { context, observed } = &self;
        loop {
            tokio::select! {
                biased;
                () = observed.view.closed() => {}
                never = self.keep_observing() => match never {},
            }
            if let Err(trouble) = self.end().await {
                tracing::debug!(%trouble, "the server may go on telling of a lock");
            }
            let mut all = lock(&context.observers.0);
            // Nothing begins to observe while the list is locked.
            if observed.view.receiver_count() == 0 {
                forget(&mut all, observed);
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
                // An administrator may change that. Twice as long each time.
                lasts.clamp(REFUSED_MIN, REFUSED_MAX)
            };
            if !trouble.is_retryable() || lasts >= context.settings.patience {
                observe::trouble(&trouble, pause);
                observed.failed(trouble);
            }
            sleep_until_news(pause, context.router.switched()).await;
        }
    }

    /// Observes it until something goes wrong.
    async fn observe(&self, trouble: &mut Option<Instant>) -> Result<Infallible, Error> {
        let router = &self.context.router;
        let mut route = router.route(&self.observed.key).await?;
        loop {
            let Err(trouble) = self.observe_at(&route, trouble).await;
            if !router.goes_on(&mut route, &trouble) {
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
        this.see(context, first);
        *trouble = None;
        loop {
            let seen = changes.next().await?;
            // It may have been told before the answer was read.
            if seen.version > newest {
                newest = seen.version;
                this.see(context, seen);
            }
        }
    }

    /// Ends the observation after its last observer. A later observer begins anew.
    async fn end(&self) -> Result<(), Error> {
        let Self { context, observed } = self;
        observed.view.send_replace(View::Unknown);
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
    use crate::engine::lease::LeasePolicy;
    use crate::engine::settings::Settings;
    use crate::net::address::Address;
    use std::time::Duration;

    fn held(token: u64, value: &str) -> Seen {
        let holder = Holder { owner: b"ann".into(), token: token.into(), value: value.into() };
        Seen { holder: Some(holder), shared: false, version: 1, departure: None }
    }

    fn vacant(departure: Option<Departure>) -> Seen {
        Seen { holder: None, shared: false, version: 1, departure }
    }

    fn stage() -> (Context, Observed) {
        let settings = Settings::default();
        let safety = SafetyMargin { margin: Duration::ZERO };
        let terms = LeasePolicy { clock: Arc::new(Boottime), safety };
        let address = Address::try_from("redis://127.0.0.1:1/").unwrap();
        let context = Context::new(address, settings, terms).unwrap();
        let (view, state) = (watch::Sender::new(View::Unknown), Mutex::default());
        (context, Observed { key: b"k"[..].into(), view, state })
    }

    /// The term that is shown, and how the one before went.
    fn shown(observed: &Observed) -> (Option<u64>, Option<Departure>) {
        match &*observed.view.borrow() {
            View::Known(Known { holder, departure }) => {
                (holder.as_ref().map(|holder| holder.token.value()), *departure)
            }
            other @ (View::Unknown | View::Failed(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn terms_never_go_back_whichever_server_tells() {
        let (context, observed) = stage();
        let forced = Some(Departure::Forced);
        for (seen, expected) in [
            (vacant(None), (None, None)),
            (held(5, "a"), (Some(5), None)),
            (vacant(forced), (None, forced)),
            // A server that was deposed.
            (held(4, "old"), (None, forced)),
            // The same term again: its slot has moved.
            (held(5, "a"), (Some(5), None)),
            (held(9, "b"), (Some(9), None)),
            (held(8, "old"), (Some(9), None)),
            // Of a client that knows no terms.
            (held(0, ""), (Some(0), None)),
            (held(8, "old"), (Some(0), None)),
        ] {
            observed.see(&context, seen.clone());
            assert_eq!(shown(&observed), expected, "{seen:?}");
        }
    }

    #[test]
    fn nobody_is_told_what_is_not_new() {
        let (context, observed) = stage();
        let mut view = observed.view.subscribe();
        let mut is_told = |seen| {
            observed.see(&context, seen);
            let told = view.has_changed().unwrap();
            view.mark_unchanged();
            told
        };
        assert!(is_told(held(5, "a")) && !is_told(held(5, "a")) && is_told(held(5, "b")));
        let released = Some(Departure::Released);
        assert!(is_told(vacant(released)) && !is_told(vacant(None)), "asked for anew");
        assert_eq!(shown(&observed), (None, released));
        observed.failed(Error::Timeout);
        assert_eq!(shown(&observed), (None, released), "what was seen stays");
    }

    #[test]
    fn an_observed_lock_is_forgotten_with_its_last_observer_also_if_its_runtime_has_ended() {
        let context = Arc::new(stage().0);
        let key: Arc<[u8]> = Arc::from(&b"k"[..]);
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let known = || lock(&context.observers.0).len();
        for observer_goes_first in [false, true] {
            let ends = runtime();
            let observation = ends.block_on(async { Observers::observe(&context, &key) });
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
