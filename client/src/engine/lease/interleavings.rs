//! Tests that run guards, the watchdog, re-entries and the clock on threads that are interleaved at random.
//!
//! ```text
//! RUSTFLAGS="--cfg kvlock_shuttle" CARGO_TARGET_DIR=target/shuttle cargo test -p kvlock --lib interleavings
//! ```

use super::{Beginning, Lease, LeasePolicy, LeaseSpec, ReleaseAction, WatchdogAction};
use crate::engine::clock::{Clock, Moment, SafetyMargin};
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::late::UnansweredRenewals;
use crate::engine::lease::watchdog::Agenda;
use crate::wire::loss::Loss;
use crate::wire::reply::Token;
use crate::wire::request::{GiveBack, Mode};
use shuttle::future::block_on;
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread::{self, JoinHandle};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ITERATIONS: usize = 5_000;
const LEASE: Duration = Duration::from_millis(1_000);
/// The lease of re-entries. A renewal beside one may set a shorter lease.
const LONG: Duration = Duration::from_millis(6_000);

#[derive(Debug, Default)]
struct ByHand(AtomicU64);

impl ByHand {
    fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ByHand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// State of the server: number of holds, end of the lease, and number of commands in flight that change the
/// holds.
#[derive(Debug, Default)]
struct Held {
    holds: usize,
    ends: u64,
    under_way: usize,
}

#[derive(Debug)]
struct World {
    clock: Arc<ByHand>,
    server: Mutex<Held>,
    lease: Arc<Lease>,
    agenda: Mutex<Agenda>,
}

impl World {
    /// Returns a lock that was just granted, and the share of its only guard.
    fn new() -> (Arc<Self>, super::ShareId) {
        let clock = Arc::new(ByHand::default());
        clock.pass(1_000_000);
        let policy = LeasePolicy {
            clock: clock.clone(),
            safety: SafetyMargin { margin: Duration::from_millis(50) },
        };
        let held_lock = HeldLock {
            mode: Mode::Alone,
            key: b"k"[..].into(),
            further: None,
            owner: "o:1".into(),
            token: Token::from(1),
        };
        let term = LeaseSpec { length: LEASE, watched: true };
        let sent = Moment::of(&*clock);
        let granted = Beginning {
            since: sent,
            runs: LEASE,
            late: UnansweredRenewals::default(),
            strays: false,
        };
        let (lease, share) = Lease::granted(1, held_lock, &policy, granted, term);
        let server = Held { holds: 1, ends: now(&clock) + 1_000, under_way: 0 };
        let agenda = Mutex::default();
        (Arc::new(Self { clock, server: Mutex::new(server), lease, agenda }), share)
    }

    fn now(&self) -> Moment {
        Moment::of(&*self.clock)
    }

    /// Sends a command that changes the number of holds, and returns the answer.
    fn call<T>(&self, carry_out: impl FnOnce(&mut Held, u64) -> T) -> T {
        self.server.lock().unwrap().under_way += 1;
        let answer = self.ask(|server, now| {
            assert_eq!(server.under_way, 1, "one command at a time");
            carry_out(server, now)
        });
        self.server.lock().unwrap().under_way -= 1;
        answer
    }

    /// Sends any command. The scheduler decides how long the command and its answer take.
    fn ask<T>(&self, carry_out: impl FnOnce(&mut Held, u64) -> T) -> T {
        thread::yield_now();
        let answer = {
            let mut server = self.server.lock().unwrap();
            let now = now(&self.clock);
            if server.ends <= now {
                server.holds = 0;
            }
            carry_out(&mut server, now)
        };
        thread::yield_now();
        answer
    }

    /// Returns whether the lease is lost. If it is not lost, asserts that the server has not freed the lock.
    fn look(&self) -> bool {
        let before = now(&self.clock);
        let lost = self.lease.is_lost();
        if !lost {
            let server = self.server.lock().unwrap();
            assert!(server.ends > before, "believed at {before}: {server:?}");
        }
        lost
    }

    /// Looks several times while these tasks run, and waits for their ends.
    fn look_beside(&self, tasks: Vec<JoinHandle<()>>) {
        for _ in 0..8 {
            self.look();
            thread::yield_now();
        }
        for task in tasks {
            task.join().unwrap();
        }
    }

    /// Runs one round of the watchdog. Returns `false` if the lease was already lost or released.
    fn tend(&self, arrives: bool) -> bool {
        let now = self.now();
        match self.lease.action(now) {
            WatchdogAction::Renew(_) => {
                if let Some(length) = self.lease.take_up(now) {
                    self.renew(length, arrives);
                    if !arrives {
                        self.lease.not_renewed(false, self.now());
                    }
                }
            }
            WatchdogAction::Expire => drop(self.lease.expire(now)),
            WatchdogAction::Later(_) => {}
            WatchdogAction::Done => return false,
        }
        let mut agenda = self.agenda.lock().unwrap();
        agenda.place(&self.lease, self.now());
        drop(agenda.due(self.now()));
        true
    }

    /// Runs six rounds of the watchdog beside the test. The answer to each of its renewals arrives with this
    /// probability. So many milliseconds pass after each round.
    fn spawn_watchdog(self: &Arc<Self>, arrives: f64, pause: Range<u64>) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            for _ in 0..6 {
                world.tend(thread_rng().gen_bool(arrives));
                world.clock.pass(thread_rng().gen_range(pause.clone()));
                thread::yield_now();
            }
        })
    }

    /// Sends a renewal, whose answer is lost unless it `arrives`. Any number may be in flight.
    fn renew(&self, length: Duration, arrives: bool) {
        self.renew_over(1, length, arrives);
    }

    /// Sends a renewal that the server refuses.
    fn be_refused(&self, via: u64, length: Duration) {
        let renewal = self.lease.renewing(self.now(), length, via);
        self.ask(|_, _| {});
        self.lease.refused(renewal);
    }

    fn renew_over(&self, via: u64, length: Duration, arrives: bool) {
        let sent = self.now();
        let renewal = self.lease.renewing(sent, length, via);
        let held = self.ask(|server, now| {
            if server.holds > 0 {
                server.ends = now + length.as_millis() as u64;
            }
            server.holds > 0
        });
        match (arrives, held) {
            (false, _) => self.lease.give_up(renewal),
            (true, true) => self.lease.renewed(renewal, sent, length, self.now()),
            (true, false) => self.lease.mark_not_held(),
        }
    }

    fn release(&self, share: super::ShareId) {
        let turn = block_on(self.lease.turn());
        let release = self.lease.leave(&turn, share);
        if let ReleaseAction::Release { give_back, .. } = release {
            self.call(|server, _| {
                server.holds = match give_back {
                    GiveBack::All => 0,
                    GiveBack::DownTo(left) => server.holds.min(left as usize),
                    GiveBack::One => unreachable!("never sent by a guard"),
                };
            });
        }
        drop(turn);
    }

    /// Re-enters if the lock is still held.
    fn reenter(&self) -> Option<super::ShareId> {
        let turn = block_on(self.lease.turn());
        if !self.lease.is_alive() || self.lease.is_lost() {
            return None;
        }
        let holds = self.lease.holds() + 1;
        let sent = self.now();
        let granted = self.call(|server, now| {
            let fits = server.holds > 0;
            if fits {
                server.holds = holds;
                server.ends = server.ends.max(now + LONG.as_millis() as u64);
            }
            fits
        });
        if !granted {
            self.lease.lose(true, Loss::Forgotten);
            return None;
        }
        self.lease.reentered(&turn, sent, LeaseSpec { length: LONG, watched: true }, true)
    }
}

fn now(clock: &ByHand) -> u64 {
    clock.0.load(Ordering::SeqCst)
}

#[test]
fn a_valid_guard_is_held_and_lost_is_final() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let watchdog = world.spawn_watchdog(0.7, 0..1);
            let time = thread::spawn({
                let world = world.clone();
                move || {
                    for _ in 0..8 {
                        world.clock.pass(thread_rng().gen_range(50..400));
                        thread::yield_now();
                    }
                }
            });
            let mut lost = false;
            for _ in 0..6 {
                let looked = world.look();
                assert!(looked || !lost, "lost and found");
                lost |= looked;
                thread::yield_now();
            }
            world.release(share);
            watchdog.join().unwrap();
            time.join().unwrap();
            // A renewal that ends after the release has no effect.
            assert_eq!(world.lease.action(world.now()), WatchdogAction::Done);
        },
        ITERATIONS,
    );
}

/// Sends renewals in parallel, as when a program sets the lease while the watchdog renews it.
#[test]
fn overlapping_renewals_of_different_lengths_keep_validity_right() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let tasks: Vec<_> = [300, 700, 1_000]
                .map(|length| {
                    let world = world.clone();
                    thread::spawn(move || {
                        for _ in 0..2 {
                            let length = Duration::from_millis(length);
                            world.renew(length, thread_rng().gen_bool(0.7));
                            world.clock.pass(thread_rng().gen_range(1..200));
                            world.look();
                        }
                    })
                })
                .into_iter()
                .collect();
            world.look_beside(tasks);
            world.release(share);
        },
        ITERATIONS,
    );
}

/// A refusal gives back what was believed, but not what another renewal may have shortened. Each task has a
/// connection.
#[test]
fn refused_renewals_beside_others_keep_validity_right() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let tasks: Vec<_> = (0..3)
                .map(|via| {
                    let world = world.clone();
                    thread::spawn(move || {
                        for _ in 0..3 {
                            let lengths = [200, 500, 1_000];
                            let length = lengths[thread_rng().gen_range(0..lengths.len())];
                            let length = Duration::from_millis(length);
                            if thread_rng().gen_bool(0.4) {
                                world.be_refused(via, length);
                            } else {
                                world.renew_over(via, length, thread_rng().gen_bool(0.7));
                            }
                            world.look();
                            world.clock.pass(thread_rng().gen_range(1..200));
                            world.look();
                        }
                    })
                })
                .collect();
            world.look_beside(tasks);
            world.release(share);
        },
        ITERATIONS,
    );
}

/// The watchdog renews with the shorter lease that the first guard requested until it knows of the re-entry.
#[test]
fn a_reentry_beside_shorter_renewals_keeps_validity_right() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let watchdog = world.spawn_watchdog(1.0, 50..400);
            let inner = world.reenter();
            for _ in 0..6 {
                world.look();
                world.clock.pass(200);
                thread::yield_now();
            }
            watchdog.join().unwrap();
            inner.into_iter().chain([share]).for_each(|share| world.release(share));
        },
        ITERATIONS,
    );
}

#[test]
fn guards_that_are_created_and_dropped_leave_no_hold_on_the_server() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let tasks: Vec<_> = (0..3)
                .map(|task| {
                    let world = world.clone();
                    thread::spawn(move || match task {
                        0 => {
                            for _ in 0..4 {
                                world.tend(true);
                                world.clock.pass(200);
                            }
                        }
                        _ => {
                            if let Some(inner) = world.reenter() {
                                world.look();
                                world.release(inner);
                            }
                        }
                    })
                })
                .collect();
            world.release(share);
            for task in tasks {
                task.join().unwrap();
            }
            let server = world.server.lock().unwrap();
            let over = server.ends <= now(&world.clock);
            assert!(server.holds == 0 || over, "{server:?}");
            assert_eq!(world.lease.holds(), 0);
        },
        ITERATIONS,
    );
}

#[test]
fn a_task_that_waits_for_the_loss_is_woken() {
    shuttle::check_random(
        || {
            let (world, share) = World::new();
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let world = world.clone();
                    thread::spawn(move || {
                        assert_eq!(block_on(world.lease.ended(share)), Some(Loss::Expired));
                        assert!(world.lease.is_lost());
                    })
                })
                .collect();
            let time = thread::spawn({
                let world = world.clone();
                move || world.clock.pass(2_000)
            });
            // Loops until it sees the loss. A waiter that misses its notification shows as a deadlock.
            while !world.lease.expire(world.now()) {
                thread::yield_now();
            }
            time.join().unwrap();
            for waiter in waiters {
                waiter.join().unwrap();
            }
        },
        ITERATIONS,
    );
}
