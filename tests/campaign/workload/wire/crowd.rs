//! A crowd: one session with thousands of waits, in addition to all other clients. The waits end together:
//! granted, timed out, closed, or expired with the session. No wait may get a second outcome, and outcomes
//! must be numbered without a gap. A few of the crowd's locks are in the history.

use super::client::{ANSWER, Client, EXPECTED};
use super::{CALM, KeyKind, Scene};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Value, cmd};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

/// Lower and upper limit of the number of waits of a session.
const WAITS: (u64, u64) = (1_000, 4_000);

/// Number of locks that are in the history.
pub(super) const RECORDED: usize = 6;

/// Number of commands that are sent before their replies are read.
const AT_ONCE: usize = 250;

/// Time to live of the session.
const TTL_MS: u64 = 1_500;

/// Longer than a crowd takes.
const LEASE_MS: u64 = 5_000;

/// Number of reads in a row without an outcome, each as long as a lease, after which outcomes count as
/// missing.
const SILENCE: u32 = 4;

/// Timeout of the waits in a crowd that times out.
const TIMEOUT_MS: u64 = 200;

/// Longest pause between two crowds, in milliseconds.
const PAUSE_MS: u64 = 700;

/// The end of all waits of a crowd.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Granted,
    TimedOut,
    Closed,
    /// Granted. The session is closed in the same packet as the request for its outcomes.
    ReadAndClosed,
    /// The connection breaks, and no client reads the session until it expires.
    LeftAway,
}

const ENDS: [(&str, End); 5] = [
    ("crowds granted", End::Granted),
    ("crowds timed out", End::TimedOut),
    ("crowds closed", End::Closed),
    ("crowds read and closed in one packet", End::ReadAndClosed),
    ("crowds left away", End::LeftAway),
];

type Command = Vec<Vec<u8>>;

/// One wait, and the lock for which it waits.
struct Place {
    key: String,
    owner: String,
    /// `true` if the lock is in the history.
    is_recorded: bool,
    call: Option<CallId>,
    in_line: bool,
    ended: Option<Outcome>,
}

struct Crowd<'a> {
    scene: &'a Scene<'a>,
    client: Client<'a>,
    places: Vec<Place>,
    session: String,
    /// The number of the last outcome that was read.
    last: u64,
}

/// Runs one crowd after another until the round is over.
pub(super) fn work(scene: &Scene<'_>, number: usize, mut random: Random) {
    let crowds = scene.locks.iter().filter(|lock| lock.kind == KeyKind::Crowd);
    let recorded: Vec<&str> = crowds.map(|lock| lock.key.as_str()).collect();
    for turn in 0.. {
        if scene.is_over() {
            return;
        }
        let (what, end) = *random.pick(&ENDS);
        let count = WAITS.0 + random.below(WAITS.1 - WAITS.0);
        let place = |at: u64| {
            let recorded = recorded.get(at as usize);
            Place {
                key: recorded.map_or_else(|| format!("crowd-{number}-{at}"), |it| (*it).to_owned()),
                owner: format!("crowd:{turn}:{at}"),
                is_recorded: recorded.is_some(),
                call: None,
                in_line: false,
                ended: None,
            }
        };
        let mut client = Client::new(scene);
        client.db = CALM;
        let places = (0..count).map(place).collect();
        let mut crowd = Crowd { scene, client, places, session: String::new(), last: 0 };
        let holder = format!("crowd-holder:{turn}");
        if crowd.gather_and_end(&holder, end).is_ok() {
            scene.log.add(what, 1);
        }
        crowd.settle();
        scene.round.turns[number].fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(random.below(PAUSE_MS)));
    }
}

impl Crowd<'_> {
    /// A holder acquires all locks, the crowd queues for them, and all waits end as `end` says.
    fn gather_and_end(&mut self, holder: &str, end: End) -> Result<(), ReceiveError> {
        match self.client.connection().ask(cmd!["SESSION.OPEN", TTL_MS])? {
            Value::Array(opened) => self.session = opened[0].text(),
            refused => return Err(ReceiveError::Malformed(refused.to_string())),
        }
        let takes = Request::Acquire { lease: Duration::from_millis(LEASE_MS), timeout: None };
        self.holder_calls(holder, &takes)?;
        self.wait(if end == End::TimedOut { TIMEOUT_MS } else { 0 })?;
        match end {
            End::Granted => {
                self.holder_calls(holder, &Request::Release)?;
                self.read_all()?;
            }
            End::TimedOut => {
                self.read_all()?;
                self.holder_calls(holder, &Request::Release)?;
            }
            End::Closed => {
                self.close()?;
                self.holder_calls(holder, &Request::Release)?;
            }
            End::ReadAndClosed => {
                self.holder_calls(holder, &Request::Release)?;
                self.read_and_close()?;
            }
            End::LeftAway => {
                let _read = self.read(0)?;
                // The next call uses a new connection.
                self.client.reset();
                self.holder_calls(holder, &Request::Release)?;
            }
        }
        self.use_and_release()?;
        if end != End::LeftAway {
            self.close()?;
        }
        Ok(())
    }

    /// Sends all commands, some at a time, and receives the replies.
    fn all(&mut self, commands: &[Command]) -> Result<Vec<Value>, ReceiveError> {
        let connection = self.client.connection();
        let mut replies = Vec::new();
        for some in commands.chunks(AT_ONCE) {
            connection.send_all(some);
            for _ in some {
                replies.push(connection.receive(ANSWER)?);
            }
        }
        Ok(replies)
    }

    /// Sends a request of the holder for each lock.
    fn holder_calls(&mut self, holder: &str, request: &Request) -> Result<(), ReceiveError> {
        let scene = self.scene;
        let command = |place: &Place| request.command(&place.key, holder);
        let commands: Vec<Command> = self.places.iter().map(command).collect();
        let recorded = self.places.iter().filter(|place| place.is_recorded);
        let sent = |place: &Place| scene.recorder.sent(&place.key, holder, request.clone());
        let calls: Vec<CallId> = recorded.map(sent).collect();
        let replies = self.all(&commands);
        for (number, call) in calls.into_iter().enumerate() {
            let reply = replies.as_ref().ok().map(|replies| &replies[number]);
            let outcome = reply.map_or(Outcome::Unknown, |it| self.client.outcome(request, it));
            scene.recorder.answered(call, outcome);
        }
        replies.map(drop)
    }

    /// Queues the crowd.
    fn wait(&mut self, timeout: u64) -> Result<(), ReceiveError> {
        let scene = self.scene;
        let request = waits(timeout);
        let mut commands = Vec::new();
        for place in &mut self.places {
            let (key, owner) = (&place.key, &place.owner);
            let session = cmd!["SESSION", self.session];
            commands.push([request.command(key, owner), session].concat());
            if place.is_recorded {
                place.call = Some(scene.recorder.sent(key, owner, request.clone()));
            }
        }
        let replies = self.all(&commands)?;
        for (number, reply) in replies.iter().enumerate() {
            let queued = matches!(reply, Value::Array(it) if it[0] == Value::bulk("queued"));
            let place = &mut self.places[number];
            place.in_line = queued;
            if queued {
                place.call.into_iter().for_each(|call| scene.recorder.queued(call));
            } else {
                let outcome = self.client.outcome(&request, reply);
                place.end(scene, outcome);
            }
        }
        let waits = self.places.iter().filter(|place| place.in_line).count() as u64;
        scene.log.add("waits in crowds", waits);
        Ok(())
    }

    /// Reads until each wait has its outcome, the session has ended, or outcomes count as missing.
    fn read_all(&mut self) -> Result<(), ReceiveError> {
        let mut empty = 0;
        while self.places.iter().any(|place| place.in_line) {
            let before = self.last;
            if !self.read(LEASE_MS)? {
                break;
            }
            empty = if self.last > before { 0 } else { empty + 1 };
            if empty == SILENCE {
                self.scene.log.surprise("crowd: waits without an outcome".to_owned());
                break;
            }
        }
        Ok(())
    }

    /// Reads once. Returns false if the reply is an error, as after the end of the session.
    fn read(&mut self, timeout: u64) -> Result<bool, ReceiveError> {
        let reply =
            self.client.connection().ask(cmd!["SESSION.NEXT", self.session, self.last, timeout])?;
        Ok(self.hear(&reply))
    }

    fn read_and_close(&mut self) -> Result<(), ReceiveError> {
        let next = cmd!["SESSION.NEXT", self.session, self.last, 0];
        let close = cmd!["SESSION.CLOSE", self.session];
        let connection = self.client.connection();
        connection.send_all(&[next, close]);
        let reply = connection.receive(ANSWER)?;
        connection.receive(ANSWER)?;
        self.hear(&reply);
        Ok(())
    }

    /// Checks the outcomes in a reply. Returns false if the reply is an error, as after the end of the
    /// session.
    fn hear(&mut self, reply: &Value) -> bool {
        let scene = self.scene;
        let surprise = |what: String| scene.log.surprise(format!("crowd: {what}"));
        let Value::Array(reply) = reply else {
            if !EXPECTED.contains(&reply.code()) {
                surprise(format!("SESSION.NEXT: {reply}"));
            }
            return false;
        };
        for entry in reply[1].elements() {
            let number = entry[0].integer().cast_unsigned();
            if number != self.last + 1 {
                surprise(format!("outcome {number} comes after {}", self.last));
            }
            self.last = number;
            let owner = entry[3].text();
            let at = owner.rsplit(':').next().and_then(|at| at.parse::<usize>().ok());
            let place = at.and_then(|at| self.places.get_mut(at));
            let Some(place) = place.filter(|it| it.owner == owner && it.in_line) else {
                surprise(format!("an outcome without a wait: {entry}"));
                continue;
            };
            place.in_line = false;
            let value = |at: usize| entry[at].integer().cast_unsigned();
            let outcome = match entry[4].text().as_str() {
                "granted" => Outcome::Granted { token: value(5), holds: value(6) },
                "timeout" => Outcome::Refused,
                _ => Outcome::Failed,
            };
            place.end(scene, outcome);
        }
        true
    }

    /// Renews, and then releases, all locks that were granted to the crowd.
    fn use_and_release(&mut self) -> Result<(), ReceiveError> {
        let lease = Duration::from_millis(LEASE_MS);
        for request in [Request::Renew { lease }, Request::Release] {
            let has = |place: &&Place| matches!(place.ended, Some(Outcome::Granted { .. }));
            let granted: Vec<&Place> = self.places.iter().filter(has).collect();
            let command = |place: &&Place| request.command(&place.key, &place.owner);
            let commands: Vec<Command> = granted.iter().map(command).collect();
            let recorded = granted.iter().filter(|place| place.is_recorded);
            let sent = |place: &&Place| {
                self.scene.recorder.sent(&place.key, &place.owner, request.clone())
            };
            let calls: Vec<CallId> = recorded.map(sent).collect();
            let replies = self.all(&commands);
            for (number, call) in calls.into_iter().enumerate() {
                let reply = replies.as_ref().ok().map(|replies| &replies[number]);
                let outcome =
                    reply.map_or(Outcome::Unknown, |it| self.client.outcome(&request, it));
                self.scene.recorder.answered(call, outcome);
            }
            replies?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), ReceiveError> {
        self.client.connection().ask(cmd!["SESSION.CLOSE", self.session]).map(drop)
    }

    /// Records waits without an outcome as unknown.
    fn settle(&mut self) {
        for place in self.places.iter_mut().filter(|place| place.ended.is_none()) {
            place.end(self.scene, Outcome::Unknown);
        }
    }
}

impl Place {
    fn end(&mut self, scene: &Scene<'_>, outcome: Outcome) {
        self.ended = Some(outcome);
        self.call.into_iter().for_each(|call| scene.recorder.answered(call, outcome));
    }
}

fn waits(timeout_ms: u64) -> Request {
    let lease = Duration::from_millis(LEASE_MS);
    Request::Acquire { lease, timeout: Some(Duration::from_millis(timeout_ms)) }
}
