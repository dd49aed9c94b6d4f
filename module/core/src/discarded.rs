//! Data of a server that became a replica. It is freed one entry at a time, because it may be large.

use std::collections::{BTreeMap, VecDeque};

use crate::agenda::{Agenda, Sweep};
use crate::bindings::Bindings;
use crate::flight::Flights;
use crate::free::free_one_of;
use crate::ids::QueueId;
use crate::outbox::UnsentGrant;
use crate::queue::Queues;
use crate::sessions::Sessions;
use crate::watches::Watched;

/// Data discarded at one role change, still to be freed.
#[derive(Debug)]
pub(crate) struct Discarded<P> {
    pub(crate) queues: Queues<P>,
    pub(crate) sessions: Sessions<P>,
    pub(crate) bindings: Bindings,
    pub(crate) watched: BTreeMap<QueueId, Watched>,
    pub(crate) agenda: Agenda,
    pub(crate) in_flight: Flights,
    pub(crate) sweeps: VecDeque<Sweep>,
    pub(crate) unsent: VecDeque<UnsentGrant>,
}

impl<P> Discarded<P> {
    /// Frees one entry. Returns `None` if nothing is left, otherwise the client, if the entry was a
    /// blocked reader.
    pub(crate) fn free_one(&mut self) -> Option<Option<P>> {
        let Self { queues, sessions, bindings, watched, agenda, in_flight, sweeps, unsent } = self;
        if let Some(freed) = sessions.free_one() {
            return Some(freed);
        }
        let more = free_one_of(&mut [queues, bindings, watched, agenda, in_flight, sweeps, unsent]);
        more.then_some(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::change::Change;
    use crate::ids::SessionId;
    use crate::key::KeyRef;
    use crate::mode::Want;
    use crate::news::HolderState;
    use crate::observed::Observed;
    use crate::outcome::{Cause, Limits};
    use crate::results::Results;
    use crate::situation::Situation;
    use crate::table::Table;
    use crate::token::Token;
    use crate::types::{Millis, MonoMillis, Now};
    use crate::waiter::{Join, Via};

    const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };
    const LEASE: Millis = Millis(50);

    /// Number of steps to free a table, after something was done for ten keys.
    fn steps(each: impl Fn(&mut Table<u32>, &Situation<'_>, SessionId)) -> usize {
        let mut table =
            Table::new(Limits { waiters: 99, waiters_per_key: 99, ..Limits::UNLIMITED });
        let session = table.open_session([1; 32], b"user", LEASE, NOW).expect("there is room");
        for name in 0..10_u8 {
            let name = [name];
            let (key, seen) = (KeyRef::lock(0, &name), Observed::Free { stored: None });
            let at = Situation { key, seen, now: NOW, floor: Some(0), results: Results::NONE };
            each(&mut table, &at, session);
        }
        table.look_at_all_soon(Some(1), NOW);
        drop(table.forget());
        let steps = std::iter::from_fn(|| table.free_one()).count();
        assert_eq!((table.free_one(), table.check()), (None, Ok(())));
        steps
    }

    fn wait(table: &mut Table<u32>, at: &Situation<'_>, via: Via<u32>, timeout: Option<Millis>) {
        table.enqueue(
            at,
            &Join { owner: b"ann", want: Want::Exclusive, lease: LEASE, timeout },
            via,
        );
    }

    #[test]
    fn every_entry_is_freed_in_a_step_of_its_own() {
        let nothing = steps(|_, _, _| ());
        let waits =
            |timeout| steps(|table, at, session| wait(table, at, Via::Session(session), timeout));
        let (waits, timed) = (waits(None), waits(Some(LEASE)));
        let in_flight = steps(|table, at, _| {
            wait(table, at, Via::Client(1), None);
            assert!(matches!(table.look(at, Cause::Outside), Change::HandOff(_)));
            assert!(!table.is_quiet() && table.capacity() > 0);
        });
        let bound = steps(|table, at, session| {
            table.bind((at.key, b"ann"), (Token::NONE, LEASE), session, NOW);
        });
        let observed = steps(|table, at, session| {
            let state = (HolderState::Vacant, None);
            assert!(table.observe(at.key, NOW, state, session).is_ok());
        });
        // The queue of an observed lock, and its entry among the observed locks.
        assert!(observed >= nothing + 20, "{nothing} {observed}");
        let steps = [waits, timed, in_flight, bound];
        assert!(timed >= waits + 10, "{nothing} {steps:?}");
        assert!(steps.iter().all(|steps| *steps >= nothing + 10), "{nothing} {steps:?}");
    }
}
