//! The operations of `ops.rs` in a world in which work is done late: keys have expired without a
//! look, or a session is away and its waits are still in line. When all work is done, no waiter may
//! be left that can be granted its request.

use std::collections::BTreeSet;

use kvlock_core::{Cause, Change, Millis, UnsentGrant};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::ops::{ALL, KEYS, Op, Set};
use super::world::World;
use crate::sim::{Foreign, key_ref};

/// Position, after those of [`KEYS`], of a lock that one owner holds all the time.
const BUSY: usize = KEYS.len();

/// Owners that wait for the busy lock through the session. One piece of work cannot handle all of
/// them.
const CROWD: [&str; 20] = [
    "c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08", "c09", "c10", "c11", "c12", "c13",
    "c14", "c15", "c16", "c17", "c18", "c19", "c20",
];

const LONG: u64 = 1 << 40;

impl World {
    pub fn late() -> Self {
        let mut world = Self::new();
        world.is_late = true;
        world.names.push((0, "busy".to_owned()));
        let held = world.acquire("holder", &busy(), LONG);
        held.expect("it is free");
        world.crowd_in();
        world
    }

    /// Queues the owners of [`CROWD`] for the busy lock, through the session.
    fn crowd_in(&mut self) {
        for owner in CROWD {
            self.ask(owner, &busy(), LONG, None, true).expect("it can wait");
        }
    }

    pub fn step_late(&mut self, op: &Op) -> TestCaseResult {
        match op {
            Op::Acquire(owner, set, lease) => {
                self.acquire(owner, set, *lease)?;
            }
            Op::Wait(owner, set, lease, timeout, through) => {
                self.ask(owner, set, *lease, *timeout, *through)?;
            }
            Op::Release(owner, set) => {
                self.release(owner, set)?;
            }
            Op::Cancel(owner, key) => {
                let _: Option<_> = self.table.cancel(key_ref(&self.names[*key]), owner.as_bytes());
            }
            Op::Disconnect(nth) => {
                if let Some(nth) = nth.checked_rem(self.places.len())
                    && let Some(place) = self.places.values().nth(nth)
                {
                    let _: Option<_> = self.table.disconnected(*place);
                }
            }
            Op::Force(key) => {
                let (_, change) = self.with(*key, "", |table, at| table.force_release(at));
                self.apply(*key, "", change)?;
            }
            Op::Delete(key) => {
                let now = self.clock.now();
                self.space.befall(&self.names[*key], &Foreign::Del, now, &mut self.table);
            }
            Op::Pass(ms) => {
                self.clock.pass(*ms, ms.cast_signed(), &mut self.table);
                self.space.expire(self.clock.now());
                self.model.now = self.clock.now().unix().0;
            }
            Op::TakeBack(nth) | Op::Delivered(nth) => {
                let Some(at) = nth.checked_rem(self.granted.len()) else { return Ok(()) };
                let grant = self.granted.swap_remove(at);
                let (key, owner) = (key_ref(&grant.key).to_lock_key(), grant.owner.as_bytes());
                if matches!(op, Op::Delivered(_)) {
                    self.table.delivered(key.borrow(), grant.id, owner, grant.token);
                } else {
                    let (id, owner, token) = (grant.id, owner.into(), grant.token);
                    self.table.queue_take_back(UnsentGrant { key, owner, id, token, permits: 0 });
                }
            }
            Op::Away(away) => self.go(*away),
            Op::Close => {
                let _: Option<_> = self.table.close_session(self.session);
                self.open_session();
                self.model.away = false;
                self.crowd_in();
            }
            Op::Work(most) => {
                if self.work_some(*most)? {
                    self.nobody_is_forgotten()?;
                } else {
                    prop_assert!(*most < ALL, "work has no end");
                }
            }
        }
        self.told.clear();
        prop_assert_eq!(self.table.check(), Ok(()));
        Ok(())
    }

    /// Checks that no waiter can be granted its request.
    fn nobody_is_forgotten(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        prop_assert!(self.table.next_due(now) != Some(Millis(0)));
        for (key, called) in KEYS.iter().enumerate() {
            let in_line = self.table.queue_of(key_ref(&self.names[key]));
            let sets: BTreeSet<_> = in_line.filter_map(|waiter| waiter.set).collect();
            for waiter in sets {
                let owner = self.table.owner_of_set(waiter).expect("it waits");
                let owner = String::from_utf8_lossy(&owner).into_owned();
                let set = self.table.set_of(waiter).into_iter();
                let keys: Vec<_> =
                    set.map(|key| (self.key_of(key.key.borrow()), key.under)).collect();
                let waits =
                    self.members(&keys, &owner, |table, all| table.set_is_held_up(waiter, all));
                prop_assert!(waits, "{owner} could have {keys:?}");
            }
            let change = self.with(key, "", |table, at| table.look(at, Cause::Outside));
            prop_assert!(matches!(change, Change::None), "{change:?} of {called}");
        }
        Ok(())
    }
}

fn busy() -> Set {
    Set { keys: vec![(BUSY, false)], shared: false }
}
