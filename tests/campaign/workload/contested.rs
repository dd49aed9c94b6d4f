//! A lock that a client requests from a master whose replica is cut off, and that another client requests from
//! the next master. If the grant was lost and the first client still believes in it, the judge finds an overlap.

use super::{ClientRoute, Held, HoldKind, Term};
use crate::round::Round;
use crate::topology::Topology;
use harness::history::{CallId, Outcome, Request};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Longest wait of the first client. Longer than replicas may take to confirm.
const WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct Contested<'a> {
    round: &'a Round,
    runtime: Runtime,
    routes: Vec<ClientRoute>,
    key: String,
    /// The longest lease of the topology.
    lease: Duration,
}

/// The hold of the first client, and the recorded call.
pub(crate) struct First(Option<(Held, CallId)>);

impl<'a> Contested<'a> {
    pub(crate) fn new(round: &'a Round, at: &dyn Topology, key: String) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let routes = at.routes(&runtime);
        let lease = at.leases_ms().iter().max().expect("a topology has leases");
        Self { round, runtime, routes, key, lease: Duration::from_millis(*lease) }
    }

    /// Tries to acquire the lock for the first client. The lease is not renewed.
    pub(crate) fn acquire_first(&self) -> First {
        First(self.acquire(&self.routes[0], "first", WITHIN))
    }

    /// Tries to acquire the lock for another client, for at most the time of a lease. Then both release it.
    pub(crate) fn acquire_next(self, first: First) {
        let next = self.acquire(&self.routes[1], "next", self.lease);
        if let First(Some((held, call))) = first {
            if held.is_lost() {
                // It is unknown when the client noticed the loss, so its belief is not judged.
                self.round.recorder.believed(call, Duration::ZERO);
            }
            self.release("first", held);
        }
        if let Some((held, _)) = next {
            self.release("next", held);
        }
        for route in &self.routes {
            self.runtime.block_on(route.settled());
        }
        self.runtime.shutdown_background();
    }

    fn acquire(
        &self,
        route: &ClientRoute,
        owner: &str,
        within: Duration,
    ) -> Option<(Held, CallId)> {
        let recorder = &self.round.recorder;
        let request = Request::Acquire { lease: self.lease, timeout: Some(within) };
        let call = recorder.sent(&self.key, owner, request);
        let term = Term { kind: HoldKind::Alone, lease: self.lease, watched: false };
        match self.runtime.block_on(route.acquire(&self.key, term, Some(within))) {
            Ok(Some(held)) => {
                let token = held.token().expect("a lock has a token");
                recorder.answered(call, Outcome::Granted { token, holds: 1 });
                recorder.believed(call, recorder.now() + held.lease_left());
                Some((held, call))
            }
            Ok(None) => {
                recorder.answered(call, Outcome::Refused);
                None
            }
            Err(trouble) => {
                recorder.answered(call, Outcome::Unknown);
                self.round.log.trouble("acquire", &trouble);
                None
            }
        }
    }

    fn release(&self, owner: &str, held: Held) {
        let recorder = &self.round.recorder;
        let call = recorder.sent(&self.key, owner, Request::Release);
        let outcome = match self.runtime.block_on(held.release()) {
            Ok(()) => Outcome::Released { left: 0 },
            Err(_) => Outcome::Unknown,
        };
        recorder.answered(call, outcome);
    }
}
