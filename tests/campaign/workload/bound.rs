//! Locks that are bound to the session of their client, with leases that are much longer than the life of a
//! session. Some clients vanish without releasing their locks.

use super::hold::take_turn;
use super::{
    BOUND_LEASE, ClientRoute, Held, HoldKind, Reconnect, Tasks, Term, Turn, Work, acquire,
};
use crate::round::Round;
use harness::history::{CallId, Outcome};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::block_in_place;
use tokio::time::sleep;

/// Longest wait of a client that is about to vanish.
const WITHIN: Duration = Duration::from_secs(1);

/// Longest time from the end of a client until its bound lock is granted to another.
pub(crate) const BEYOND: Duration = Duration::from_secs(20);

pub(crate) const BOUND: Work =
    Work { name: "bound locks", tasks: Tasks::Turns(|turn| Box::pin(hold_or_vanish(turn))) };

async fn hold_or_vanish(Turn { round, route, owner, random, .. }: Turn<'_>) {
    let ClientRoute::One(_, again) = route else { panic!("it speaks to one client") };
    if random.percent(95) {
        return take_turn(round, route, owner, random, |_| HoldKind::Bound).await;
    }
    let key = random.pick(&round.keys);
    let time = Duration::from_millis(random.below(300));
    // A new thread, which is in no runtime that could release the lock.
    let vanish = || vanish(round, again, key, &owner, time);
    block_in_place(|| {
        thread::scope(|scope| scope.spawn(vanish).join().expect("it does not panic"));
    });
}

/// Holds a lock with a new client for the given time. Then ends all tasks of the client without a release.
fn vanish(round: &Round, again: &Reconnect, key: &str, owner: &str, time: Duration) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = match runtime.block_on(again.connect()) {
        Ok(client) => client,
        Err(trouble) => return round.log.trouble("connect", &trouble),
    };
    let term = Term { kind: HoldKind::Bound, lease: BOUND_LEASE, watched: true };
    let call = round.recorder.sent(key, owner, term.kind.request(term.lease, Some(WITHIN)));
    let held = match runtime.block_on(acquire(&client, key, term, WITHIN)) {
        Ok(Some(held)) => held,
        Ok(None) => return round.recorder.answered(call, Outcome::Refused),
        Err(trouble) => {
            round.recorder.answered(call, Outcome::Unknown);
            return round.log.trouble("acquire", &trouble);
        }
    };
    let token = held.token().unwrap_or_default();
    round.recorder.answered(call, Outcome::Granted { token, holds: 1 });
    round.granted(owner);
    let end = round.recorder.now() + time;
    while round.recorder.now() < end && believes(round, &held, call) {
        runtime.block_on(async { sleep(Duration::from_millis(2)).await });
    }
    if believes(round, &held, call) {
        let now = round.recorder.now();
        round.recorder.believed(call, now);
        let gone = (key.to_owned(), now);
        round.log.keep("clients that were gone with a bound lock", |seen| seen.gone.push(gone));
    }
    runtime.shutdown_background();
    // Without a runtime no task releases the lock.
    drop(held);
}

fn believes(round: &Round, held: &Held, call: CallId) -> bool {
    let (now, left) = (round.recorder.now(), held.lease_left());
    let believes = !held.is_lost() && !left.is_zero();
    if believes {
        round.recorder.believed(call, now + left);
    }
    believes
}
