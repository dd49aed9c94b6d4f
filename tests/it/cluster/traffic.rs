//! Clients that take, renew and give back locks while slots move, and take down what they see.

use super::client::Client;
use harness::history::{Call, Outcome, Recorder, Request};
use harness::random::Random;
use harness::{Connection, Value, lines};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How many clients there are.
const CLIENTS: u64 = 8;

const LEASE: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_millis(400);

/// Runs `disturb` under traffic on these keys; returns all calls.
pub(crate) fn during(keys: &[String], ports: &[u16], disturb: impl FnOnce()) -> Vec<Call> {
    let recorder = Recorder::new();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (recorder, over) = (&recorder, &over);
            scope.spawn(move || work(number, keys, ports, recorder, over));
        }
        for port in ports {
            let (eye, recorder, over) = (Connection::open(*port).unwrap(), &recorder, &over);
            scope.spawn(move || lines::watch(eye, keys, recorder, over));
        }
        // The others end even if this panics.
        let done = End(&over);
        disturb();
        drop(done);
    });
    recorder.calls()
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn work(number: u64, keys: &[String], ports: &[u16], recorder: &Recorder, over: &AtomicBool) {
    let mut random = Random::new(1).part(number);
    let mut client = Client::new(ports);
    let mut turn = 0_u64;
    while !over.load(Ordering::Relaxed) {
        turn += 1;
        // Half of all turns are on the first two keys, so that somebody is waiting.
        let key = if random.percent(50) { &keys[turn as usize % 2] } else { random.pick(keys) };
        let owner = format!("{number}:{turn}");
        let mut worker = Worker { client: &mut client, recorder, key, owner: &owner };
        worker.turn(&mut random);
    }
}

struct Worker<'a> {
    client: &'a mut Client,
    recorder: &'a Recorder,
    key: &'a str,
    owner: &'a str,
}

impl Worker<'_> {
    /// Takes the lock, does something with it, and gives it back or lets it end.
    fn turn(&mut self, random: &mut Random) {
        let timeout = random.percent(70).then_some(TIMEOUT);
        if self.call(&Request::Acquire { lease: LEASE, timeout }).is_nil() {
            return;
        }
        for _ in 0..random.below(3) {
            if self.call(&Request::Renew { lease: LEASE }).is_nil() {
                return;
            }
        }
        if random.percent(97) {
            self.call(&Request::Release);
        }
    }

    /// Every try of a call is one in the history: a redirect is one that was not done.
    fn call(&mut self, request: &Request) -> Value {
        let (key, owner, recorder) = (self.key, self.owner, self.recorder);
        let sent = || recorder.sent(key, owner, request.clone());
        let reply = self.client.call(key, &request.command(key, owner), sent, |call, reply| {
            recorder.answered(call, Outcome::of(request, reply));
        });
        assert!(!reply.is_error(), "{owner} on {key}: {reply}");
        reply
    }
}
