#![expect(clippy::expect_used, reason = "a panic is how a test fails")]

mod changes;
mod renewals;
mod waits;

use super::*;
use crate::engine::lease::alive::Leases;
use crate::engine::lease::watchdog::{Agenda, CHUNK};
use crate::wire::reply::Token;
use crate::wire::request::{GiveBack, Mode};
use std::sync::atomic::AtomicU64 as Count;

#[derive(Debug, Default)]
struct ByHand(Count);

impl Clock for ByHand {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

struct Stage {
    clock: Arc<ByHand>,
    lease: Arc<Lease>,
    share: ShareId,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn watched(length: u64) -> LeaseSpec {
    LeaseSpec { length: millis(length), watched: true }
}

fn fixed(length: u64) -> LeaseSpec {
    LeaseSpec { length: millis(length), watched: false }
}

/// Returns a lock that was granted at 10,000 ms with this term, and a margin of 500 ms.
fn granted(term: LeaseSpec) -> Stage {
    numbered(1, term)
}

fn numbered(id: usize, term: LeaseSpec) -> Stage {
    let clock = Arc::new(ByHand::default());
    clock.0.store(10_000, Ordering::SeqCst);
    let late = UnansweredRenewals::default();
    let granted = Beginning { since: at(10_000), runs: term.length, late, strays: false };
    of(id, clock, granted, term)
}

fn of(id: usize, clock: Arc<ByHand>, granted: Beginning, term: LeaseSpec) -> Stage {
    let policy = LeasePolicy { clock: clock.clone(), safety: SafetyMargin { margin: millis(500) } };
    let held_lock = HeldLock {
        mode: Mode::Alone,
        key: b"k"[..].into(),
        further: None,
        owner: "o:1".into(),
        token: Token::from(1),
    };
    let (lease, share) = Lease::granted(id as u64, held_lock, &policy, granted, term);
    Stage { clock, lease, share }
}

fn at(time: u64) -> Moment {
    Moment(0).after(millis(time))
}

impl Stage {
    fn turn(&self) -> Turn {
        self.lease.try_turn().expect("nobody is at it")
    }

    fn time_is(&self, time: u64) {
        self.clock.0.store(time, Ordering::SeqCst);
    }
}

#[test]
fn a_lease_is_valid_until_the_margin_before_its_end() {
    let stage = granted(watched(30_000));
    // 30 s less 1 %, 2 ms and the margin.
    assert_eq!(stage.lease.left(), millis(30_000 - 300 - 2 - 500));
    stage.time_is(10_000 + 29_197);
    assert!(!stage.lease.is_lost());
    stage.time_is(10_000 + 29_198);
    assert!(stage.lease.is_lost() && stage.lease.left().is_zero());
}

#[test]
fn a_lease_is_renewed_after_a_third_or_slightly_earlier() {
    let stage = granted(watched(30_000));
    let WatchdogAction::Later(when) = stage.lease.action(at(10_000)) else { panic!("not yet") };
    assert!(when <= at(20_000) && when > at(19_600), "{when:?}");
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(30_000)));
    let stage = granted(watched(31_000));
    // 62 times a 96th of the lease, in nanoseconds.
    let when = WatchdogAction::Later(Moment(62 * 322_916_666));
    assert_eq!(stage.lease.action(at(10_000)), when);
}

#[test]
fn a_fixed_lease_is_only_checked_when_it_ends() {
    let stage = granted(fixed(30_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Later(at(10_000 + 29_198)));
}

#[test]
fn the_watchdog_sends_one_renewal_at_a_time() {
    let stage = granted(watched(30_000));
    assert_eq!(stage.lease.take_up(at(20_000)), Some(millis(30_000)));
    assert_eq!(stage.lease.action(at(25_000)), WatchdogAction::Later(at(39_198)));
    let renewal = stage.lease.renewing(at(20_000), millis(30_000), 1);
    assert_eq!(stage.lease.left(), millis(29_198), "the old lease still holds");
    stage.lease.renewed(renewal, at(20_000), millis(30_000), at(20_100));
    assert_eq!(stage.lease.left(), millis(10_000 + 29_198), "counted from the sending");
}

#[test]
fn a_failed_renewal_is_tried_again_soon_and_then_lost() {
    let stage = granted(watched(30_000));
    stage.lease.take_up(at(20_000));
    stage.lease.not_renewed(false, at(20_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Later(at(21_000)));
    assert_eq!(stage.lease.action(at(21_000)), WatchdogAction::Renew(millis(30_000)));
    assert_eq!(stage.lease.action(at(39_198)), WatchdogAction::Expire);
    assert!(stage.lease.expire(at(39_198)));
    assert_eq!(stage.lease.action(at(39_198)), WatchdogAction::Done);
}

#[test]
fn the_first_renewal_of_an_offer_is_retried_while_the_offer_lasts() {
    let clock = Arc::new(ByHand::default());
    clock.0.store(10_000, Ordering::SeqCst);
    let late = UnansweredRenewals::default();
    let granted = Beginning { since: at(10_000), runs: millis(2_000), late, strays: false };
    let lease = of(1, clock, granted, watched(30_000)).lease;
    // The holder counts on 1,478 ms. The watchdog renews after a third of the offer.
    let mut now = 10_667;
    let mut tries = 0;
    while now < 11_478 {
        assert_eq!(lease.action(at(now)), WatchdogAction::Renew(millis(30_000)), "{now}");
        assert!(lease.take_up(at(now)).is_some());
        tries += 1;
        // Each try is given up after half of the remaining time.
        now += (11_478 - now) / 2;
        lease.not_renewed(false, at(now));
        let WatchdogAction::Later(again) = lease.action(at(now)) else { panic!("{now}") };
        assert!(again <= at(11_478));
        now = again.0.div_ceil(1_000_000);
    }
    assert!(tries > 4, "{tries}");
}

#[test]
fn a_late_reply_does_not_revive_a_lost_lease() {
    let stage = granted(watched(30_000));
    let renewal = stage.lease.renewing(at(20_000), millis(30_000), 1);
    stage.time_is(39_198);
    stage.lease.renewed(renewal, at(20_000), millis(30_000), at(39_198));
    assert!(stage.lease.is_lost());
}

#[test]
fn a_fixed_lease_that_may_be_lost_is_checked_until_it_ends() {
    let stage = granted(fixed(30_000));
    stage.time_is(20_000);
    stage.lease.suspect(Loss::Forced, true, at(20_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(20_000)));
    let before = stage.lease.renewing(at(20_000), millis(20_000), 1);
    // This report is newer than that renewal.
    stage.lease.suspect(Loss::Taken, true, at(20_050));
    stage.lease.renewed(before, at(20_000), millis(20_000), at(20_100));
    let WatchdogAction::Renew(left) = stage.lease.action(at(20_100)) else { panic!("again") };
    assert_eq!(left, millis(19_900));
    let after = stage.lease.renewing(at(20_100), left, 1);
    stage.lease.renewed(after, at(20_100), left, at(20_200));
    assert!(
        matches!(stage.lease.action(at(30_000)), WatchdogAction::Later(_)),
        "it ends by itself"
    );
    stage.lease.suspect(Loss::Forced, true, at(30_000));
    stage.lease.mark_not_held();
    assert_eq!(stage.lease.why_lost(), Some(Loss::Forced));
}

#[test]
fn a_loss_has_the_reason_of_the_last_report_that_may_concern_the_lease() {
    let lost = |reports: &[(Loss, bool)]| {
        let stage = granted(watched(30_000));
        reports.iter().for_each(|(why, fits)| stage.lease.suspect(*why, *fits, at(10_000)));
        stage.lease.mark_not_held();
        stage.lease.why_lost().expect("lost")
    };
    assert_eq!(lost(&[(Loss::Forced, true), (Loss::Released, false)]), Loss::Forced);
    assert_eq!(lost(&[(Loss::Forced, true), (Loss::Taken, false)]), Loss::Forced);
    assert_eq!(lost(&[(Loss::Taken, false)]), Loss::Taken);
    // The first report was from before the grant.
    assert_eq!(lost(&[(Loss::Released, true), (Loss::Forced, true)]), Loss::Forced);
}

/// The lease may last longer than the fixed one, because of a guard that was released.
#[test]
fn a_check_of_a_fixed_lease_past_its_end_asks_for_the_rest_of_the_lease() {
    let stage = granted(watched(30_000));
    let inner = stage.lease.reentered(&stage.turn(), at(10_000), fixed(1_000), true);
    stage.lease.leave(&stage.turn(), stage.share);
    stage.time_is(20_000);
    stage.lease.suspect(Loss::Forced, true, at(20_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(19_198)));
    assert_eq!(stage.lease.take_up(at(20_000)), Some(millis(19_198)));
    stage.lease.not_renewed(false, at(20_000));
    let again = stage.lease.action(at(20_000));
    assert!(matches!(again, WatchdogAction::Later(again) if again > at(20_500)), "{again:?}");
    // The server refuses a shorter lease.
    assert_eq!(stage.lease.longest(at(39_197)), Some(millis(10)));
    stage.lease.abandon(inner.expect("held"));
    assert_eq!(stage.lease.longest(at(20_000)), None);
}

#[test]
fn guards_of_one_owner_get_the_longest_of_their_leases() {
    let stage = granted(watched(3_000));
    let turn = stage.turn();
    let long = stage.lease.reentered(&turn, at(10_000), fixed(60_000), true).expect("held");
    assert_eq!((stage.lease.holds(), stage.lease.left()), (2, millis(60_000 - 600 - 2 - 500)));
    drop(turn);
    // The renewal does not shorten the rest of the fixed lease.
    assert_eq!(stage.lease.action(at(30_000)), WatchdogAction::Renew(millis(40_000)));
    let turn = stage.turn();
    let release = stage.lease.leave(&turn, long);
    assert!(matches!(release, ReleaseAction::Release { give_back: GiveBack::DownTo(1), .. }));
    drop(turn);
    assert_eq!(stage.lease.action(at(30_000)), WatchdogAction::Renew(millis(3_000)));
}

/// The server may have executed the renewal last, and a renewal sets the lease, also to a shorter one.
#[test]
fn a_reentry_or_binding_counts_no_longer_than_a_renewal_that_was_in_flight_beside_it() {
    for sent_first in [false, true] {
        for binds in [false, true] {
            let stage = granted(watched(3_000));
            let before = sent_first.then(|| stage.lease.renewing(at(11_000), millis(3_000), 1));
            let turn = stage.turn();
            let renewal =
                before.unwrap_or_else(|| stage.lease.renewing(at(11_000), millis(3_000), 1));
            stage.lease.renewed(renewal, at(11_000), millis(3_000), at(11_100));
            if binds {
                stage.lease.prolonged(&turn, at(10_900), millis(30_000), true, at(11_100));
            } else {
                let inner = stage.lease.reentered(&turn, at(10_900), watched(30_000), true);
                assert!(inner.is_some());
            }
            drop(turn);
            // The renewal at 11,000 ms counts for 3 s less 1 %, 2 ms and the margin of 500 ms.
            assert_eq!(
                stage.lease.left(),
                millis(1_000 + 3_000 - 30 - 2 - 500),
                "{sent_first} {binds}"
            );
            let WatchdogAction::Later(next) = stage.lease.action(at(11_100)) else {
                panic!("not yet")
            };
            assert!(next <= at(12_000), "{next:?}");
        }
    }
}

#[test]
fn a_renewal_that_ended_before_a_reentry_does_not_limit_it() {
    let stage = granted(watched(3_000));
    let renewal = stage.lease.renewing(at(11_000), millis(3_000), 1);
    stage.lease.renewed(renewal, at(11_000), millis(3_000), at(11_100));
    for sent in [11_200, 11_300] {
        stage.lease.reentered(&stage.turn(), at(sent), watched(30_000), true).expect("held");
        assert_eq!(stage.lease.left(), millis(sent - 10_000 + 30_000 - 300 - 2 - 500));
    }
}

#[test]
fn many_due_leases_are_handled_in_batches() {
    let mut agenda = Agenda::default();
    let stages: Vec<_> = (0..CHUNK + 7).map(|id| numbered(id, watched(30_000))).collect();
    for stage in &stages {
        agenda.place(&stage.lease, at(20_000));
    }
    assert_eq!(agenda.due(at(20_000)).len(), CHUNK);
    assert_eq!(agenda.due(at(20_000)).len(), 7);
    assert!(agenda.due(at(20_000)).is_empty());
}

/// A renewal would change the lease of the process that adopts the lock.
#[test]
fn a_guard_that_is_detached_is_not_renewed() {
    let stage = granted(watched(30_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(30_000)));
    stage.lease.abandon(stage.share);
    assert_eq!(stage.lease.take_up(at(20_000)), None, "it was due, and not sent yet");
    stage.lease.hurry(at(20_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Later(at(39_198)));
    stage.lease.leave(&stage.turn(), stage.share);
    assert_eq!(stage.lease.take_up(at(20_000)), None);
}

#[test]
fn removing_a_guard_twice_removes_it_once() {
    let stage = granted(watched(3_000));
    let turn = stage.turn();
    let inner = stage.lease.reentered(&turn, at(10_000), watched(3_000), true).expect("held");
    for _ in 0..2 {
        let release = stage.lease.leave(&turn, inner);
        assert!(matches!(release, ReleaseAction::Release { give_back: GiveBack::DownTo(1), .. }));
    }
    for _ in 0..2 {
        let release = stage.lease.leave(&turn, stage.share);
        assert!(matches!(release, ReleaseAction::Release { give_back: GiveBack::All, .. }));
    }
    drop(turn);
    assert!(!stage.lease.is_alive());
    assert_eq!(stage.lease.action(at(10_001)), WatchdogAction::Done);
}

#[test]
fn a_lock_that_the_server_took_away_is_not_released() {
    let stage = granted(watched(3_000));
    stage.lease.lose(true, Loss::Forgotten);
    assert!(stage.lease.is_lost());
    let turn = stage.turn();
    assert!(stage.lease.reentered(&turn, at(10_000), watched(3_000), true).is_none());
    assert!(matches!(stage.lease.leave(&turn, stage.share), ReleaseAction::Silent));
    assert_eq!(stage.lease.why_lost(), Some(Loss::Forgotten), "who watches it hears so");
}

#[test]
fn a_server_may_report_the_loss_before_or_after_the_clock() {
    for reports in [[false, true], [true, false]] {
        let stage = granted(watched(3_000));
        reports.iter().for_each(|told| stage.lease.lose(*told, Loss::Expired));
        assert!(matches!(stage.lease.leave(&stage.turn(), stage.share), ReleaseAction::Silent));
    }
}

#[cfg(feature = "metrics")]
#[test]
fn the_time_of_a_hold_is_recorded_once() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let recorded = || {
        let all = recorder.snapshotter().snapshot().into_vec();
        let times = all.iter().map(|(.., value)| match value {
            DebugValue::Histogram(times) => times.len(),
            DebugValue::Counter(_) | DebugValue::Gauge(_) => 0,
        });
        times.sum::<usize>()
    };
    metrics::with_local_recorder(&recorder, || {
        let stage = granted(watched(3_000));
        let turn = stage.turn();
        let inner = stage.lease.reentered(&turn, at(10_000), watched(3_000), true).expect("held");
        stage.lease.leave(&turn, inner);
        assert_eq!(recorded(), 0, "another guard holds the lock");
        stage.lease.leave(&turn, stage.share);
        assert_eq!(recorded(), 1);
        stage.lease.leave(&turn, stage.share);
        assert_eq!(recorded(), 0, "a snapshot resets the histogram");
        let stage = granted(watched(3_000));
        stage.lease.lose(true, Loss::Deleted);
        assert_eq!(recorded(), 1);
        stage.lease.leave(&stage.turn(), stage.share);
        assert_eq!(recorded(), 0, "it was lost before");
    });
}

#[test]
fn a_lock_whose_lease_ended_by_the_clock_is_still_released() {
    let stage = granted(watched(3_000));
    stage.time_is(60_000);
    assert!(stage.lease.is_lost());
    let turn = stage.turn();
    assert!(matches!(stage.lease.leave(&turn, stage.share), ReleaseAction::Release { .. }));
}

#[test]
fn an_unconfirmed_reentry_does_not_extend_validity_and_is_renewed_at_once() {
    let stage = granted(watched(30_000));
    stage.time_is(15_000);
    let (turn, before) = (stage.turn(), stage.lease.left());
    stage.lease.reentered(&turn, at(15_000), watched(30_000), false).expect("held");
    drop(turn);
    assert_eq!((stage.lease.holds(), stage.lease.left()), (2, before));
    assert_eq!(stage.lease.action(at(15_000)), WatchdogAction::Renew(millis(30_000)));
}

#[test]
fn an_unconfirmed_binding_does_not_extend_validity_and_is_renewed_at_once() {
    let stage = granted(watched(30_000));
    stage.time_is(15_000);
    let (turn, before) = (stage.turn(), stage.lease.left());
    stage.lease.prolonged(&turn, at(15_000), millis(30_000), false, at(15_001));
    assert_eq!(stage.lease.left(), before);
    drop(turn);
    assert_eq!(stage.lease.action(at(15_001)), WatchdogAction::Renew(millis(30_000)));
    stage.lease.prolonged(&stage.turn(), at(15_000), millis(30_000), true, at(15_001));
    assert!(stage.lease.left() > before);
}

#[test]
fn while_a_lock_is_bound_again_the_earlier_session_counts_too() {
    let stage = granted(watched(600_000));
    stage.time_is(15_000);
    let sessions = [20_000, 30_000].map(|until| {
        let belief = Arc::new(Belief::none());
        belief.extend(at(until));
        belief
    });
    for belief in &sessions {
        stage.lease.bind(belief);
        assert_eq!(stage.lease.left(), millis(5_000), "it is bound to the first");
    }
    let [first, second] = sessions;
    assert!(stage.lease.is_bound_to(&second) && !stage.lease.is_bound_to(&first));
    stage.lease.bound_to(&stage.turn(), &second);
    assert_eq!(stage.lease.left(), millis(15_000));
    // A session that the server has forgotten frees no lock.
    second.forgotten();
    first.extend(at(25_000));
    stage.lease.bind(&first);
    assert_eq!(stage.lease.left(), millis(10_000));
}

#[test]
fn a_binding_that_the_server_refused_does_not_limit_the_lease() {
    let stage = granted(watched(600_000));
    let before = stage.lease.left();
    let belief = Arc::new(Belief::none());
    belief.extend(at(20_000));
    stage.lease.bind(&belief);
    assert_eq!(stage.lease.left(), millis(10_000));
    stage.lease.not_bound_to(&stage.turn(), &belief, false);
    assert_eq!(stage.lease.left(), before);
    assert!(!stage.lease.was_bound());
}

/// If the session and the lease have both ended, as after a suspend, the reason is the end of the lease.
#[test]
fn a_bound_lease_is_lost_with_its_session_before_its_own_end() {
    let end = 10_000 + 600_000 - 6_000 - 2 - 500;
    for (time, why) in
        [(20_000, Loss::SessionEnded), (end, Loss::Expired), (610_000, Loss::Expired)]
    {
        let stage = granted(watched(600_000));
        let belief = Arc::new(Belief::none());
        belief.extend(at(20_000));
        stage.lease.bind(&belief);
        stage.time_is(time);
        assert_eq!(stage.lease.why_lost(), Some(why));
    }
}

#[test]
fn a_record_knows_its_guards_and_their_terms() {
    let stage = granted(watched(30_000));
    let lease = &stage.lease;
    let other = lease.reentered(&stage.turn(), at(10_000), fixed(60_000), true).expect("held");
    let term = |share| lease.term(share).map(|term| (term.length, term.watched));
    assert_eq!(term(stage.share), Some((millis(30_000), true)));
    assert_eq!(term(other), Some((millis(60_000), false)));
    assert!(lease.has(stage.share) && lease.has(other) && lease.has_guards());
    assert_eq!(lease.longest(at(10_000)), Some(millis(60_000)));
    lease.abandon(other);
    assert!(lease.has(stage.share) && !lease.has(other) && lease.has_guards());
    assert_eq!(lease.longest(at(10_000)), Some(millis(30_000)));
    lease.abandon(stage.share);
    assert!(!lease.has(stage.share) && !lease.has(other) && !lease.has_guards());
    assert_eq!((lease.longest(at(10_000)), lease.longest_ever()), (None, millis(60_000)));
}

#[test]
fn a_lease_is_bound_until_its_session_ends_or_is_forgotten() {
    let stage = granted(watched(600_000));
    let (lease, own) = (&stage.lease, stage.lease.left());
    assert!(!lease.was_bound() && !lease.is_bound());
    let belief = Arc::new(Belief::none());
    belief.extend(at(20_000));
    lease.bind(&belief);
    assert!(lease.was_bound() && lease.is_bound());
    assert_eq!(lease.left(), millis(10_000));
    stage.time_is(20_000);
    assert!(lease.was_bound() && !lease.is_bound());
    stage.time_is(10_000);
    belief.forgotten();
    assert!(lease.was_bound() && !lease.is_bound());
    assert_eq!(lease.left(), own, "the server does not release it any more");
}

#[test]
fn after_a_stray_command_the_release_is_repeated() {
    for strays in [false, true] {
        let stage = granted(watched(30_000));
        if strays {
            stage.lease.strayed();
        }
        let release = stage.lease.leave(&stage.turn(), stage.share);
        assert!(matches!(release, ReleaseAction::Release { strays: said, .. } if said == strays));
    }
}

#[test]
fn ended_leases_are_removed_while_a_later_one_is_live() {
    let mut leases = Leases::default();
    assert!(!leases.any());
    let stages: Vec<_> = (0..1_000).map(|id| numbered(id, fixed(30_000))).collect();
    stages.iter().for_each(|stage| leases.add(&stage.lease));
    let known = || stages.iter().filter(|stage| Arc::weak_count(&stage.lease) > 0).count();
    let ends = |stage: &Stage| {
        let _release = stage.lease.leave(&stage.turn(), stage.share);
    };
    assert_eq!((leases.any(), leases.iter().count(), known()), (true, 1_000, 1_000));
    let (last, others) = stages.split_last().expect("there are some");
    others.iter().for_each(ends);
    for _ in 0..1_000 / 16 + 1 {
        assert!(leases.any());
    }
    assert_eq!(known(), 1);
    ends(last);
    assert!(!leases.any());
    assert_eq!(known(), 0);
    // One call removes all if none is alive.
    let stages: Vec<_> = (0..1_000).map(|id| numbered(id, fixed(30_000))).collect();
    stages.iter().for_each(|stage| leases.add(&stage.lease));
    stages.iter().for_each(ends);
    assert!(!leases.any() && leases.iter().next().is_none());
}
