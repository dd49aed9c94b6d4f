//! What a client does all day: it takes locks, works under them, and gives them back.

use super::Me;
use super::acquire::{Limit, Wanted, acquire};
use super::guard::Guard;
use super::quorum;
use crate::settings::Scene;
use crate::sim::Event;
use kvlock_core::Want;
use std::time::Duration;

/// Goes on until things are calm.
pub(super) async fn live(me: Me) {
    while !me.sim.calm.get() {
        let idle = Duration::from_micros(me.below(200_000));
        me.sleep(idle).await;
        let wanted = wish(&me);
        if me.sim.plan.scene == Scene::Quorum {
            quorum::visit(&me, wanted).await;
        } else {
            visit(&me, wanted).await;
        }
    }
}

fn wish(me: &Me) -> Wanted {
    let plan = &me.sim.plan;
    let shared = plan.shared && me.sim.percent(50);
    let most = plan.lease_ms;
    // Those of failovers are all as long as that takes.
    let lease_ms = if me.sim.percent(70) { most } else { most / 2 + me.below(most / 2) + 1 };
    let lease_ms = if plan.scene == Scene::Failovers { most } else { lease_ms };
    Wanted {
        key: me.below(plan.keys as u64) as usize,
        want: if shared { Want::Shared } else { Want::Exclusive },
        lease: Duration::from_millis(lease_ms),
        watched: me.sim.percent(75),
        limit: match me.below(10) {
            0 | 1 => Limit::Now,
            2..=5 => Limit::Until(me.now() + Duration::from_millis(me.below(3_000) + 1)),
            _ => Limit::Never,
        },
    }
}

/// Takes a lock, or gives up before.
async fn visit(me: &Me, wanted: Wanted) {
    let acquired = if me.sim.percent(15) {
        // Dropped in the middle.
        let patience = Duration::from_millis(me.below(1_000));
        me.within(patience, acquire(me, wanted)).await.flatten()
    } else {
        acquire(me, wanted).await
    };
    let Some(guard) = acquired else { return };
    work(me, &guard, wanted.lease).await;
    if me.sim.plan.scene == Scene::Single && me.sim.percent(30) {
        for _ in 0..2 {
            let part = wanted.lease * (me.below(10) as u32 + 1) / 10;
            guard.extend(part).await;
            work(me, &guard, wanted.lease).await;
        }
    }
    let again = if wanted.want == Want::Exclusive && me.sim.percent(20) {
        guard.reenter().await
    } else {
        None
    };
    if let Some(again) = again {
        work(me, &again, wanted.lease).await;
        leave(me, again).await;
    }
    leave(me, guard).await;
}

async fn leave(me: &Me, guard: Guard) {
    if me.sim.percent(70) {
        guard.release().await;
    }
}

/// Writes now and then to what the lock guards, as long as it believes to hold it.
async fn work(me: &Me, guard: &Guard, lease: Duration) {
    let longest = if me.sim.calm.get() { lease / 4 } else { lease * 2 };
    let end = me.now() + Duration::from_micros(me.below(longest.as_micros() as u64));
    while me.now() < end && !guard.is_lost() {
        if guard.held.want == Want::Exclusive {
            write(me, guard.held.key, guard.held.owner, guard.held.token);
        }
        let pause = Duration::from_micros(me.below(lease.as_micros() as u64 / 3));
        me.sleep(pause).await;
    }
}

/// A write is under way for any time.
pub(super) fn write(me: &Me, key: usize, owner: crate::wire::Owner, token: u64) {
    let late = if me.sim.percent(10) { me.below(3_000_000) } else { me.sim.delay() };
    me.sim.at(me.sim.now() + late, Event::Landing { key, owner, token });
}
