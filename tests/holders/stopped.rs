//! A holder is stopped for three times its lease while it writes to a store, and goes on when
//! somebody else has written. Careful holders look at their guard before each step; careless ones,
//! when they have lost the lock, write on without looking.

use crate::process::{Process, SOON};
use crate::role::Role;
use crate::said::{End, Grant, Said};
use crate::scene::Shop;
use crate::store::{Counter, Till};
use crate::tally::Tally;
use harness::random::Random;
use harness::{observe, wait};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const LEASE_MS: u64 = 300;

/// Longer than most stops: who holds the lock when the other is stopped holds it for a while.
const HOLD_MS: u64 = 400;

const STOPS: &str = "holders stopped for three times their lease, who lost the lock";
const RELEASED: &str = "stops that came when the lock had just been released";

/// So many stops, of so many pairs of processes at a time; every other pair is careless, and tries
/// so many stale writes after each stop.
pub(crate) fn run(shop: &Shop, stops: u64, pairs: u64, tries: u64, random: &Random, tally: &Tally) {
    thread::scope(|scope| {
        for pair in 0..pairs {
            let share = stops / pairs + u64::from(pair < stops % pairs);
            let random = random.part(pair);
            let careless = if pair % 2 == 0 { tries } else { 0 };
            scope.spawn(move || at_work(shop, pair, share, careless, random, tally));
        }
    });
    tally.wants(STOPS, stops);
    tally.excuses(RELEASED, stops);
}

fn at_work(shop: &Shop, pair: u64, stops: u64, careless: u64, mut random: Random, tally: &Tally) {
    let key = format!("stock-{pair}");
    let store = shop.store.socket();
    let role = Role { hold_ms: HOLD_MS, store, careless, ..Role::new(&key, LEASE_MS) };
    let both = [shop.scene.enter(&role), shop.scene.enter(&role)];
    let mut control = shop.scene.server.connect();
    let mut till = shop.store.till();
    let mut done = 0;
    while done < stops {
        let (holder, grant, next) = at_a_write(&both, &mut till, &key);
        observe::let_pass(&mut control, Duration::from_millis(1 + random.below(40)));
        let stopped = Instant::now();
        holder.signal(Signal::SIGSTOP);
        wait::until("three leases are over, and the next has written", SOON, || {
            let (token, passed) = (till.show(&key).largest, stopped.elapsed());
            let over = passed >= Duration::from_millis(3 * LEASE_MS) && token > grant.token;
            if over { Ok(()) } else { Err(format!("{passed:?}, {token}, {:?}", next.held())) }
        });
        holder.signal(Signal::SIGCONT);
        let why = ended(holder, &grant);
        if why == End::Lost {
            done += 1;
            tally.add(STOPS, 1);
            if careless > 0 && wrote_on(holder, &grant) > 0 {
                tally.wrong(format!("Stale: writes of {grant} were taken after the next one's"));
            }
        } else {
            tally.add(RELEASED, 1);
        }
    }
    shop.scene.retire(&both);
    let sheet = till.show(&key);
    let kind = if careless > 0 { "careless" } else { "careful" };
    count(kind, "that looks at tokens", &sheet.looks, tally);
    count(kind, "that does not look", &sheet.takes, tally);
    if sheet.looks.lost() > 0 || sheet.looks.stale > 0 {
        tally.wrong(format!("Stale: {key}: {:?}", sheet.looks));
    }
}

/// Waits until one of both holds the lock and has been seen by the store; the other one is next.
fn at_a_write<'a>(
    both: &'a [Arc<Process>; 2],
    till: &mut Till,
    key: &str,
) -> (&'a Process, Grant, &'a Process) {
    wait::until("somebody writes", SOON, || {
        let largest = till.show(key).largest;
        for (this, other) in [(0, 1), (1, 0)] {
            if let Some(grant) = both[this].held().filter(|grant| grant.token == largest) {
                return Ok((&*both[this], grant, &*both[other]));
            }
        }
        Err(format!("the largest token is {largest}"))
    })
}

/// Waits until it believes no more, and says why.
fn ended(process: &Process, grant: &Grant) -> End {
    wait::until("it has noticed", SOON, || {
        let end = process.last(|said| match said {
            Said::Ends { grant: other, why, .. } if other == grant => Some(*why),
            _ => None,
        });
        end.ok_or_else(|| process.name.clone())
    })
}

/// Waits until it has written without looking; how many of these writes the store took that looks.
fn wrote_on(process: &Process, grant: &Grant) -> u64 {
    wait::until("it has tried to write", SOON, || {
        let taken = process.last(|said| match said {
            Said::Careless { grant: other, taken, .. } if other == grant => Some(*taken),
            _ => None,
        });
        taken.ok_or_else(|| process.name.clone())
    })
}

fn count(kind: &str, store: &str, counter: &Counter, tally: &Tally) {
    for (what, count) in [
        ("increments acknowledged", counter.acknowledged),
        ("of these lost", counter.lost()),
        ("stale writes taken", counter.stale),
        ("stale writes refused", counter.refused),
    ] {
        tally.add(&format!("{kind} holders, store {store}: {what}"), count);
    }
}
