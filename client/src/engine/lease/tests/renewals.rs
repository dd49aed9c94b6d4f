//! The outcomes of renewals.

use super::{at, fixed, granted, millis, watched};
use crate::engine::lease::WatchdogAction;
use crate::wire::error::Error;
use crate::wire::loss::Loss;

const PERIOD: u64 = 30_000;

/// Time for which a holder may rely on a lease of `length` milliseconds from the moment it was requested.
fn counted(length: u64) -> u64 {
    length - length / 100 - 2 - 500
}

fn not_replicated() -> Error {
    Error::NotReplicated { confirmed: 0, wanted: 1 }
}

#[test]
fn a_renewal_starts_only_if_it_is_due() {
    let lease = granted(watched(PERIOD)).lease;
    assert_eq!(lease.take_up(at(11_000)), None);
    lease.hurry(at(11_000));
    assert_eq!(lease.action(at(11_000)), WatchdogAction::Renew(millis(PERIOD)));
    assert_eq!(lease.take_up(at(11_000)), Some(millis(PERIOD)));
    lease.hurry(at(11_000));
    assert_eq!(lease.take_up(at(11_000)), None, "one is in flight");
}

#[test]
fn a_server_that_grants_less_limits_the_lease() {
    let lease = granted(watched(PERIOD)).lease;
    let renewal = lease.renewing(at(12_000), millis(PERIOD), 1);
    let answer = Ok(Some(millis(5_000)));
    lease.answered(renewal, at(12_000), millis(PERIOD), answer, at(12_000)).unwrap();
    assert_eq!(lease.left(), millis(2_000 + counted(5_000)));
}

#[test]
fn the_answer_to_an_earlier_renewal_does_not_shorten_the_lease() {
    let lease = granted(watched(PERIOD)).lease;
    let [first, second] = [12_000, 13_000].map(|sent| lease.renewing(at(sent), millis(PERIOD), 1));
    for (renewal, sent) in [(second, 13_000), (first, 12_000)] {
        let answer = Ok(Some(millis(PERIOD)));
        lease.answered(renewal, at(sent), millis(PERIOD), answer, at(13_000)).unwrap();
    }
    assert_eq!(lease.left(), millis(3_000 + counted(PERIOD)));
}

#[test]
fn the_error_of_a_renewal_is_returned() {
    let lease = granted(watched(PERIOD)).lease;
    for error in [Error::Timeout, not_replicated(), Error::QueueFull] {
        let renewal = lease.renewing(at(12_000), millis(PERIOD), 1);
        let answer = Err(error.clone().into());
        let result = lease.answered(renewal, at(12_000), millis(PERIOD), answer, at(12_000));
        assert_eq!(result.map_err(|error| error.to_string()), Err(error.to_string()));
        assert!(!lease.is_lost());
    }
}

#[test]
fn only_a_renewal_that_may_still_be_executed_limits_later_ones() {
    for (error, counts) in [(Error::Timeout, 2_000), (Error::QueueFull, PERIOD)] {
        let lease = granted(watched(PERIOD)).lease;
        let short = lease.renewing(at(11_000), millis(2_000), 1);
        let answer = Err(error.into());
        let _error = lease.answered(short, at(11_000), millis(2_000), answer, at(11_000));
        // Over another connection, which may be faster.
        let next = lease.renewing(at(11_000), millis(PERIOD), 2);
        lease.renewed(next, at(11_000), millis(PERIOD), at(11_000));
        assert_eq!(lease.left(), millis(1_000 + counted(counts)));
        assert_eq!(lease.late().counts(millis(PERIOD)), millis(counts));
    }
}

#[test]
fn another_record_of_the_owner_counts_with_renewals_in_flight() {
    let lease = granted(watched(PERIOD)).lease;
    lease.renewing(at(11_000), millis(2_000), 1);
    assert_eq!(lease.late().counts(millis(PERIOD)), millis(2_000));
}

#[test]
fn a_failed_renewal_of_a_short_lease_is_tried_again_after_a_part_of_it() {
    let lease = granted(watched(2_400)).lease;
    lease.not_renewed(false, at(10_000));
    assert_eq!(lease.action(at(10_000)), WatchdogAction::Later(at(10_100)));
}

#[test]
fn shortly_before_the_end_renewals_are_tried_more_often() {
    let lease = granted(watched(PERIOD)).lease;
    let end = 10_000 + counted(PERIOD);
    lease.take_up(at(end - 160));
    lease.not_renewed(false, at(end - 160));
    assert_eq!(lease.action(at(end - 160)), WatchdogAction::Later(at(end - 140)));
}

#[test]
fn a_lease_that_ends_after_failed_renewals_is_lost_for_their_reason() {
    let reasons = [
        (vec![not_replicated()], Loss::NotReplicated),
        (vec![not_replicated(), Error::Timeout], Loss::NotReplicated),
        (vec![not_replicated(), Error::QueueFull], Loss::Expired),
        (vec![Error::Timeout], Loss::Expired),
    ];
    for (errors, why) in reasons {
        let stage = granted(fixed(PERIOD));
        errors.iter().for_each(|error| stage.lease.failed(error));
        stage.time_is(50_000);
        assert_eq!(stage.lease.why_lost(), Some(why), "{errors:?}");
    }
}
