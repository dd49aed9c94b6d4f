//! Waiting until a lease is lost, until none of its renewals is in flight, or for the releases of other guards.

use super::{Stage, at, granted, millis, watched};
use crate::wire::loss::Loss;
use futures_util::FutureExt as _;
use std::pin::pin;
use tokio::time::timeout;

fn is_quiet(stage: &Stage) -> bool {
    stage.lease.quiet().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_quiet_if_no_renewal_is_in_flight() {
    let stage = granted(watched(30_000));
    assert!(is_quiet(&stage));
    let renewal = stage.lease.renewing(at(10_000), millis(30_000), 1);
    assert!(!is_quiet(&stage));
    stage.lease.give_up(renewal);
    assert!(is_quiet(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_quiet_while_the_watchdog_is_about_to_send() {
    let stage = granted(watched(30_000));
    stage.lease.take_up(at(20_000)).unwrap();
    assert!(!is_quiet(&stage));
    stage.lease.not_renewed(false, at(20_000));
    assert!(is_quiet(&stage));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_or_released_is_quiet() {
    for lost in [false, true] {
        let stage = granted(watched(30_000));
        stage.lease.renewing(at(10_000), millis(30_000), 1);
        if lost {
            stage.lease.lose(true, Loss::Deleted);
        } else {
            stage.lease.leave(&stage.turn(), stage.share);
        }
        assert!(is_quiet(&stage));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_the_wait_for_a_quiet_lease() {
    let Stage { lease, .. } = granted(watched(30_000));
    let renewals = [1, 2].map(|via| lease.renewing(at(10_000), millis(30_000), via));
    let mut quiet = Box::pin(lease.quiet());
    let [first, second] = renewals;
    lease.refused(first);
    assert!(quiet.as_mut().now_or_never().is_none());
    lease.give_up(second);
    assert!(quiet.now_or_never().is_some());
}

#[test]
fn the_end_of_a_guard_is_noticed() {
    let stage = granted(watched(30_000));
    let ended = || stage.lease.ended(stage.share);
    let mut both = [Box::pin(ended()), Box::pin(ended())];
    both.iter_mut().for_each(|ended| assert_eq!(ended.as_mut().now_or_never(), None));
    stage.lease.abandon(stage.share);
    both.into_iter().for_each(|ended| assert_eq!(ended.now_or_never(), Some(None)));
    assert_eq!(ended().now_or_never(), Some(None));
    stage.lease.lose(false, Loss::Expired);
    assert_eq!(ended().now_or_never(), Some(Some(Loss::Expired)));
}

#[test]
fn the_loss_of_a_lease_is_noticed() {
    let stage = granted(watched(30_000));
    let mut ended = Box::pin(stage.lease.ended(stage.share));
    assert_eq!(ended.as_mut().now_or_never(), None);
    stage.lease.lose(true, Loss::Deleted);
    assert_eq!(ended.now_or_never(), Some(Some(Loss::Deleted)));
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_guard_comes_after_the_releases_of_others_that_were_dropped() {
    let stage = granted(watched(30_000));
    let inner = stage.lease.reentered(&stage.turn(), at(10_000), watched(30_000), true).unwrap();
    assert!(stage.lease.turn_after_releases(stage.share).now_or_never().is_some(), "both exist");
    stage.lease.abandon(inner);
    assert!(stage.lease.turn_after_releases(inner).now_or_never().is_some(), "its own release");
    {
        let mut turn = pin!(stage.lease.turn_after_releases(stage.share));
        assert!((&mut turn).now_or_never().is_none());
        stage.lease.leave(&stage.turn(), inner);
        assert!(turn.now_or_never().is_some(), "it is released");
    }
    let inner = stage.lease.reentered(&stage.turn(), at(10_000), watched(30_000), true).unwrap();
    stage.lease.abandon(inner);
    {
        let mut turn = pin!(stage.lease.turn_after_releases(stage.share));
        assert!(timeout(millis(10_000), &mut turn).await.is_err());
        assert!(timeout(millis(30_000), turn).await.is_ok(), "the lease has ended");
    }
    stage.lease.lose(true, Loss::Deleted);
    assert!(stage.lease.turn_after_releases(stage.share).now_or_never().is_some(), "lost");
}
