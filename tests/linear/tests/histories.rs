//! Histories of a real server, without and with planted errors.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "these are tests: a panic is how one fails"
)]

use harness::checker::{self, Limits, Rule};
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server};
use kvlock_linear::check;
use porcupine_rs::CheckResult;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);
const CLIENTS: u64 = 8;

/// A history of clients on one lock: they wait or try, re-enter, renew, release or let the lease end, whether
/// they hold it or not. In `breaks` percent of the calls they reset the connection before the reply.
fn history(seed: u64, rounds: usize, breaks: u64) -> Vec<Call> {
    let (server, recorder) = (Server::start(), Recorder::new());
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, recorder) = (&server, &recorder);
            let random = Random::new(seed).part(client);
            scope.spawn(move || {
                let (connection, owner) = (server.connect(), format!("o{client}"));
                Client { server, recorder, random, connection, owner, breaks }.work(rounds);
            });
        }
    });
    recorder.calls()
}

struct Client<'a> {
    server: &'a Server,
    recorder: &'a Recorder,
    random: Random,
    connection: Connection,
    owner: String,
    breaks: u64,
}

impl Client<'_> {
    fn work(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let lease = Duration::from_millis(*self.random.pick(&[8, 30, 1_000]));
            let timeout = self.random.percent(70).then_some(Duration::from_millis(200));
            self.call(&Request::Acquire { lease, timeout });
            for _ in 0..self.random.below(4) {
                let requests =
                    [Request::Acquire { lease, timeout: None }, Request::Renew { lease }];
                let request = self.random.pick(&requests);
                self.call(request);
            }
            if lease > Duration::from_millis(30) || self.random.percent(80) {
                while let Some(Outcome::Released { left: 1.. }) = self.call(&Request::Release) {}
            }
        }
    }

    /// Makes a call. `None` if the connection was reset before its reply.
    fn call(&mut self, request: &Request) -> Option<Outcome> {
        if !self.random.percent(self.breaks) {
            return Some(self.recorder.call(&mut self.connection, "k", &self.owner, request));
        }
        let call = self.recorder.sent("k", &self.owner, request.clone());
        self.connection.send(request.command("k", &self.owner));
        std::mem::replace(&mut self.connection, self.server.connect()).reset();
        self.recorder.answered(call, Outcome::Unknown);
        None
    }
}

/// Asserts that both checkers accept a history.
fn explains(calls: &[Call]) {
    let is_grant =
        |call: &&Call| matches!(call.answer, Some((_, Outcome::Granted { holds: 1, .. })));
    let grants = calls.iter().filter(is_grant).count();
    println!("{} calls, {grants} grants", calls.len());
    assert!(grants > 30, "{grants}");
    assert_eq!(check(calls, PATIENCE), CheckResult::Ok);
    let prompt = Duration::from_secs(5);
    checker::assert_correct(calls, &Limits { prompt, ..Limits::default() });
}

#[test]
fn real_histories_are_explained_although_some_replies_are_lost() {
    // Few breaks, because the check of calls with unknown outcomes takes long.
    let calls = history(7, 40, 1);
    let unknown = |call: &&Call| matches!(call.answer, Some((_, Outcome::Unknown)));
    let unknown = calls.iter().filter(unknown).count();
    assert!(unknown > 0, "{unknown}");
    println!("{unknown} of which nobody knows");
    explains(&calls);
}

const ACQUIRE: Request = Request::Acquire { lease: Duration::from_secs(1), timeout: None };
const RELEASED: Outcome = Outcome::Released { left: 0 };

const fn granted(token: u64) -> Outcome {
    Outcome::Granted { token, holds: 1 }
}

/// A planted error: its description, the rule of `harness::checker` that it breaks, and calls to append to a
/// history. The last of these calls has an impossible reply. Tokens are added to the history's largest token.
type Planted = (&'static str, Rule, &'static [(&'static str, Request, Outcome)]);

const PLANTED: &[Planted] = &[
    (
        "two tokens are exchanged",
        Rule::TokenOrder,
        &[
            ("a", ACQUIRE, granted(2)),
            ("a", Request::Release, RELEASED),
            ("b", ACQUIRE, granted(1)),
        ],
    ),
    (
        "a grant in the middle of a hold",
        Rule::Exclusion,
        &[("a", ACQUIRE, granted(1)), ("b", ACQUIRE, granted(2))],
    ),
    (
        "a release by a stranger",
        Rule::Stale,
        &[("a", ACQUIRE, granted(1)), ("b", Request::Release, RELEASED)],
    ),
    (
        "a holder that is denied",
        Rule::Exclusion,
        &[("a", ACQUIRE, granted(1)), ("a", Request::Release, Outcome::Refused)],
    ),
    (
        "a free lock that is refused",
        Rule::Refusal,
        &[
            ("a", ACQUIRE, granted(1)),
            ("a", Request::Release, RELEASED),
            ("b", ACQUIRE, Outcome::Refused),
        ],
    ),
];

#[test]
fn impossible_replies_are_not_explained() {
    let calls = history(8, 250, 0);
    explains(&calls);
    let last = calls.iter().map(|call| call.answer.unwrap().0).max().unwrap();
    let tokens = calls.iter().filter_map(|call| match call.answer {
        Some((_, Outcome::Granted { token, .. })) => Some(token),
        _ => None,
    });
    let largest = tokens.max().unwrap();
    for (what, rule, planted) in PLANTED {
        let mut calls = calls.clone();
        let mut at = last + Duration::from_secs(5);
        for (owner, request, outcome) in *planted {
            assert_eq!(check(&calls, PATIENCE), CheckResult::Ok, "before: {what}");
            let mut outcome = *outcome;
            if let Outcome::Granted { token, .. } = &mut outcome {
                *token += largest;
            }
            let time = Duration::from_millis(10);
            calls.push(Call::new(("k", owner), request.clone(), at, (at + time, outcome)));
            at += 2 * time;
        }
        assert_eq!(check(&calls, PATIENCE), CheckResult::Illegal, "{what}");
        let found = checker::check(&calls, &Limits::default());
        assert!(found.iter().any(|violation| violation.rule == *rule), "{what}: {found:?}");
    }
}
