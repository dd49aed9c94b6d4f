//! Entries that become due at given times, served fairly.
//!
//! A flow is a session, or all blocked clients together. Flows with a due entry are served
//! in turn, in a ring. So 100,000 entries of one session do not delay the only entry of another
//! flow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::free::{Free, free_one_of};
use crate::ids::SessionId;

/// A session, or `None` for all blocked clients.
pub(crate) type Flow = Option<SessionId>;

/// Entries, each with a time and a flow.
#[derive(Debug)]
pub(crate) struct Fair<M, T> {
    /// The entries of each flow, the earliest first.
    flows: BTreeMap<Flow, BTreeSet<(M, T)>>,
    /// Flows outside the ring, each with the time of its earliest entry.
    firsts: BTreeSet<(M, Flow)>,
    /// Flows that may have a due entry; the first is served next.
    ring: VecDeque<Flow>,
    in_ring: BTreeSet<Flow>,
    len: usize,
}

impl<M, T> Default for Fair<M, T> {
    fn default() -> Self {
        Self {
            flows: BTreeMap::new(),
            firsts: BTreeSet::new(),
            ring: VecDeque::new(),
            in_ring: BTreeSet::new(),
            len: 0,
        }
    }
}

impl<M: Ord + Copy, T: Ord + Copy> Fair<M, T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, flow: Flow, entry: (M, T)) -> bool {
        self.flows.get(&flow).is_some_and(|entries| entries.contains(&entry))
    }

    fn first_of(&self, flow: Flow) -> Option<(M, T)> {
        self.flows.get(&flow)?.first().copied()
    }

    pub(crate) fn insert(&mut self, flow: Flow, entry: (M, T)) {
        let first = self.first_of(flow);
        if self.flows.entry(flow).or_default().insert(entry) {
            self.len = self.len.saturating_add(1);
            self.place(flow, first);
        }
    }

    pub(crate) fn remove(&mut self, flow: Flow, entry: (M, T)) {
        let first = self.first_of(flow);
        let Some(entries) = self.flows.get_mut(&flow) else { return };
        if entries.remove(&entry) {
            self.len = self.len.saturating_sub(1);
            if entries.is_empty() {
                self.flows.remove(&flow);
            }
            self.place(flow, first);
        }
    }

    /// Updates the time of a flow outside the ring.
    fn place(&mut self, flow: Flow, was: Option<(M, T)>) {
        if self.in_ring.contains(&flow) {
            return;
        }
        let (was, is) = (was.map(|it| it.0), self.first_of(flow).map(|it| it.0));
        if was != is {
            was.map(|moment| self.firsts.remove(&(moment, flow)));
            self.firsts.extend(is.map(|moment| (moment, flow)));
        }
    }

    /// Returns the earliest entry of the next flow that has an entry due by `now`. That flow
    /// moves to the end of the ring. The entry stays.
    pub(crate) fn next(&mut self, now: M) -> Option<T> {
        loop {
            // Up to two flows join the ring for each one taken from it. So all due flows join
            // soon, and no call has to move all of them at once.
            for _ in 0..2 {
                if self.firsts.first().is_some_and(|(moment, _)| *moment <= now)
                    && let Some((_, flow)) = self.firsts.pop_first()
                {
                    self.in_ring.insert(flow);
                    self.ring.push_back(flow);
                }
            }
            let flow = self.ring.pop_front()?;
            match self.first_of(flow) {
                Some((moment, item)) if moment <= now => {
                    self.ring.push_back(flow);
                    return Some(item);
                }
                other => {
                    self.in_ring.remove(&flow);
                    self.firsts.extend(other.map(|(moment, _)| (moment, flow)));
                }
            }
        }
    }

    /// Returns the earliest time; `now` if a flow may have a due entry.
    pub(crate) fn first(&self, now: M) -> Option<M> {
        if self.len == 0 || !self.ring.is_empty() {
            return (self.len > 0).then_some(now);
        }
        self.firsts.first().map(|(moment, _)| *moment)
    }
}

impl<M: Ord, T: Ord> Free for Fair<M, T> {
    fn free_one(&mut self) -> bool {
        if let Some(mut first) = self.flows.first_entry() {
            if !first.get_mut().free_one() {
                first.remove();
            }
            return true;
        }
        free_one_of(&mut [&mut self.firsts, &mut self.ring, &mut self.in_ring])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROWD: Flow = Some(SessionId(1));

    #[test]
    fn many_entries_of_one_account_do_not_delay_another_account() {
        let mut fair = Fair::default();
        (0..100_000_u64).for_each(|item| fair.insert(CROWD, (1, item)));
        fair.insert(Some(SessionId(2)), (5, 7));
        fair.insert(None, (5, 8));
        let served: Vec<_> = (0..6).map_while(|_| fair.next(5)).collect();
        assert!(served.contains(&7) && served.contains(&8), "{served:?}");
    }

    #[test]
    fn each_account_is_served_in_order_of_time_and_never_early() {
        let mut fair = Fair::default();
        for (flow, moment) in [(CROWD, 3), (None, 1), (CROWD, 2), (None, 9), (CROWD, 8)] {
            fair.insert(flow, (moment, moment));
        }
        let mut served = Vec::new();
        while let Some(item) = fair.next(3) {
            served.push(item);
            let flow = if item == 1 { None } else { CROWD };
            fair.remove(flow, (item, item));
        }
        assert_eq!((served, fair.len(), fair.first(3)), (vec![1, 2, 3], 2, Some(8)));
        fair.remove(CROWD, (8, 8));
        fair.remove(None, (9, 9));
        assert_eq!((fair.next(100), fair.first(100), fair.len()), (None, None, 0));
    }

    #[test]
    fn a_due_account_is_first_until_it_is_found_to_have_no_due_entry() {
        let mut fair = Fair::default();
        fair.insert(CROWD, (3, 0));
        fair.insert(CROWD, (9, 0));
        assert_eq!(fair.first(5), Some(3));
        assert_eq!(fair.next(5), Some(0));
        assert_eq!(fair.first(5), Some(5), "the flow is in the ring");
        fair.remove(CROWD, (3, 0));
        assert_eq!((fair.next(5), fair.first(5)), (None, Some(9)));
    }

    #[test]
    fn all_parts_are_freed() {
        let mut fair = Fair::default();
        for flow in 0..100 {
            fair.insert(Some(SessionId(flow)), (flow, 0));
            fair.insert(Some(SessionId(flow)), (flow, 1));
        }
        while fair.ring.len() < 10 {
            fair.next(50);
        }
        let mut steps = 0;
        while fair.free_one() {
            steps += 1;
            assert!(steps < 1_000, "it ends");
        }
        let empty = [fair.flows.len(), fair.firsts.len(), fair.ring.len(), fair.in_ring.len()];
        assert_eq!(empty, [0; 4]);
        assert!(steps > 300, "one entry at a time: {steps}");
    }
}
