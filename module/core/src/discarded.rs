//! Data of a server that became a replica. It is freed one entry at a time, because it may be large.

use std::collections::VecDeque;

use crate::agenda::{Agenda, Sweep};
use crate::bindings::Bindings;
use crate::flight::Flights;
use crate::free::free_one_of;
use crate::outbox::UnsentGrant;
use crate::queue::Queues;
use crate::sessions::Sessions;

/// Data discarded at one role change, still to be freed.
#[derive(Debug)]
pub(crate) struct Discarded<P> {
    pub(crate) queues: Queues<P>,
    pub(crate) sessions: Sessions<P>,
    pub(crate) bindings: Bindings,
    pub(crate) agenda: Agenda,
    pub(crate) in_flight: Flights,
    pub(crate) sweeps: VecDeque<Sweep>,
    pub(crate) unsent: VecDeque<UnsentGrant>,
}

impl<P> Discarded<P> {
    /// Frees one entry. Returns `None` if nothing is left, otherwise the client, if the entry was a
    /// blocked reader.
    pub(crate) fn free_one(&mut self) -> Option<Option<P>> {
        let Self { queues, sessions, bindings, agenda, in_flight, sweeps, unsent } = self;
        if let Some(freed) = sessions.free_one() {
            return Some(freed);
        }
        let more = free_one_of(&mut [queues, bindings, agenda, in_flight, sweeps, unsent]);
        more.then_some(None)
    }
}
