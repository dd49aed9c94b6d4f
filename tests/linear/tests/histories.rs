//! Histories of a real server, and what becomes of them when they are spoilt.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "these are tests: a panic is how one fails"
)]

use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Server, checker, cmd, lines};
use kvlock_linear::check;
use porcupine_rs::CheckResult;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);
const CLIENTS: u64 = 8;

/// What clients do on one lock for a while: they wait or try, re-enter, renew, release or let the
/// lease end, and in so many cases of a hundred break off with an answer on its way.
fn history(seed: u64, rounds: usize, breaks: u64) -> Vec<Call> {
    let server = Server::start();
    let (recorder, over) = (Recorder::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (server, recorder, over) = (&server, &recorder, &over);
        let eye = server.connect();
        scope.spawn(move || lines::watch(eye, &["k"], recorder, over));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let random = Random::new(seed).part(client);
                scope.spawn(move || {
                    let connection = server.connect();
                    let owner = format!("o{client}");
                    Client { server, recorder, random, connection, owner, breaks }.work(rounds);
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        over.store(true, Ordering::Relaxed);
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
            let lease = *self.random.pick(&[8, 30, 1_000]);
            let time = Duration::from_millis(lease);
            let timeout = self.random.percent(70).then_some(Duration::from_millis(200));
            let request = Request::Acquire { lease: time, timeout };
            let command = match timeout {
                None => cmd!["LOCK.ACQUIRE", "k", self.owner, lease],
                Some(_) => cmd!["LOCK.WAIT", "k", self.owner, lease, 200],
            };
            let Some(Outcome::Granted { mut holds, .. }) = self.call(request, command) else {
                continue;
            };
            for _ in 0..self.random.below(4) {
                let (request, command) = if self.random.percent(50) {
                    let acquire = Request::Acquire { lease: time, timeout: None };
                    (acquire, cmd!["LOCK.ACQUIRE", "k", self.owner, lease, "HOLDS", holds + 1])
                } else {
                    (Request::Renew { lease: time }, cmd!["LOCK.RENEW", "k", self.owner, lease])
                };
                match self.call(request, command) {
                    Some(Outcome::Granted { holds: now, .. }) => holds = now,
                    Some(Outcome::Done) => {}
                    _ => break,
                }
            }
            if lease == 1_000 || self.random.percent(80) {
                self.call(Request::Release, cmd!["LOCK.RELEASE", "k", self.owner, "ALL"]);
            }
        }
    }

    /// A call; none if the connection was broken off before its answer.
    fn call(&mut self, request: Request, command: Vec<Vec<u8>>) -> Option<Outcome> {
        let call = self.recorder.sent("k", &self.owner, request.clone());
        self.connection.send(command);
        if self.random.percent(self.breaks) {
            let next = self.server.connect();
            std::mem::replace(&mut self.connection, next).reset();
            self.recorder.answered(call, Outcome::Unknown);
            return None;
        }
        let reply = self.connection.receive(PATIENCE).expect("an answer");
        let outcome = Outcome::of(&request, &reply);
        self.recorder.answered(call, outcome);
        Some(outcome)
    }
}

fn verdict(calls: &[Call]) -> CheckResult {
    check(calls, PATIENCE).remove("k").expect("the lock")
}

fn granted(call: &Call) -> Option<u64> {
    match call.answer {
        Some((_, Outcome::Granted { token, holds: 1 })) => Some(token),
        _ => None,
    }
}

#[test]
fn what_a_server_answers_can_be_explained_although_some_answers_are_lost() {
    // Few: what may have happened at any time makes the search long.
    let calls = history(7, 40, 1);
    let unknown = |call: &&Call| matches!(call.answer, Some((_, Outcome::Unknown)));
    let unknown = calls.iter().filter(unknown).count();
    assert!(unknown > 0, "{unknown}");
    println!("{unknown} of which nobody knows");
    explains(&calls);
}

/// Both checkers find nothing.
fn explains(calls: &[Call]) {
    let grants = calls.iter().filter(|call| granted(call).is_some()).count();
    println!("{} calls, {grants} grants", calls.len());
    assert!(grants > 30, "{grants}");
    let prompt = Duration::from_secs(5);
    checker::assert_correct(calls, &checker::Limits { prompt, ..Default::default() });
    assert_eq!(verdict(calls), CheckResult::Ok);
}

#[test]
fn what_a_server_must_not_answer_cannot_be_explained() {
    let calls = history(8, 250, 0);
    explains(&calls);

    // Two grants, one after the other, have each other's tokens.
    let mut tokens: Vec<(u64, usize)> =
        calls.iter().enumerate().filter_map(|(at, call)| Some((granted(call)?, at))).collect();
    tokens.sort_unstable();
    let first = tokens[0];
    let told = calls[first.1].answer.unwrap().0;
    let after = |(_, at): &&(u64, usize)| told < calls[*at].sent;
    let second = *tokens.iter().find(after).expect("one that was asked for after the first");
    let pair = [first, second];
    let mut swapped = calls.clone();
    for ((token, _), (_, at)) in pair.iter().zip(pair.iter().rev()) {
        let (when, _) = swapped[*at].answer.unwrap();
        swapped[*at].answer = Some((when, Outcome::Granted { token: *token, holds: 1 }));
    }
    assert_eq!(verdict(&swapped), CheckResult::Illegal);

    // Somebody else is granted it in the middle of a hold that was released.
    let (hold, release) = held_and_released(&calls);
    let (from, until) = (calls[hold].answer.unwrap().0, calls[release].sent);
    let token = granted(&calls[hold]).unwrap() + 1;
    let moment = |part: u32| from + (until - from) * part / 3;
    let mut twice = calls.clone();
    twice.push(Call {
        owner: "stranger".to_owned(),
        sent: moment(1),
        answer: Some((moment(2), Outcome::Granted { token, holds: 1 })),
        ..calls[hold].clone()
    });
    assert_eq!(verdict(&twice), CheckResult::Illegal);

    // Somebody else releases it, and is told that it did.
    let mut stolen = calls.clone();
    stolen.push(Call {
        owner: "stranger".to_owned(),
        request: Request::Release,
        sent: moment(1),
        answer: Some((moment(2), Outcome::Released { left: 0 })),
        ..calls[hold].clone()
    });
    assert_eq!(verdict(&stolen), CheckResult::Illegal);

    // A stranger takes it and gives it back when all is over, and another one finds it taken.
    let last = calls.iter().map(|call| call.answer.unwrap().0).max().unwrap();
    let largest = calls.iter().filter_map(granted).max().unwrap();
    let later = |ms: u64| last + Duration::from_secs(5) + Duration::from_millis(ms);
    let mut refused = calls.clone();
    let lease = Duration::from_secs(1);
    let acquires = Request::Acquire { lease, timeout: None };
    for (at, owner, request, outcome) in [
        (0, "stranger", acquires.clone(), Outcome::Granted { token: largest + 1, holds: 1 }),
        (20, "stranger", Request::Release, Outcome::Released { left: 0 }),
        (40, "another", acquires, Outcome::Refused),
    ] {
        refused.push(Call {
            owner: owner.to_owned(),
            request,
            sent: later(at),
            answer: Some((later(at + 10), outcome)),
            ..calls[hold].clone()
        });
    }
    assert_eq!(verdict(&refused[..refused.len() - 1]), CheckResult::Ok);
    assert_eq!(verdict(&refused), CheckResult::Illegal);
    let limits = checker::Limits::default();
    let found = checker::check(&refused, &limits);
    assert!(found.iter().any(|violation| violation.rule == checker::Rule::Refusal), "{found:?}");

    // The holder is told that it is not.
    let mut denied = calls.clone();
    denied[release].answer = Some((calls[release].answer.unwrap().0, Outcome::Refused));
    assert_eq!(verdict(&denied), CheckResult::Illegal);
}

/// A grant for long, and the same owner's release of it, with nothing of the owner between.
fn held_and_released(calls: &[Call]) -> (usize, usize) {
    let long = Duration::from_millis(1_000);
    let pairs = calls.iter().enumerate().filter_map(|(at, call)| {
        granted(call)?;
        let of_owner = |(_, next): &(usize, &Call)| next.owner == call.owner;
        let (next, release) = calls.iter().enumerate().skip(at + 1).find(of_owner)?;
        let for_long = matches!(call.request, Request::Acquire { lease, .. } if lease == long);
        let (when, outcome) = release.answer?;
        let soon = when < call.sent + long / 2;
        let done = outcome == Outcome::Released { left: 0 } && for_long && soon;
        done.then_some((at, next))
    });
    pairs.into_iter().next().expect("a hold that was released")
}
