//! Changes of the length and the token of a lease, by `Guard::extend` and `Guard::raise_token`.

use super::{at, fixed, granted, millis, watched};
use crate::engine::lease::WatchdogAction;
use crate::net::replicas::NotRenewed;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply::Token;

#[test]
fn a_shorter_renewal_counts_from_the_time_it_is_sent() {
    let stage = granted(fixed(100_000));
    let length = stage.lease.changing(stage.share, at(10_000), millis(1_000));
    assert_eq!(length, millis(1_000));
    stage.lease.renewing(at(10_000), length, 1);
    // The answer may never arrive.
    assert_eq!(stage.lease.left(), millis(1_000 - 10 - 2 - 250));
}

#[test]
fn overlapping_renewals_in_any_order_are_never_valid_longer_than_granted() {
    let stage = granted(watched(30_000));
    let long = stage.lease.renewing(at(12_000), millis(30_000), 1);
    let length = stage.lease.changing(stage.share, at(12_100), millis(2_000));
    let short = stage.lease.renewing(at(12_100), length, 1);
    let least = 2_000 - 20 - 2 - 500;
    stage.time_is(12_200);
    // The longer renewal was executed before the shorter one, which is still unanswered.
    stage.lease.renewed(long, at(12_000), millis(30_000), at(12_200));
    assert_eq!(stage.lease.left(), millis(least - 100));
    stage.lease.renewed(short, at(12_100), length, at(12_200));
    assert_eq!(stage.lease.left(), millis(least - 100));
    let WatchdogAction::Later(when) = stage.lease.action(at(12_200)) else { panic!("not yet") };
    assert!(when < at(12_100 + 700), "{when:?}");
}

#[test]
fn an_unanswered_longer_lease_does_not_delay_or_change_renewals() {
    let stage = granted(watched(3_000));
    let length = stage.lease.changing(stage.share, at(10_500), millis(60_000));
    let renewal = stage.lease.renewing(at(10_500), length, 1);
    assert_eq!(stage.lease.longest_ever(), millis(60_000), "the server may have set it");
    // The server may refuse the longer lease.
    assert_eq!(stage.lease.action(at(11_000)), WatchdogAction::Renew(millis(3_000)));
    stage.lease.renewed(renewal, at(10_500), length, at(11_000));
    stage.lease.changed(stage.share, at(10_500), length);
    assert!(matches!(stage.lease.action(at(11_000)), WatchdogAction::Later(_)));
    assert_eq!(stage.lease.action(at(30_500)), WatchdogAction::Renew(millis(60_000)));
}

/// The renewal of the other guard does not know of the longer lease, and the server may have executed it last.
#[test]
fn a_longer_lease_is_requested_again_if_another_renewal_was_sent_after_it() {
    let stage = granted(fixed(30_000));
    let lease = &stage.lease;
    let other = lease.reentered(&stage.turn(), at(10_000), fixed(30_000), true).expect("held");
    let mut sent = Vec::new();
    for (share, moment, wanted) in [(stage.share, 10_500, 60_000), (other, 10_600, 5_000)] {
        let length = lease.changing(share, at(moment), millis(wanted));
        let renewal = lease.renewing(at(moment), length, 1);
        sent.push((share, at(moment), millis(wanted), length, renewal));
    }
    for (share, moment, wanted, length, renewal) in sent {
        lease.renewed(renewal, moment, length, at(10_700));
        lease.changed(share, moment, wanted);
        assert_eq!(lease.action(at(10_700)), WatchdogAction::Renew(millis(59_800)));
    }
    assert!(stage.lease.left() < millis(30_000));
    let again = lease.renewing(at(10_700), millis(59_800), 1);
    lease.renewed(again, at(10_700), millis(59_800), at(10_800));
    assert!(matches!(lease.action(at(10_800)), WatchdogAction::Later(_)));
}

#[test]
fn a_lease_is_not_set_shorter_than_other_guards_request() {
    let stage = granted(watched(30_000));
    let other = stage.lease.reentered(&stage.turn(), at(10_000), watched(20_000), true);
    let other = other.expect("held");
    assert_eq!(stage.lease.changing(stage.share, at(10_500), millis(10_000)), millis(20_000));
    stage.lease.abandon(other);
    assert_eq!(stage.lease.changing(stage.share, at(10_500), millis(10_000)), millis(10_000));
    assert!(
        matches!(stage.lease.action(at(10_500)), WatchdogAction::Later(at) if at <= self::at(13_900))
    );
}

#[test]
fn a_change_that_the_server_refuses_is_forgotten() {
    let stage = granted(watched(30_000));
    let length = stage.lease.changing(stage.share, at(12_000), millis(90_000));
    let renewal = stage.lease.renewing(at(12_000), length, 1);
    stage.lease.refused(renewal);
    assert_eq!(stage.lease.left(), millis(29_198));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(30_000)));
}

#[test]
fn a_shorter_lease_that_the_server_refuses_does_not_shorten_the_lease() {
    for overlaps in [false, true] {
        let stage = granted(watched(30_000));
        let other = overlaps.then(|| stage.lease.renewing(at(11_000), millis(30_000), 1));
        let length = stage.lease.changing(stage.share, at(12_000), millis(1_000));
        let short = stage.lease.renewing(at(12_000), length, 1);
        assert_eq!(stage.lease.left(), millis(2_000 + 1_000 - 10 - 2 - 250), "it may be set");
        if let Some(other) = other {
            stage.lease.renewed(other, at(11_000), millis(30_000), at(12_100));
            assert_eq!(stage.lease.left(), millis(2_000 + 1_000 - 10 - 2 - 250));
        }
        stage.lease.refused(short);
        let since = if overlaps { 1_000 } else { 0 };
        assert_eq!(stage.lease.left(), millis(since + 29_198));
        stage.time_is(20_000);
        assert!(!stage.lease.is_lost());
        assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(30_000)));
    }
}

/// The server has answered the renewal that follows the shorter one, so it may have executed the shorter one.
#[test]
fn a_refusal_does_not_give_back_what_an_earlier_renewal_may_have_shortened() {
    let stage = granted(watched(30_000));
    let short = stage.lease.renewing(at(11_000), millis(1_000), 1);
    stage.lease.give_up(short);
    for via in [1, 2] {
        let refused = stage.lease.renewing(at(11_100), millis(30_000), via);
        stage.lease.refused(refused);
        assert_eq!(stage.lease.left(), millis(1_000 + 1_000 - 10 - 2 - 250));
    }
}

/// The server may have executed the shorter one last, although it is forgotten before the longer one is answered.
#[test]
fn a_renewal_counts_no_longer_than_one_given_up_over_another_connection() {
    for sent_first in [false, true] {
        let stage = granted(watched(30_000));
        let send = || stage.lease.renewing(at(11_000), millis(30_000), 1);
        let before = sent_first.then(send);
        let short = stage.lease.renewing(at(11_000), millis(1_000), 2);
        stage.lease.give_up(short);
        let long = before.unwrap_or_else(send);
        let refused = stage.lease.renewing(at(11_200), millis(30_000), 2);
        stage.lease.refused(refused);
        stage.lease.renewed(long, at(11_000), millis(30_000), at(11_300));
        assert_eq!(stage.lease.left(), millis(1_000 + 1_000 - 10 - 2 - 250), "{sent_first}");
    }
}

/// The error is that of the command that waits for replicas.
#[test]
fn a_shorter_lease_that_may_be_set_despite_an_error_counts() {
    let stage = granted(watched(30_000));
    let short = stage.lease.renewing(at(11_000), millis(1_000), 1);
    let failed = NotRenewed { error: Error::QueueFull, may_be_executed: true };
    let told = stage.lease.answered(short, at(11_000), millis(1_000), Err(failed), at(11_000));
    assert!(told.is_err());
    assert_eq!(stage.lease.left(), millis(1_000 + 1_000 - 10 - 2 - 250));
}

#[test]
fn a_fixed_lease_ends_when_it_would_have_without_a_refused_change() {
    let stage = granted(fixed(30_000));
    stage.time_is(20_000);
    stage.lease.changing(stage.share, at(20_000), millis(90_000));
    // A check asks for the rest of the lease.
    stage.lease.suspect(Loss::Forced, true, at(20_000));
    assert_eq!(stage.lease.action(at(20_000)), WatchdogAction::Renew(millis(20_000)));
}

#[test]
fn a_grant_with_the_token_of_an_unanswered_renewal_is_that_of_the_lease() {
    let stage = granted(watched(30_000));
    let is_ours = |token: u64| stage.lease.is_ours(Token::from(token));
    assert_eq!([is_ours(0), is_ours(1), is_ours(2), is_ours(9)], [false, true, false, false]);
    stage.lease.renewal(millis(1_000), Some(Token::from(9))).expect("a valid lease");
    assert_eq!([is_ours(1), is_ours(8), stage.lease.token().value() == 1], [true, false, true]);
    assert_eq!([is_ours(9), is_ours(1)], [true, false]);
}

#[test]
fn a_token_is_sent_with_later_renewals_once_the_server_has_raised_it() {
    let stage = granted(watched(30_000));
    let lease = &stage.lease;
    let sends = |raised_to: Option<u64>, token: &str| {
        let command = lease.renewal(millis(1_000), raised_to.map(Token::from));
        let command = command.expect("a valid lease").get_packed_command();
        let command = String::from_utf8(command).expect("a text");
        command.split_once("TOKEN\r\n$1\r\n").map_or("", |(_, token)| token.trim_end()) == token
    };
    assert!(sends(None, "") && sends(Some(7), "7") && sends(None, ""));
    assert_eq!(lease.token(), Token::from(1));
    lease.raised(Token::from(7));
    assert!(sends(None, "7") && sends(Some(6), "7") && sends(Some(9), "9"));
    lease.raised(Token::from(6));
    assert_eq!(lease.token(), Token::from(7));
}
