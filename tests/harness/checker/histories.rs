//! Tests the verdict of the checker on each history in `histories.txt`, and the speed of the checker.

use super::{Limits, Rule, check, never};
use crate::history::{Call, Outcome, Request};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_millis(50);
const LIMITS: Limits = Limits { slack: ms(2), prompt: ms(20), left_free: never };

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn times(word: &str) -> (Duration, Duration) {
    let (from, to) = word.split_once('-').unwrap_or_else(|| panic!("{word} are no times"));
    (ms(number(from)), ms(number(to)))
}

/// Parses a call in the format of `histories.txt`.
fn call(text: &str) -> Call {
    let mut words = text.split_whitespace().peekable();
    let mut word = || words.next().unwrap_or_else(|| panic!("{text}: something is missing"));
    let (owner, (sent, at), what) = (word(), times(word()), word());
    let waits = what == "await" || what.starts_with("wait");
    let lease = text.split_whitespace().skip_while(|word| *word != "lease").nth(1);
    let lease = lease.map_or(LEASE, |lease| ms(number(lease)));
    let timeout = waits.then_some(TIMEOUT);
    let request = match what {
        "acquire" | "wait" => Request::Acquire { lease, timeout },
        "share" | "wait-share" => Request::Share { lease, timeout },
        "take" | "wait-take" => Request::Permits { of: 3, lease, timeout },
        "foreign" => Request::Foreign { lease },
        "release" => Request::Release,
        "unshare" => Request::ReleaseShare,
        "give" => Request::ReleasePermits,
        "renew" => Request::Renew { lease },
        "break" => Request::Break,
        "set" => Request::SetLatch { count: number(word()) },
        "count" => Request::CountDown,
        "await" => Request::AwaitLatch { timeout: TIMEOUT },
        other => panic!("{text}: {other}"),
    };
    let granted = |word: &str| {
        let (token, holds) = word.split_once('x').unwrap_or((word, "1"));
        Outcome::Granted { token: number(token), holds: number(holds) }
    };
    let said = |word: &&str| {
        ["nil", "withdrawn", "failed", "unknown", "never"].contains(word)
            || word.starts_with(|first: char| first.is_ascii_digit())
    };
    let answer = words.next_if(said);
    let outcome = match (answer, &request) {
        (Some("nil"), _) => Outcome::Refused,
        (Some("withdrawn"), _) => Outcome::Withdrawn,
        (Some("failed"), _) => Outcome::Failed,
        (Some("unknown" | "never"), _) => Outcome::Unknown,
        (Some(permits), Request::Permits { .. }) => Outcome::Holds { permits: number(permits) },
        (
            left,
            Request::Release | Request::ReleaseShare | Request::ReleasePermits | Request::CountDown,
        ) => Outcome::Released { left: left.map_or(0, number) },
        (Some(token), _) => granted(token),
        (None, _) => Outcome::Done,
    };
    let mut call = Call::new(("k", owner), request, sent, (at, outcome));
    call.answer.take_if(|_| answer == Some("never"));
    call.queued = waits.then_some(sent + ms(2));
    while let Some(what) = words.next() {
        let word = words.next().unwrap_or_else(|| panic!("{text}: {what} what?"));
        match what {
            "believes" => call.valid_until = Some(ms(number(word))),
            "queued" => call.queued = Some(ms(number(word))),
            "until" => call.in_line_at = Some(ms(number(word))),
            "away" => call.away.push(times(word)),
            "of" => word.clone_into(&mut call.key),
            "lease" => {}
            other => panic!("{text}: {other}"),
        }
    }
    call
}

#[test]
fn each_history_breaks_the_rules_that_it_was_made_for_and_no_others() {
    let text: Vec<_> = include_str!("histories.txt").lines().collect();
    let lines = text.split(|line| line.starts_with('#') || line.is_empty()).flat_map(|lines| {
        let begins = |_: &&str, next: &&str| next.starts_with(' ');
        lines.chunk_by(begins).map(|lines| lines.concat())
    });
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for line in lines {
        let (rules, calls) = line.split_once(':').expect("the rules");
        let calls: Vec<_> = calls.split(';').map(call).collect();
        let found = check(&calls, &LIMITS);
        let found: Vec<_> = found.iter().map(|it| format!("{:?}", it.rule)).collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join(" ") };
        if found != rules {
            wrong.push(format!("{found}, and not {line}"));
        }
        seen.extend(rules.split(' ').map(str::to_owned));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(seen.len(), Rule::Answered as usize + 2, "nothing, and each rule: {seen:?}");
}

#[test]
fn a_lock_for_which_scripts_listen_may_be_left_to_them_for_a_moment() {
    let limits = Limits { left_free: |key| ms(if key == "heard" { 10 } else { 0 }), ..LIMITS };
    let refused = |key: &str, at: &str| {
        let calls = ["a 0-1 acquire 10", "a 10-11 release", &format!("b {at} acquire nil")];
        check(&calls.map(|it| call(&format!("{it} of {key}"))), &limits).len()
    };
    assert_eq!((refused("heard", "23-24"), refused("heard", "24-25")), (0, 1));
    assert_eq!((refused("other", "13-14"), refused("other", "14-15")), (0, 1));
}

#[test]
fn a_million_calls_are_checked_in_seconds() {
    let mut calls = Vec::new();
    for turn in 0..250_000 {
        let (owner, at) = (format!("o{}", turn % 50), turn * 4);
        let [one, two, three] = [1, 2, 3].map(|after| at + after);
        calls.push(call(&format!("{owner} {at}-{one} wait {turn} queued {at}")));
        calls.push(call(&format!("{owner} {one}-{two} renew")));
        calls.push(call(&format!("nobody {one}-{two} renew nil")));
        calls.push(call(&format!("{owner} {two}-{three} release")));
    }
    // Processor time, because other programs may use the machine.
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let before = used();
    assert!(check(&calls, &LIMITS).is_empty());
    assert!(used() - before < Duration::from_secs(20), "{:?}", used() - before);
}
